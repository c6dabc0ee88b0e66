"""Keeping keys out of what people get to read: a provider's error message may repeat the key that it refused."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MASK = "[redacted]"
_SHORTEST_SECRET = 6
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|ghp|gho|hf|AIza|AKIA|eyJ)[-_.A-Za-z0-9*]{8,}"  # the beginnings that providers give to keys
    r"|(?i:(?<=bearer )|(?<=basic ))[^\s\"',]+"
    r"|(?<=://)[^\s/@]+:[^\s/@]+(?=@)"  # user and password of an address
    r"|(?i:(?<=key=)|(?<=token=)|(?<=api_key:)|(?<=api-key:))\s*[^\s\"',&]+"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and without anything that has the look of a key."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    return _LOOKS_SECRET.sub(_MASK, text)
