"""The reference of ranking, in the small and beside Whoosh."""

from math import log

import pytest
from whoosh.util.numeric import byte_to_length as whoosh_length
from whoosh.util.numeric import length_to_byte as whoosh_byte

from chatbot.stores.text.bm25 import (
    LENGTHS,
    MAX_FREQUENCY,
    frequencies,
    length_to_byte,
    rank,
    score_sessions,
)


def test_lengths_are_quantised_as_whoosh_does() -> None:
    assert list(LENGTHS) == [whoosh_length(code) for code in range(256)]
    lengths = [*range(2000), 106_373, 106_374, 106_375, 10**9]
    assert [length_to_byte(length) for length in lengths] == [whoosh_byte(length) for length in lengths]


def test_a_score_is_what_the_formula_says() -> None:
    documents = {3: {"title": ["x", "x", "y"]}, 5: {"title": ["y"]}, 8: {}}
    idf, average = log(3 / 2) + 1, 4 / 3
    assert rank(documents, ["x"]) == {3: pytest.approx(idf * (2 * 1.9) / (2 + 0.9 * (0.25 + 0.75 * 3 / average)))}


def test_what_an_assistant_said_counts_less() -> None:
    documents = {0: {"user": ["x"], "assistant": ["y"]}, 1: {"user": ["y"], "assistant": ["x"]}}
    scores = rank(documents, ["x"])
    assert scores[1] == pytest.approx(0.4 * scores[0])


def test_a_word_that_many_said_is_not_rare_where_one_repeats_it() -> None:
    said = {row: {"user": ["x"]} for row in range(9)}
    documents = {**said, 9: {"title": ["x"]}, 10: {"title": ["y"]}, 11: {"title": ["z"]}}
    scores = rank(documents, ["x", "y"])
    assert scores[9] == pytest.approx((log(12 / 11) + 1) / (log(12 / 2) + 1) * scores[10])


def test_a_term_asked_twice_counts_once_and_nothing_matches_nothing() -> None:
    documents = {0: {"user": ["x"]}, 1: {"title": ["y"]}}
    assert rank(documents, ["x", "x"]) == rank(documents, ["x"])
    assert rank(documents, []) == {}
    assert rank({}, ["x"]) == {}
    assert rank(documents, ["z"]) == {}


def test_a_term_repeated_without_end_counts_as_often_as_the_bound() -> None:
    assert frequencies(["x"] * 70_000) == {"x": MAX_FREQUENCY}


def test_a_long_message_of_a_person_loses_less_than_a_long_reply() -> None:
    def share_of_a_long_one(field: str) -> float:
        scores = rank({0: {field: ["x"]}, 1: {field: ["x", *"abcdefgh"]}}, ["x"])
        return scores[1] / scores[0]

    assert share_of_a_long_one("assistant") < share_of_a_long_one("user") < 1


def test_a_session_is_about_what_many_of_its_rows_hold() -> None:
    scores = score_sessions([{"a": 3, "b": 1}, {"a": 1}])
    assert scores["a"] > scores["b"] > 0
    assert score_sessions([]) == score_sessions([{}, {}]) == {}
