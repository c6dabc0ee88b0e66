"""How a rule is written.

A phrase is written in words. A space in it stands for anything that is no word between two words, ` ?` for that or
nothing, and `WORDS` for words of any kind, with what follows each: `WORDS{0,3}` for up to three. It matches whole words
in any case; accents make no difference. Each repetition is bounded or cannot match in two ways, so a text takes time
in proportion to its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chatbot.chat.disguises import plain

_WORD = r"(?:[^\W_]{1,60}[\W_]{1,20})"
_SPACE = r"[\W_]{1,40}"
_NO_SPACE = r"[\W_]{0,40}"


class Rule(NamedTuple):
    """One rule: its name in a receipt, and what it looks for."""

    name: str
    pattern: re.Pattern[str]


def phrase(name: str, *patterns: str) -> Rule:
    """A rule about words: one of `patterns` among them."""
    written = plain("|".join(patterns))
    spaced = written.replace("WORDS", _WORD).replace(" ?", _NO_SPACE).replace(" ", _SPACE)
    return Rule(name, re.compile(rf"(?<![^\W_])(?:{spaced})(?![^\W_])", re.IGNORECASE))


def form(name: str, *patterns: str) -> Rule:
    """A rule about signs and words as they stand in a text without width and accents; `…` is `...` there."""
    return Rule(name, re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE))
