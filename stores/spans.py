"""Days, weeks, months and years as the terms that stand for them; see `stores.dates`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta

Rule = tuple[re.Pattern[str], Callable[[dict[str, str], date], list[str]]]
"""A way to name a date, and its terms by the groups of the match and today; a `ValueError` says that there is none."""


def named_dates(rules: Sequence[Rule], text: str, today: date) -> Iterator[list[str]]:
    """The terms of each date that the text names. What an earlier rule has understood is not read again by a later."""
    taken: list[tuple[int, int]] = []
    for pattern, resolve in rules:
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < other_end and other < end for other, other_end in taken):
                continue
            taken.append((begin, end))
            try:
                yield resolve(match.groupdict(), today)
            except (ValueError, OverflowError):  # the 31st of February
                continue


def day_terms(day: date) -> list[str]:
    """A day, and what it lies in."""
    return [f"day:{day.isoformat()}", week_term(day), *month_terms(day.year, day.month)]


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
        raise ValueError(f"there is no month {month}")
    return f"in:{month:02}"


def shifted(unit: str, count: int, today: date) -> list[str]:
    """The day, week, month or year that lies `count` of them after today."""
    if unit == "day":
        return day_terms(today + timedelta(days=count))
    if unit == "week":
        return [week_term(today + timedelta(weeks=count))]
    if unit == "year":
        return [f"year:{today.year + count}"]
    months = today.year * 12 + today.month - 1 + count
    return month_terms(months // 12, months % 12 + 1)


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
