"""Replies, from a session or without one, as the same few pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from chatbot.chat import ToolFinished
from chatbot.chat.usage import calls_in
from chatbot.messages import Finished, TextDelta, ToolCallDelta, ToolSpec, Usage
from chatbot.server.openai.models import unsupported
from chatbot.server.openai.wire import Asked, Reason
from chatbot.server.turns import KeptTurn, RunningTurn
from chatbot.server.visit import Visit


@dataclass(frozen=True, slots=True)
class End:
    """How a reply ended, and what it took."""

    reason: Reason
    usage: Usage


Piece = TextDelta | ToolCallDelta | End


async def answered(visit: Visit, asked: Asked) -> AsyncGenerator[Piece, None]:
    """The reply to just these messages. Leaving the iterator stops the model."""
    tools = _tools(visit, asked)
    messages = [message.as_message() for message in asked.messages]
    async with aclosing(visit.runtime.answer(messages, tools=tools, max_output_tokens=asked.most_tokens)) as deltas:
        async for delta in deltas:
            yield End(delta.reason, delta.usage) if isinstance(delta, Finished) else delta


async def said(turn: RunningTurn | KeptTurn, note: Callable[..., None]) -> AsyncGenerator[Piece, None]:
    """The reply of a turn, whose id is noted. Leaving the iterator does not stop it."""
    has_run_tools = has_said = False
    async for event in turn.events():
        if isinstance(event, ToolFinished):
            has_run_tools = has_said
        elif isinstance(event, TextDelta):
            yield TextDelta(f"\n\n{event.text}") if has_run_tools else event
            has_run_tools, has_said = False, True
    ended = await turn.ended()
    note(turn=ended.turn)
    finish = ended.receipt["finish"]
    reason: Reason = finish if finish in {"length", "content_filter"} else "stop"
    yield End(reason, total(call.usage for call in calls_in([ended.receipt])))


def total(usages: Iterable[Usage]) -> Usage:
    """What several calls took together."""
    usages = list(usages)
    return Usage(
        sum(usage.input_tokens for usage in usages),
        sum(usage.output_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages),
    )


def _tools(visit: Visit, asked: Asked) -> list[ToolSpec]:
    if not asked.tools or asked.tool_choice == "none":
        return []
    if not visit.runtime.model.supports_tools:
        raise unsupported("tools", f"the model of {visit.identity} takes none")
    return [tool.as_spec() for tool in asked.tools]
