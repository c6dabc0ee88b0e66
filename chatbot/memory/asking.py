"""A message as the questions in it and what it says besides, and the vectors to search with.

In a chat a question comes after other lines, and often in the middle of other talk. Words outside of it weigh as those
of earlier messages do, and a vector of all of it leans towards each question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatbot.stores.text.analysis import terms
from chatbot.stores.vectors import Vector, unit

if TYPE_CHECKING:
    from chatbot.memory.meaning import Meaning

_SENTENCE_END = re.compile(r"(?<=[。！？；\n])(?![!?！？])\s*|(?<=[!?])\s+|(?<=\w{4}\.)\s+")
"""The end of a sentence. A short word before the full stop may be an abbreviation."""
_MOST = 3
"""Most questions of one message that get a vector, the last ones."""
_LINES = 3
"""Number of last lines that form one question to the embedder."""
_LEANING = 3.0
"""Weight of a question in its vector, relative to all lines."""


def parted(text: str) -> tuple[str, list[str]]:
    """Return what a message says besides its questions, and these, which end with a question mark."""
    sentences = [each.strip() for each in _SENTENCE_END.split(text) if each.strip()]
    questions = [each for each in sentences if each.endswith(("?", "？"))]
    return " ".join(each for each in sentences if each not in questions), questions


def only_asks(text: str) -> bool:
    """Return whether the text is nothing but questions."""
    besides, questions = parted(text)
    return bool(questions) and not besides


async def vectors_of(meaning: Meaning, asked: Sequence[Sequence[str]]) -> list[list[Vector]]:
    """Return the vectors to search with for the last of each lines, all made in one call."""
    wholes = ["\n".join(lines[-_LINES:]) for lines in asked]
    parts = [_questions(lines[-1], whole) if lines else [] for lines, whole in zip(asked, wholes, strict=True)]
    texts = list(dict.fromkeys([*wholes, *(part for each in parts for part in each)]))
    made = dict(zip(texts, await meaning.questions_of(texts), strict=True))
    return [
        [vector for part in each for vector in _leaning(made[whole], made[part])] or made[whole]
        for whole, each in zip(wholes, parts, strict=True)
    ]


def _questions(message: str, whole: str) -> list[str]:
    """Return the questions that get a vector of their own: those with a topic, unless one is all there is."""
    _, questions = parted(message)
    return [each for each in questions if each != whole.strip() and terms(each)][-_MOST:]


def _leaning(whole: Sequence[Vector], part: Sequence[Vector]) -> list[Vector]:
    """Return the vectors of a part, each with a little of the whole in the same encoder's, or its last, vector."""
    around = [*whole, *[whole[-1]] * len(part)] if whole else []
    return [
        unit([_LEANING * own + other for own, other in zip(vector, beside, strict=True)])
        for vector, beside in zip(part, around, strict=False)
    ]
