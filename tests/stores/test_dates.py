"""Dates that texts name, in both directions: as they are written, and as they are asked for."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores.observation import Observation
from chatbot.stores.observations.search import document_of
from chatbot.stores.text.dates import date_terms

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
    ("2023/09/11", ["day:2023-09-11"]),
    ("2023.9.1", ["day:2023-09-01"]),
    ("am 11.09.2023", ["day:2023-09-11"]),
    ("9/11/2023", ["day:2023-11-09", "day:2023-09-11"]),
    ("13/11/2023", ["day:2023-11-13"]),
    ("11/13/23", ["day:2023-11-13"]),
    ("Sept. 11th", ["day:2023-09-11"]),
    ("11 Sep", ["day:2023-09-11"]),
    ("Friday, May 5, 2023", ["day:2023-05-05"]),
    ("May 3-5, 2023", ["day:2023-05-03"]),
    ("the day after tomorrow", ["day:2024-03-07"]),
    ("yesterday evening", ["day:2024-03-04"]),
    ("two weekends ago", ["day:2024-02-24", "day:2024-02-25"]),
    ("in the summer of 2023", ["month:2023-06", "month:2023-07", "month:2023-08"]),
    ("last winter", ["month:2023-12", "month:2024-01", "month:2024-02"]),
    ("in the summer", ["in:06", "in:07", "in:08"]),
    ("last May", ["month:2023-05"]),
    ("next May", ["month:2024-05"]),
    ("am 3. März", ["day:2024-03-03"]),
    ("im Mai", ["in:05"]),
    ("le 1er mai 2023", ["day:2023-05-01"]),
    ("en août", ["in:08"]),
    ("el 3 de mayo de 2023", ["day:2023-05-03"]),
    ("2023年6月1日", ["day:2023-06-01"]),
    ("在2023-02-11那天", ["day:2023-02-11"]),
    ("May I come?", []),
    ("Is it a good day?", []),
    ("on 31 February 2024", []),
    ("13月40日", []),
    ("999999 years ago, 0000-00-00", []),
    *[(text, []) for text in ("version 2.1.3", "10.0.0.12", "24/7", "1/2 cup", "on the 3rd floor", "I fall down")],
    *[(text, []) for text in ("the fall of Rome", "on Mars", "ich bin hier", "guten Morgen", "por la mañana")],
    *[(text, []) for text in ("j'ai été malade", "chat a little", "second nature", "it takes 3-4 days", "you may go")],
    *[(text, []) for text in ("", "the march of time")],
]


@pytest.mark.parametrize(("text", "terms"), ASKED)
def test_a_question_is_asked_for_just_the_dates_that_it_names(text: str, terms: list[str]) -> None:
    assert date_terms(text, TUESDAY, exact=True) == terms


def test_what_is_written_with_a_date_is_found_by_it() -> None:
    for text, terms in ASKED:
        found = date_terms(text, TUESDAY)
        assert (set(terms) <= set(found), bool(found)) == (True, bool(terms)), text


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


GERMAN = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
FRENCH = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()  # noqa: SIM905
SPANISH = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split()  # noqa: SIM905
WRITTEN: dict[str, Callable[[date], str]] = {
    "ISO": lambda day: day.isoformat(),
    "year first": lambda day: f"{day.year}/{day.month}/{day.day}",
    "dots": lambda day: f"{day.day:02}.{day.month:02}.{day.year}",
    "American": lambda day: f"{day.month}/{day.day}/{day.year}",
    "British": lambda day: f"{day.day}/{day.month:02}/{day.year}",
    "English": lambda day: f"{day:%B} {day.day}th, {day.year}",
    "English, short": lambda day: f"{day:%b}. {day.day} {day.year}",
    "English, day first": lambda day: f"the {day.day}th of {day:%B} {day.year}",
    "with the weekday": lambda day: f"{day:%A}, {day.day} {day:%b} {day.year}",
    "German": lambda day: f"am {day.day}. {GERMAN[day.month - 1]} {day.year}",
    "French": lambda day: f"le {day.day} {FRENCH[day.month - 1]} {day.year}",
    "Spanish": lambda day: f"el {day.day} de {SPANISH[day.month - 1]} de {day.year}",
    "Chinese": lambda day: f"{day.year}年{day.month}月{day.day}日",
}
DAYS = st.dates(date(1950, 1, 1), date(2089, 12, 31))
MOMENTS = st.datetimes(datetime(1950, 1, 1), datetime(2089, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(day=DAYS, said=MOMENTS, now=MOMENTS)
def test_a_date_in_any_form_is_found_by_any_other(day: date, said: datetime, now: datetime) -> None:
    for form in WRITTEN.values():
        written = set(date_terms(f"We met {form(day)} in the park.", said))
        asked = set(date_terms(f"Whom did I meet {form(day)}?", now, exact=True))
        assert f"day:{day}" in written & asked
        if "/" not in form(day):
            assert {f"day:{day}"} == {term for term in written if term.startswith("day:")} == asked


@given(st.text(alphabet="0123456789 -./:年月日前后上下周五天lastnexFridygoinmarch", max_size=60), st.dates())
def test_no_text_is_too_strange_to_be_read(text: str, day: date) -> None:
    at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    found = date_terms(text, at)
    assert len(found) == len(set(found))
    assert set(date_terms(text, at, exact=True)) <= set(found)


def test_the_cost_is_bounded() -> None:
    assert len(date_terms("yesterday " * 1_000_000, TUESDAY)) == 5


@pytest.mark.parametrize("piece", ["may ", " ", "1", "5 5 ", "1/", "may 5 to ", "last ", "in the ", "é", "2023-"])
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    date_terms(piece * 5_000, TUESDAY)
    assert time.process_time() - started < 2
