"""Terms by which a text is found."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores.text.analysis import MAX_TERM, terms
from tests.effort import rounds

CASES = {
    "What did the runners run?": ["runner", "run"],
    "Who was it, and why?": [],
    "I'd say they're not, aren't we?": [],
    "Anna's O’Brien": ["anna", "obrien"],
    "sqlite.go": ["sqlite.go", "sqlite", "go"],
    "NewSQLiteStore": ["newsqlitestor", "new", "sqlite", "store"],
    "parseHTTPResponse": ["parsehttprespons", "pars", "http", "respons"],
    "snake_case kebab-case": ["snake_case", "snake", "case", "kebab-case", "kebab", "case"],
    "__init__.py": ["init__.py", "init", "py"],
    "stores/files.py": ["stores/files.py", "files.py", "store", "file", "py"],
    "C:\\Users\\bob": ["c", "users\\bob", "user", "bob"],
    "1,000 3.14 2026-11-21": ["1000", "3.14", "3", "14", "2026-11-21", "2026", "11", "21"],
    "1,2,3": ["1", "2", "3"],
    "C++ and C#, utf8": ["c++", "c#", "utf8"],
    "Café naïve Ångström straße": ["cafe", "naiv", "angstrom", "strass"],
    "ＦＵＬＬ ﬁle": ["full", "file"],
    "東京塔": ["東", "京", "塔", "東京", "京塔"],
    "カフェ": ["カ", "フ", "ェ", "カフ", "フェ"],
    "한국 x86": ["한", "국", "한국", "x86"],
    "abc東京": ["abc", "東", "京", "東京"],
    "हिन्दी भाषा": ["हिन्दी", "भाषा"],
    "ФЁДОР Ёлка": ["федор", "елка"],
    "pass\u200bword \u202eabc\u202c \u2066de\u2069f": ["password", "abc", "def"],
    "a\x00bc\x1bde \ud800fg": ["bc", "de", "fg"],
    'title:secret OR (x* AND -y) ~2 "quoted"^3': ["titl", "secret", "quot", "2", "3"],
    "I saw a 🦜 today": ["saw", "🦜", "today"],
    "👍🏽👍": ["👍", "👍"],
    "👨‍👩‍👧": ["👨", "👩", "👧"],
    "🇩🇪🇫🇷 ❤️": ["🇩🇪", "🇫🇷", "❤"],
    "5€ ✓": ["5", "€", "✓"],
    "→ ■ │ • …": [],
    "": [],
    " \t\n": [],
    "?!*()": [],
}


@pytest.mark.parametrize("text", CASES)
def test_terms(text: str) -> None:
    found = terms(text)
    if "secret" in text:  # a sentence is data, whatever it looks like
        assert set(found) == {*CASES[text], "title:secret"}
    else:
        assert found == CASES[text]


def test_a_document_is_found_by_its_own_words_asked_in_any_form() -> None:
    assert set(terms("Where are the STORES?")) <= set(terms("the store's shelf, and a store"))


def test_long_tokens_are_cut_and_long_identifiers_found_by_their_parts() -> None:
    assert terms("x" * 1000) == ["x" * MAX_TERM]
    assert terms("/".join(["folder"] * 200)) == ["folder"] * 200


@pytest.mark.parametrize(
    "text",
    ["a", "word ", "a.", "東", "é_", "_", "1,", "aA", "a\u0301"],
)
def test_megabytes_take_bounded_time(text: str) -> None:
    whole = text * (rounds(4 * 10**6) // len(text))
    started = time.process_time()
    terms(whole)
    assert time.process_time() - started < 10


@given(st.text())
def test_terms_are_short_lower_case_and_can_be_stored(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term) <= MAX_TERM
        assert term.encode()
        assert term.split() == [term]
        assert term == term.lower()
