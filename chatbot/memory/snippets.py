"""The line of a text that answers best, and where in it the words stand that were asked for. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from chatbot.stores.text.analysis import terms

Range = tuple[int, int]
"""Begin and end of a match, in characters."""

LONGEST = 240
_WORD = re.compile(r"\w+(?:['’.:/\\@&_-]+\w+)*(?:\+\+|#)?|[^\w\s\x00-\x7f]+")
_LINES_LOOKED_AT = 2_000


def snippet(text: str, wanted: Collection[str], *, longest: int = LONGEST) -> tuple[str, tuple[Range, ...]]:
    """The line that holds most of the wanted terms, the first of several, cut to `longest`; and where they stand."""
    asked = set(wanted)
    lines = [line.strip() for line in text.splitlines()[:_LINES_LOOKED_AT] if line.strip()]
    line = max(lines, key=lambda line: len(asked & set(terms(line))), default="")
    found = tuple(_merged(_ranges(line, asked)))
    return _cut(line, found, longest)


def _ranges(line: str, asked: set[str]) -> Iterator[Range]:
    for word in _WORD.finditer(line):
        if asked.isdisjoint(terms(word[0])):
            continue
        signs = [place for place, char in enumerate(word[0], word.start()) if not char.isascii() and char in asked]
        if signs:  # of a script without spaces, the word is the whole sentence
            yield from ((place, place + 1) for place in signs)
        else:
            yield word.span()


def _merged(ranges: Iterator[Range]) -> Iterator[Range]:
    last: Range | None = None
    for begin, end in ranges:
        if last is not None and last[1] == begin:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (begin, end)
    if last is not None:
        yield last


def _cut(line: str, found: tuple[Range, ...], longest: int) -> tuple[str, tuple[Range, ...]]:
    if len(line) <= longest:
        return line, found
    begin = max(0, min((found[0][0] if found else 0) - longest // 3, len(line) - longest))
    end = begin + longest
    before, after = "…" * (begin > 0), "…" * (end < len(line))
    shift = len(before) - begin
    kept = tuple((start + shift, min(stop, end) + shift) for start, stop in found if begin <= start < end)
    return f"{before}{line[begin:end]}{after}", kept
