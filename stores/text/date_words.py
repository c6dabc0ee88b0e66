"""Words of dates in English, German, French and Spanish, lower-case and without accents, and the terms of dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache


def _each(words: str) -> list[str]:
    return words.split()


def _numbered(*lines: str, begin: int = 1) -> dict[str, int]:
    """The words of each line, by its place."""
    return {word: number for number, line in enumerate(lines, begin) for word in line.split()}


ENGLISH_MONTHS = _numbered(
    "january jan",
    "february feb",
    "march mar",
    "april apr",
    "may",
    "june jun",
    "july jul",
    "august aug",
    "september sept sep",
    "october oct",
    "november nov",
    "december dec",
)
MONTHS = ENGLISH_MONTHS | _numbered(
    "januar janner janvier janv enero ene",
    "februar fevrier fevr febrero",
    "marz maerz mrz mars marzo",
    "avril avr abril abr",
    "mai mayo",
    "juni juin junio",
    "juli juillet juil julio",
    "aout agosto",
    "septembre septiembre setiembre",
    "oktober okt octobre octubre",
    "novembre noviembre",
    "dezember dez decembre diciembre dic",
)
WEEKDAYS = _numbered(
    "monday montag lundi lunes",
    "tuesday dienstag mardi martes",
    "wednesday mittwoch mercredi miercoles",
    "thursday donnerstag jeudi jueves",
    "friday freitag vendredi viernes",
    "saturday samstag sonnabend samedi sabado",
    "sunday sonntag dimanche domingo",
    begin=0,
)
"""Monday is 0."""

COUNTS = {"a couple of": 2, "a couple": 2, "a few": 3, "several": 4, "un par de": 2, "ein paar": 3, "quelques": 3}
COUNTS |= _numbered(
    "one a an ein eine einem einer einen un une una",
    "two zwei deux dos",
    "three drei trois tres",
    "four vier quatre cuatro",
    "five funf fuenf cinq cinco",
    "six sechs seis",
    "seven sieben sept siete",
    "eight acht huit ocho",
    "nine neun neuf nueve",
    "ten zehn dix diez",
    "eleven elf onze once",
    "twelve zwolf zwoelf douze doce",
)
ORDINALS = _numbered(
    *_each("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"),
    *_each("fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"),
)
ORDINALS |= {f"twenty{dash}{word}": 20 + number for dash in "- " for word, number in [*ORDINALS.items()][:9]}
ORDINALS |= {"thirtieth": 30, "thirty-first": 31, "thirty first": 31}

UNITS = dict.fromkeys(_each("day days tag tage tagen jour jours dia dias"), "day")
UNITS |= dict.fromkeys(_each("week weeks woche wochen semaine semaines semana semanas"), "week")
UNITS |= dict.fromkeys(_each("month months monat monate monaten mois mes meses"), "month")
UNITS |= dict.fromkeys(_each("year years jahr jahre jahren annee annees ans an ano anos"), "year")
UNITS |= dict.fromkeys(_each("weekend weekends wochenende wochenenden week-end week-ends"), "weekend")
UNITS |= {"fin de semana": "weekend", "fines de semana": "weekend"}
UNITS |= dict.fromkeys(_each("fortnight fortnights"), "fortnight")
UNITS |= {"quarter": "quarter", "quarters": "quarter", "quartal": "quarter"}

BEFORE = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}
BEFORE |= {
    stem + end: shift
    for stem, shift in {"letzte": -1, "vorige": -1, "vergangene": -1, "diese": 0, "nachste": 1, "kommende": 1}.items()
    for end in ("", "n", "r", "s", "m")
}
BEFORE |= {"ce": 0, "cet": 0, "cette": 0, "este": 0, "esta": 0, "proximo": 1, "proxima": 1, "prochain": 1}
BEFORE |= {"prochaine": 1, "pasado": -1, "pasada": -1, "ultimo": -1, "ultima": -1}
"""Words before a date that select one of several."""

AFTER = dict.fromkeys(_each("dernier derniere passe passee pasado pasada"), -1)
AFTER |= dict.fromkeys(_each("prochain prochaine proximo proxima"), 1) | {"que viene": 1}
"""Words after a date that select one, as in French and Spanish."""

SHIFTS: Mapping[str, int | None] = {
    **dict.fromkeys(["the day before yesterday", "day before yesterday"], -2),
    **dict.fromkeys(["yesterday", "last night", "last evening"], -1),
    **dict.fromkeys(["today", "tonight", "this morning", "this afternoon", "this evening"], 0),
    **dict.fromkeys(["the day after tomorrow", "day after tomorrow"], 2),
    "tomorrow": 1,
    **dict.fromkeys(["vorgestern", "avant-hier", "anteayer", "antier"], -2),
    **dict.fromkeys(["gestern", "gestern morgen", "hier soir", "hier matin", "ayer", "anoche"], -1),
    **dict.fromkeys(["heute", "heute morgen", "aujourd'hui", "ce matin", "ce soir"], 0),
    **dict.fromkeys(["hoy", "esta manana", "esta tarde", "esta noche"], 0),
    **dict.fromkeys(["morgen", "demain", "manana"], 1),
    **dict.fromkeys(["ubermorgen", "uebermorgen", "apres-demain", "pasado manana"], 2),
    **dict.fromkeys(["guten morgen", "am morgen", "jeden morgen", "der morgen", "den morgen"]),
    **dict.fromkeys(["la manana", "las mananas", "buenas mananas"]),
}
"""Days from today; None where a morning is meant, and no day."""

HOLIDAYS = {
    "christmas": (12, 25),
    "christmas day": (12, 25),
    "xmas": (12, 25),
    "christmas eve": (12, 24),
    "boxing day": (12, 26),
    "new year's eve": (12, 31),
    "new years eve": (12, 31),
    "new year's day": (1, 1),
    "new years day": (1, 1),
    "new year's": (1, 1),
    "halloween": (10, 31),
    "valentine's day": (2, 14),
    "valentines day": (2, 14),
    "valentine's": (2, 14),
    "st. patrick's day": (3, 17),
    "st patrick's day": (3, 17),
    "independence day": (7, 4),
    "fourth of july": (7, 4),
    "weihnachten": (12, 25),
    "heiligabend": (12, 24),
    "silvester": (12, 31),
    "neujahr": (1, 1),
    "noel": (12, 25),
    "saint-sylvestre": (12, 31),
    "jour de l'an": (1, 1),
    "navidad": (12, 25),
    "nochebuena": (12, 24),
    "nochevieja": (12, 31),
    "ano nuevo": (1, 1),
}
"""Holidays with a fixed month and day."""

SEASONS = {
    **dict.fromkeys(_each("spring fruhling fruhjahr printemps primavera"), 3),
    **dict.fromkeys(_each("summer sommer ete verano"), 6),
    **dict.fromkeys(_each("autumn fall herbst automne otono"), 9),
    **dict.fromkeys(_each("winter hiver invierno"), 12),
}
"""The first of the three months, in the northern half of the world."""

PARTS = {
    **dict.fromkeys(["early", "early in", "the beginning of", "the start of", "anfang", "debut", "principios de"], 0),
    **dict.fromkeys(["mid", "the middle of", "mitte", "mi", "mediados de"], 1),
    **dict.fromkeys(["late", "late in", "the end of", "end of", "ende", "fin", "fin de", "finales de"], 2),
}
"""The beginning, the middle and the end of a month or a year."""

FRENCH = frozenset(
    _each(
        "avant soir matin je j nous vous il elle on ai as a avons ete etait est le la les un une du des et que qu quoi"
    )
)
"""Words of a text in which `hier` is French, yesterday, unless it holds one of `GERMAN`, in which it is here."""
GERMAN = frozenset(_each("ich du er sie wir ihr der die das und ist war bin nicht ein eine den dem"))


def either(words: Iterable[str]) -> str:
    """Return a pattern of any of the words, longest first; a space matches any blanks."""
    return "|".join(word.replace(".", r"\.").replace(" ", r"\s+") for word in sorted(words, key=len, reverse=True))


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
    """Return the terms of that many months, the first of them counted from the January of that year."""
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
    """Return the day that two numbers name, read with the day first and with the month first, if both are dates.

    `day_first` prefers that reading if it is a date. Without a year it is the nearest. Raises `ValueError` for none.
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
