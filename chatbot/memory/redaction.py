"""Secrets are taken out of what is to be remembered before any of it reaches the disk.

What counts as a secret is told by the rules of gitleaks, as the package secretscreen carries them: some two hundred
formats of keys and tokens. A rule is tried where one of its keywords occurs, and compiled when it is first tried.
"""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@]+):([^\s/@]+)(?=@)")
_LABELLED = re.compile(
    r"""(?i)((?:password|passwd|passphrase|pwd)["']?\s*[:=]\s*["']?)(?=[^\s"',;]*[\d!@#$%^&*?])[^\s"',;]{4,}"""
)
_WORTH_A_LOOK = re.compile(r"(?<!\S)(?=\S*\d)\S{10,}|-----|curl", re.IGNORECASE)
"""What every secret that the rules know holds, and few sentences do: it spares those the search for keywords."""
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_UNPORTABLE = {"(?i)": "", r"\z": r"\Z"}

Value = TypeVar("Value")


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with `[redacted: kind]` in the place of each secret, and the kinds that were found.

    A text in which a secret is interspersed with invisible characters loses them: when it is kept, some of them go.
    """
    if (plain := _INVISIBLE.sub("", text)) != text:
        found, kinds = _redact(plain)
        return (found, kinds) if kinds else (text, ())
    return _redact(text)


def _redact(text: str) -> tuple[str, tuple[str, ...]]:
    if len(text) < 8:
        return text, ()
    kinds: list[str] = []
    if "://" in text:
        text, count = _URL_PASSWORD.subn(r"\1:[redacted: url-password]", text)
        kinds += ["url-password"] * bool(count)
    lowered = text.lower()
    if "pass" in lowered or "pwd" in lowered:
        text, count = _LABELLED.subn(r"\1[redacted: password]", text)
        kinds += ["password"] * bool(count)
    if not _WORTH_A_LOOK.search(text):
        return text, tuple(kinds)
    present = {keyword for keyword in _keywords() if keyword in lowered}
    for rule in _rules() if present else ():
        if not present.isdisjoint(rule.keywords) and (secrets := rule.find(text)):
            kinds.append(rule.id)
            for secret in sorted(secrets, key=len, reverse=True):
                text = text.replace(secret, f"[redacted: {rule.id}]")
    return text, tuple(dict.fromkeys(kinds))


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


class _Rule:
    """One rule of gitleaks."""

    def __init__(self, written: Mapping[str, Any]) -> None:
        self.id: str = written["id"]
        self.keywords = frozenset(map(str.lower, written.get("keywords", ())))
        self._source: str = written["regex"]
        self._entropy: float = written.get("entropy", 0)
        self._group: int = written.get("secretGroup", 0)
        allowed: list[Mapping[str, Any]] = written.get("allowlists", [])
        self._stop_words = [word.lower() for each in allowed for word in each.get("stopwords", ())]
        self._pattern: re.Pattern[str] | None = None

    def find(self, text: str) -> set[str]:
        """The secrets in the text."""
        if self._pattern is None:
            self._pattern = _compiled(self._source)
        found = (self._secret(match) for match in self._pattern.finditer(text))
        return {secret for secret in found if secret and self._is_likely(secret)}

    def _secret(self, match: re.Match[str]) -> str:
        if self._group:
            return match[self._group] or ""
        return next((group for group in match.groups() if group), match[0])

    def _is_likely(self, secret: str) -> bool:
        lowered = secret.lower()
        return _entropy(secret) >= self._entropy and not any(word in lowered for word in self._stop_words)


@cache
def _rules() -> tuple[_Rule, ...]:
    written = tomllib.loads(files("secretscreen").joinpath("gitleaks.toml").read_text("utf-8"))["rules"]
    return tuple(_Rule(rule) for rule in written if rule.get("regex") and rule.get("keywords"))


@cache
def _keywords() -> frozenset[str]:
    return frozenset().union(*(rule.keywords for rule in _rules()))


def _compiled(source: str) -> re.Pattern[str]:
    """A pattern in the dialect of Go, compiled in ours."""
    flags = re.IGNORECASE if "(?i)" in source else 0
    for theirs, ours in _UNPORTABLE.items():
        source = source.replace(theirs, ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(source, flags)


def _entropy(text: str) -> float:
    """Shannon's entropy of the characters, in bits."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
