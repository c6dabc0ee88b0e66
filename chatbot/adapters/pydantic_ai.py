"""pydantic-ai: a history processor that recalls, a toolset, and the recording of runs."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai import FunctionToolset, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from chatbot.embed import AgentMemory, MemoryContext, MemoryTool, RecordResult, ToolUse, checked, is_block, text_of
from chatbot.memory import SessionHandle


def recalling(
    memory: AgentMemory, *, tokens: int = 2000, rows: int = 5
) -> Callable[[list[ModelMessage]], Awaitable[list[ModelMessage]]]:
    """Return a history processor that puts the memory block before the last question, and drops earlier blocks."""
    checked(memory)

    async def process(messages: list[ModelMessage]) -> list[ModelMessage]:
        last = max((at for at, each in enumerate(messages) if _prompts(each)), default=None)
        if last is None or any(map(_is_ours, messages[last].parts)):
            return messages  # no question, or a later request of the same run, whose question has its block
        context = await memory.context([said for each in messages for said in _said(each)], tokens=tokens, rows=rows)
        return [_with_block(each, context.text if at == last else "") for at, each in enumerate(messages)]

    return process


def toolset(memory: AgentMemory) -> FunctionToolset[Any]:
    """Return the memory tools."""
    found = checked(memory).tools()
    return FunctionToolset(
        [Tool.from_schema(partial(_call, each), each.name, each.description, each.parameters) for each in found]
    )


async def record(
    memory: AgentMemory,
    messages: Sequence[ModelMessage],
    *,
    context: MemoryContext | None = None,
    session: SessionHandle | None = None,
) -> RecordResult:
    """Keep what is worth keeping of a run's new messages, as the chat does. Durable on return."""
    asked = "\n\n".join(text for each in messages for text in _prompts(each))
    replied = next((each.text or "" for each in reversed(messages) if isinstance(each, ModelResponse)), "")
    parts = [part for each in messages for part in each.parts]
    calls = {part.tool_call_id: part for part in parts if isinstance(part, ToolCallPart)}
    used = [
        ToolUse(part.tool_name, calls[part.tool_call_id].args_as_json_str(), part.model_response_str())
        for part in parts
        if isinstance(part, ToolReturnPart) and part.tool_call_id in calls
    ]
    return await memory.record(user=asked, assistant=replied, tools=used, context=context, session=session)


async def _call(called: MemoryTool, /, **arguments: Any) -> str:
    return await called(arguments)


def _prompts(message: ModelMessage) -> list[str]:
    """Return the user's texts in a message, without blocks."""
    return [text_of(part.content) for part in message.parts if isinstance(part, UserPromptPart) and not _is_ours(part)]


def _said(message: ModelMessage) -> list[str | dict[str, str]]:
    if isinstance(message, ModelResponse):
        return [{"role": "assistant", "content": message.text or ""}]
    return [*_prompts(message)]


def _is_ours(part: object) -> bool:
    return isinstance(part, UserPromptPart) and isinstance(part.content, str) and is_block(part.content)


def _with_block(message: ModelMessage, block: str) -> ModelMessage:
    """Return the message with only that block, before the user's first text in it."""
    if not isinstance(message, ModelRequest):
        return message
    parts: list[ModelRequestPart] = [part for part in message.parts if not _is_ours(part)]
    at = next((at for at, part in enumerate(parts) if isinstance(part, UserPromptPart)), len(parts))
    return replace(message, parts=[*parts[:at], *([UserPromptPart(block)] if block else []), *parts[at:]])
