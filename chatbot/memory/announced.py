"""Changes that a later sentence announces: it says that a thing ended, or has another value now. Pure, by rule.

This asks less of the form of both sentences than `chatbot.memory.changes`: "Our rent is 870 a month" is outdated by
"The landlord put the rent up to 940", and "My dentist is Dr. Petrov" by "Dr. Petrov retired". The later one has to
announce the change in words, and to name the thing. In English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from chatbot.memory.denial import contradict
from chatbot.memory.slot_words import KIN
from chatbot.stores.analysis import terms

_ENDED = re.compile(
    r"\b(?:cancel+ed|retired|resigned|sold|gave up|given up|giving up|broke up|split up|quit|stopped|"
    r"(?:is|are|was) (?:off|over|gone|history)|called off|fell through|died|passed away|closed|ended|no more|no longer|"
    r"sank|threw out|thrown out|got rid of|dropped out|moved away|moved out|left|replaced|gave away|given away)\b",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\b(?:now|nowadays|these days|any ?more|instead|from now on|from (?:this|next) \w+ on|new rule|"
    r"(?:moved|raised|increased|lowered|reduced|halved|doubled|tripled|cut|changed|postponed|rescheduled|shifted|"
    r"switched|promoted|extended|shortened|put|brought|went|gone|go|goes|down|up)\b[^.!?]{0,40}?"
    r"\b(?:up |down |back |forward )?(?:to|from))\b",
    re.IGNORECASE,
)
_BESIDES = re.compile(r"\b(?:also|too|as well|another|besides|in addition|additionally|still|again)\b", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:was|were|had|used to|yesterday|ago|last (?:year|month|week|night)|went|visited|bought|met|saw|ran|flew|paid|"
    r"watched|took|got|turned)\b",
    re.IGNORECASE,
)
_REACH = 3
"""Most words between what ended and the word for its end."""
_NEAR = 0.3
"""The share of its topics that the shorter one of two sentences with other values has in common with the longer one."""
_DENIED = 0.6
"""The same of a sentence and its denial."""
_MOST = 0.5
"""The same of what a sentence says and what another says has ended, where no name is among it."""
_COMMON = frozenset(
    terms(
        "day week weekend month year morning evening afternoon night today time lot thing people good one back home "
        "new go live work have get take call name little big cost pay need want start begin end open close meet leave "
        "use buy make say tell know think like"
    )
)
"""Terms that two sentences may share without being about the same thing."""
_KIN = re.compile(rf"\b(?:my|our|his|her|their)\s+(?:\w+\s+)?({'|'.join(map(re.escape, KIN))})\b")
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_VALUES = {
    "number": re.compile(rf"\b\d+(?:[.:,]\d+)*|\b(?:{_NUMBERS.replace(' ', '|')})\b", re.IGNORECASE),
    "ordinal": re.compile(rf"\b(?:{_ORDINALS.replace(' ', '|')})\b", re.IGNORECASE),
    "weekday": re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, its words, what it is about, and the numbers and weekdays that it names, by kind."""

    text: str
    words: tuple[str, ...]
    topics: frozenset[str]
    names: frozenset[str]
    """Terms of words with a capital letter inside the sentence."""
    others: frozenset[str]
    """Relatives and animals of the speaker that it names."""
    values: dict[str, frozenset[str]]


@lru_cache(maxsize=4_096)
def sentence(text: str) -> Sentence:
    """Read a sentence."""
    values = {kind: frozenset(each.casefold() for each in found.findall(text)) for kind, found in _VALUES.items()}
    named = {term for held in values.values() for value in held for term in terms(value)}
    return Sentence(
        text=text,
        words=tuple(re.findall(r"[\w'’-]+", text.casefold())),
        topics=frozenset(terms(text)) - _COMMON - named,
        others=frozenset(KIN[each] for each in _KIN.findall(text.casefold())),
        names=frozenset(
            term for word in re.findall(r"(?<=[\w,]\s)[A-Z][\w-]+|[A-Z]\w+(?=\s[A-Z])", text) for term in terms(word)
        ),
        values={kind: held for kind, held in values.items() if held},
    )


def announces(later: Iterable[str], earlier: Iterable[str]) -> bool:
    """Return whether a later sentence announces a change of what an earlier sentence states."""
    old = [sentence(each) for each in earlier if not each.rstrip().endswith("?")]
    new = [sentence(each) for each in later if not each.rstrip().endswith("?")]
    return any(_ends(one, other) or _revalues(one, other) or _denies(one, other) for one in new for other in old)


def _is_of_another(new: Sentence, old: Sentence) -> bool:
    """Return whether one sentence is about a person whom the other does not mention."""
    if not new.others <= old.others:
        return True
    unnamed = old.others - new.others - frozenset(new.words)
    return bool(unnamed) and old.names.isdisjoint(new.topics)


def _ends(new: Sentence, old: Sentence) -> bool:
    """Return whether it says that the other's subject ended: a name of it, or most of it, is next to that word."""
    if _PAST.search(old.text) or _ENDED.search(old.text):
        return False
    for ended in _ENDED.finditer(new.text):
        before = re.findall(r"[\w'’-]+", new.text[: ended.start()])[-_REACH:]
        after = re.findall(r"[\w'’-]+", new.text[ended.end() :])[:_REACH]
        beside = frozenset(terms(" ".join(before))) | frozenset(terms(" ".join(after)))
        shared = beside & old.topics
        if (shared & old.names and new.others <= old.others) or (
            len(shared) >= max(1, _MOST * len(old.topics)) and not _is_of_another(new, old)
        ):
            return True
    return False


def _revalues(new: Sentence, old: Sentence) -> bool:
    """Return whether it announces another number, ordinal or weekday of the other's subject."""
    if not _CHANGED.search(new.text) or _BESIDES.search(new.text) or _PAST.search(old.text):
        return False
    if _is_of_another(new, old):
        return False
    shared = new.topics & old.topics
    if not shared or len(shared) < _NEAR * min(len(new.topics), len(old.topics)):
        return False
    kinds = new.values.keys() & old.values.keys()
    return any(new.values[kind].isdisjoint(old.values[kind]) for kind in kinds)


def _denies(new: Sentence, old: Sentence) -> bool:
    """Return whether it denies the other sentence and repeats most of it."""
    if not old.topics or not contradict(old.text, new.text) or _is_of_another(new, old):
        return False
    if old.names and new.names and old.names.isdisjoint(new.names):
        return False
    return len(new.topics & old.topics) >= max(2, _DENIED * len(old.topics))
