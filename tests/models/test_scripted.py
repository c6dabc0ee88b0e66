"""The scripted model: says what it was told to, in turn, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from chatbot.config import ModelSettings
from chatbot.errors import ProviderFailed, RateLimited
from chatbot.messages import Delta, Finished, Message, TextDelta, ToolCall, ToolCallDelta, Usage
from chatbot.models import Price, ScriptedModel, open_model
from chatbot.models.model import estimate_text
from tests.patience import PATIENCE_S

HELLO = [Message("user", "hello")]


async def reply_of(model: ScriptedModel, messages: list[Message] = HELLO) -> list[Delta]:
    return [delta async for delta in model.stream(messages)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_replies_come_in_turn_and_then_from_the_start() -> None:
    async with ScriptedModel(["one", "two"]) as model:
        assert [text_of(await reply_of(model)) for _ in range(5)] == ["one", "two", "one", "two", "one"]


async def test_a_reply_comes_word_by_word_and_whole() -> None:
    text = "  Two  words,\nand a 🎉 "
    deltas = await reply_of(ScriptedModel([text]))
    assert text_of(deltas) == text
    assert len(deltas) > 5
    assert isinstance(deltas[-1], Finished)


async def test_without_a_script_it_says_what_it_heard() -> None:
    assert text_of(await reply_of(ScriptedModel())) == "You said: hello"


async def test_the_configuration_may_hold_the_script() -> None:
    model = open_model(ModelSettings(name="scripted", script=("From the file.",), context_window=100))
    assert isinstance(model, ScriptedModel)
    assert text_of(await reply_of(model)) == "From the file."
    assert await model.context_window() == 100


async def test_it_remembers_every_prompt() -> None:
    model = ScriptedModel(["yes"])
    await reply_of(model)
    await reply_of(model, [*HELLO, Message("assistant", "yes"), Message("user", "sure?")])
    assert [len(prompt) for prompt in model.prompts] == [1, 3]
    assert model.prompts[1][-1].content == "sure?"


async def test_usage_is_computed_and_priced() -> None:
    model = ScriptedModel(["four words are here"], price=Price(1.0, 10.0))
    end = (await reply_of(model))[-1]
    assert isinstance(end, Finished)
    read, written = await model.count_tokens(HELLO), estimate_text("four words are here")
    assert end.usage == Usage(read, written, cost_usd=read + 10.0 * written)


async def test_a_reply_may_be_a_failure() -> None:
    model = ScriptedModel([RateLimited("slow down"), "fine now"])
    with pytest.raises(RateLimited):
        await reply_of(model)
    assert text_of(await reply_of(model)) == "fine now"


async def test_a_reply_may_break_off() -> None:
    model = ScriptedModel([[TextDelta("Half"), ProviderFailed("gone")]])
    seen: list[Delta] = []
    with pytest.raises(ProviderFailed):
        await collect(model, seen)
    assert seen == [TextDelta("Half")]


async def test_a_reply_may_call_tools() -> None:
    deltas = await reply_of(ScriptedModel([[ToolCallDelta(0, "call_1", "clock", "{}")]]))
    assert deltas[0] == ToolCallDelta(0, "call_1", "clock", "{}")
    assert isinstance(deltas[1], Finished)
    assert deltas[1].reason == "tool_calls"


async def test_calls_in_a_script_are_streamed_as_models_do() -> None:
    call = ToolCall("c1", "clock", '{"at": 1}')
    deltas = await reply_of(ScriptedModel([[TextDelta("hm"), call, call]]))
    assert deltas[1:5] == [
        ToolCallDelta(0, "c1", "clock", '{"at'),
        ToolCallDelta(0, arguments='": 1}'),
        ToolCallDelta(1, "c1", "clock", '{"at'),
        ToolCallDelta(1, arguments='": 1}'),
    ]
    assert (await reply_of(ScriptedModel([call])))[:2] == deltas[1:3]


async def test_a_reply_may_say_how_it_ended() -> None:
    end = Finished("length", Usage(1, 2), "else")
    assert await reply_of(ScriptedModel([[TextDelta("cut"), end]])) == [TextDelta("cut"), end]


async def test_a_reply_may_wait_for_the_test() -> None:
    may_go_on = asyncio.Event()

    async def gated() -> AsyncIterator[Delta]:
        yield TextDelta("before ")
        await may_go_on.wait()
        yield TextDelta("after")

    stream = ScriptedModel([gated]).stream(HELLO)
    assert await anext(stream) == TextDelta("before ")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    may_go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == TextDelta("after")
    await stream.aclose()


async def collect(model: ScriptedModel, seen: list[Delta]) -> None:
    async for delta in model.stream(HELLO):
        seen.append(delta)  # noqa: PERF401 - what came before the failure matters
