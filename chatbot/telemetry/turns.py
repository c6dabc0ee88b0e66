"""Turns, tools and hooks that are watched."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from chatbot.chat import Chat, Receipt
from chatbot.chat.turn import Emit
from chatbot.memory import SessionHandle
from chatbot.memory.told import MemoryEvent
from chatbot.messages import ToolCall
from chatbot.parts import Handle
from chatbot.telemetry import names
from chatbot.telemetry.watch import Attributes, Watch, Work
from chatbot.tools import Toolbox, ToolResult


class WatchedChat(Chat):
    """A conversation, each turn of which is a span: the parent of all that it sets going, also afterwards."""

    def __init__(self, *, watch: Watch, **parts: Any) -> None:
        super().__init__(**parts)
        self._watch = watch

    async def turn(self, text: str, emit: Emit = lambda _: None, *, max_output_tokens: int | None = None) -> Receipt:
        """See `Chat`."""
        with self._begin() as work:
            try:
                receipt = await super().turn(text, emit, max_output_tokens=max_output_tokens)
            except BaseException as error:
                work.labels[names.FINISH] = "cancelled" if isinstance(error, asyncio.CancelledError) else "error"
                raise
            work.labels[names.FINISH] = receipt.finish
            work.note({names.TURN: receipt.turn})
            if receipt.first_text_seconds is not None:
                self._watch.instruments.first_text.record(receipt.first_text_seconds)
            return receipt

    async def _summarize(self, session: SessionHandle, since: datetime | None, *, save: bool = True) -> str:
        labels: Attributes = {names.DONE: "summarize_episode"}
        with self._watch.begin("memory summarize_episode", self._watch.instruments.operations, labels):
            return await super()._summarize(session, since, save=save)

    def _begin(self) -> Work:
        agent = self.rules.agent
        details: Attributes = {names.OPERATION: "invoke_agent", names.AGENT: agent}
        if self.session is not None:
            details[names.CONVERSATION] = self.session.id
        return self._watch.begin(f"invoke_agent {agent}", self._watch.instruments.turns, {}, details)


class WatchedToolbox(Toolbox):
    """Tools, each run of which is a span."""

    def __init__(self, *tools: Any, watch: Watch, **options: Any) -> None:
        super().__init__(*tools, **options)
        self._watch = watch

    async def _run_one(self, call: ToolCall) -> ToolResult:
        """A name that no tool has is the model's own text, and stays out."""
        name = call.name if call.name in self._tools else "unknown"
        details: Attributes = {names.OPERATION: "execute_tool", names.TOOL_CALL: call.id}
        with self._watch.begin(
            f"execute_tool {name}", self._watch.instruments.tools, {names.TOOL: name}, details
        ) as work:
            result = await super()._run_one(call)
            if result.is_error:
                work.fail("ToolError")
            return result


def watched_hook(name: str, handle: Handle, watch: Watch) -> Handle:
    """What the hook does, each time as a span."""

    async def watched(event: Any) -> object:
        with watch.begin(f"hook {name}", watch.instruments.hooks, {names.HOOK: name}, {names.TOPIC: _topic(event)}):
            return await handle(event)

    return watched


def _topic(event: Any) -> str:
    """The topic, without the id of the session."""
    return f"memory.{event.action}" if isinstance(event, MemoryEvent) else str(event.topic)
