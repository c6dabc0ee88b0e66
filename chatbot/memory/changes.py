"""Detection of outdated statements: the later says something else about the same thing. Pure, by rule, in English.

Two statements are about the same thing where they have the same subject and tell the same kind of thing about it ("My
rent is …", "My mum lives in …"). The later one changes the earlier where such a thing has one value at a time, where it
says so ("now", "no longer", "actually", "not ricotta"), or where it denies what was said. What is said of another
person, of another time, or besides, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

from chatbot.memory.announced import KIN, announces, may_change
from chatbot.memory.denial import denials, takes_back
from chatbot.memory.profile_lines import Line
from chatbot.memory.scoring import Nearness, outstanding
from chatbot.stores.access import VISIBILITIES
from chatbot.stores.observation import Observation, is_own
from chatbot.stores.text.analysis import terms

_MOST_WORDS = 30
"""A longer text tells a story: of its clauses none is compared."""
_MOST_CLAUSES = 8
_ALIKE = 0.6
"""The share of the words of the shorter one that a statement and its denial have in common."""
_NEAR = 0.3
"""The same for a statement that says of itself that it changes something."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A statement: whom or what it is about, what kind of thing it tells, and the words that tell it."""

    text: str
    subject: frozenset[str]
    verb: str
    said: frozenset[str]
    """The terms behind the subject."""
    words: frozenset[str]
    """All words after it."""
    changes: bool
    """True if it states that something has changed."""
    adds: bool
    """True if it states something else too."""
    past: bool
    """True if it is about another time than its own."""
    denied: frozenset[str]
    is_someone: bool
    """True if it is about a person, or whatever else has a name, of whom there are many things to tell."""


@dataclass(frozen=True)
class Statement:
    """Everything that a row states; each part is read with its first use, for most are never compared."""

    text: str
    question: str

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """Its clauses that tell a kind of thing of a subject."""
        found = []
        for sentence in self.sentences:
            if not sentence or sentence.rstrip().endswith("?"):
                continue
            for part in _PARTS.split(sentence):
                if (clause := _clause(part, sentence)) is not None:
                    found.append(clause)
                if switched := _SWITCHED.match(part.strip()):
                    found += filter(None, [_clause(f"{switched['what']} changed to {switched['to']}", sentence)])
        return tuple(found[:_MOST_CLAUSES])

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Its sentences, where it is short enough to be about one thing."""
        is_plain = len(self.text.split()) <= _MOST_WORDS
        return tuple(_SENTENCE.split(self.text)[:_MOST_CLAUSES]) if is_plain else ()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row; if uncertain, it announces a change of something similar in meaning."""

    by: Observation
    is_certain: bool


def outdated(
    rows: Sequence[Observation],
    others: Sequence[Observation],
    now: datetime,
    nearness: Nearness,
    *,
    among: Container[str],
) -> dict[str, Change]:
    """The rows that a later one of them or of the others has changed, by id, each with the last one that did.

    Only rows whose ids are `among` those given are judged. Others count for the rows that they are near to. Only the
    same principal changes what was said, and nothing that is dated in the future changes anything.
    """
    told, near_ones = _told_by(rows, now), _told_by(others, now)
    found: dict[str, Change] = {}
    for earlier in (row for row in told if row.id in among):
        near = nearness.get(earlier.id, {})
        later = [*told, *(row for row in near_ones if row.id in near)]
        later = [row for row in later if said_at(row) > said_at(earlier) and _speaks_for(row, earlier)]
        if (change := _last_change(earlier, sorted(later, key=said_at), near)) is not None:
            found[earlier.id] = change
    return {
        old: change for old, change in found.items() if change.is_certain or _is_nearest(old, change, found, nearness)
    }


def outdated_lines(lines: Iterable[Line], rows: Sequence[Observation], now: datetime) -> dict[str, datetime]:
    """The current lines of a profile that a later statement among the rows has changed, by id, with the time of that.

    Such a statement set no other value, or the line would have been replaced.
    """
    told = _told_by(rows, now)
    found: dict[str, datetime] = {}
    for line in lines:
        if line.valid_to is None:
            old = statement(_in_words(line))
            later = [row for row in told if said_at(row) > line.said_at and _speaks_for(row, line.row)]
            if changed := [said_at(row) for row in later if changes(old, _statement(row))]:
                found[line.id] = max(changed)
    return found


def _told_by(rows: Sequence[Observation], now: datetime) -> list[Observation]:
    """The rows that a person stated; none that is dated in the future."""
    return [row for row in rows if spoken(row) and row.created_at <= now]


def _in_words(line: Line) -> str:
    """Return a line as its person would say it."""
    return f"My {line.key} is {line.value}"


def _is_nearest(old: str, change: Change, found: Mapping[str, Change], nearness: Nearness) -> bool:
    """Return whether no other row is what an uncertain change is about: one piece of news changes one thing."""
    by = change.by.id
    own = nearness.get(old, {}).get(by, 0.0)
    others = [(each, new) for each, new in found.items() if each != old and new.by.id == by]
    return all(not new.is_certain and nearness.get(each, {}).get(by, 0.0) <= own for each, new in others)


def _last_change(row: Observation, later: Sequence[Observation], near: Mapping[str, float]) -> Change | None:
    """The last row that certainly changes this one, or else the last that may."""
    old, perhaps = _statement(row), None
    ahead, lead = outstanding(near)
    for each in reversed(later):
        new = _statement(each)
        if changes(old, new):
            return Change(each, is_certain=True)
        if perhaps is None and may_change(new.sentences, old.sentences, lead if each.id == ahead else 0.0):
            perhaps = Change(each, is_certain=False)
    return perhaps


def _statement(row: Observation) -> Statement:
    return statement(spoken(row), _question(row))


def said_at(row: Observation) -> datetime:
    """Time of its last mention."""
    return max(row.created_at, row.last_mentioned_at or row.created_at)


def spoken(row: Observation) -> str:
    """The part of a row that its person stated; empty for what only a bot, a tool or a summary says."""
    if row.type in {"session_summary", "compressed_summary", "technical", "task"}:
        return ""
    return row.user_text if row.type == "exchange" else row.narrative or row.title


def _speaks_for(later: Observation, earlier: Observation) -> bool:
    """Return whether the same person said it, in rows that no wider group could have written in their name."""
    return (
        later.principal == earlier.principal
        and is_own(later)
        and VISIBILITIES.index(later.visibility) <= VISIBILITIES.index(earlier.visibility)
    )


def changes(earlier: Statement, later: Statement) -> bool:
    """Return whether the later statement makes the earlier one outdated."""
    if any(_changes(old, new) for old in earlier.clauses for new in later.clauses):
        return True
    return announces(later.sentences, earlier.sentences)


@lru_cache(maxsize=4_096)
def statement(text: str, question: str = "") -> Statement:
    """Return the clauses and sentences of a text."""
    return Statement(text, question)


# --- clauses ---------------------------------------------------------------------------------------------------------

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|;\s+")
_PARTS = re.compile(
    r",\s+(?:and |but |so )?(?=(?:i|i'm|we|my|our|it|the|he|she|they)\b)|\s(?:and|but)\s(?=(?:i|"
    r"i'm|we|my|our|it|the)\b)|:\s+(?=my\b|the\b|i\b)|"
    r"\b(?:says|said|confirmed|found|told (?:me|us)|tells (?:me|us))(?: that)?\s+(?=(?:i|i'm|we|my|our)\b)",
    re.IGNORECASE,
)
_LEADING = re.compile(
    r"(?:(?:well|so|oh|actually|no wait|no|yes|sorry|oops|hm+|correction|i misspoke|i was wrong|i "
    r"got that wrong|from now on|from (?:this|next) \w+ on|as of (?:now|today)|(?:it )?turns out"
    r"(?: that)?|as i said|since(?: \w+){1,3}?(?=,? (?:i|we|my|our)\b)|"
    r"remember(?: that)?|i checked|update|btw|by the way|not \w+|in fact|and|but|also|now|finally)[\s,.:]+)*",
    re.IGNORECASE,
)
_OWNED = re.compile(
    r"^(?P<whose>(?:my|our|his|her|their|the|this|[A-Z][\w-]+'s)\s+)(?P<rest>.*)$", re.IGNORECASE | re.DOTALL
)
_SELF = re.compile(r"^(?:i|we)(?:'m|'ve|'re|'d|'ll)?\b|^im\b", re.IGNORECASE)
_BE = (
    r"is|are|was|were|isn't|aren't|wasn't|weren't|'s|has been|have been|will be|has|have|had|"
    r"hasn't|haven't|does|doesn't|do|don't|did|"
    r"didn't|can|can't|cannot|never|no longer|still|always|also"
)
_VERB = (
    r"lives?|works?|leaves?|departs?|arrives?|starts?|begins?|opens?|closes?|takes?|costs?|"
    r"weighs?|listens?|comes?|belongs?|studies|"
    r"meets?|needs?|moved|moves|changed|switched|drives?|hurts?|gets?|runs?|uses?|wants?|likes?|"
    r"prefers?|plays?|speaks?|wears?|sleeps?|"
    r"expires?|ends?|sits?|stands?|stays?|goes|drinks?|eats?|snores?|swims?|stopped|quit|left|sold|lost|ate"
)
_SPLIT = re.compile(
    rf"\s*\b(?P<verb>(?:{_BE})\b(?:\s+(?:not|now|still|also|called|named)\b)*|(?:{_VERB})\b)|(?<=\w)(?P<short>'s)\s",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"^(?P<who>(?!(?:It|He|She|They|That|This|These|Those|There|You|Who|What)\b)[A-Z][\w-]+)\s+(?P<rest>(?:{_BE}|{_VERB})\b.*)$",
    re.DOTALL,
)
_MARKS = re.compile(
    r"\b(?:now|no longer|not any ?more|any ?more|instead|switched|changed|moved|gave up|given up|"
    r"quit|stopped|sold|renamed|"
    r"closed|these days|from now on|correction|actually|misspoke|mistyped|mistake|misread|wrong|"
    r"turns out|sorry|oops|in fact|swapped|"
    r"looked it up|checked|not|isn't|after all|(?<!ever )since|finished|retired|left|engaged|"
    r"married|new|my wife says|mix)\b",
    re.IGNORECASE,
)
_ADDS = re.compile(
    r"\b(?:also|too|as well|another|second|other|besides|in addition|additionally|still)\b", re.IGNORECASE
)
_PAST = re.compile(
    r"\b(?:was|were|had|lived|worked|used to|as a child|as a kid|when i was|last (?:year|month|"
    r"week|night|monday|tuesday|wednesday|"
    r"thursday|friday|saturday|sunday)|yesterday|(?:in|on) (?:19|20)\d\d|in school|back then|went|"
    r"visited|bought|met|saw|ran|flew|paid|"
    r"watched|broke|read|slept|felt|finished|ago)\b",
    re.IGNORECASE,
)
_POINTS = re.compile(r"\b(?:it|them|that|those|these|one|any|some|there)\W*$", re.IGNORECASE)
"""The end of a clause whose object another one names: "… so I must never eat it"."""
_PEOPLE = frozenset(term for each in KIN for term in terms(each))
_KINDS = {
    **dict.fromkeys(("live", "lives", "moved", "moves", "reside", "resides"), "home"),
    **dict.fromkeys(("work", "works"), "work"),
    **dict.fromkeys(("is", "are", "'s", "was", "were", "has", "have"), "be"),
}
_ONE_AT_A_TIME = frozenset(
    [
        "be",
        "home",
        "work",
        "leave",
        "leaves",
        "depart",
        "departs",
        "arrive",
        "arrives",
        "start",
        "starts",
        "begin",
        "begins",
        "open",
        "opens",
        "close",
        "closes",
        "take",
        "takes",
        "cost",
        "costs",
        "weigh",
        "weighs",
        "listen",
        "listens",
        "come",
        "comes",
        "belong",
        "belongs",
        "drive",
        "drives",
        "meet",
        "meets",
        "expire",
        "expires",
        "end",
        "ends",
        "sits",
        "sit",
    ]
)
"""Kinds of things that a subject tells one of at a time."""
_OWN_ONE = frozenset(["weigh", "drive", "home"])
"""The same, of what a person tells of themselves: the other things one has or does several of."""
_HAS = re.compile(r"\b(?:has|have)\b(?! been)", re.IGNORECASE)
"""Possession: one has several things at a time, but only one number of each."""
_ENDS = re.compile(
    r"\b(?:no longer|any ?more|instead|switched|changed|moved|gave up|given up|quit|stopped|sold|renamed|closed)\b",
    re.IGNORECASE,
)
_STATUS = frozenset(terms("single engaged married divorced widowed separated"))
_TIMES = frozenset(
    terms(
        "second minute hour day week weekend month year morning evening afternoon night today "
        "yesterday last three two four "
        "five time lot thing people really just well good also one back home new move moved"
    )
)
"""Terms that two statements may share without being about the same thing."""
_FILLING = frozenset(("actually", "now", "the", "a", "an", "really", "just", "then"))
_NEW = frozenset({"new", "current", "now", "still", "actual", "call", "name"})


_SWITCHED = re.compile(
    r"^(?:I|we)(?:'ve| have)?\s+(?:switched|changed|moved|renamed|replaced)\s+(?P<what>(?:my|our)\s+[\w -]{2,40}?)"
    r"\s+(?:to|with|from)\s+(?P<to>.+)",
    re.IGNORECASE | re.DOTALL,
)
""" "I switched my bank to …": about the bank."""


def _clause(part: str, sentence: str) -> Clause | None:
    text = part.strip().replace("’", "'")
    text = text[_LEADING.match(text).end() :] if _LEADING.match(text) else text  # type: ignore[union-attr]
    if not text:
        return None
    subject, verb, rest = _parted(text)
    if subject is None:
        return None
    return Clause(
        text=text,
        subject=subject,
        verb=_KINDS.get(verb, verb),
        said=frozenset(terms(rest)) - _TIMES,
        words=frozenset(re.findall(r"[\w'-]+", rest.lower())) - _FILLING,
        changes=_MARKS.search(sentence) is not None,
        adds=_ADDS.search(text) is not None,
        past=_PAST.search(text) is not None,
        denied=denials(text),
        is_someone=subject - {"my"} <= _PEOPLE or (_OWNED.match(text) is None and subject != {"i"}),
    )


def _parted(text: str) -> tuple[frozenset[str] | None, str, str]:
    """Subject of a clause, its verb, and the text after it."""
    if own := _SELF.match(text):
        rest = text[own.end() :].strip()
        word = re.match(
            r"(?:(?:now|still|also|just|really|always|never|no longer|don't|do not|can|can't|not)\s+)*([\w']+)", rest
        )
        verb = word[1].lower() if word else ""
        return frozenset({"i"}), verb if own[0].lower()[-2:] != "'m" and own[0].lower() != "im" else "am", rest
    if owned := _OWNED.match(text):
        if (split := _SPLIT.search(owned["rest"])) is None or not split.start():
            return None, "", ""
        about = owned["rest"][: split.start()]
        verb = re.split(r"\s", (split["verb"] or split["short"]).strip().lower())[0]
        rest = owned["rest"][split.end("short" if split["short"] else "verb") :]
        names = frozenset(terms(f"{_whose(owned['whose'])} {about}")) | {_whose(owned["whose"])}
        return names - _NEW, verb, _behind(split, rest)
    if named := _NAMED.match(text):
        verb = re.match(r"[\w']+", named["rest"])
        return frozenset({named["who"].casefold()}), verb[0].lower() if verb else "", named["rest"]
    return None, "", ""


def _behind(split: re.Match[str], rest: str) -> str:
    """Return the statement with its negation or verb."""
    verb = (split["verb"] or "").lower()
    return rest if re.fullmatch(rf"(?:{_BE})", verb) else f"{verb} {rest}"


def _whose(word: str) -> str:
    word = word.strip().casefold()
    return {"our": "my", "this": "the"}.get(word, word.removesuffix("'s"))


# --- comparing -------------------------------------------------------------------------------------------------------


def _changes(old: Clause, new: Clause) -> bool:
    if old.subject != new.subject or new.adds or (new.past and not new.changes):
        return False
    own = old.subject == {"i"}
    if (own and _is_of_another_thing(old, new)) or (old.past and not (new.changes and not own)):
        return False
    if _denies(old, new):
        return True
    if old.words <= new.words and not new.denied:
        return False
    if _replaces(old, new, own=own):
        return True
    return new.changes and _is_near(old, new, own=own)


def _is_of_another_thing(old: Clause, new: Clause) -> bool:
    """Return whether what the old clause is about stands elsewhere, and the new one shares a verb with it at most."""
    return _POINTS.search(old.text) is not None and len(old.said & new.said) < 2


def _denies(old: Clause, new: Clause) -> bool:
    if old.denied == new.denied or not takes_back(old.text, new.text):
        return False
    one, other = old.said - _NEW, new.said - _NEW
    return bool(one and other) and len(one & other) >= _ALIKE * min(len(one), len(other))


def _replaces(old: Clause, new: Clause, *, own: bool) -> bool:
    """Return whether the clause gives another value of a thing that has one value at a time."""
    if own:
        return old.verb == new.verb and old.verb in _OWN_ONE and old.said != new.said
    if old.verb == "be" and new.verb == "home":
        return new.changes
    if old.verb != new.verb or old.verb not in _ONE_AT_A_TIME or not old.said or not new.said:
        return False
    if not new.changes and not _tell_alike(old.text, new.text):
        return False
    return len(old.said & new.said) < max(len(old.said), len(new.said))


def _tell_alike(one: str, other: str) -> bool:
    """Return whether two clauses tell a thing of the same kind: where a thing is and how old it is are both so."""
    kinds = _kind_of(one) & _kind_of(other)
    return "number" in kinds if _HAS.search(one) and _HAS.search(other) else bool(kinds)


_TELLS = {
    "place": re.compile(r"\b(?:in|at|on|behind|under|near|above|below|next to|from)\b", re.IGNORECASE),
    "number": re.compile(
        r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|noon|midnight|half|quarter)\b",
        re.IGNORECASE,
    ),
    "doer": re.compile(r"\bby\b", re.IGNORECASE),
}


def _kind_of(text: str) -> frozenset[str]:
    """The kinds of things that a clause tells: a place, a number, who does it; else something of its own."""
    return frozenset(kind for kind, found in _TELLS.items() if found.search(text)) or frozenset({"other"})


def _is_near(old: Clause, new: Clause, *, own: bool) -> bool:
    """Return whether an announced change is on the topic of the old clause, and of something that was said."""
    shared = old.said & new.said
    if not own:
        return bool(shared) or old.verb == new.verb or not (old.is_someone and new.is_someone)
    if not (old.said - _STATUS) and not new.said.isdisjoint(_STATUS):
        return True
    least = _NEAR if old.verb == new.verb or _ENDS.search(new.text) else _ALIKE
    return bool(shared) and len(shared) >= least * min(len(old.said), len(new.said))


def _question(row: Observation) -> str:
    asked = row.metadata.get("question", "") if row.type == "exchange" else ""
    return asked if isinstance(asked, str) else ""


def newest(rows: Iterable[Observation]) -> Observation:
    """The row that was said last."""
    return max(rows, key=lambda row: (said_at(row), row.id))
