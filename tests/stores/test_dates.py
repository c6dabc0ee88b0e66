"""Dates in texts, relative ones counted from when they were written or asked."""

import time
from datetime import UTC, datetime

import pytest

from chatbot.stores.text.dates import date_terms, moment_terms

NOW = datetime(2023, 5, 10, 18, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("I went there yesterday", "day:2023-05-09"),
        ("the day before yesterday", "day:2023-05-08"),
        ("we meet tomorrow", "day:2023-05-11"),
        ("last Friday we met", "day:2023-05-05"),
        ("last Wednesday", "day:2023-05-03"),
        ("next Monday", "day:2023-05-15"),
        ("last weekend", "day:2023-05-06"),
        ("two weeks ago", "week:2023-17"),
        ("3 days ago", "day:2023-05-07"),
        ("a month ago", "month:2023-04"),
        ("six months ago", "month:2022-11"),
        ("last year", "year:2022"),
        ("on 2023-01-31", "day:2023-01-31"),
        ("May 8, 2023", "day:2023-05-08"),
        ("8 May 2023", "day:2023-05-08"),
        ("on the 8th of May", "day:2023-05-08"),
        ("Dec 24", "day:2022-12-24"),
        ("in March 2021", "month:2021-03"),
        ("since June", "in:06"),
        ("in 2019", "year:2019"),
    ],
)
def test_a_date_is_found_however_it_is_said(text: str, first: str) -> None:
    assert date_terms(text, NOW)[0] == first
    assert date_terms(text, NOW, exact=True)[0] == first


NO_DATES = [
    "version 2.1.3",
    "10.0.0.12",
    "24/7",
    "1/2 cup",
    "on the 3rd floor",
    "I fall down",
    "the fall of Rome",
    "on Mars",
    "ich bin hier",
    "guten Morgen",
    "por la mañana",
    "j'ai été malade",
    "chat a little",
    "second nature",
    "it takes 3-4 days",
]


@pytest.mark.parametrize("text", ["", "you may go", "31 February", "the march of time", "version 2.0", *NO_DATES])
def test_what_is_no_date_is_none(text: str) -> None:
    assert date_terms(text, NOW) == []


def test_a_day_is_also_found_by_its_week_month_and_year() -> None:
    assert moment_terms(NOW) == ["day:2023-05-10", "week:2023-19", "month:2023-05", "in:05", "year:2023"]
    assert set(moment_terms(NOW)) >= set(date_terms("May 10", NOW, exact=True))


def test_the_cost_is_bounded() -> None:
    assert len(date_terms("yesterday " * 1_000_000, NOW)) == 5


@pytest.mark.parametrize(
    "piece",
    ["may ", " ", "1", "5 5 ", "1/", "may 5 to ", "last ", "in the ", "twenty ", "mid-", "é", "2023-"],
)
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    date_terms(piece * 5_000, NOW)
    assert time.process_time() - started < 2
