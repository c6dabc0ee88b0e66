"""Texts as search terms: words, dates, and scores, which are those of Whoosh's own searcher."""

import random
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from math import log
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from whoosh import scoring
from whoosh.analysis import SpaceSeparatedTokenizer
from whoosh.fields import TEXT, Schema
from whoosh.filedb.filestore import RamStorage
from whoosh.query.compound import Or
from whoosh.query.terms import Term

from chatbot.stores.text.analysis import MAX_TERM, sentences_of, terms
from chatbot.stores.text.bm25 import BOOSTS, BS, FIELDS, K1, LENGTHS, Document, rank
from chatbot.stores.text.dates import date_terms
from tests.effort import rounds, share

CASES = {
    "What did the runners run?": ["runner", "run"], "Who was it, and why?": [], "I'd say they're not, aren't we?": [],
    "Anna's O’Brien": ["anna", "obrien", "brien"],
    "İREM'in l’hôpital d'Anne": ["iremin", "irem", "lhopit", "hopit", "dann", "ann"],
    "Where are the STORES?": ["store"], "sqlite.go": ["sqlite.go", "sqlite", "go"],
    "NewSQLiteStore": ["newsqlitestor", "new", "sqlite", "store"],
    "parseHTTPResponse": ["parsehttprespons", "pars", "http", "respons"],
    "snake_case kebab-case": ["snake_case", "snake", "case", "kebab-case", "kebab", "case"],
    "__init__.py": ["init__.py", "init", "py"],
    "stores/files.py": ["stores/files.py", "files.py", "store", "file", "py"],
    "C:\\Users\\bob": ["c", "users\\bob", "user", "bob"],
    "1,000 3.14 2026-11-21": ["1000", "3.14", "3", "14", "2026-11-21", "2026", "11", "21"], "1,2,3": ["1", "2", "3"],
    "C++ and C#, utf8": ["c++", "c#", "utf8"],
    "Café naïve Ångström straße": ["cafe", "naiv", "angstrom", "strass"],
    "ＦＵＬＬ ﬁle": ["full", "file"],
    "東京塔": ["東", "京", "塔", "東京", "京塔"],
    "カフェ ｶﾌｪ": ["か", "ふ", "ぇ", "かふ", "ふぇ"] * 2,
    "أحمد إلى مَدرسـة، ١٬٢٥٠": ["احمد", "الي", "مدرسه", "1250"],
    "ΟΔΌΣ οδός": ["οδοσ", "οδοσ"],
    "한국 x86": ["한", "국", "한국", "x86"],
    "แมว ๔๗": ["แ", "ม", "ว", "แม", "มว", "47"],
    "abc東京": ["abc", "東", "京", "東京"],
    "हिन्दी भाषा": ["हिन्दी", "भाषा"],
    "ФЁДОР Ёлка": ["федор", "елка"],
    "pass\u200bword \u202eabc\u202c \u2066de\u2069f": ["password", "abc", "def"],
    "a\x00bc\x1bde \ud800fg": ["bc", "de", "fg"],
    'title:secret OR (x* AND -y) ~2 "quoted"^3': ["title:secret", "titl", "secret", "2", "quot", "3"],
    "I saw a 🦜 today": ["saw", "🦜", "today"],
    "👍🏽👍": ["👍", "👍"],
    "👨‍👩‍👧": ["👨", "👩", "👧"],
    "🇩🇪🇫🇷 ❤️": ["🇩🇪", "🇫🇷", "❤"],
    "5€ ✓": ["5", "€", "✓"],
    "→ ■ │ • …": [],
    "": [],
    "She’ll shell it, I'd id him, I'll be ill": ["shell", "id", "ill"],
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_terms(text: str) -> None:
    assert terms(text) == CASES[text]


def test_a_text_is_split_at_the_ends_of_its_sentences() -> None:
    german, english = ["Um 9.30 Uhr.", "Danach essen."], ["My flat is number 47.", "Which bus goes there?"]
    for sentences in (german, english, ["كيفك؟", "أنا في البيت."], ["今日は元気？", "ｶﾚｰが好き｡", "はい。"]):
        assert sentences_of(" ".join(sentences)) == sentences
    assert sentences_of("Am 12. März. Um 9.30 Uhr.", whole_dates=True) == ["Am 12. März.", "Um 9.30 Uhr."]


def test_long_tokens_are_cut_and_long_identifiers_found_by_their_parts() -> None:
    assert terms("x" * 1000) == ["x" * MAX_TERM]
    assert terms("/".join(["folder"] * 200)) == ["folder"] * 200


@pytest.mark.parametrize("text", share(["a", "word ", "a.", "東", "é_", "_", "1,", "aA", "a\u0301"], "a day"))
def test_megabytes_take_bounded_time(text: str) -> None:
    whole = text * (rounds(4 * 10**6) // len(text))
    started = time.process_time()
    terms(whole)
    assert time.process_time() - started < 10


@given(st.text())
@example("docs/東京")
def test_terms_are_short_lower_case_and_can_be_stored(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term) <= MAX_TERM
        assert term.encode()
        assert term.split() == [term]
        assert term == term.lower()


TUESDAY = datetime(2024, 3, 5, 12, tzinfo=UTC)

ASKED = [
    ("What did I do yesterday?", ["day:2024-03-04"]), ("the day before yesterday", ["day:2024-03-03"]),
    ("What did we plan for last Friday?", ["day:2024-03-01"]), ("Whom did I meet Friday?", ["day:2024-03-01"]),
    ("on Tuesday", ["day:2024-02-27"]), ("next Monday", ["day:2024-03-11"]),
    ("last weekend", ["day:2024-03-02", "day:2024-03-03"]), ("two weeks ago", ["week:2024-08"]),
    ("in three days", ["day:2024-03-08"]), ("3 months ago", ["month:2023-12"]), ("last year", ["year:2023"]),
    ("Where was I in June?", ["in:06"]), ("in May 2023", ["month:2023-05"]), ("on 5 March 2023", ["day:2023-03-05"]),
    ("on March 5th, 2023", ["day:2023-03-05"]), ("on Feb 29", ["day:2024-02-29"]),
    ("on 20 December", ["day:2023-12-20"]), ("on 3 April", ["day:2024-04-03"]), ("in 2022", ["year:2022"]),
    ("2023-02-11", ["day:2023-02-11"]), ("2023/09/11", ["day:2023-09-11"]), ("2023.9.1", ["day:2023-09-01"]),
    ("am 11.09.2023", ["day:2023-09-11"]), ("9/11/2023", ["day:2023-11-09", "day:2023-09-11"]),
    ("13/11/2023", ["day:2023-11-13"]), ("11/13/23", ["day:2023-11-13"]), ("Sept. 11th", ["day:2023-09-11"]),
    ("11 Sep", ["day:2023-09-11"]), ("Friday, May 5, 2023", ["day:2023-05-05"]), ("May 3-5, 2023", ["day:2023-05-03"]),
    ("the day after tomorrow", ["day:2024-03-07"]), ("two weekends ago", ["day:2024-02-24", "day:2024-02-25"]),
    ("in the summer of 2023", ["month:2023-06", "month:2023-07", "month:2023-08"]),
    ("last winter", ["month:2023-12", "month:2024-01", "month:2024-02"]),
    ("in the summer", ["in:06", "in:07", "in:08"]), ("last May", ["month:2023-05"]), ("next May", ["month:2024-05"]),
    ("am 3. März", ["day:2024-03-03"]), ("im Mai", ["in:05"]), ("le 1er mai 2023", ["day:2023-05-01"]),
    ("en août", ["in:08"]), ("el 3 de mayo de 2023", ["day:2023-05-03"]),
    ("2023年6月1日", ["day:2023-06-01"]),
    ("２０２３年６月１日、２０２３／６／２", ["day:2023-06-02", "day:2023-06-01"]),
    ("يوم ٢٠٢٣-٠٦-٠١", ["day:2023-06-01"]),
    ("在2023-02-11那天", ["day:2023-02-11"]),
    *[(text, []) for text in ("version 2.1.3", "10.0.0.12", "24/7", "1/2 cup", "on the 3rd floor", "I fall down")],
    *[(text, []) for text in ("the fall of Rome", "on Mars", "ich bin hier", "guten Morgen", "por la mañana")],
    *[(text, []) for text in ("j'ai été malade", "chat a little", "second nature", "it takes 3-4 days", "you may go")],
    *[(text, []) for text in ("", "the march of time", "May I come?", "Is it a good day?", "on 31 February 2024")],
    *[(text, []) for text in ("13月40日", "999999 years ago, 0000-00-00")],
]  # fmt: skip


@pytest.mark.parametrize(("text", "terms"), ASKED)
def test_a_question_is_asked_for_just_the_dates_that_it_names(text: str, terms: list[str]) -> None:
    assert date_terms(text, TUESDAY, exact=True) == terms
    found = date_terms(text, TUESDAY)
    assert (set(terms) <= set(found), bool(found)) == (True, bool(terms))


def test_a_day_is_also_found_by_what_it_lies_in() -> None:
    assert date_terms("yesterday", TUESDAY) == ["day:2024-03-04", "week:2024-10", "month:2024-03", "in:03", "year:2024"]
    assert date_terms("last month", TUESDAY) == ["month:2024-02", "in:02", "year:2024"]


def test_an_appointment_on_a_weekday_is_found_on_that_day() -> None:
    found = date_terms("The dentist is on Friday, the garage next Monday.", TUESDAY)
    assert [each for each in found if each.startswith("day")] == [f"day:2024-03-{day}" for day in ("01", "08", "11")]


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


@pytest.mark.parametrize(
    "piece", ["may ", " ", "1", "5 5 ", "1/", "may 5 to ", "last ", "in the ", "é", "2023-", "yesterday "]
)
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    date_terms(piece * 5_000, TUESDAY)
    assert time.process_time() - started < 2


def test_terms_count_once_in_a_question_and_as_often_as_the_bound_in_a_text_and_nothing_matches_nothing() -> None:
    documents = {0: {"user": ["x"]}, 1: {"title": ["y"]}}
    assert rank(documents, ["x", "x"]) == rank(documents, ["x"])
    assert rank(documents, []) == {}
    assert rank({}, ["x"]) == {}
    assert rank(documents, ["z"]) == {}
    assert rank({0: {"user": ["x"] * 70_000}}, ["x"]) == rank({0: {"user": ["x"] * 66_000}}, ["x"])


WORDS = [f"word{number}" for number in range(12)]


def test_scores_are_those_of_whoosh() -> None:
    random_ = random.Random(7)
    rows: dict[int, Document] = {}
    for row in range(300):
        fields = random_.sample(FIELDS, random_.randint(0, 3))
        rows[row] = {name: random_.choices(WORDS, k=random_.choice(LENGTHS[1:80:13])) for name in fields}
    asked = WORDS[:5]
    ours = rank(rows, asked)
    index = RamStorage().create_index(Schema(**{name: TEXT(SpaceSeparatedTokenizer()) for name in FIELDS}))
    with index.writer() as writer:
        for document in rows.values():
            writer.add_document(**{name: " ".join(words) for name, words in document.items()})
    words = [Term(name, word, boost) for word in asked for name, boost in zip(FIELDS, BOOSTS, strict=True)]
    lengths = {f"{name}_B": b for name, b in zip(FIELDS, BS, strict=True)}
    with index.searcher(weighting=ByDocument(K1=K1, **lengths)) as searcher:
        theirs = {hit.docnum: hit.score for hit in searcher.search(Or(words), limit=None)}
    assert theirs == pytest.approx(ours, abs=1e-9)
    unique = [row for row in theirs if sum(abs(score - theirs[row]) < 1e-9 for score in theirs.values()) == 1]
    assert [row for row in sorted(ours, key=lambda row: -ours[row]) if row in unique] == unique


class ByDocument(scoring.BM25F):  # type: ignore[misc]
    """Counts the documents that hold a term in any field, as our idf does."""

    def idf(self, searcher: Any, _field: str, term: Any) -> float:
        reader = searcher.reader()
        fields = [name for name in FIELDS if (name, term) in reader]
        held = {row for name in fields for row in reader.postings(name, term).all_ids()}
        return log(searcher.doc_count_all() / (len(held) + 1)) + 1
