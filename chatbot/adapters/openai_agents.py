"""OpenAI Agents SDK: a `Session`, memory tools, and a filter that adds memories to each prompt."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from agents import FunctionTool, SessionSettings, TResponseInputItem
from agents.run import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from chatbot.adapters import ContextOfRuns
from chatbot.embed import AgentMemory, MemoryTool, checked, entry_of, item_of
from chatbot.memory import SessionHandle
from chatbot.stores.records import check_text


class MemorySession:
    """The SDK's `Session` over one of ours: it keeps every item in order, and remembers each exchange."""

    session_settings: SessionSettings | None = None

    def __init__(self, memory: AgentMemory, session_id: str) -> None:
        self.session_id = check_text(session_id, "session_id")
        self._memory = checked(memory)
        self._open: SessionHandle | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last `limit` items, oldest first; all of them for None."""
        session = await self._session()
        entries = await (session.transcript_read_all() if limit is None else session.transcript_read_last(limit))
        return [cast("TResponseInputItem", item_of(entry)) for entry in entries]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, and remember the exchanges that they complete. Durable on return."""
        session = await self._session()
        await self._memory.append(session, [entry_of(cast("dict[str, Any]", item)) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it, with the memory of its exchange; None if there is none."""
        entries = await self._memory.drop_last(await self._session())
        return cast("TResponseInputItem", item_of(entries[0])) if entries else None

    async def clear_session(self) -> None:
        """Remove every item. Memories of them stay: see `Memory.purge`."""
        await (await self._session()).transcript_clear()

    async def _session(self) -> SessionHandle:
        if self._open is None:
            self._open = await self._memory.session(self.session_id)
        return self._open


def tools(memory: AgentMemory) -> list[FunctionTool]:
    """Return the memory tools for an `Agent`."""
    return [
        FunctionTool(each.name, each.description, each.parameters, partial(_invoke, each), strict_json_schema=False)
        for each in checked(memory).tools()
    ]


def recalling(
    memory: AgentMemory, *, tokens: int = 2000, rows: int = 5
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Return a `call_model_input_filter` that adds the memory block before the last question, not to the session."""
    contexts = ContextOfRuns(tokens=tokens, rows=rows)
    checked(memory)

    async def add(data: CallModelData[Any]) -> ModelInputData:
        items = cast("list[dict[str, Any]]", data.model_data.input)
        context = await contexts.of(memory, items)
        shown = cast("list[TResponseInputItem]", context.added_to(items))
        return ModelInputData(input=shown, instructions=data.model_data.instructions)

    return add


async def _invoke(tool: MemoryTool, _: ToolContext[Any], arguments: str) -> str:
    return await tool(arguments)
