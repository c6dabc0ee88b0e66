"""Where one stretch of talk or work ends and another begins: keyword Jaccard over a sliding window. Pure.

The last interactions are compared with as many before them. Where the two share too few keywords, the boundary stands
before the later ones; it is therefore found a little after it was passed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chatbot.memory.exchanges import without_blocks
from chatbot.memory.redaction import redact
from stores.analysis import terms

_MOST_WORDS = 200
"""Keywords of one interaction: the first ones."""
_LOOKED_AT = 20_000
_LONGEST_WORD = 40
_TOLD = 5
_WORD = re.compile(r"[\w'’]+(?:[-.][\w'’]+)*")


@dataclass(frozen=True, slots=True)
class Interaction:
    """One exchange or tool run: when, and its keywords, stems with the words that they came of."""

    at: datetime
    words: Mapping[str, str]

    @classmethod
    def of(cls, at: datetime, *texts: str) -> Interaction:
        """The interaction that consists of those texts, without secrets: in a word by itself nobody knows one again."""
        words: dict[str, str] = {}
        clean, _ = redact("\n".join(without_blocks(text)[:_LOOKED_AT] for text in texts))
        for word in _WORD.findall(clean):
            for term in terms(word) if len(words) < _MOST_WORDS else ():
                words.setdefault(term, word[:_LONGEST_WORD])
        return cls(at, words)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Something new began at `at`; `about` are its most frequent keywords that did not occur before it."""

    at: datetime
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The last interactions, oldest first."""

    size: int = 3
    threshold: float = 0.06
    interactions: tuple[Interaction, ...] = ()

    def extended(self, interaction: Interaction) -> tuple[Window, Boundary | None]:
        """The window after one more interaction, and the boundary that it reveals, if any."""
        if not interaction.words:
            return self, None
        held = (*self.interactions, interaction)[-2 * self.size :]
        window = Window(self.size, self.threshold, held)
        if len(held) < 2 * self.size:
            return window, None
        before, after = held[: self.size], held[self.size :]
        known = {word for each in before for word in each.words}
        if jaccard(known, {word for each in after for word in each.words}) >= self.threshold:
            return window, None
        return Window(self.size, self.threshold, after), Boundary(after[0].at, _about(after, known))


def jaccard(some: Collection[str], others: Collection[str]) -> float:
    """What two sets share, as a part of what they hold together; 1 for two empty ones."""
    some, others = set(some), set(others)
    return len(some & others) / len(some | others) if some or others else 1.0


def _about(interactions: Sequence[Interaction], known: set[str]) -> tuple[str, ...]:
    counted = Counter(word for each in interactions for word in each.words if word not in known)
    spelled = {term: word for each in reversed(interactions) for term, word in each.words.items()}
    return tuple(dict.fromkeys(spelled[term] for term, _ in counted.most_common(_TOLD)))
