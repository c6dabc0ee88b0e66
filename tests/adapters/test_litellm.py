"""The callback of LiteLLM, with LiteLLM itself answering by its own mock."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litellm
import pytest

from chatbot.adapters.litellm import MemoryCallback
from chatbot.embed import AgentMemory, RecordResult, open_memory
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nightly


class Noting(MemoryCallback):
    """The callback, which notes the messages that it lets through."""

    def __init__(self, memory: AgentMemory, **settings: Any) -> None:
        super().__init__(memory, **settings)
        self.sent: list[list[dict[str, Any]]] = []
        self.has_sent = asyncio.Event()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        changed = await super().async_pre_call_deployment_hook(kwargs, call_type)
        self.sent.append((changed or kwargs)["messages"])
        self.has_sent.set()
        return changed


@pytest.fixture(autouse=True)
def no_callback_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("WARNING", "LiteLLM")  # which the product silences in this process: it alone says why it gave up
    yield
    litellm.logging_callback_manager._reset_all_callbacks()  # type: ignore[no-untyped-call]


async def say(callback: Noting, text: str, reply: str, **more: Any) -> None:
    litellm.callbacks = [callback]
    try:
        messages = [{"role": "user", "content": text}]
        answer = await litellm.acompletion(model="gpt-5", messages=messages, mock_response=reply, **more)
        if more.get("stream"):
            async for _ in answer:
                pass
        await callback.settled(PATIENCE_S)
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack()  # of LiteLLM, or of ours that record
        raise
    finally:
        litellm.logging_callback_manager._reset_all_callbacks()  # type: ignore[no-untyped-call]  # it keeps the first of each class


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"stream": True, "fallbacks": ["gpt-5-mini"]}])
async def test_a_call_remembers_and_recalls(memory: AgentMemory, more: dict[str, Any]) -> None:
    callback = Noting(memory)
    await say(callback, "My sister Anna lives in Lisbon.", "Noted.", **more)
    [row] = await memory.every(types=["exchange"])
    assert (row.user_text, row.assistant_text) == ("My sister Anna lives in Lisbon.", "Noted.")
    await say(callback, "Where does Anna live?", "In Lisbon.")
    block, question = callback.sent[-1]
    assert (block["role"], "Anna lives in Lisbon" in block["content"]) == ("user", True)
    assert question["content"] == "Where does Anna live?"


async def test_each_user_has_a_memory(tmp_path: Path) -> None:
    async with open_memory(tmp_path) as memory:
        callback = Noting(memory, per_user=True)
        await say(callback, "My sister Anna lives in Lisbon.", "Noted.", user="ada")
        await say(callback, "Where does Anna live?", "I do not know.", user="bob")
        assert len(callback.sent[-1]) == 1
        assert await memory.for_user("ada").every()
        with pytest.raises(Exception, match="pass the user of the call"):
            await say(callback, "My brother Bo lives in Porto.", "Noted.")
        litellm.callbacks = [callback]
        with pytest.raises(Exception, match="pass the messages by name"):
            await litellm.acompletion("gpt-5", [{"role": "user", "content": "Hi"}], mock_response="Hi", user="ada")
        with pytest.warns(match="await acompletion"):
            litellm.completion("gpt-5", [{"role": "user", "content": "Hi"}], mock_response="Hi", user="ada")
        assert not await memory.every()


async def test_an_exchange_is_kept_though_litellm_gives_up_on_the_callback(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, begun, given_up = memory.record, asyncio.Event(), asyncio.Event()

    async def record_late(**exchange: Any) -> RecordResult:
        begun.set()
        await given_up.wait()
        return await record(**exchange)

    class GivenUp(Noting):
        async def async_log_success_event(self, *report: Any, **named: Any) -> None:
            reporting = asyncio.create_task(super().async_log_success_event(*report, **named))
            await begun.wait()
            reporting.cancel()
            given_up.set()
            await asyncio.wait([reporting])

    monkeypatch.setattr(memory, "record", record_late)
    await say(GivenUp(memory), "My sister Anna lives in Lisbon.", "Noted.")
    assert [each.assistant_text for each in await memory.every(types=["exchange"])] == ["Noted."]


async def test_of_a_stream_that_litellm_cannot_put_together_the_question_is_kept(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no such chunk")

    monkeypatch.setattr(litellm, "stream_chunk_builder", fail)
    await say(Noting(memory), "My sister Anna lives in Lisbon.", "Noted.", stream=True)
    [row] = await memory.every(types=["exchange"])
    assert (row.user_text, row.assistant_text) == ("My sister Anna lives in Lisbon.", "")


async def test_a_call_that_is_cancelled_or_left_early_is_not_waited_for(memory: AgentMemory) -> None:
    callback = Noting(memory)
    litellm.callbacks = [callback]
    messages = [{"role": "user", "content": "My brother Bo lives in Porto."}]
    async for _ in await litellm.acompletion(model="gpt-5", messages=messages, mock_response="Noted.", stream=True):
        break
    callback.has_sent.clear()
    task = asyncio.create_task(say(callback, "My sister Anna lives in Lisbon.", "Noted.", mock_delay=4 * PATIENCE_S))
    await callback.has_sent.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await callback.settled(PATIENCE_S)
    assert await memory.every() == []
