"""Secrets are taken out of what is to be remembered before any of it reaches the disk: see `secret_rules`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from chatbot.memory.secret_rules import candidates

_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@]*):([^\s/]+)(?=@)")
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
    """The text with the mark wherever the secret stands; within another word a short one is not meant."""
    if len(secret) >= _SURELY_MEANT:
        return text.replace(secret, mark)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: mark, text)


def redact_all(value: Value) -> tuple[Value, tuple[str, ...]]:
    """The same for every text in a value made of mappings, lists and texts, the keys of mappings included."""
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
