"""Dates in texts as search terms: an event of "yesterday" is found by its date.

A term shows its precision: `day:2026-03-04`, `week:2026-10`, `month:2026-03`, `year:2026`, and `in:03` for a month of
any year. A day is also found by its month and year, a month by its year. `time:17:30` is a time of any day. Relative
dates are resolved from a moment that the caller gives: for stored texts when they were written, for a question now. An
ambiguous date has the terms of both readings.

English, German, French, Spanish and Chinese are understood; numeric dates are in any language. A Chinese weekday with
"last", "this" or "next" is one of that week, Monday to Sunday; without, it is the last one before today.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from chatbot.stores.text.date_forms import rules_for
from chatbot.stores.text.date_words import (
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

_LONGEST = 5_000
"""Characters of a text that are looked at."""
_ACCENT = re.compile("[\u0300-\u036f]")


def date_terms(text: str, at: datetime, *, exact: bool = False) -> list[str]:
    """The terms of all dates that the text names, each once, in order; relative ones counted from `at`.

    `exact` leaves out the week, month and year that a day lies in, and the year of a month: that is for questions.
    """
    text = text[:_LONGEST]
    plain = _plain(text)
    rules = rules_for(plain)
    found = list(named_dates(rules, plain, at.date())) if rules else []
    if not text.isascii() and HINT.search(text):
        found += chinese_dates(text, at.date())
    return list(dict.fromkeys(each for dates in found for each in (_finest(dates) if exact else dates)))


def moment_terms(at: datetime) -> list[str]:
    """The terms of one day: itself, its week, month and year, and its month of any year."""
    return day_terms(at.date())


def _plain(text: str) -> str:
    """The text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    return _ACCENT.sub("", unicodedata.normalize("NFD", text.lower().replace("’", "'")))


def _finest(dates: list[str]) -> list[str]:
    """Return the named spans without the larger ones around them, such as both days of a weekend."""
    kind = dates[0].partition(":")[0]
    kinds = {"week", "month", "in"} if kind == "week" else {kind}
    return [each for each in dates if each.partition(":")[0] in kinds]


HINT = re.compile("[年月日号天昨今明后周晚早]|星期|礼拜")
"""No date without one of these."""

_DIGITS = "零一二三四五六七八九十"
_COUNT = r"(?P<count>\d{1,3}|[一二两三四五六七八九十几])"
_WHICH = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1}
_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_WORDS = {"大前天": -3, "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "今天": 0, "今日": 0, "今早": 0, "今晚": 0}
_WORDS |= {"明天": 1, "明日": 1, "明晚": 1, "后天": 2, "大后天": 3}
_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1}
_NAMED_YEAR = r"(?P<year>(?:19|20)\d\d年|前年|去年|今年|明年)"


def chinese_dates(text: str, today: date) -> Iterator[list[str]]:
    """The terms of each date that the text names."""
    return named_dates(_RULES, text, today)


def _day(part: dict[str, str], today: date) -> list[str]:
    month, day = int(part["month"]), int(part["day"])
    return (
        day_terms(date(_year_of(part["year"], today), month, day)) if part["year"] else day_of_year(month, day, today)
    )


def _month(part: dict[str, str], today: date) -> list[str]:
    month = int(part["month"])
    if part["year"]:
        return month_terms(_year_of(part["year"], today), month)
    return [any_years(month)]


def _year(part: dict[str, str], today: date) -> list[str]:
    return [f"year:{_year_of(part['year'], today)}"]


def _word(part: dict[str, str], today: date) -> list[str]:
    return day_terms(today + timedelta(days=_WORDS[part["word"]]))


def _away(part: dict[str, str], today: date) -> list[str]:
    count = _number(part["count"])
    return shifted(_UNITS[part["unit"]], count if part["side"] == "后" else -count, today)


def _near(part: dict[str, str], today: date) -> list[str]:
    weeks = _WHICH[part["which"]]
    return weekend(today, weeks) if part["unit"] == "周末" else shifted(_UNITS[part["unit"]], weeks, today)


def _weekday(part: dict[str, str], today: date) -> list[str]:
    weekday = "一二三四五六日".index(part["weekday"].replace("天", "日"))
    if not part["which"]:
        return weekday_before(weekday, today)
    return day_terms(today + timedelta(days=weekday - today.weekday(), weeks=_WHICH[part["which"]]))


def _year_of(name: str, today: date) -> int:
    return today.year + _YEARS[name] if name in _YEARS else int(name.removesuffix("年"))


def _number(name: str) -> int:
    if name == "几":
        return 3
    return 2 if name == "两" else _DIGITS.index(name) if name in _DIGITS else int(name)


_RULES: list[Rule] = [
    (re.compile(rf"(?<!\d){_NAMED_YEAR}?(?P<month>\d{{1,2}})月(?P<day>\d{{1,2}})[日号]"), _day),
    (re.compile(rf"(?<!\d){_NAMED_YEAR}?(?P<month>\d{{1,2}})月(?!\d)"), _month),
    (re.compile(rf"(?<!\d){_NAMED_YEAR}"), _year),
    (re.compile(f"(?P<word>{'|'.join(sorted(_WORDS, key=len, reverse=True))})"), _word),
    (re.compile(rf"(?<!\d){_COUNT}个?(?P<unit>天|周|星期|礼拜|月|年)(?:之|以)?(?P<side>前|后)"), _away),
    (re.compile(r"(?P<which>上上|上|这|本|下)个?(?P<unit>周末|周|星期|礼拜|月)(?![一二三四五六日天末])"), _near),
    (re.compile(r"(?:(?P<which>上上|上|这|本|下)个?)?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])"), _weekday),
]
