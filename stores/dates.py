"""Dates in texts, as terms that are indexed and asked for: what is said to be yesterday is found by its date.

A term says how exact it is: `day:2026-03-04`, `week:2026-10`, `month:2026-03`, `year:2026`, and `in:03` for a month of
any year. A day is also found by its month and year, a month by its year. Relative dates are counted from a moment that
the caller gives: for what is written, when it was written; for a question, now. Only English is understood; ISO dates
are in any language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta

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
    "iso": r"\b(?P<year>(?:19|20)\d\d)-(?P<number>0[1-9]|1[0-2])-(?P<day>[0-3]\d)\b",
    "day": rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?:\s*,?\s*{_YEAR})?\b",
    "day_first": rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:\s*,?\s*{_YEAR})?\b",
    "month": rf"\b{_MONTH}\s*,?\s*(?:of\s+)?{_YEAR}\b",
    "month_alone": rf"\b(?:in|during|since|until|by|of|last|this|next|early|late|mid)\s+{_MONTH}\b",
    "ago": rf"\b{_COUNT}\s+(?P<unit>day|week|month|year)s?\s+(?:ago|back|earlier)\b",
    "near": r"\b(?P<which>last|past|previous|this|next)\s+(?P<unit>week|month|year|weekend)\b",
    "weekday": rf"\b(?:(?P<which>last|this|next|past|on|previous)\s+)(?P<weekday>{'|'.join(_DAYS)})\b",
    "word": r"\b(?P<word>the day before yesterday|yesterday|today|tonight|this morning|tomorrow|last night)\b",
    "year": rf"\b(?:in|during|since|of|year)\s+{_YEAR}\b",
}
_PATTERNS = {name: re.compile(rule, re.IGNORECASE) for name, rule in _RULES.items()}
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
    r"\d{4}|ago|back|earlier|last|past|previous|this|next|yester|today|tonight|tomorrow|day|jan|feb|mar|apr|may|jun|jul"
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
    if not _HINT.search(text):
        return []
    found = _found(text, at.date())
    return list(dict.fromkeys(each for dates in found for each in (dates[:1] if exact else dates)))


def moment_terms(at: datetime) -> list[str]:
    """The terms of one day: itself, its week, month and year, and its month of any year."""
    return _day(at.date())


def _found(text: str, today: date) -> Iterator[list[str]]:
    for name, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            try:
                yield _RESOLVERS[name](match.groupdict(), today)
            except (ValueError, OverflowError):  # the 31st of February
                continue


def _iso(part: dict[str, str], _: date) -> list[str]:
    return _day(date(int(part["year"]), int(part["number"]), int(part["day"])))


def _named_day(part: dict[str, str], today: date) -> list[str]:
    month, day = _month_number(part["month"]), int(part["day"])
    if part["year"]:
        return _day(date(int(part["year"]), month, day))
    return _day(min((date(today.year + shift, month, day) for shift in (-1, 0)), key=lambda each: abs(each - today)))


def _named_month(part: dict[str, str], _: date) -> list[str]:
    return _month(int(part["year"]), _month_number(part["month"]))


def _month_alone(part: dict[str, str], _: date) -> list[str]:
    return [f"in:{_month_number(part['month']):02}"]


def _ago(part: dict[str, str], today: date) -> list[str]:
    count = _NUMBERS.get(part["count"].lower()) or int(part["count"])
    return _shifted(part["unit"].lower(), -count, today)


def _near(part: dict[str, str], today: date) -> list[str]:
    shift = {"this": 0, "next": 1}.get(part["which"].lower(), -1)
    if part["unit"].lower() != "weekend":
        return _shifted(part["unit"].lower(), shift, today)
    saturday = today - timedelta(days=today.weekday()) + timedelta(days=5 + 7 * shift)
    return [*_day(saturday), *_day(saturday + timedelta(days=1))]


def _weekday(part: dict[str, str], today: date) -> list[str]:
    ahead = (_DAYS.index(part["weekday"].lower()) - today.weekday()) % 7
    if part["which"].lower() in {"this", "next"}:
        return _day(today + timedelta(days=ahead or 7))
    return _day(today - timedelta(days=7 - ahead if ahead else 7))


def _word(part: dict[str, str], today: date) -> list[str]:
    return _day(today + timedelta(days=_SHIFTS[part["word"].lower()]))


def _year(part: dict[str, str], _: date) -> list[str]:
    return [f"year:{part['year']}"]


_RESOLVERS = {
    "iso": _iso,
    "day": _named_day,
    "day_first": _named_day,
    "month": _named_month,
    "month_alone": _month_alone,
    "ago": _ago,
    "near": _near,
    "weekday": _weekday,
    "word": _word,
    "year": _year,
}


def _shifted(unit: str, count: int, today: date) -> list[str]:
    if unit == "day":
        return _day(today + timedelta(days=count))
    if unit == "week":
        return [_week(today + timedelta(weeks=count))]
    if unit == "year":
        return [f"year:{today.year + count}"]
    months = today.year * 12 + today.month - 1 + count
    return _month(months // 12, months % 12 + 1)


def _day(day: date) -> list[str]:
    return [f"day:{day.isoformat()}", _week(day), *_month(day.year, day.month)]


def _week(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"week:{year}-{week:02}"


def _month(year: int, month: int) -> list[str]:
    return [f"month:{year}-{month:02}", f"in:{month:02}", f"year:{year}"]


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))
