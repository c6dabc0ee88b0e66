"""The values of options: from the text on the command line to a number, a time or a pair."""

from __future__ import annotations

import argparse
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

_MOST_DAYS = 3660
_SPAN = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def usd(text: str) -> float:
    """An amount of money, more than nothing."""
    amount = float(text)
    if not amount > 0:
        raise argparse.ArgumentTypeError(f"{text} should be more than 0")
    return amount


def count(text: str) -> int:
    """How many: a whole number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} should not be negative")
    return number


def days(text: str) -> float:
    """A number of days, more than none."""
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} should be a number of days, more than 0")
    return number


def whole_days(text: str) -> int:
    """A number of days, from 1 to ten years."""
    number = int(text)
    if not 1 <= number <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text} should be from 1 to {_MOST_DAYS}")
    return number


def share(text: str) -> float:
    """A number from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} should be a number from 0 to 1")
    return number


def past(text: str) -> datetime:
    """A time, or how long ago: `30d`."""
    return _time(text, -1)


def future(text: str) -> datetime | None:
    """A time, or in how long: `30d`; None for `never`."""
    return None if text == "never" else _time(text, 1)


def words(text: str) -> list[str]:
    """Words with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pair(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`; a value that is JSON means that, any other is text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} should be KEY=VALUE")
    try:
        return key, json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        return key, value


def _time(text: str, direction: int) -> datetime:
    """Times without a zone are UTC, as all are that we print."""
    from stores.records import read_time

    try:
        if span := _SPAN.fullmatch(text):
            return datetime.now(UTC) + direction * timedelta(**{_UNITS[span[2]]: int(span[1])})
        return read_time(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00Z, or 12h, 30d, 4w"
        ) from None
