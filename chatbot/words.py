"""Words that several rooms read: what tasks and concepts are called, where a sentence ends, and whether a text asks."""

import re
from collections.abc import Iterator
from typing import Literal

TaskStatus = Literal["pending", "in_progress", "completed", "cancelled"]
TaskScope = Literal["user", "agent", "collaborative"]
Priority = Literal["high", "normal", "low"]
CONCEPTS = ("how-it-works", "why-it-exists", "what-changed", "problem-solution", "gotcha", "pattern", "trade-off")
"""Kinds of knowledge by which memories can be found."""

_ABBREVIATED = re.compile(
    r"\b(?:St|Mr|Mrs|Ms|Dr|Prof|Jr|Sr|vs|etc|e\.g|i\.e|approx|no|[A-Z]|(?:[A-Z]\.)+[A-Z]|Ave|Rd|Mt|Ft|Sgt|Lt|Col)\.$"
)


def sentences(text: str, end: re.Pattern[str]) -> Iterator[str]:
    """Parts of a text between matches of `end`. After an abbreviation, such as "Dr.", only the end of a line counts."""
    begin = 0
    for found in end.finditer(text):
        if not _ABBREVIATED.search(text[begin : found.start()]) or "\n" in found[0]:
            yield text[begin : found.start()].strip()
            begin = found.end()
    yield text[begin:].strip()


def asks(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？", "؟"))
