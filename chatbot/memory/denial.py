"""Negation in a text: the words under it, so that a statement is never taken for its denial. Pure.

By rule, in the languages below, and rather too often than too seldom: two texts that deny different things merely count
as different.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from chatbot.stores.text.analysis import terms

_LOOKED_AT = 20_000
_REACH = 4
"""Number of topical words under a negation."""
_WORDS = (
    r"not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|\w+n['’]t|"
    r"(?:do|does|did|is|are|was|were|have|has|had|would|should|could|ca|wo|must|need)nt|"
    r"stopped|stop|quit|quits|gave up|given up|used to|ceased|former(?:ly)?|ex|"
    r"instead of|rather than|false|untrue|wrong|hardly|unable|refus\w+|denie[sd]|deny|lack\w*|"
    r"nicht|kein|keine[mnrs]?|nie|niemals|nirgends|ohne|weder|"
    r"ne|pas|jamais|aucune?|rien|sans|plus|"
    r"nunca|jam[aá]s|ning[uú]n[ao]?|nada|sin|tampoco|"
    r"não|nenhuma?|sem|nem|non|mai|nessun[ao]?|senza|"
    r"niet|geen|nooit|zonder|nie|bez|не|нет|никогда|без|inte|aldrig|utan|ikke|aldri"
)
_NEGATION = re.compile(
    rf"(?<!\w)(?:{_WORDS})(?!\w)|[不没沒未無无非]|ない|ません|なかった|아니|않|안\s|못", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"[.!?;:。！？；\n]+(?:\s|$)|[。！？；\n]|,\s+(?=but\b|and\b|aber\b|sondern\b|mais\b|pero\b|mas\b)"
)
_BEHIND = re.compile(r"ない|ません|なかった|않|\b(?:nicht|niet|false|untrue|wrong)\b", re.IGNORECASE)
"""Negations that stand behind what they are about, in part."""

_WHEN = re.compile(
    r"\b(?:today|tonight|yesterday|tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|"
    r"(?:this|last|next) \w+|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)

Denials = frozenset[str]


@lru_cache(maxsize=1_024)
def denials(text: str) -> Denials:
    """The terms that the text denies; a bare negation, such as "No!", denies the empty term."""
    found: set[str] = set()
    for clause in _CLAUSE.split(text[:_LOOKED_AT]):
        for negation in _NEGATION.finditer(clause or ""):
            about = list(islice(terms(clause[negation.end() :]), _REACH))
            if not about or _BEHIND.fullmatch(negation[0]):
                about += terms(clause[: negation.start()])[-_REACH:]
            found.update(about or ("",))
    return frozenset(found)


def contradict(one: str, other: str) -> bool:
    """Return whether two texts may be a statement and its denial: one denies a word that the other uses."""
    denied, also = denials(one), denials(other)
    if denied == also:
        return False
    return not (denied ^ also).isdisjoint({*terms(one)} & {*terms(other)} | {""})


def takes_back(one: str, other: str) -> bool:
    """Return whether one text may deny the other: they contradict each other, and not of different times."""
    return contradict(one, other) and not _at_other_times(one, other)


def _at_other_times(one: str, other: str) -> bool:
    """Return whether both name a time, and no time that the other names."""
    first, second = ({each.casefold() for each in _WHEN.findall(text)} for text in (one, other))
    return bool(first and second) and first.isdisjoint(second)
