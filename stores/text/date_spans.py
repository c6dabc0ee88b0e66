"""Days, weeks, months and years as search terms, for `chatbot.stores.text.dates`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache

Part = dict[str, str]
"""The groups of a match, by name."""
Resolver = Callable[[Part, date], list[str]]
Rule = tuple[re.Pattern[str], Resolver]
"""A pattern of a date, and a function from match and today to terms; it raises `ValueError` for an impossible date."""


def named_dates(rules: Sequence[Rule], text: str, today: date) -> Iterator[list[str]]:
    """Return the terms of each date in the text. Text matched by a rule is not read by later ones."""
    taken: list[tuple[int, int]] = []
    for pattern, resolve in rules:
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < other_end and other < end for other, other_end in taken):
                continue
            taken.append((begin, end))
            try:
                found = resolve(match.groupdict(), today)
            except (ValueError, OverflowError):  # the 31st of February
                continue
            if found:
                yield found


def day_terms(day: date) -> list[str]:
    """Return the terms of a day and of its week, month and year."""
    return list(_day_terms(day))


@lru_cache(maxsize=1024)
def _day_terms(day: date) -> tuple[str, ...]:
    return (f"day:{day.isoformat()}", week_term(day), *month_terms(day.year, day.month))


def week_term(day: date) -> str:
    """The ISO week that the day lies in."""
    year, week, _ = day.isocalendar()
    return f"week:{year}-{week:02}"


def month_terms(year: int, month: int) -> list[str]:
    """A month, the month of any year, and its year. Raises `ValueError` for one that no calendar has."""
    day = date(year, month, 1)
    return [f"month:{day:%Y-%m}", any_years(month), f"year:{year}"]


def any_years(month: int) -> str:
    """The month of any year. Raises `ValueError` for one that no calendar has."""
    if not 1 <= month <= 12:
        raise ValueError(f"invalid month {month}")
    return f"in:{month:02}"


def shifted(unit: str, count: int, today: date) -> list[str]:
    """The day, week, weekend, fortnight, month, quarter or year that lies `count` of them after today."""
    if unit == "day":
        return day_terms(today + timedelta(days=count))
    if unit in {"week", "fortnight"}:
        return [week_term(today + timedelta(weeks=count * (1 + (unit == "fortnight"))))]
    if unit == "weekend":
        return weekend(today, count)
    if unit == "year":
        return [f"year:{today.year + count}"]
    if unit == "quarter":
        return months_from(today.year, (today.month - 1) // 3 * 3 + 1 + 3 * count, 3)
    return months_from(today.year, today.month + count, 1)


def months_from(year: int, month: int, count: int) -> list[str]:
    """So many months, the first of them counted from the January of that year."""
    months = range(year * 12 + month - 1, year * 12 + month - 1 + count)
    return _together(month_terms(each // 12, each % 12 + 1) for each in months)


def part_of_month(year: int, month: int, third: int) -> list[str]:
    """The weeks that the beginning, the middle or the end of a month lies in, and the month."""
    first = date(year, month, 1) + timedelta(days=10 * third)
    days = [first + timedelta(days=each) for each in range(10 if third < 2 else 11)]
    return [*dict.fromkeys(week_term(day) for day in days if day.month == month), *month_terms(year, month)]


def days_between(first: date, last: date) -> list[str]:
    """All days from the one to the other, which must not lie more than a month before. Raises `ValueError`."""
    if not 0 <= (last - first).days <= 31:
        raise ValueError(f"invalid span of days: {first} to {last}")
    return _together(day_terms(first + timedelta(days=each)) for each in range((last - first).days + 1))


def both_readings(first: int, second: int, year: int | None, today: date, *, day_first: bool) -> list[str]:
    """The day that two numbers name, with the day first or with the month first: both, where both can be.

    `day_first` prefers that reading where it can be. Without a year it is the nearest. Raises `ValueError` for none.
    """
    found: list[list[str]] = []
    for day, month in ((first, second), (second, first)):
        try:
            found.append(day_terms(date(year, month, day)) if year else day_of_year(month, day, today))
        except ValueError:
            continue
        if day_first:
            break
    if not found:
        raise ValueError(f"{first}/{second} is no day")
    return _together(found)


def day_of_month(day: int, months: int | None, today: date) -> list[str]:
    """Return that day of the month `months` after this one; without `months`, the last and the next such day."""
    around = [months] if months is not None else [-2, -1, 0, 1, 2]
    known = []
    for shift in around:
        month = today.year * 12 + today.month - 1 + shift
        try:
            known.append(date(month // 12, month % 12 + 1, day))
        except ValueError:  # the 31st, in some months
            continue
    past = [each for each in known if each <= today][-1:]
    to_come = [] if past == [today] else [each for each in known if each > today][:1]
    return _together(day_terms(each) for each in past + to_come)


def _together(dates: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(term for each in dates for term in each))


def weekend(today: date, weeks: int) -> list[str]:
    """Saturday and Sunday of the week that lies `weeks` after this one."""
    saturday = today + timedelta(days=5 - today.weekday(), weeks=weeks)
    return [*day_terms(saturday), *day_terms(saturday + timedelta(days=1))]


def weekday_before(weekday: int, today: date) -> list[str]:
    """The last such day before today; Monday is 0."""
    return day_terms(today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1))


def day_of_year(month: int, day: int, today: date) -> list[str]:
    """A day that was named without its year: the nearest one that has been, or that comes within two months."""
    known = []
    for year in range(today.year - 4, today.year + 2):
        try:
            known.append(date(year, month, day))
        except ValueError:  # the 29th of February, in most years
            continue
    near = [each for each in known if each <= today + timedelta(days=61)]
    return day_terms(min(near, key=lambda each: abs(each - today)))
