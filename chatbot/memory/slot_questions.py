"""Slots that a question asks for, or that an answer to the bot's own question fills. Pure, by rule, in English."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from chatbot.memory.slot_values import (
    allergens_in,
    date_in,
    email_in,
    job_in,
    languages_in,
    name_in,
    org_in,
    phone_in,
    place_in,
)
from chatbot.memory.slot_words import KIN


def asked_slots(question: str) -> list[str]:
    """The slots that a question, of the person or of the bot, is about."""
    return [slot for slot, about in _ABOUT.items() if about.search(question)] + [
        KIN[noun] for noun in re.findall(r"[\w-]+", question.lower()) if noun in KIN
    ]


_ABOUT = {
    "name": re.compile(
        r"\b(?:what(?:'s| is)|tell me) (?:your|my) (?:full )?name\b|\bmy name\b|who am i\b", re.IGNORECASE
    ),
    "nickname": re.compile(
        r"\bwhat (?:should|shall|can|may|do) (?:i|you|people|we) call (?:you|me)\b|nickname|\bmy name\b|who am i\b",
        re.IGNORECASE,
    ),
    "phone": re.compile(
        r"\b(?:phone|mobile|cell)\b|\bnumber to reach (?:you|me)\b|\bnumber (?:to )?call\b", re.IGNORECASE
    ),
    "email": re.compile(r"\be-?mail\b", re.IGNORECASE),
    "birthday": re.compile(
        r"\b(?:your|my) birthday\b|\bwhen (?:were|was) (?:you|i) born\b|\bhow old am i\b|\bmy age\b", re.IGNORECASE
    ),
    "home": re.compile(
        r"\bwhere (?:do|did|am|are|have|is|was|were) (?:you|i|we|my home)\b.{0,20}\b(?:live|lived|"
        r"living|based|reside|home|from)\b|"
        r"\bwhich (?:city|town|country) (?:are|am|do|did) (?:you|i)\b|\b(?:my|your) (?:city|address|home ?town|home)\b|"
        r"\bnear me\b|\blive\b",
        re.IGNORECASE,
    ),
    "job": re.compile(
        r"\bwhat do (?:you|i) do (?:for (?:work|a living))\b|\b(?:your|my) (?:job|occupation|"
        r"profession|work|career)\b|\bdo i work as\b",
        re.IGNORECASE,
    ),
    "employer": re.compile(
        r"\bwhere (?:do|did|am|are) (?:you|i) work\w*\b|\b(?:your|my) (?:employer|company|job|"
        r"work|office)\b|\bwork (?:at|for)\b",
        re.IGNORECASE,
    ),
    "allergy": re.compile(
        r"\ballerg|\bintoleran|\b(?:can|should) i(?:n't|not)? eat\b|\brecipe|\bcook\b|"
        r"\brestaurant|\bdinner\b|\blunch\b|\bmeal\b|\bsnack",
        re.IGNORECASE,
    ),
    "speaks": re.compile(r"\b(?:languages?|mother tongue|speak)\b", re.IGNORECASE),
    "learns": re.compile(r"\blanguages?\b|\blearn\w*\b|\bstudy\w*\b", re.IGNORECASE),
}
_YOURS = re.compile(r"\b(?:you|your|yours)\b", re.IGNORECASE)
_OF_ANOTHER = re.compile(r"\byour [\w-]+(?:'s|’s)\b", re.IGNORECASE)
_BEGIN = re.compile(
    r"(?:(?:yes|yeah|yep|sure|oh|well|it's|it is|that's|i'm|i am|i'm called|in|at|to|only|just|"
    r"still|the|she's called|he's called|"
    r"they're called|called|she is|he is|by|for|of course|i live in|mostly|a|an)[\s,.:!]+)*",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\b(?:not|no|none|never|don't|rather|why|nowhere|isn't|sister|brother|mother|father|wife|husband)\b", re.IGNORECASE
)
_MOST_WORDS = 8


def answered(text: str, question: str) -> Iterator[tuple[str, str]]:
    """The slots and values that an answer gives: it is short, denies nothing, and is of the type that was asked for."""
    if not _YOURS.search(question) or "?" in text or _REFUSES.search(text) or len(text.split()) > _MOST_WORDS:
        return
    begin = _BEGIN.match(text)
    value = text[begin.end() if begin else 0 :].strip()
    for slot, parse in _ANSWERS.items():
        if _asks_for(question, slot):
            for each in parse(value):
                yield slot, each
            return
    if noun := re.search(
        r"\byour ([\w-]+)(?:'s|’s)? (?:is |are )?(?:name|called)|\bname of your ([\w-]+)", question, re.IGNORECASE
    ):
        kin = KIN.get((noun[1] or noun[2]).lower())
        if kin and (name := name_in(value)):
            yield kin, name


def _asks_for(question: str, slot: str) -> bool:
    return not _OF_ANOTHER.search(question) and _ASKED[slot].search(question) is not None


def _listed(parse: Callable[[str], str]) -> Callable[[str], list[str]]:
    return lambda text: list(filter(None, [parse(text)]))


_ASKED = {
    "name": re.compile(r"what(?:'s|’s| is) your (?:full )?name", re.IGNORECASE),
    "nickname": re.compile(r"what (?:should|shall|can|may|do) (?:i|we|people|they) call you", re.IGNORECASE),
    "home": re.compile(
        r"where (?:do|are) you (?:currently |now )?(?:live|living|based)|which (?:city|town) (?:are|do) you",
        re.IGNORECASE,
    ),
    "employer": re.compile(r"where do you work|who is your employer|which company do you", re.IGNORECASE),
    "job": re.compile(
        r"what do you do for (?:work|a living)|what(?:'s|’s| is) your (?:job|occupation|profession)", re.IGNORECASE
    ),
    "allergy": re.compile(r"you have any allergies|you allergic to|what are you allergic", re.IGNORECASE),
    "birthday": re.compile(r"when(?:'s|’s| is) your birthday|when were you born", re.IGNORECASE),
    "email": re.compile(r"your e-?mail", re.IGNORECASE),
    "phone": re.compile(r"your (?:phone|mobile|number)|number to reach you", re.IGNORECASE),
    "speaks": re.compile(r"languages? do you speak", re.IGNORECASE),
    "learns": re.compile(r"languages? are you (?:learning|studying)", re.IGNORECASE),
}
_ANSWERS: dict[str, Callable[[str], list[str]]] = {
    "name": _listed(name_in),
    "nickname": _listed(name_in),
    "home": _listed(place_in),
    "employer": _listed(org_in),
    "job": _listed(lambda text: job_in(text, any_word=False) or job_in(text.lower(), any_word=False)),
    "allergy": allergens_in,
    "birthday": _listed(date_in),
    "email": _listed(email_in),
    "phone": _listed(phone_in),
    "speaks": lambda text: (
        languages_in(text) or [each for part in text.split(",") for each in languages_in(part.strip())]
    ),
    "learns": languages_in,
}
