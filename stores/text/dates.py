"""Dates in texts as search terms: an event of "yesterday" is found by its date.

A term shows its precision: `day:2026-03-04`, `week:2026-10`, `month:2026-03`, `year:2026`, and `in:03` for a month of
any year. A day is also found by its week, month and year, a month by its year. Relative dates are resolved from a
`local` time: for stored texts when they were written, for a question now. An ambiguous date has the terms of both
readings. Numeric dates are recognized in any language, month names in English, German, French and Spanish, relative
dates in English.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import MAXYEAR, date, datetime, time, timedelta
from functools import lru_cache

from chatbot.stores.text.analysis import fold_letters

_LONGEST = 5_000
"""Maximum characters of a text that are read."""
_WORD = re.compile("[a-z]+|[年月]")
_DIGIT = re.compile("[0-9]")

Part = Mapping[str, str]
"""The groups of a match, by name, and whether the date has to be `exact`."""


def local(at: datetime) -> datetime:
    """Return a time in UTC in the time zone of this machine; midnight is a date without a time, and stays."""
    return at if at.time() == time.min or at.year == MAXYEAR else at.astimezone()


def date_terms(text: str, at: datetime, *, exact: bool = False) -> list[str]:
    """Return the terms of all dates that the text names, each once; relative ones counted from `at`.

    `exact` is for questions: it leaves out the week, month and year that a day lies in, the year of a month, and the
    next "Friday", which a stored text has, too.
    """
    found = _find_dates(fold_letters(text[:_LONGEST]).lower(), at.date(), "yes" if exact else "")
    return list(dict.fromkeys(each for dates in found for each in (_finest(dates) if exact else dates)))


def _find_dates(text: str, today: date, exact: str) -> Iterator[list[str]]:
    """Yield the terms of each date in the text. Text that one form matched is not read by later forms."""
    words = set(_WORD.findall(text))
    if _DIGIT.search(text):
        words.add("0")
    taken: list[tuple[int, int]] = []
    for needed, pattern, resolve in _FORMS:
        if words.isdisjoint(needed):
            continue
        for match in re.finditer(pattern, text):  # compiled when it is first needed
            begin, end = match.span()
            if any(begin < other_end and other < end for other, other_end in taken):
                continue
            taken.append((begin, end))
            try:
                found = resolve({**match.groupdict(""), "exact": exact}, today)
            except (ValueError, OverflowError):  # the 31st of February
                continue
            if found:
                yield list(found)


def _finest(dates: list[str]) -> list[str]:
    """Return the terms as precise as the first one, such as both days of a weekend."""
    return [each for each in dates if each.partition(":")[0] == dates[0].partition(":")[0]]


def _numbered(*lines: str, begin: int = 1) -> dict[str, int]:
    return {word: number for number, line in enumerate(lines, begin) for word in line.split()}


_MONTHS = _numbered(
    "january jan januar janner janvier enero",
    "february feb februar fevrier febrero",
    "march mar marz maerz mars marzo",
    "april apr avril abril",
    "may mai mayo",
    "june jun juni juin junio",
    "july jul juli juillet julio",
    "august aug aout agosto",
    "september sept sep septembre septiembre",
    "october oct oktober octobre octubre",
    "november nov novembre noviembre",
    "december dec dezember decembre diciembre",
)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_WEEKDAYS = _numbered("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", begin=0)
_COUNTS = _numbered(
    "a an one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"
)
_COUNTS |= {"a couple of": 2, "a few": 3, "several": 4}
_WHICH = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
_DAYS = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tonight": 0}
_DAYS |= {"this morning": 0, "this afternoon": 0, "this evening": 0, "tomorrow": 1, "the day after tomorrow": 2}


def _in_numbers(part: Part, _: date) -> Sequence[str]:
    """Return the days that two numbers name, as day and month, then as month and day; with dots only the first."""
    first, second, year, dash = part["first"], part["second"], part["year"], part["dash"]
    if len(year) == 2 and (dash == "-" or (dash == "." and len(first + second) < 4)):
        return []  # looks like a version
    whole = int(year) + (2000 if len(year) == 2 else 0)
    readings = [(int(second), int(first)), (int(first), int(second))]
    days = [date(whole, month, day) for month, day in readings if month <= 12]
    return [term for day in days[: 1 if dash == "." else 2] for term in day_terms(day)]


def _day(part: Part, today: date) -> Sequence[str]:
    """Return a day; without a year, the next one if within two months, else the last one."""
    month, day = int(_MONTHS.get(part["month"], part["month"])), int(part["day"])
    if part["year"]:
        return day_terms(date(int(part["year"]), month, day))
    known = []
    for year in range(today.year - 4, today.year + 2):
        with suppress(ValueError):  # the 29th of February, in most years
            known.append(date(year, month, day))
    return day_terms(max(each for each in known if each <= today + timedelta(days=61)))


def _month(part: Part, today: date) -> Sequence[str]:
    month = int(_MONTHS.get(part["month"], part["month"]))
    if part.get("year"):
        return _month_terms(int(part["year"]), month)
    which = _WHICH.get(part.get("which", ""))
    if which is None:
        return [f"in:{date(2000, month, 1).month:02}"]
    year = today.year
    if which < 0 and month >= today.month:
        year -= 1
    if which > 0 and month <= today.month:
        year += 1
    return _month_terms(year, month)


def _season(part: Part, today: date) -> Sequence[str]:
    """Return the three months of a season in the northern hemisphere, of any year if none is named."""
    first, which = _SEASONS[part["season"]], _WHICH.get(part["which"])
    if not part["year"] and which is None:
        return [f"in:{(first + each - 1) % 12 + 1:02}" for each in range(3)]
    latest = today.year if today.month >= first else today.year - 1
    is_now = (today.month - first) % 12 < 3
    years = {-1: latest - 1 if is_now else latest, 0: latest if is_now else today.year, 1: latest + 1}
    year = int(part["year"] or years[which or 0])
    months = [year * 12 + first - 1 + each for each in range(3)]
    return [term for each in months for term in _month_terms(each // 12, each % 12 + 1)]


def _year(part: Part, _: date) -> Sequence[str]:
    return [f"year:{part['year']}"]


def _counted(part: Part, today: date) -> Sequence[str]:
    count = _COUNTS.get(part["count"]) or int(part["count"])
    return _shifted(part["unit"], count if part.get("ahead") else -count, today)


def _weekday(part: Part, today: date) -> Sequence[str]:
    """Return the last such day before today; for "this" and "next" the first one after today; both if none is meant."""
    ahead, which = _WEEKDAYS[part["weekday"]] - today.weekday(), _WHICH.get(part["which"])
    last, following = (day_terms(today + timedelta(days=each)) for each in (ahead % 7 - 7, (ahead - 1) % 7 + 1))
    if which is None and not part["exact"]:
        return [*last, *following]
    return following if which is not None and which >= 0 else last


def _relative_day(part: Part, today: date) -> Sequence[str]:
    return day_terms(today + timedelta(days=_DAYS[part["word"]]))


def _shifted(unit: str, count: int, today: date) -> Sequence[str]:
    """Return the day, week, weekend, month or year that lies `count` of them after today."""
    if unit == "day":
        return day_terms(today + timedelta(days=count))
    if unit == "week":
        return [_week_term(today + timedelta(weeks=count))]
    if unit == "weekend":
        saturday = today + timedelta(days=5 - today.weekday(), weeks=count)
        return [*day_terms(saturday), *day_terms(saturday + timedelta(days=1))]
    months = today.year * 12 + today.month - 1 + count
    return _month_terms(months // 12, months % 12 + 1) if unit == "month" else [f"year:{today.year + count}"]


@lru_cache(maxsize=1024)
def day_terms(day: date) -> tuple[str, ...]:
    """Return the terms of a day: itself, its week, month and year, and its month of any year."""
    return (f"day:{day.isoformat()}", _week_term(day), *_month_terms(day.year, day.month))


def _week_term(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"week:{year}-{week:02}"


def _month_terms(year: int, month: int) -> list[str]:
    first = date(year, month, 1)
    return [f"month:{first:%Y-%m}", f"in:{month:02}", f"year:{year}"]


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_YEAR = r"(?P<year>(?:19|20)\d\d)"
_MAYBE_YEAR = rf"(?:,?\s+(?:(?:of|del?|in)\s+)?{_YEAR})?\b"
_MONTH = rf"(?P<month>{_either(_MONTHS)})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?(?:\s*[-\u2013]\s*\d{1,2}(?:st|nd|rd|th)?)?"
"""A day, or the first of several."""
_WEEKDAY = rf"(?:\b(?:{_either(_WEEKDAYS)}),?\s+(?:the\s+)?)?"
"""A weekday before a date, if there is one."""
_UNIT = r"(?P<unit>day|weekend|week|month|year)"
_COUNT = rf"(?P<count>\d{{1,3}}|{_either(_COUNTS)})\s+{_UNIT}s?"
_TWO_NUMBERS = (
    r"(?<![\d./-])(?P<first>\d\d?)(?P<dash>[-/.])(?P<second>\d\d?)(?P=dash)(?P<year>(?:19|20)?\d\d)(?!\d|[-/.]\d)"
)
_SEASON = rf"(?P<season>{_either(_SEASONS)})"
_WHICH_ONE = rf"(?P<which>{_either(_WHICH)})"
_IN = "in|during|since|until|by|im|seit|en|depuis|desde"
_FORMS: list[tuple[Collection[str], str, Callable[[Part, date], Sequence[str]]]] = [
    ("0", rf"{_WEEKDAY}(?<![\d.-]){_YEAR}(?P<dash>[-/.])(?P<month>\d\d?)(?P=dash)(?P<day>\d\d?)(?!\d|[-/.]\d)", _day),
    ("0", _TWO_NUMBERS, _in_numbers),
    ("月", rf"(?:{_YEAR}年)?(?<!\d)(?P<month>\d\d?)月(?P<day>\d\d?)[日号]", _day),
    ("月", rf"(?:{_YEAR}年)?(?<!\d)(?P<month>\d\d?)月", _month),
    ("年", rf"(?<!\d){_YEAR}年", _year),
    (_MONTHS, rf"{_WEEKDAY}\b{_DAY}\s+(?:(?:of|de)\s+)?{_MONTH}{_MAYBE_YEAR}", _day),
    (_MONTHS, rf"{_WEEKDAY}\b{_MONTH}\s+(?:the\s+)?{_DAY}(?!\d|:\d){_MAYBE_YEAR}", _day),
    (_MONTHS, rf"\b{_MONTH},?\s+(?:(?:of|de)\s+)?{_YEAR}\b", _month),
    (_MONTHS, rf"\b(?:{_IN}|{_WHICH_ONE})\s+{_MONTH}\b", _month),
    (_SEASONS, rf"\b(?:{_IN}|of|{_WHICH_ONE})\s+(?:the\s+)?{_SEASON}(?:\s+(?:of\s+)?{_YEAR})?\b", _season),
    (["ago"], rf"\b{_COUNT}\s+ago\b", _counted),
    (["in"], rf"\b(?P<ahead>in)\s+{_COUNT}\b", _counted),
    (["yesterday", "today", "tonight", "tomorrow", "last", "this"], rf"\b(?P<word>{_either(_DAYS)})\b", _relative_day),
    (_WHICH, rf"\b{_WHICH_ONE}\s+{_UNIT}\b", lambda part, today: _shifted(part["unit"], _WHICH[part["which"]], today)),
    (_WEEKDAYS, rf"\b(?:{_WHICH_ONE}\s+)?(?P<weekday>{_either(_WEEKDAYS)})\b", _weekday),
    ("0", rf"\b(?:{_IN}|of|year|im\s+jahr)\s+{_YEAR}\b", _year),
]
"""Forms of dates, in order. A form is tried if the text has one of its words; `0` means a digit."""
