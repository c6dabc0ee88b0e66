"""Keeping keys out of what people get to read: a provider's error message may repeat the key that it refused."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MASK = "[redacted]"
_SHORTEST_SECRET = 6
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|ghp|hf|AIza|AKIA)[-_A-Za-z0-9*]{8,}"
    r"|(?<=Bearer )[^\s\"',]+"
    r"|(?<=://)[^\s/@]+:[^\s/@]+(?=@)"
    r"|(?i:(?<=api[_-]key[=:])\s*[^\s\"',&]+)"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and without anything that has the look of a key."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    return _LOOKS_SECRET.sub(_MASK, text)
