"""Memorability of a text: a score from 0 to 1, and a gate. Pure.

    score = substance x distinctiveness x (1 + salience + weight of the type) / 3

Substance is how much is said, counted in content words without pleasantries; it saturates. Distinctiveness is how much
of it is not known already, salience how much of it is about what is going on. (The four dimensions, the weights of
types and the gate are LetsGo's; the way they are multiplied is ours, so that many words about nothing new, and few
about everything, both stay out.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache

from chatbot.stores.text.analysis import terms

GATE = 0.30
TYPE_WEIGHTS: Mapping[str, float] = {
    "decision": 0.8,
    "discovery": 0.7,
    "bugfix": 0.5,
    "feature": 0.5,
    "refactor": 0.3,
    "change": 0.3,
}
OTHER_TYPE = 0.5
NEUTRAL = 0.5
"""Salience of a text that cannot be compared with anything."""
_PLEASANTRIES = (
    "hi hello hey good morning evening night day thanks thank you bye welcome nice great cool okay fine sure yep yeah"
)
_ASKED_WORDS = 2
_WORDS = 6
"""Number of content words that make a substance of a half: of a message, and of anything else."""
FIRST_PERSON = "i|im|me|mine|my|our|ours|us|we"
"""The words of an expression for who speaks of themselves in English."""
_ABOUT_ONESELF = re.compile(rf"\b(?:{FIRST_PERSON})\b", re.IGNORECASE)
_NUMBER = re.compile(r"[\d.,:/*+^=%-]+")
_OFFER = re.compile(
    r"\W*(?:do you (?:want|need)|would you like|shall (?:i|we)|should (?:i|we)|may i|can i|want me to|anything else"
    r"|how (?:are you|can i help))\b",
    re.IGNORECASE,
)
"""A question about what to do next, or how one is: the answer says nothing that lasts."""
_ERRAND = re.compile(
    r"\W*(?:(?:please|can you|could you|would you|will you)\W+)*"
    r"(?:tell|show|give|write|make|draw|sing|say|translate|repeat|count|calculate|compute|list|continue|go on|stop)\b",
    re.IGNORECASE,
)
_QUESTION_MARKS = ("?", "？")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True)
class Scores:
    """The four dimensions, each from 0 to 1."""

    substance: float
    distinctiveness: float = 1.0
    salience: float = NEUTRAL
    type_weight: float = OTHER_TYPE

    @property
    def total(self) -> float:
        """The memorability, from 0 to 1."""
        return self.substance * self.distinctiveness * (1 + self.salience + self.type_weight) / 3


@dataclass(frozen=True, slots=True)
class Memorability:
    """The gate, and how much each type counts."""

    gate: float = GATE
    type_weights: Mapping[str, float] = field(default_factory=lambda: TYPE_WEIGHTS)

    def of_exchange(self, text: str, reply: str, known: Iterable[str] = (), *, question: str = "") -> Scores:
        """An exchange; `known` are the texts that the prompt held, which a reply to a question may merely repeat.

        `question` is the bot's question that the text answers: a word that answers one says as much as a sentence.
        A reply counts only beside a topic of the user's: an errand such as "tell me a joke" says nothing about anybody.
        """
        asked, answered = _content(text), _content(reply)
        if text and not _is_question(text) and not _OFFER.match(question):
            asked |= _content(question)
        asks, orders = _is_question(text), _ERRAND.match(text) is not None
        states = bool(asked) and not asks and not orders and _ABOUT_ONESELF.search(text) is not None
        topics = sum(not _NUMBER.fullmatch(word) for word in asked)
        says = not (asks or orders)
        replied = len(answered) if says or topics > orders else 0
        measure = max(((len(asked) if says else topics) + states) / _ASKED_WORDS, replied / _WORDS)
        new = _share_unknown(answered, known) if asks and answered else 1.0
        return Scores(saturated(measure), math.sqrt(new))

    def of_text(self, text: str, type_: str, *, known: Iterable[str] = (), about: Collection[str] = ()) -> Scores:
        """Anything else of that type; `about` are the words of what is going on."""
        words = _content(text)
        salience = len(words & set(about)) / len(words) if words and about else NEUTRAL
        new = min((_share_unknown(words, [each]) for each in known), default=1.0)
        weight = self.type_weights.get(type_, OTHER_TYPE)
        return Scores(saturated(len(words) / _WORDS), math.sqrt(new), max(salience, NEUTRAL), weight)

    def passes(self, scores: Scores) -> bool:
        """Return whether the scores reach the gate."""
        return scores.total >= self.gate


def saturated(measure: float) -> float:
    """A share that grows with the measure: a half at 1, towards 1."""
    return 1 - math.exp2(-max(0.0, measure))


def _share_unknown(words: AbstractSet[str], known: Iterable[str]) -> float:
    seen = {word for text in known for word in terms(text)}
    return 1 - len(words & seen) / len(words) if words else 1.0


def _content(text: str) -> AbstractSet[str]:
    """The words with a topic; a sign such as an emoji is found, and yet says nothing that is worth keeping."""
    return {term for term in terms(text) if any(map(str.isalnum, term))} - _pleasantries()


def _is_question(text: str) -> bool:
    """Return whether it only asks: nothing is stated before the question."""
    *before, last = list(filter(None, _SENTENCE_END.split(text.strip()))) or [""]
    said = (each for each in before if not each.endswith(_QUESTION_MARKS))
    return last.endswith(_QUESTION_MARKS) and all(len(_content(each)) < _ASKED_WORDS for each in said)


@cache
def _pleasantries() -> frozenset[str]:
    return frozenset(terms(_PLEASANTRIES))
