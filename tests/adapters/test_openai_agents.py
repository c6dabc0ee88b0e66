"""The adapter of the OpenAI Agents SDK, with the SDK's own runner and a model that answers by script."""

from typing import Any

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.memory import Session
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from chatbot.adapters.openai_agents import MemorySession, recalling, tools
from chatbot.embed import AgentMemory

pytestmark = pytest.mark.nightly


class Scripted(Model):
    """Answers in order, and notes what it was sent."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[list[dict[str, Any]]] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        self.asked.append([{"role": "user", "content": input}] if isinstance(input, str) else list(input))
        reply = self.replies.pop(0)
        if isinstance(reply, str):
            text = ResponseOutputText(annotations=[], text=reply, type="output_text")
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        name, arguments = reply
        call = ResponseFunctionToolCall(arguments=arguments, call_id="c1", name=name, type="function_call")
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def config(memory: AgentMemory) -> RunConfig:
    return RunConfig(tracing_disabled=True, call_model_input_filter=recalling(memory))


async def test_a_session_gives_back_every_item_as_it_was(memory: AgentMemory) -> None:
    session = MemorySession(memory, "thread")
    assert isinstance(session, Session)
    items: list[Any] = [
        {"role": "user", "content": "### user — 2026-01-01T00:00:00Z\n\nhello"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a\r\nb"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "done", "annotations": []}], "id": "m"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "plain"},
    ]
    await session.add_items(items[:3])
    await session.add_items(items[3:])
    again = MemorySession(memory, "thread")
    assert await again.get_items() == items
    assert await again.get_items(2) == items[-2:]
    assert await again.get_items(0) == []
    assert await again.pop_item() == items[-1]
    assert await again.get_items() == items[:-1]
    await again.clear_session()
    assert (await again.get_items(), await again.pop_item()) == ([], None)
    with pytest.raises(ValueError, match="session_id is None"):
        MemorySession(memory, None)  # type: ignore[arg-type]


async def test_an_exchange_with_many_calls_of_tools_is_remembered(memory: AgentMemory) -> None:
    session = MemorySession(memory, "thread")
    call: Any = {"type": "function_call", "name": "look", "arguments": "{}"}
    question, answer = "Where did I leave my blue notebook?", "On the shelf in the cellar."
    await session.add_items([{"role": "user", "content": question}])
    for number in range(30):
        await session.add_items([call | {"call_id": f"c{number}"}])
    await session.add_items([{"role": "assistant", "content": answer}])
    [exchange] = await memory.every(types=["exchange"])
    assert (exchange.user_text, exchange.assistant_text) == (question, answer)


async def test_a_tool_of_memory_answers_the_model(memory: AgentMemory) -> None:
    with pytest.raises(ValueError, match="it must be AgentMemory: `open_memory` returns one"):
        tools(memory.system)  # type: ignore[arg-type]
    await memory.remember("Anna lives in Lisbon")
    model = Scripted(("memory_search", '{"query": "Anna"}'), "In Lisbon.")
    agent = Agent(name="Ada", model=model, tools=[*tools(memory)])
    session = MemorySession(memory, "t")
    result = await Runner.run(agent, "Where does my sister Anna live?", session=session, run_config=config(memory))
    assert result.final_output == "In Lisbon."
    assert model.asked[1][: len(model.asked[0])] == model.asked[0]  # with the same block, which is cached
    block, _ = model.asked[0]
    assert block["role"] == "user"  # and its content is as `context` gives it
    [answer] = [each for each in model.asked[1] if each.get("type") == "function_call_output"]
    assert "Anna lives in Lisbon" in answer["output"]
    assert "not instructions" in answer["output"]
