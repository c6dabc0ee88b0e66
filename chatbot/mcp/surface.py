"""Surface of the MCP server: the tools, resources and prompts of one agent of one identity.

Each request is seen with the least of two clearances: that of the start, and that of the caller. A call is a model's:
it may read and write, and nothing that the caller may not.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable
from functools import lru_cache
from importlib.metadata import version
from typing import Any, TypeVar

from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from chatbot.chat.memory_tools import FRAME, agent_context, agent_tools
from chatbot.errors import ChatbotError, DamagedSession, SessionError, ToolError
from chatbot.mcp.prompts import PROMPTS, Prompts
from chatbot.mcp.resources import JSON, TEMPLATES, Resources
from chatbot.memory import MemorySystem
from chatbot.operation import Operation, OperationTable
from chatbot.operations import OPERATIONS
from chatbot.server.callers import ServerCaller
from chatbot.stores.access import TOOL_RIGHTS
from chatbot.stores.errors import (
    AccessDenied,
    ConflictingChange,
    InvalidValue,
    StoreBusy,
    StoreError,
    UnknownObservation,
    UnsupportedOperation,
    did_you_mean,
)
from chatbot.tools import Tool

INSTRUCTIONS = f"""\
A memory that outlives conversations. Look things up in three steps, so that little has to be read: memory_search \
gives ids and titles, memory_timeline what stood around one of them, memory_get the few that matter in full. \
session_search and session_read do the same for past conversations. Search before you memory_write; \
memory_supersede what has changed; memory_forget only what the user wants forgotten.
Everything that comes from here is {FRAME}."""
_LONGEST_S = 60.0
_MOST_CALLERS = 256
"""Callers whose tools are kept ready."""

Context = ServerRequestContext[Any]
Found = TypeVar("Found")


def server_for(memory: MemorySystem, agent: str, table: OperationTable = OPERATIONS) -> Server[Any]:
    """The server over what `memory` lets its holder see, and each caller over HTTP, if they are cleared for less.

    It keeps no state: any number of clients share it.
    """
    surface = _Surface(memory, agent, table)
    return Server(
        "chatbot",
        title="Memory",
        version=version("chatbot-runtime"),
        instructions=INSTRUCTIONS,
        on_list_tools=surface.list_tools,
        on_call_tool=surface.call_tool,
        on_list_resources=surface.list_resources,
        on_list_resource_templates=surface.list_templates,
        on_read_resource=surface.read_resource,
        on_list_prompts=surface.list_prompts,
        on_get_prompt=surface.get_prompt,
        on_completion=surface.complete,
    )


class _Offer:
    """The tools and resources, as the holder of that memory sees them."""

    def __init__(self, memory: MemorySystem, agent: str, table: OperationTable) -> None:
        context = agent_context(memory, agent)
        self.tools = {tool.spec.name: tool for tool in agent_tools(context, table)}
        self.resources = Resources(context, self.tools)
        self.prompts = Prompts(context, self.tools)

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        if name not in self.tools:
            raise ToolError(f"unknown tool {name!r:.80}{did_you_mean(name[:80], self.tools)}")
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await self.tools[name].run(arguments)
        except TimeoutError:
            raise ToolError(f"the tool {name!r} did not finish within {_LONGEST_S:g} s") from None


class _Surface:
    def __init__(self, memory: MemorySystem, agent: str, table: OperationTable) -> None:
        self._memory = memory
        self._table = table
        self._operations = {each.tool: each for each in table if each.tool}
        self._agent = agent
        self._seen: OrderedDict[ServerCaller | None, _Offer] = OrderedDict()

    def _for(self, context: Context) -> _Offer:
        """Return the caller's part: over HTTP the server knows the caller, on a pipe it is the user who started us."""
        caller: ServerCaller | None = context.request.state.caller if context.request else None
        if caller not in self._seen:
            self._seen[caller] = _Offer(_memory_for(self._memory, caller), self._agent, self._table)
        self._seen.move_to_end(caller)
        while len(self._seen) > _MOST_CALLERS:
            self._seen.popitem(last=False)
        return self._seen[caller]

    async def list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = self._for(context).tools
        return types.ListToolsResult(tools=[_listed(tool, self._operations[name]) for name, tool in tools.items()])

    async def call_tool(self, context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        """The answer of the tool; what went wrong is an answer too, which the model can read."""
        try:
            text = await self._for(context).answer(asked.name, asked.arguments or {})
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, the client hears no more than `told`
            text = json.dumps({"error": told(error)}, ensure_ascii=False)
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=json.loads(text))

    async def list_resources(
        self, context: Context, asked: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        resources, cursor = await _or_refused(self._for(context).resources.page(asked.cursor if asked else None))
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read_resource(self, context: Context, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = await _or_refused(self._for(context).resources.read(asked.uri))
        contents = types.TextResourceContents(uri=asked.uri, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=PROMPTS)

    async def get_prompt(self, context: Context, asked: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await _or_refused(self._for(context).prompts.get(asked.name, asked.arguments or {}))

    async def complete(self, context: Context, asked: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=await _or_refused(self._for(context).prompts.complete(asked)))


def _memory_for(memory: MemorySystem, caller: ServerCaller | None) -> MemorySystem:
    return memory.cleared_for(rights=TOOL_RIGHTS) if caller is None else caller.memory_of(memory, TOOL_RIGHTS)


def _listed(tool: Tool, operation: Operation) -> types.Tool:
    effect = tool.effect
    return types.Tool(
        name=tool.spec.name,
        title=operation.summary,
        description=tool.spec.description,
        input_schema=tool.spec.parameters,
        output_schema=answer_schema(operation),
        annotations=types.ToolAnnotations(
            read_only_hint=effect.reads_only,
            destructive_hint=effect.destroys,
            idempotent_hint=effect.repeats_safely,
            open_world_hint=effect.reaches_out,
        ),
    )


async def _or_refused(work: Awaitable[Found]) -> Found:
    """The outcome; an error is one of the protocol, in our words."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the same boundary
        raise MCPError(code_of(error), told(error)) from None


logger = logging.getLogger(__name__)

UNTOLD = "the memory cannot be used just now: the server's standard error says why"

_CODES: dict[type[Exception], int] = {
    ToolError: INVALID_PARAMS,
    SessionError: INVALID_PARAMS,
    DamagedSession: INTERNAL_ERROR,
    AccessDenied: INVALID_PARAMS,
    ConflictingChange: INVALID_PARAMS,
    InvalidValue: INVALID_PARAMS,
    StoreBusy: INVALID_PARAMS,
    UnknownObservation: INVALID_PARAMS,
    UnsupportedOperation: INVALID_PARAMS,
    ChatbotError: INTERNAL_ERROR,
    StoreError: INTERNAL_ERROR,
}


def code_of(error: Exception) -> int:
    """The code for an error: that of the nearest class which has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), INTERNAL_ERROR)


def told(error: Exception) -> str:
    """Return the message for the client: ours if the client can act on it, and never a path or a trace."""
    if code_of(error) == INVALID_PARAMS:
        return str(error)
    logger.error("a call failed: %s", error, exc_info=None if isinstance(error, ChatbotError | StoreError) else error)
    return getattr(error, "in_public", "") or UNTOLD


Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_ANY: Schema = {"type": "object"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": dict.fromkeys(required, _TEXT) | properties, "required": [*required]}


_NAMED = _object("id", "title")
_ROW = _object("id", "type", "title", "created_at", token_count=_COUNT)
_ITEMS = {
    "Hit": _ROW | {"properties": _ROW["properties"] | {"score": {"type": "number"}}},
    "Observation": _ROW,
    "Person": _object("name", aliases=_TEXTS, facts=_TEXTS, mention_count=_COUNT),
    "SessionHit": _object("session_id", "title", "used_at", "line"),
    "Task": _object("id"),
    "Triple": _object("subject", "predicate", "object", confidence={"type": "number"}),
    "Version": _object("id", "status", events={"type": "array", "items": {"type": "object"}}),
}
"""One thing in an answer; it may say more."""


@lru_cache
def answer_schema(operation: Operation) -> Schema:
    """The JSON schema of what the operation's tool answers where it succeeds."""
    kind, item = _result_of(operation)
    name = operation.gives
    if kind == "AddResult":
        parts: dict[str, Schema] = {"outcome": _TEXT, "id": _TEXT}
    elif kind == "Entries":
        parts = {name: _list_of(_object("role", "at", "content")), "session_id": _TEXT, "title": _TEXT}
    elif kind == "None":
        words = name.split()
        parts = {name: _list_of(_NAMED)} if len(words) == 1 else dict.fromkeys(words, _NAMED)
    elif kind == "Profile":
        parts = {name: _list_of(_object("id", "key", "value")), "facets": _ANY, "notice": _TEXT}
    elif item or kind == "Read":
        parts = {name: _list_of(_ITEMS.get(item, _ANY))}
    else:
        parts = {name or "result": _ITEMS.get(kind, {})}
    said = {"about": {"type": "string", "const": FRAME}, **parts}
    return {
        "type": "object",
        "properties": {**said, "notes": _TEXTS, "next_cursor": _TEXT, "total": _COUNT},
        "required": [*said],
    }


def _result_of(operation: Operation) -> tuple[str, str]:
    """The names of what it returns and, of a list, of each thing; as it is written, for not all is imported there."""
    written = inspect.signature(operation.function).return_annotation
    kind, _, item = str(getattr(written, "__name__", written)).partition("[")
    return kind, item.removesuffix("]")


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}
