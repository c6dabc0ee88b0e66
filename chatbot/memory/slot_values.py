"""Values of typed slots: a place, an employer, a name, an occupation, where a text begins with one. Pure, in English.

Each function returns the value that its text begins with, or nothing. It must end where a value can end: before a mark,
or before a word that goes on with something else.
"""

from __future__ import annotations

import re

from chatbot.memory.slot_words import ALLERGENS, LANGUAGES, NO_NAME, NO_ORG, NO_PLACE, OCCUPATIONS

_CAPITAL = r"(?:(?:[A-Z]\.){2,4}|(?:St|Dr|Mrs?|Ms|Mt|Ft|[A-Z])\.|[A-ZÀ-ÖØ-ÞĀ-Ž][\w'’-]*)"
_OF_PLACES = r"(?:de|del|da|do|dos|di|du|la|le|las|los|el|am|an der|ob der|of|upon|on|sur|the|aan den|den|van)"
_AFTER = (
    r"(?=\s*(?:$|[.,!?;:()…\"–—-]|[^\w\s'])|\s+(?:and|but|with|since|for|now|because|these|this|last|in|at|on|as|again|"
    r"when|where|while|which|who|so|too|right|during|until|till|btw|by|lol|currently|permanently|"
    r"anymore|any|yet|though|"
    r"already|after|before|from|together|near|yesterday|today|ago|a|an|two|three|not|please|instead|or|if|than|though|"
    r"if|actually|also|as|most|all|every|except|or|just|is|was|has|have|i|my|we|over|about|around|to)\b)"
)
_PLACE = re.compile(rf"(?:[Tt]he\s+)?{_CAPITAL}(?:\s+(?:{_OF_PLACES}\s+)?{_CAPITAL}){{0,4}}{_AFTER}")
_ORG = re.compile(rf"(?:[Tt]he\s+)?{_CAPITAL}(?:\s+(?:(?:of|for|and|&|de|the)\s+){{0,2}}{_CAPITAL}){{0,5}}{_AFTER}")
_NAME = re.compile(
    rf"(?:(?:Mr|Mrs|Ms|Dr|Prof)\.?\s+)?{_CAPITAL}(?:\s+(?:(?:de|del|da|di|van|von|der|den|la|le|"
    rf"bin|ibn|al|el|y)\s+){{0,2}}"
    rf"{_CAPITAL}){{0,4}}{_AFTER}"
)
_PLAIN_WORD = re.compile(
    r"([a-zà-öø-ÿ'-]{2,20})(?=\s*(?:$|[.,!]|\s(?:btw|now|lol|atm|too|and i|currently|these days)\b))"
)
_TITLES = re.compile(r"^(?:mr|mrs|ms|dr|prof)\.?$", re.IGNORECASE)
_BEHIND_JOB = (
    r"(?:at|in|for|on|of|from|and|but|since|these|now|again|by|with|here|there|who|so|because|"
    r"part-time|full-time|or|until|"
    r"during|too|myself|while|when|as|to|not|this|that|right|currently)\b"
)
_JOB = re.compile(
    rf"(?P<job>(?:(?!{_BEHIND_JOB})[\w-]+\s+){{0,3}}(?!{_BEHIND_JOB})[\w-]+)(?=\s*(?:$|[.,!;:()–—-])|\s+{_BEHIND_JOB})",
    re.IGNORECASE,
)
_NO_JOB = frozenset(
    [
        "part",
        "hard",
        "much",
        "well",
        "volunteer",
        "team",
        "usual",
        "retired",
        "former",
        "wannabe",
        "pair",
        "unit",
        "group",
        "rule",
        "whole",
        "result",
        "way",
        "matter",
        "substitute",
        "good",
        "bad",
        "terrible",
        "great",
        "big",
        "born",
        "real",
        "lousy",
        "better",
        "horrible",
        "proper",
        "decent",
        "amateur",
        "hobby",
        "future",
        "slow",
        "fast",
        "keen",
        "poor",
        "little",
        "weak",
        "strong",
        "awful",
        "mediocre",
        "happy",
        "sad",
        "proud",
        "total",
        "huge",
        "natural",
        "decent",
        "sloppy",
        "avid",
        "would-be",
        "wannabe",
        "failed",
        "so-so",
        "crap",
        "shit",
        "lucky",
        "budding",
        "home",
        "armchair",
        "backseat",
        "nobody",
        "kind",
    ]
)
_TRAINED = frozenset(["certified", "registered", "licensed", "chartered", "qualified", "trained"])
_ENGAGED = frozenset(
    [
        "marketing",
        "engineering",
        "building",
        "nursing",
        "training",
        "mining",
        "consulting",
        "recruiting",
        "learning",
        "testing",
    ]
)
_PHONE = re.compile(r"(?:\+\d{1,3}[\s-]?)?\(?\d[\d ()./-]{4,18}\d")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?<!\.)")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_MONTH = r"(?P<month>" + "|".join(f"{each[:3]}(?:{each[3:]})?" if len(each) > 3 else each for each in _MONTHS) + r")\.?"
_DATES = (
    re.compile(r"(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)-(?P<day>\d\d)\b"),
    re.compile(
        rf"(?:the\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{_MONTH}(?:,?\s+(?P<year>(?:19|20)\d\d))?\b",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_MONTH}\s+(?:the\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<year>(?:19|20)\d\d))?\b", re.IGNORECASE
    ),
)
_SPEAKING = re.compile(
    r"(?:fluent(?:ly)?|a (?:little|bit of)(?: bit of)?|some|only|also|good|basic|native|both|"
    r"mostly|mainly|decent|perfect|broken|"
    r"conversational|of course|just)\s+",
    re.IGNORECASE,
)
_LISTED = re.compile(
    r"\s*(?:,\s*(?:and\s+|or\s+|but also\s+)?|\s+and\s+(?:also\s+)?|\s+or\s+|\s+as well as\s+|/)\s*", re.IGNORECASE
)
_TAIL = re.compile(
    r"\s+(?:too|also|as well|anyway|though|lol|unfortunately|after all|any ?more|at all|now|and "
    r"stuff|since .*|so .*|but .*|"
    r"when .*|because .*|if .*|which .*|actually|btw|these days|remember|at home|at work)$",
    re.IGNORECASE,
)


def place_in(text: str, *, plain: bool = False) -> str:
    """Return the place that a text begins with."""
    match = _PLACE.match(text)
    if match is None and plain and (word := _PLAIN_WORD.match(text)):
        match = word if word[1] not in NO_NAME and not word[1].endswith(("ing", "ness", "ly")) else None
    if match is None or _NO_LONGER_NOW.match(text[match.end() :]):
        return ""
    value = re.sub(r"^the\s+", "", match[0].strip(" ,"), flags=re.IGNORECASE)
    words = value.casefold().split()
    return "" if not words or words[0] in NO_PLACE or (words[0] in NO_NAME and len(words) == 1) else value


_NO_LONGER_NOW = re.compile(
    r"[^.,;]*\b(?:when i (?:was|were)|as a (?:child|kid|student|teenager)|back then\b|in my "
    r"(?:youth|twenties|head|dreams?|mind)|"
    r"one day|someday|next (?:week|month|year)|for the (?:weekend|day|night|holidays?))",
    re.IGNORECASE,
)


def org_in(text: str) -> str:
    """Return the employer that a text begins with."""
    match = _ORG.match(text)
    if match is None or _NO_LONGER_NOW.match(text[match.end() :]):
        return ""
    value = re.sub(r"^the\s+", "", match[0].strip(" ,"), flags=re.IGNORECASE)
    first = value.casefold().split()[0]
    return "" if first in NO_NAME or first in NO_ORG else value


def name_in(text: str, *, plain: bool = False, most: int = 5) -> str:
    """Return the name of somebody that a text begins with."""
    match = _NAME.match(text)
    value = match[0] if match else ""
    if not value and plain and (word := re.match(r"([a-zà-öø-ÿ-]{2,15})\s*[.!]?$", text)):
        value = word[1] if not word[1].endswith(("ing", "ed", "ly", "ful", "able", "ous")) else ""
    words = value.split()
    named = [each for each in words if not _TITLES.match(each)]
    if not named or len(named) > most or named[0].casefold().rstrip(".") in NO_NAME:
        return ""
    return " ".join(words).rstrip(".,") if len(named[-1]) > 2 else " ".join(words)


def job_in(text: str, *, any_word: bool) -> str:
    """Return the occupation that a text begins with; `any_word` takes words that are in no list."""
    match = _JOB.match(text)
    if match is None or _NO_LONGER_NOW.match(text[match.end() :]) or re.match(r"'s?\b", text[match.end() :]):
        return ""
    words = match["job"].lower().split()
    if not _NO_JOB.isdisjoint(words) or any(map(_is_adjective, words[:-1])):
        return ""
    is_known = words[-1] in OCCUPATIONS or " ".join(words[-2:]) in OCCUPATIONS
    return match["job"] if is_known or (any_word and len(words) <= 3) else ""


def _is_adjective(word: str) -> bool:
    """Return whether a word before an occupation tells how well or how gladly it is done."""
    ends = word.endswith(("ful", "ous", "ate", "ish", "est")) or (word.endswith("ed") and word not in _TRAINED)
    return ends or (word.endswith("ing") and word not in _ENGAGED)


def languages_in(text: str) -> list[str]:
    """Return the languages of a list that a text begins with."""
    found = []
    text = re.split(r"[.;!?()]", text)[0]
    for number, item in enumerate(_LISTED.split(text)):
        words = _SPEAKING.sub("", item.strip() + " ").split()
        if not words or words[0].casefold() not in LANGUAGES:
            if not number:
                break
            continue
        if len(words) > 1 and not _LANGUAGE_ENDS.match(" ".join(words[1:])):
            continue
        found.append(words[0])
    return found


_LANGUAGE_ENDS = re.compile(
    r"(?:at|in|with|for|since|now|too|as|well|fluently|on|every|from|because|so|but|to|again|by|these|this|right|also|"
    r"natively|slowly|these|when|while|after|before|through|three|twice|online|myself|currently|"
    r"already|though|any ?more|"
    r"[-–—])\b|[^\w\s]",
    re.IGNORECASE,
)


def allergens_in(text: str) -> list[str]:
    """Return what one can be allergic to, of a list that a text begins with."""
    found = []
    for item in _LISTED.split(re.split(r"[.;!?()]", text)[0]):
        value = item.strip()
        while (shorter := _TAIL.sub("", value)) != value:
            value = shorter.strip()
        words = re.sub(r"^(?:also|only|just|to|the|a|an|any|my)\s+", "", value).lower().split()
        if not words or len(words) > 5:
            continue
        if " with " in f" {value} ":
            words = words[: words.index("with")]
        if any(_singular(part) in ALLERGENS for part in (words[-1], " ".join(words[-2:]))):
            found.append(re.sub(r"^(?:also|only|just|to|the|a|an|any|my)\s+", "", value))
    return found


def _singular(word: str) -> str:
    if word in ALLERGENS:
        return word
    for ending, one in (("ies", "y"), ("oes", "o"), ("shes", "sh"), ("ches", "ch"), ("mice", "mouse"), ("s", "")):
        if word.endswith(ending):
            return word[: -len(ending)] + one
    return word


def phone_in(text: str) -> str:
    """Return the telephone number that a text begins with."""
    match = _PHONE.match(text)
    if match is None or re.match(r"(?:19|20)\d\d-\d\d-\d\d", match[0]):
        return ""
    return match[0].strip() if sum(map(str.isdigit, match[0])) >= 7 else ""


def email_in(text: str) -> str:
    """Return the e-mail address that a text begins with."""
    match = _EMAIL.match(text)
    return match[0].rstrip(".-") if match else ""


def date_in(text: str) -> str:
    """Return the day that a text begins with, as "3 June" or "3 June 1988"."""
    for form in _DATES:
        if match := form.match(text):
            parts = match.groupdict()
            number = int(parts["number"]) if parts.get("number") else _month_number(parts["month"])
            day = int(parts["day"])
            if 1 <= number <= len(_MONTHS) and 1 <= day <= 31:
                return f"{day} {_MONTHS[number - 1]}" + (f" {parts['year']}" if parts["year"] else "")
    return ""


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.lower().startswith(name.lower()[:3]))
