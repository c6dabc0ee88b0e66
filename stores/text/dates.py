"""Dates in texts as search terms: an event of "yesterday" is found by its date.

A term shows its precision: `day:2026-03-04`, `week:2026-10`, `month:2026-03`, `year:2026`, and `in:03` for a month of
any year. A day is also found by its month and year, a month by its year. `time:17:30` is a time of any day, and
`session:3` a session by its number. Relative dates are resolved from a moment that the caller gives: for stored texts
when they were written, for a question now. An ambiguous date has the terms of both readings.

English, German, French, Spanish and Chinese are understood; numeric dates are in any language.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

from chatbot.stores.text.chinese_dates import HINT, chinese_dates
from chatbot.stores.text.date_forms import rules_for
from chatbot.stores.text.date_spans import day_terms, named_dates

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
