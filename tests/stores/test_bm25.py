"""The reference of ranking, in the small and beside Whoosh."""

from whoosh.util.numeric import byte_to_length as whoosh_length
from whoosh.util.numeric import length_to_byte as whoosh_byte

from chatbot.stores.text.bm25 import LENGTHS, MAX_FREQUENCY, frequencies, length_to_byte, rank, score_sessions


def test_lengths_are_quantised_as_whoosh_does() -> None:
    assert list(LENGTHS) == [whoosh_length(code) for code in range(256)]
    lengths = [*range(2000), 106_373, 106_374, 106_375, 10**9]
    assert [length_to_byte(length) for length in lengths] == [whoosh_byte(length) for length in lengths]


def test_a_term_asked_twice_counts_once_and_nothing_matches_nothing() -> None:
    documents = {0: {"user": ["x"]}, 1: {"title": ["y"]}}
    assert rank(documents, ["x", "x"]) == rank(documents, ["x"])
    assert rank(documents, []) == {}
    assert rank({}, ["x"]) == {}
    assert rank(documents, ["z"]) == {}


def test_a_term_repeated_without_end_counts_as_often_as_the_bound() -> None:
    assert frequencies(["x"] * 70_000) == {"x": MAX_FREQUENCY}


def test_a_session_is_about_what_many_of_its_rows_hold() -> None:
    scores = score_sessions([{"a": 3, "b": 1}, {"a": 1}])
    assert scores["a"] > scores["b"] > 0
    assert score_sessions([]) == score_sessions([{}, {}]) == {}
