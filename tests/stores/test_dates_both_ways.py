"""Dates that texts name, in both directions: as they are written, and as they are asked for."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.dates import date_terms, moment_terms
from stores.documents import document_of
from stores.observation import Observation

TUESDAY = datetime(2024, 3, 5, 12, tzinfo=UTC)

ASKED = [
    ("What did I do yesterday?", ["day:2024-03-04"]),
    ("the day before yesterday", ["day:2024-03-03"]),
    ("What did we plan for last Friday?", ["day:2024-03-01"]),
    ("Whom did I meet Friday?", ["day:2024-03-01"]),
    ("on Tuesday", ["day:2024-02-27"]),
    ("next Monday", ["day:2024-03-11"]),
    ("last weekend", ["day:2024-03-02", "day:2024-03-03"]),
    ("two weeks ago", ["week:2024-08"]),
    ("in three days", ["day:2024-03-08"]),
    ("3 months ago", ["month:2023-12"]),
    ("last year", ["year:2023"]),
    ("Where was I in June?", ["in:06"]),
    ("in May 2023", ["month:2023-05"]),
    ("on 5 March 2023", ["day:2023-03-05"]),
    ("on March 5th, 2023", ["day:2023-03-05"]),
    ("on Feb 29", ["day:2024-02-29"]),
    ("on 20 December", ["day:2023-12-20"]),
    ("on 3 April", ["day:2024-04-03"]),
    ("in 2022", ["year:2022"]),
    ("2023-02-11", ["day:2023-02-11"]),
    ("in 2023-02-11", ["day:2023-02-11"]),
    ("昨天我去了哪里", ["day:2024-03-04"]),
    ("大前天", ["day:2024-03-02"]),
    ("上周五", ["day:2024-03-01"]),
    ("下周一", ["day:2024-03-11"]),
    ("周五见过谁", ["day:2024-03-01"]),
    ("上个周末", ["day:2024-03-02", "day:2024-03-03"]),
    ("两周前", ["week:2024-08"]),
    ("三个月前", ["month:2023-12"]),
    ("上个月", ["month:2024-02"]),
    ("2023年6月1日", ["day:2023-06-01"]),
    ("去年6月", ["month:2023-06"]),
    ("去年", ["year:2023"]),
    ("在2023-02-11那天", ["day:2023-02-11"]),
    ("May I come?", []),
    ("Is it a good day?", []),
    ("on 31 February 2024", []),
    ("13月40日", []),
    ("999999 years ago, 0000-00-00", []),
]


@pytest.mark.parametrize(("text", "terms"), ASKED)
def test_a_question_is_asked_for_just_the_dates_that_it_names(text: str, terms: list[str]) -> None:
    assert date_terms(text, TUESDAY, exact=True) == terms


@pytest.mark.parametrize(("text", "terms"), ASKED)
def test_what_is_written_with_a_date_is_found_by_it(text: str, terms: list[str]) -> None:
    assert set(terms) <= set(date_terms(text, TUESDAY))


def test_a_day_is_also_found_by_what_it_lies_in() -> None:
    assert date_terms("yesterday", TUESDAY) == ["day:2024-03-04", "week:2024-10", "month:2024-03", "in:03", "year:2024"]
    assert date_terms("last month", TUESDAY) == ["month:2024-02", "in:02", "year:2024"]


def test_a_row_is_found_by_when_it_was_written_and_by_what_it_tells_of() -> None:
    row = Observation(
        id="01900000-0000-7000-8000-000000000001",
        created_at=TUESDAY,
        updated_at=TUESDAY,
        narrative="We met two days ago.",
    )
    asked_later = TUESDAY + timedelta(days=7)
    dates = document_of(row)["dates"]
    assert set(date_terms("What happened a week ago?", asked_later, exact=True)) <= set(dates)
    assert set(date_terms("Whom did I meet on March 3?", asked_later, exact=True)) <= set(dates)
    assert not set(date_terms("What happened yesterday?", asked_later, exact=True)) & set(dates)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_is_found_by_the_date_it_is_written_with(at: datetime) -> None:
    assert moment_terms(at)[0] == f"day:{at.date().isoformat()}"
    if at.year in range(1900, 2100):
        assert date_terms(at.date().isoformat(), at) == moment_terms(at)
        assert date_terms(f"{at.day} {at:%B} {at.year}", at) == moment_terms(at)


@given(st.text(alphabet="0123456789 -.年月日前后上下周五天lastnexFridygoinmarch", max_size=60), st.dates())
def test_no_text_is_too_strange_to_be_read(text: str, day: date) -> None:
    at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    found = date_terms(text, at)
    assert len(found) == len(set(found))
    assert set(date_terms(text, at, exact=True)) <= set(found)
