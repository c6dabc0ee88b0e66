"""Dates in texts, as terms that are indexed and asked for: what is said to be yesterday is found by its date.

A term says how exact it is: `day:2026-03-04`, `week:2026-10`, `month:2026-03`, `year:2026`, and `in:03` for a month of
any year. A day is also found by its month and year, a month by its year. Relative dates are counted from a moment that
the caller gives: for what is written, when it was written; for a question, now. English and
Chinese are understood; ISO dates are in any language.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from stores.chinese_dates import HINT, chinese_dates
from stores.spans import (
    Rule,
    any_years,
    day_of_year,
    day_terms,
    month_terms,
    named_dates,
    shifted,
    weekday_before,
    weekend,
)

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = {
    word: number
    for number, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1)
}
_NUMBERS |= {"a": 1, "an": 1, "a couple of": 2, "a few": 3, "several": 4}
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
_MONTH += r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_COUNT = r"(?P<count>\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|an?|a couple of|a few|several)"
_RULES = {
    "iso": r"(?<![\d-])(?P<year>(?:19|20)\d\d)-(?P<number>0[1-9]|1[0-2])-(?P<day>[0-3]\d)(?!\d)",
    "day": rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?:\s*,?\s*{_YEAR})?\b",
    "day_first": rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:\s*,?\s*{_YEAR})?\b",
    "month": rf"\b{_MONTH}\s*,?\s*(?:of\s+)?{_YEAR}\b",
    "month_alone": rf"\b(?:in|during|since|until|by|of|last|this|next|early|late|mid)\s+{_MONTH}\b",
    "ago": rf"\b{_COUNT}\s+(?P<unit>day|week|month|year)s?\s+(?:ago|back|earlier)\b",
    "ahead": rf"\b(?P<ahead>in)\s+{_COUNT}\s+(?P<unit>day|week|month|year)s?\b",
    "near": r"\b(?P<which>last|past|previous|this|next)\s+(?P<unit>week|month|year|weekend)\b",
    "weekday": rf"\b(?:(?P<which>last|this|next|past|on|previous)\s+)?(?P<weekday>{'|'.join(_DAYS)})\b",
    "word": r"\b(?P<word>the day before yesterday|yesterday|today|tonight|this morning|tomorrow|last night)\b",
    "year": rf"\b(?:in|during|since|of|year)\s+{_YEAR}\b",
}
_SHIFTS = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "tomorrow": 1,
}
_HINT = re.compile(
    r"\d{4}|ago|back|earlier|\bin\b|last|past|previous|this|next|yester|today|tonight|tomorrow|day|jan|feb|mar|apr|may|jun|jul"
    r"|aug|sep|oct|nov|dec",
    re.IGNORECASE,
)
_LONGEST = 5_000
"""Characters of a text that are looked at."""


def date_terms(text: str, at: datetime, *, exact: bool = False) -> list[str]:
    """The terms of all dates that the text names, each once, in order; relative ones counted from `at`.

    `exact` leaves out the week, month and year that a day lies in, and the year of a month: that is for questions.
    """
    text = text[:_LONGEST]
    found: list[list[str]] = []
    if _HINT.search(text):
        found += named_dates(_ENGLISH, text, at.date())
    if not text.isascii() and HINT.search(text):
        found += chinese_dates(text, at.date())
    return list(dict.fromkeys(each for dates in found for each in (_finest(dates) if exact else dates)))


def moment_terms(at: datetime) -> list[str]:
    """The terms of one day: itself, its week, month and year, and its month of any year."""
    return day_terms(at.date())


def _finest(dates: list[str]) -> list[str]:
    """What was named, without what it lies in; a weekend has two days."""
    return [each for each in dates if each.partition(":")[0] == dates[0].partition(":")[0]]


def _iso(part: dict[str, str], _: date) -> list[str]:
    return day_terms(date(int(part["year"]), int(part["number"]), int(part["day"])))


def _named_day(part: dict[str, str], today: date) -> list[str]:
    month, day = _month_number(part["month"]), int(part["day"])
    return day_terms(date(int(part["year"]), month, day)) if part["year"] else day_of_year(month, day, today)


def _named_month(part: dict[str, str], _: date) -> list[str]:
    return month_terms(int(part["year"]), _month_number(part["month"]))


def _month_alone(part: dict[str, str], _: date) -> list[str]:
    return [any_years(_month_number(part["month"]))]


def _away(part: dict[str, str], today: date) -> list[str]:
    count = _NUMBERS.get(part["count"].lower()) or int(part["count"])
    return shifted(part["unit"].lower(), count if part.get("ahead") else -count, today)


def _near(part: dict[str, str], today: date) -> list[str]:
    shift = {"this": 0, "next": 1}.get(part["which"].lower(), -1)
    unit = part["unit"].lower()
    return weekend(today, shift) if unit == "weekend" else shifted(unit, shift, today)


def _weekday(part: dict[str, str], today: date) -> list[str]:
    weekday = _DAYS.index(part["weekday"].lower())
    if (part["which"] or "").lower() in {"this", "next"}:
        return day_terms(today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1))
    return weekday_before(weekday, today)


def _word(part: dict[str, str], today: date) -> list[str]:
    return day_terms(today + timedelta(days=_SHIFTS[part["word"].lower()]))


def _year(part: dict[str, str], _: date) -> list[str]:
    return [f"year:{part['year']}"]


_RESOLVERS = {
    "iso": _iso,
    "day": _named_day,
    "day_first": _named_day,
    "month": _named_month,
    "month_alone": _month_alone,
    "ago": _away,
    "ahead": _away,
    "near": _near,
    "weekday": _weekday,
    "word": _word,
    "year": _year,
}
_ENGLISH: list[Rule] = [(re.compile(rule, re.IGNORECASE), _RESOLVERS[name]) for name, rule in _RULES.items()]


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))
