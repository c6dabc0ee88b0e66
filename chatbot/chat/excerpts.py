"""Choose the passages of a long row that answer a question best, in their order.

A passage is a few sentences of one text. It counts by the words of the question that it holds, rare ones more, and a
little by those of the passages beside it. Nothing is added but the marks where something is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chatbot.stores.text.analysis import terms

LEFT_OUT = "…"
_LOOKED_AT = 200_000
"""Characters of a row that are read."""
_LONGEST = 200
"""Characters at which a passage ends with its sentence; one without an end is cut at twice as many."""
_LONGEST_TITLE = 200
_BESIDE = 0.15
_PIECE = re.compile(r"[^\n.!?。！？]*(?:[.!?。！？]+(?=\s|$)|[。！？]|\n+|$|[.!?]+)\s*")

LabelType = TypeVar("LabelType", bound=str)


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of one of the texts, by their number."""

    text: int
    begin: int
    end: int


def question_words(asked: Sequence[str]) -> frozenset[str]:
    """Return the terms that choose passages: of the last message, or of earlier ones where it has none."""
    for text in reversed(asked):
        if found := {*terms(text[:_LOOKED_AT])}:
            return frozenset(found)
    return frozenset()


def excerpt(
    texts: Sequence[tuple[LabelType, str]], words: frozenset[str], most_tokens: int, count: Callable[[str], int]
) -> list[tuple[LabelType, str]]:
    """Return the best passages of labelled texts within `most_tokens`; the beginning where none holds a word.

    A short title comes first. Empty where not even one passage fits.
    """
    kept = [each for each in texts[:1] if each[0] == "title" and len(each[1]) <= _LONGEST_TITLE]
    rest = texts[len(kept) :]
    room = most_tokens - sum(count(f"{label} | {text}\n") for label, text in kept)
    passages = [each for number, (_, text) in enumerate(rest) for each in _passages(number, text[:_LOOKED_AT])]
    chosen: list[Passage] = []
    for passage in _by_worth(passages, rest, words):
        cost = count(rest[passage.text][1][passage.begin : passage.end]) + 4
        if cost <= room:
            room -= cost
            chosen.append(passage)
    if not chosen:
        return []
    return [*kept, *((rest[number][0], text) for number, text in _joined(chosen, [text for _, text in rest]))]


def _passages(number: int, text: str) -> Iterable[Passage]:
    begin = end = 0
    for piece in _PIECE.finditer(text):
        if end > begin and (piece.end() - begin > _LONGEST or text[end - 1] == "\n"):
            yield Passage(number, begin, end)
            begin = end
        end = piece.end()
        while end - begin > 2 * _LONGEST:
            cut = text.rfind(" ", begin + _LONGEST, begin + 2 * _LONGEST) + 1 or begin + 2 * _LONGEST
            yield Passage(number, begin, cut)
            begin = cut
    if end > begin:
        yield Passage(number, begin, end)


def _by_worth(
    passages: Sequence[Passage], texts: Sequence[tuple[str, str]], words: frozenset[str]
) -> Iterable[Passage]:
    """Return the passages that hold a word, or are next to one, best first; all in order where none does."""
    said = [texts[each.text][1][each.begin : each.end] for each in passages]
    held = [words & {*terms(text)} for text in said]
    holders = Counter(word for each in held for word in each)
    own = [sum(math.log1p(len(passages) / holders[word]) for word in each) for each in held]
    around = [0.0, *own, 0.0]
    worth = {passage: own[at] + _BESIDE * (around[at] + around[at + 2]) for at, passage in enumerate(passages)}
    good = [each for each in passages if worth[each] > 0]
    return sorted(good, key=lambda each: -worth[each]) if good else passages


def _joined(chosen: Iterable[Passage], texts: Sequence[str]) -> Iterable[tuple[int, str]]:
    """Each text with what was chosen of it, in order; marks stand where something is left out."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for each in sorted(chosen, key=lambda each: (each.text, each.begin)):
        of_text = spans.setdefault(each.text, [])
        if of_text and of_text[-1][1] == each.begin:
            of_text[-1] = (of_text[-1][0], each.end)
        else:
            of_text.append((each.begin, each.end))
    for number, parts in spans.items():
        text = texts[number]
        before = f"{LEFT_OUT} " if parts[0][0] else ""
        after = f" {LEFT_OUT}" if parts[-1][1] < len(text) else ""
        yield number, before + f"\n{LEFT_OUT} ".join(text[begin:end].strip() for begin, end in parts) + after
