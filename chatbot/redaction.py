"""Redaction of secrets in texts, for memories before they are written and for errors of providers.

All rules are in `secret_rules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from chatbot.secret_rules import KEY_PREFIXES, candidates

_MASK = "[redacted]"
_SHORTEST_SECRET = 6
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@]*):([^\s/]+)(?=@)")
_NAMED = re.compile(
    r"(?:(?i:(?<=bearer )|(?<=basic ))(?!\[redacted)[^\s\"',]+"
    r"|(?i:(?<=key=)|(?<=token=)|(?<=api_key:)|(?<=api-key:))\s*(?!\[redacted)[^\s\"',&]+)"
)
"""Words before a secret of any form."""
_BEGINS_LIKE_A_KEY = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, KEY_PREFIXES))})(?=[\w.-]*[\d*])[\w.*-]{{8,}}"  # short, or masked in part
    r"|(?<![\w-])[\w-]{2,}\*{3,}[\w*-]*"
)
_SURELY_MEANT = 8
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")

Value = TypeVar("Value")


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with `[redacted: kind]` in the place of each secret, and the kinds that were found.

    A text in which a secret is interspersed with invisible characters loses them: when it is kept, some of them go.
    """
    found, kinds = _redact(text)
    if (plain := _INVISIBLE.sub("", found)) != found:
        plain, more = _redact(plain)
        return (plain, tuple(dict.fromkeys(kinds + more))) if more else (found, kinds)
    return found, kinds


def _redact(text: str) -> tuple[str, tuple[str, ...]]:
    if len(text) < 8:
        return text, ()
    kinds: list[str] = []
    if "://" in text:
        text, count = _URL_PASSWORD.subn(r"\1:[redacted: url-password]", text)
        kinds += ["url-password"] * bool(count)
    for rule in candidates(text.lower()):
        if secrets := rule.find(text):
            kinds.append(rule.id)
            for secret in sorted(secrets, key=len, reverse=True):
                text = _without(text, secret, f"[redacted: {rule.id}]")
    return text, tuple(dict.fromkeys(kinds))


def _without(text: str, secret: str, mark: str) -> str:
    """Replace a secret by the mark; a short one is not replaced inside another word."""
    if len(secret) >= _SURELY_MEANT:
        return text.replace(secret, mark)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: mark, text)


def redact_all(value: Value) -> tuple[Value, tuple[str, ...]]:
    """Redact every text in mappings, lists and texts, including keys of mappings."""
    if not _may_hold_any("\n".join(_texts_in(value))):
        return value, ()
    kinds: list[str] = []

    def clean(part: Any) -> Any:
        if isinstance(part, str):
            part, found = redact(part)
            kinds.extend(found)
            return part
        if isinstance(part, Mapping):
            return {clean(key): clean(inner) for key, inner in part.items()}
        return type(part)(map(clean, part)) if isinstance(part, list | tuple) else part

    return clean(value), tuple(dict.fromkeys(kinds))


def _may_hold_any(text: str) -> bool:
    """False where `redact` finds nothing in any line; one look at all texts of a value costs less than one at each."""
    return "://" in text or _INVISIBLE.search(text) is not None or bool(candidates(text.lower()))


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts_in(pair)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_in(each)


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove these secrets in any form, and everything that looks like one.

    For errors and logs, where a wrong redaction costs little: text after `key=` or `Bearer` is removed, too.
    """
    forms = {form for each in secrets for form in (each, quote(each, safe=""), json.dumps(each)[1:-1])}
    for secret in sorted(forms, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    return _NAMED.sub(_MASK, _BEGINS_LIKE_A_KEY.sub(_MASK, redact(text)[0]))
