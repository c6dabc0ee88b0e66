"""Titles of sessions: by rule, by the model when asked, and never against the user's word."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from chatbot.chat.chat import Chat
from chatbot.chat.titles import LONGEST, title_in, title_of
from chatbot.config import AgentSettings
from chatbot.errors import ProviderFailed
from chatbot.memory import MemorySystem
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
        ("hello", "hello"),
        ("hello there", "hello there"),
        ("hi again, how are you?", "hi again, how are you?"),
        ("yodel for beginners", "yodel for beginners"),
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


async def _chat(memory: MemorySystem, home: Path, model: ScriptedModel, *, by_model: bool = False) -> Chat:
    session = await memory.create_session(["basic_session"], "chat")
    return chat_of(model, session, home, settings=AgentSettings(title_by_model=by_model))


async def _title(chat: Chat) -> str:
    assert chat.session is not None
    return chat.session.record.title


@pytest.mark.parametrize(("greeting", "title"), [("hello", "hello"), ("Hey, you!", "Hey, you!")])
async def test_a_mere_greeting_gives_way_to_a_better_title(memory_home: Path, greeting: str, title: str) -> None:
    async with MemorySystem(memory_home) as memory:
        chat = await _chat(memory, memory_home, ScriptedModel())
        await chat.turn(greeting)
        assert await _title(chat) == title
        await chat.turn("Where is Uji?")
        assert await _title(chat) == "Where is Uji?"
        await chat.turn("And Kyoto?")
        assert await _title(chat) == "Where is Uji?"


@pytest.mark.parametrize("by_model", [False, True])
async def test_a_session_has_its_title_before_the_reply(memory_home: Path, *, by_model: bool) -> None:
    class Watching(ScriptedModel):
        titles: ClassVar[list[str]] = []

        def _next_reply(self, messages: Any) -> Any:
            self.titles.append(chat.session.record.title if chat.session else "")
            return super()._next_reply(messages)

    async with MemorySystem(memory_home) as memory:
        chat = await _chat(memory, memory_home, Watching(["Near Kyoto.", "A town of tea"]), by_model=by_model)
        await chat.turn("Where is Uji?")
        assert Watching.titles[0] == "Where is Uji?"
        assert await _title(chat) == ("A town of tea" if by_model else "Where is Uji?")


async def test_a_title_that_somebody_gave_is_never_replaced(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        chat = await _chat(memory, memory_home, ScriptedModel())
        await chat.turn("hello")
        assert chat.session is not None
        await memory.rename_session(chat.session.id, "Mine")  # as another process would
        await chat.turn("Where is Uji?")
        assert (await memory.find_session(chat.session.id)).title == "Mine"


async def test_the_model_is_asked_once_and_the_call_is_billed(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        model = ScriptedModel(["It is near Kyoto.", '"A town of tea"', "Yes."])
        chat = await _chat(memory, memory_home, model, by_model=True)
        receipt = await chat.turn("Where is Uji?")
        assert await _title(chat) == "A town of tea"
        assert receipt.reply == "It is near Kyoto."
        assert [call.purpose for call in receipt.calls] == ["chat", "title"]
        await chat.turn("Is it old?")
        assert len(model.prompts) == 3


async def test_where_the_model_fails_the_rule_gives_the_title(memory_home: Path) -> None:
    async with MemorySystem(memory_home) as memory:
        chat = await _chat(memory, memory_home, ScriptedModel(["Near Kyoto.", ProviderFailed("gone")]), by_model=True)
        receipt = await chat.turn("Where is Uji?")
        assert await _title(chat) == "Where is Uji?"
        assert any("no model found a title" in notice for notice in receipt.notices)


@pytest.mark.parametrize("by_model", [False, True])
async def test_no_secret_is_in_a_title(memory_home: Path, by_model: bool) -> None:  # noqa: FBT001 - a parameter
    async with MemorySystem(memory_home) as memory:
        model = ScriptedModel(["Keep it well.", "The password: hunter2!x"])
        chat = await _chat(memory, memory_home, model, by_model=by_model)
        await chat.turn("The password: hunter2!x opens the shed")
        assert "password" in await _title(chat)
        assert "hunter2" not in await _title(chat)
