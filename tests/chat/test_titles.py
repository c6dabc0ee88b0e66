"""Titles of sessions: by rule, by the model when asked, and never against the user's word."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.chat import Chat
from chatbot.chat.titles import LONGEST, title_in, title_of
from chatbot.config import AgentSettings
from chatbot.errors import ProviderFailed
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.messages import Delta, TextDelta
from chatbot.models import ScriptedModel
from tests.talk import chat_of


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hi there! How are you? I need help with my tax return. It is late.", "I need help with my tax return."),
        ("hello, can you fix the build", "hello, can you fix the build"),
        ("Servus! Wo ist der Kessel?", "Wo ist der Kessel?"),
        ("History of Rome", "History of Rome"),
        ("```python\nprint(1)\n```\nWhy does this print 1?", "Why does this print 1?"),
        ("> quoted words\n\nWhat does this mean?", "What does this mean?"),
        ("My dentist is Dr. Weiss in Ulm. He is kind.", "My dentist is Dr. Weiss in Ulm."),
        ("# Plan of the house\nBuild a shed", "Plan of the house"),
        ("今天天气怎么样？谢谢", "今天天气怎么样？"),
        ("你好！我叫安娜，在医院当护士", "我叫安娜，在医院当护士"),
        ("こんにちは！病院で働いています。", "病院で働いています。"),
        ("hello", "hello"),
        ("hi again, how are you?", "hi again, how are you?"),
        ("???", "???"),
        ("two\tspaces  here", "two spaces here"),
    ],
)
def test_the_first_sentence_that_says_something_is_the_title(text: str, title: str) -> None:
    assert title_of(text) == title


def test_a_long_title_ends_between_words() -> None:
    title = title_of("word " * 40)
    assert len(title) <= LONGEST
    assert title.endswith("word…")
    assert len(title_of("字" * 200)) == LONGEST


def test_the_title_in_an_answer_is_its_first_line_without_quotes() -> None:
    assert title_in('\n"Title: Green tea from Uji."\nBecause…') == "Green tea from Uji"
    assert title_in("  \n") == ""


def _chat(session: SessionHandle, home: Path, *replies: Any, by_model: bool = False) -> Chat:
    return chat_of(ScriptedModel(replies), session, home, settings=AgentSettings(title_by_model=by_model))


@pytest.mark.parametrize(("greeting", "title"), [("hello", "hello"), ("Hey, you!", "Hey, you!")])
async def test_a_greeting_is_a_weak_title(session: SessionHandle, memory_home: Path, greeting: str, title: str) -> None:
    chat = _chat(session, memory_home)
    for said, expected in ((greeting, title), ("Where is Uji?", "Where is Uji?"), ("And Kyoto?", "Where is Uji?")):
        await chat.turn(said)
        assert session.record.title == expected


async def test_a_given_title_is_never_replaced(session: SessionHandle, memory: MemorySystem, memory_home: Path) -> None:
    chat = _chat(session, memory_home)
    await chat.turn("hello")
    await (await memory.load_session(session.id, any_agent=True)).rename("Mine")  # as another process would
    await chat.turn("Where is Uji?")
    assert (await memory.find_session(session.id)).title == "Mine"


@pytest.mark.parametrize("by_model", [False, True])
async def test_a_session_has_its_title_before_the_reply_and_a_model_is_asked_once(
    session: SessionHandle, memory_home: Path, *, by_model: bool
) -> None:
    async def replying() -> AsyncIterator[Delta]:
        assert session.record.title == "Where is Uji?"
        yield TextDelta("It is near Kyoto.")

    named = ['<think>Where?</think>\n"A town of tea"'] * by_model
    chat = _chat(session, memory_home, replying, *named, "Yes.", by_model=by_model)
    receipt = await chat.turn("Where is Uji?")
    assert receipt.reply == "It is near Kyoto."
    assert session.record.title == ("A town of tea" if by_model else "Where is Uji?")
    assert [call.purpose for call in receipt.calls] == ["chat", "title"][: 1 + by_model]
    assert [call.purpose for call in (await chat.turn("Is it old?")).calls] == ["chat"]


async def test_where_the_model_fails_the_rule_gives_the_title(session: SessionHandle, memory_home: Path) -> None:
    receipt = await _chat(session, memory_home, "Near Kyoto.", ProviderFailed("gone"), by_model=True).turn("And Uji?")
    assert session.record.title == "And Uji?"
    assert any("could not be asked for a title" in notice for notice in receipt.notices)


@pytest.mark.parametrize("by_model", [False, True])
async def test_no_secret_is_in_a_title(session: SessionHandle, memory_home: Path, *, by_model: bool) -> None:
    chat = _chat(session, memory_home, "Keep it well.", "The password: hunter2!x", by_model=by_model)
    await chat.turn("The password: hunter2!x opens the shed")
    assert "password" in session.record.title
    assert "hunter2" not in session.record.title
