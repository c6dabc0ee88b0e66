"""Digests of sessions, by rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.hooks.summarize import Digest


@pytest.mark.parametrize(
    ("text", "decisions", "open_items"),
    [
        ("We decided to use Postgres. It is raining.", ("We decided to use Postgres.",), ()),
        ("Let's go with the blue one!", ("Let's go with the blue one!",), ()),
        ("Have we decided to use Postgres?", (), ()),
        ("TODO: renew the passport\nThe rest is fine.", (), ("TODO: renew the passport",)),
        ("We still need to buy rosin.", (), ("We still need to buy rosin.",)),
        ("我们决定用 Postgres。天气很好。", ("我们决定用 Postgres。",), ()),
        ("Nothing of note.", (), ()),
        ("", (), ()),
    ],
)
def test_decisions_and_open_items_are_sentences_that_say_so(
    text: str, decisions: tuple[str, ...], open_items: tuple[str, ...]
) -> None:
    digest = Digest().extended(text, "")
    assert (digest.decisions, digest.open_items) == (decisions, open_items)


def test_the_request_is_the_first_and_the_outcome_the_last() -> None:
    digest = (
        Digest()
        .extended("Find the leak in the uploader.", "Looking.")
        .extended("Thanks", "The socket was never closed.")
    )
    assert (digest.turns, digest.request) == (2, "Find the leak in the uploader.")
    assert digest.outcome == "The socket was never closed."
    again = (
        Digest()
        .extended("And now?", "")
        .after({"request": digest.request, "outcome": digest.outcome, "decisions": ["a"], "open_items": "not a list"})
    )
    assert (again.request, again.outcome, again.decisions) == (digest.request, digest.outcome, ("a",))


@pytest.mark.parametrize(
    ("turns", "request_"),
    [
        ([("Hey Mel! How are you?", "Hi!"), ("The boiler leaks.", "Where?")], "The boiler leaks."),
        ([("Good morning! The boiler leaks. Thanks!", "Hello!")], "The boiler leaks."),
        ([("Hallo!", "Guten Tag!"), ("Der Kessel ist undicht.", "Wo?")], "Der Kessel ist undicht."),
        ([("你好", "你好！"), ("锅炉漏水了。", "好的")], "锅炉漏水了。"),
        ([("hi", "hello"), ("thanks", "bye")], ""),
    ],
)
def test_small_talk_is_no_request(turns: list[tuple[str, str]], request_: str) -> None:
    digest = Digest()
    for text, reply in turns:
        digest = digest.extended(text, reply)
    assert digest.request == request_
    assert digest.after({"request": "Hello!", "outcome": ""}).request == request_


def test_an_item_is_open_until_it_is_done() -> None:
    digest = Digest().extended("I need to book the dentist. TODO: renew the passport.", "Noted.")
    assert len(digest.open_items) == 2
    digest = digest.extended("The dentist is booked.", "Good.")
    assert digest.open_items == ("TODO: renew the passport.",)
    later = Digest().extended("I renewed the passport.", "Well done.")
    assert later.after({"open_items": list(digest.open_items)}).open_items == ()
    assert Digest().extended("I need to book the dentist. It is done: the dentist is booked!", "").open_items == ()


def test_secrets_and_memory_blocks_do_not_get_in() -> None:
    token = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    block = '<memory-context nonce="0f9c0f9c">\n  text | we decided to attack\n</memory-context nonce="0f9c0f9c">'
    digest = Digest().extended(f"We decided to use {token} here.", block)
    assert token not in digest.decisions[0]
    assert digest.outcome == ""
    assert len(digest.decisions) == 1


@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), max_size=30))
def test_it_is_bounded_however_long_a_session_is(turns: list[tuple[str, str]]) -> None:
    digest = Digest()
    for text, reply in turns:
        digest = digest.extended(f"{text} We decided so.", f"{reply} TODO: more")
    assert len(digest.decisions) <= 8
    assert len(digest.open_items) <= 8
    assert all(len(each) <= 240 for each in (digest.request, digest.outcome, *digest.decisions, *digest.open_items))
