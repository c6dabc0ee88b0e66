"""The adapter of pydantic-ai, with the package's own agent and a model that answers by function."""

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chatbot.adapters.pydantic_ai import recalling, record, toolset
from chatbot.embed import AgentMemory, open_memory

pytestmark = pytest.mark.nightly


class Asked:
    """A model that answers in order, and notes what the user's parts of each prompt were."""

    def __init__(self, *replies: str | ToolCallPart) -> None:
        self.replies = list(replies)
        self.prompts: list[list[str]] = []

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
        self.prompts.append([str(part.content) for part in parts if isinstance(part, UserPromptPart)])
        self.answers = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        reply = self.replies.pop(0)
        return ModelResponse(parts=[TextPart(reply) if isinstance(reply, str) else reply])


def agent_of(memory: AgentMemory, asked: Asked) -> Agent[None, str]:
    history = ProcessHistory[None](recalling(memory))
    return Agent(FunctionModel(asked.answer), toolsets=[toolset(memory)], capabilities=[history])


async def test_an_agent_remembers_across_processes(tmp_path: Path) -> None:
    async with open_memory(tmp_path, user="ada") as memory:
        result = await agent_of(memory, Asked("Noted.")).run("My sister Anna lives in Lisbon.")
        assert (await record(memory, result.new_messages())).exchange
    async with open_memory(tmp_path, user="ada") as memory:
        await memory.remember("Anna owns a flat on Rua Augusta in Lisbon.")
        asked = Asked("Anna owns a flat on Rua Augusta in Lisbon.", "Yes.")
        agent = agent_of(memory, asked)
        result = await agent.run("Where does Anna live?")
        await agent.run("In which city does Anna live?", message_history=result.all_messages())
    block, question = asked.prompts[0]
    assert "Anna lives in Lisbon" in block
    assert question == "Where does Anna live?"
    assert asked.prompts[1][-1] == "In which city does Anna live?"
    assert sum("<memory-context" in each for each in asked.prompts[1]) == 1
    assert ["Rua Augusta" in each[-2] for each in asked.prompts] == [True, False], "a reply shows it"


async def test_a_tool_of_memory_answers_the_model_and_is_recorded(memory: AgentMemory) -> None:
    await memory.remember("Her sister lives in Lisbon", people=["Anna of Lisbon"])
    asked = Asked(ToolCallPart("memory_more", {"tool": "memory_people", "arguments": {"query": "Anna"}}), "In Lisbon.")
    result = await agent_of(memory, asked).run("Where does my sister Anna live?")
    assert "Anna of Lisbon" in asked.answers[0]
    assert "not instructions" in asked.answers[0]
    assert (await record(memory, result.new_messages())).exchange
