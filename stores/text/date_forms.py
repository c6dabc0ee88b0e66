"""Forms of written dates, except Chinese ones, with their patterns and terms, for `chatbot.stores.text.dates`.

They match lower-case texts without accents. A form is tried only on texts that contain what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from chatbot.stores.text.date_words import (
    AFTER,
    BEFORE,
    COUNTS,
    ENGLISH_MONTHS,
    FRENCH,
    GERMAN,
    HOLIDAYS,
    MONTHS,
    ORDINALS,
    PARTS,
    SEASONS,
    SHIFTS,
    UNITS,
    WEEKDAYS,
    Part,
    Resolver,
    Rule,
    any_years,
    both_readings,
    day_of_month,
    day_of_year,
    day_terms,
    days_between,
    either,
    month_terms,
    months_from,
    part_of_month,
    shifted,
    weekday_before,
)

_WORD = re.compile(r"[a-z]+")
DIGIT, NUMERIC, CLOCK = "0", "0/0", "0:00"
"""Marks among a text's words for a digit, for two digits joined as in dates, and for a time of day."""
_NAMED_TIMES = ("noon", "midnight", "mitternacht", "minuit")
_ANY_DIGIT, _ASCII_DIGIT = re.compile(r"\d"), re.compile("[0-9]")
_SHAPES = {
    NUMERIC: re.compile(r"\d[-/.]\d"),
    CLOCK: re.compile(rf"\d(?::\d\d|\s?[ap]\.?m|\s?h\d\d|\s?uhr)|\b(?:{'|'.join(_NAMED_TIMES)})\b"),
}

_MONTH = rf"(?P<month>{either(MONTHS)})\.?"
_ENGLISH_MONTH = rf"(?P<month>{either(ENGLISH_MONTHS)})\.?"
_NUMBER = r"\d{1,2}(?:st|nd|rd|th|er|\.)?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?"
_UNTIL_DAY = r"\s*(?:-|\u2013|to|through|until|bis|au|al)\s*(?P<until>\d{1,2})(?:st|nd|rd|th|\.)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_OF = r"(?:of\s+|del?\s+|d')"
_OPTIONAL_YEAR = rf"(?:\s*,?\s*(?:{_OF}|in\s+)?{_YEAR})?"
_COUNT = rf"(?P<count>\d{{1,3}}|{either(COUNTS)})"
_UNIT = rf"(?P<unit>{either(UNITS)})"
_NEAR_UNITS = [unit for unit, kind in UNITS.items() if kind != "day"]
_BEFORE, _AFTER = rf"(?P<which>{either(BEFORE)})", rf"(?P<after>{either(AFTER)})"
_WEEKDAY = rf"(?P<weekday>{either(WEEKDAYS)})"
_TO = r"\s*(?:-|\u2013|to|through|until|till|and|bis|und|a|et|hasta|y)\s*"
_ALSO_DATED = (
    rf"(?!,?\s+(?:the\s+|den\s+)?(?:{_NUMBER}\s+{_OF}?(?:{either(MONTHS)})|(?:{either(MONTHS)})\.?\s+\d|\d+[./]\d))"
)


def words_of(plain: str) -> set[str]:
    """Return what forms may need: the words of a text, and the shapes of other parts."""
    words = set(_WORD.findall(plain))
    if "hier" in words and (words.isdisjoint(FRENCH) or not words.isdisjoint(GERMAN)):
        words.remove("hier")
    if _ANY_DIGIT.search(plain):
        words.update(name for name, shape in _SHAPES.items() if shape.search(plain))
        if plain.isascii() or _ASCII_DIGIT.search(plain):
            words.add(DIGIT)
    elif not words.isdisjoint(_NAMED_TIMES):
        words.add(CLOCK)
    return words


def rules_for(plain: str) -> list[Rule]:
    """Return the rules of the forms whose words the text has, in order."""
    words = words_of(plain) & _NEEDED
    return [form.rule for form in FORMS if not any(map(words.isdisjoint, form.needed))] if words else []


def _iso(part: Part, _: date) -> list[str]:
    return day_terms(date(int(part["year"]), int(part["number"]), int(part["day"])))


def _numeric(part: Part, today: date) -> list[str]:
    first, second, year = part["first"], part["second"], part["year"] or ""
    if len(year) == 2 and (part["dash"] == "-" or (part["dash"] == "." and len(first + second) < 4)):
        raise ValueError(f"{first}.{second}.{year} looks like a version")
    full = int(year) + 2000 * (len(year) == 2) if year else None
    return both_readings(int(first), int(second), full, today, day_first=part["dash"] == ".")


def _named_day(part: Part, today: date) -> list[str]:
    month = MONTHS[part["month"]]
    day = ORDINALS.get(part["day"]) or int(part["day"])
    return day_terms(date(int(part["year"]), month, day)) if part["year"] else day_of_year(month, day, today)


def _days(part: Part, today: date) -> list[str]:
    month, first, last = MONTHS[part["month"]], int(part["day"]), int(part["until"])
    year = int(part["year"]) if part["year"] else int(day_of_year(month, first, today)[0][4:8])
    return days_between(date(year, month, first), date(year, month, last))


def _months(part: Part, _: date) -> list[str]:
    first, last = MONTHS[part["month"]], MONTHS[part["last"]]
    count = (last - first) % 12 + 1
    if not part["year"]:
        return [any_years((first + each - 1) % 12 + 1) for each in range(count)]
    return months_from(int(part["begin"] or int(part["year"]) - (last < first)), first, count)


def _part_of_month(part: Part, today: date) -> list[str]:
    month = MONTHS[part["month"]]
    year = int(part["year"] or day_of_year(month, 1, today)[0][4:8])
    return part_of_month(year, month, PARTS[_spaced(part["part"])])


def _part_of_year(part: Part, _: date) -> list[str]:
    return months_from(int(part["year"]), 1 + 4 * PARTS[_spaced(part["part"])], 4)


def _named_month(part: Part, _: date) -> list[str]:
    return month_terms(int(part["year"]), MONTHS[part["month"]])


def _month_alone(part: Part, today: date) -> list[str]:
    month, shift = MONTHS[part["month"]], _shift(part)
    if shift is None:
        return [any_years(month)]
    has_passed, is_to_come = month < today.month, month > today.month
    return month_terms(today.year + {-1: has_passed - 1, 0: 0, 1: 1 - is_to_come}[shift], month)


def _holiday(part: Part, today: date) -> list[str]:
    month, day = HOLIDAYS[_spaced(part["holiday"])]
    if part["year"]:
        return day_terms(date(int(part["year"]), month, day))
    shift, this = _shift(part), date(today.year, month, day)
    if not shift:
        return day_of_year(month, day, today)
    return day_terms(this.replace(year=today.year + (this <= today if shift > 0 else -(this >= today))))


def _quarter(part: Part, today: date) -> list[str]:
    number = part["quarter"] or part["number"] or part["nth"]
    month = 3 * (ORDINALS.get(number) or int(number[0])) - 2
    year = part["year"] or part["begin"]
    return months_from(int(year) if year else today.year - (month > today.month), month, 3)


def _season(part: Part, today: date) -> list[str]:
    month, shift = SEASONS[part["season"] or part["season_after"]], _shift(part)
    if part["year"]:
        year = int(part["year"])
        winter = months_from(year, 1, 2) if month == 12 else []
        return [*months_from(year, month, 3), *winter]
    if shift is None:
        return [any_years((month + each - 1) % 12 + 1) for each in range(3)]
    latest = today.year - (today.month < month)
    is_now = (today.month - month) % 12 < 3
    year = {-1: latest - is_now, 0: latest if is_now else today.year, 1: latest + 1}[shift]
    return months_from(year, month, 3)


def _away(part: Part, today: date) -> list[str]:
    return shifted(UNITS[_spaced(part["unit"])], -_count(part), today)


def _ahead(part: Part, today: date) -> list[str]:
    return shifted(UNITS[_spaced(part["unit"])], _count(part), today)


def _near(part: Part, today: date) -> list[str]:
    return shifted(UNITS[_spaced(part["unit"] or part["unit_after"])], _shift(part) or 0, today)


def _weekday(part: Part, today: date) -> list[str]:
    weekday, shift = WEEKDAYS[part["weekday"]], _shift(part)
    if shift is not None and shift >= 0:
        return day_terms(today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1))
    return weekday_before(weekday, today)


def _word(part: Part, today: date) -> list[str]:
    shift = SHIFTS[_spaced(part["word"])]
    return [] if shift is None else day_terms(today + timedelta(days=shift))


def _hier(_: Part, today: date) -> list[str]:
    return day_terms(today - timedelta(days=1))


def _day_alone(part: Part, today: date) -> list[str]:
    months = BEFORE[part["which"]] if part["which"] else None
    return day_of_month(int(part["day"]), months, today)


def _year(part: Part, _: date) -> list[str]:
    return [f"year:{part['year']}"]


def _clock(part: Part, _: date) -> list[str]:
    if part["named"]:
        return ["time:12:00" if part["named"] == "noon" else "time:00:00"]
    hour, minute = int(part["hour"]), int(part["minute"] or part["minute_h"] or 0)
    if not (half := (part["half"] or "")[:1]):
        hours = [hour, hour + 12] if 1 <= hour < 12 and len(part["hour"]) == 1 and part["minute"] else [hour]
    elif not 1 <= hour <= 12:
        raise ValueError(f"there is no {hour} o'clock {half}m")
    else:
        hours = [hour % 12 + 12 * (half == "p")]
    if hour > 24 or minute > 59:
        raise ValueError(f"there is no {hour}:{minute:02}")
    return [f"time:{each % 24:02}:{minute:02}" for each in hours]


def _spaced(words: str) -> str:
    return " ".join(words.split())


def _shift(part: Part) -> int | None:
    """Return which of several dates is meant; None if the text does not state it."""
    name = part.get("which") or part.get("after")
    if not name:
        return None
    return BEFORE[name] if name in BEFORE else AFTER[_spaced(name)]


def _count(part: Part) -> int:
    name = _spaced(part["count"])
    return COUNTS.get(name) or int(name)


def _first_words(*tables: Collection[str]) -> frozenset[str]:
    """Return the last word of each name that a rule knows: a text without it cannot contain the name."""
    return frozenset(_WORD.findall(name)[-1] for table in tables for name in table)


@dataclass(frozen=True)
class _Form:
    """A way to write a date, read from texts that hold a word of each of the sets. Compiled when it is first needed."""

    pattern: str
    resolve: Resolver
    needed: tuple[frozenset[str], ...]

    @cached_property
    def rule(self) -> Rule:
        return re.compile(self.pattern), self.resolve


def _rule(pattern: str, resolve: Resolver, *needed: Collection[str]) -> _Form:
    return _Form(pattern, resolve, tuple(frozenset(each) for each in needed))


_MONTH_WORDS, _DIGITS, _NUMERICS = frozenset(MONTHS), {DIGIT}, {NUMERIC}
_UNIT_WORDS = _first_words(UNITS)
_IN_ENGLISH = r"in|during|since|until|by|of"
_IN_OTHERS = r"im|seit|bis|ab|en|depuis|de|desde|hasta"
_FOLLOWS = (
    r"(?=\s*(?:$|[.,;:!?)\n])|\s+(?:and|or|at|in|i|we|he|she|they|you|it|was|is|with|for|because|when|to|by|there)\b)"
)
FORMS = [
    _rule(
        r"(?<![\d-])(?<!\d[./])(?P<year>(?:19|20)\d\d)(?P<dash>[-/.])(?P<number>\d{1,2})(?P=dash)(?P<day>\d{1,2})(?![\d]|[-/.]\d)",
        _iso,
        _NUMERICS,
    ),
    _rule(
        r"(?<![\d./-])(?P<first>\d{1,2})(?P<dash>[-/.])(?P<second>\d{1,2})(?P=dash)(?P<year>(?:19|20)\d\d|\d\d)(?!\d|[-/.]\d)",
        _numeric,
        _NUMERICS,
    ),
    _rule(r"\bon\s+(?P<first>\d{1,2})(?P<dash>/)(?P<second>\d{1,2})(?P<year>)(?![\d/])", _numeric, _NUMERICS, {"on"}),
    _rule(
        r"\b(?:am|vom|zum|seit|bis)\s+(?P<first>\d{1,2})(?P<dash>\.)(?P<second>\d{1,2})(?P<year>)\.(?!\d)",
        _numeric,
        _NUMERICS,
        {"am", "vom", "zum", "seit", "bis"},
    ),
    _rule(
        rf"\b{_ENGLISH_MONTH}\s+{_DAY}{_UNTIL_DAY}(?!\d|:|\s*[ap]\.?m){_OPTIONAL_YEAR}\b",
        _days,
        ENGLISH_MONTHS,
        _DIGITS,
    ),
    _rule(rf"\b{_DAY}{_UNTIL_DAY}\s+{_OF}?{_MONTH}{_OPTIONAL_YEAR}\b", _days, _MONTH_WORDS, _DIGITS),
    _rule(
        rf"\b{_MONTH}(?:\s+{_YEAR.replace('year', 'begin')})?{_TO}{_MONTH.replace('month', 'last')}{_OPTIONAL_YEAR}\b",
        _months,
        _MONTH_WORDS,
    ),
    _rule(rf"\b{_ENGLISH_MONTH}\s+(?:the\s+)?{_DAY}(?!\d|:\d){_OPTIONAL_YEAR}\b", _named_day, ENGLISH_MONTHS, _DIGITS),
    _rule(rf"\b{_DAY}\s+{_OF}?{_MONTH}{_OPTIONAL_YEAR}\b", _named_day, _MONTH_WORDS, _DIGITS),
    _rule(
        rf"\b(?P<day>{either(ORDINALS)})\s+of\s+{_ENGLISH_MONTH}{_OPTIONAL_YEAR}\b",
        _named_day,
        ENGLISH_MONTHS,
        _first_words(ORDINALS),
    ),
    _rule(
        rf"\b(?:the|on)\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)(?:\s+of\s+{_BEFORE}\s+month\b|(?:\s+of\s+the\s+month)?{_FOLLOWS})",
        _day_alone,
        {"st", "nd", "rd", "th"},
    ),
    _rule(
        rf"\b(?P<part>{either(PARTS)})[\s-]+{_MONTH}{_OPTIONAL_YEAR}\b",
        _part_of_month,
        _MONTH_WORDS,
        _first_words(PARTS),
    ),
    _rule(rf"\b(?P<part>{either(PARTS)})[\s-]+{_YEAR}\b", _part_of_year, _DIGITS, _first_words(PARTS)),
    _rule(rf"\b{_MONTH}\s*,?\s*{_OF}?{_YEAR}\b", _named_month, _MONTH_WORDS, _DIGITS),
    _rule(
        rf"\b(?:{_IN_ENGLISH}|{_BEFORE})\s+{_ENGLISH_MONTH}\b",
        _month_alone,
        ENGLISH_MONTHS,
        [*_IN_ENGLISH.split("|"), *BEFORE],
    ),
    _rule(
        rf"\b(?:(?:{_IN_OTHERS})\s+(?P<month>{either(MONTHS)})(?:\s+{_AFTER})?)\b",
        _month_alone,
        _MONTH_WORDS,
        _IN_OTHERS.split("|"),
    ),
    _rule(rf"\b(?:{_BEFORE}\s+)?(?P<holiday>{either(HOLIDAYS)})\b{_OPTIONAL_YEAR}", _holiday, _first_words(HOLIDAYS)),
    _rule(
        rf"\b(?:q(?P<quarter>[1-4])|{_YEAR.replace('year', 'begin')}[\s-]*q(?P<number>[1-4])"
        rf"|(?P<nth>first|second|third|fourth|[1-4](?:st|nd|rd|th))\s+quarter)\b{_OPTIONAL_YEAR}",
        _quarter,
        {"q", "quarter"},
    ),
    _rule(
        rf"\b(?:{_BEFORE}|in\s+the|in|im|en|au|l'|during\s+the)\s*\b(?P<season>{either(SEASONS)}){_OPTIONAL_YEAR}\b"
        rf"|\b(?P<season_after>{either(SEASONS)})\s+(?:{_AFTER}|{_OF}?{_YEAR.replace('year', 'begin')})\b",
        lambda part, today: _season(part | {"year": part["year"] or part["begin"]}, today),
        SEASONS,
    ),
    _rule(rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|back|earlier)\b", _away, {"ago", "back", "earlier"}, _UNIT_WORDS),
    _rule(rf"\b{_COUNT}\s+{_UNIT}\s+from\s+now\b", _ahead, {"from"}, {"now"}, _UNIT_WORDS),
    _rule(rf"\b(?:vor|il\s+y\s+a|hace)\s+{_COUNT}\s+{_UNIT}\b", _away, {"vor", "il", "hace"}, _UNIT_WORDS),
    _rule(rf"\b(?:in|dans|dentro\s+de|en)\s+{_COUNT}\s+{_UNIT}\b", _ahead, {"in", "dans", "dentro", "en"}, _UNIT_WORDS),
    _rule(
        rf"\b{_BEFORE}\s+(?P<unit>{either(_NEAR_UNITS)})\b|\b(?P<unit_after>{either(_NEAR_UNITS)})\s+{_AFTER}\b",
        _near,
        _first_words(_NEAR_UNITS),
        [*BEFORE, *_first_words(AFTER)],
    ),
    _rule(rf"\b(?:{_BEFORE}\s+)?{_WEEKDAY}\b{_ALSO_DATED}(?:\s+{_AFTER}\b)?", _weekday, WEEKDAYS),
    _rule(rf"\b(?P<word>{either(SHIFTS)})\b", _word, _first_words(SHIFTS)),
    _rule(r"\bhier\b", _hier, {"hier"}),
    _rule(rf"\b(?:in|during|since|of|year|im\s+jahr|seit|en|depuis|desde)\s+{_YEAR}\b", _year, _DIGITS),
    _rule(
        r"(?<![\d:.])(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?!\d|:\d)\s*(?:uhr)?(?P<half>[ap]\.?m)?"
        r"|\s?(?P<half_alone>[ap]\.?m)|\s?h(?P<minute_h>\d\d)|\s?uhr)\b|\b(?P<named>noon|midnight|mitternacht|minuit)\b",
        lambda part, today: _clock(part | {"half": part["half"] or part["half_alone"]}, today),
        {CLOCK},
    ),
]
"""Rules in order: text matched by one is not read by the next."""
_NEEDED = frozenset[str]().union(*(words for form in FORMS for words in form.needed))
