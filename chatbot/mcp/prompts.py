"""Prompts that put memory into a conversation, and the completion of what is typed for them and for addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp import types

from chatbot.chat.memory_tools import FRAME
from chatbot.errors import ToolError
from chatbot.operations import Context
from chatbot.stores.errors import did_you_mean
from chatbot.tools import Tool

_MOST_VALUES = 100
"""Of one completion; the protocol allows no more."""
_LOOKED_AT = 200
"""Sessions and memories that a completion looks through, the newest ones."""
_HITS = 10
_ENTRIES = 40

PROMPTS = [
    types.Prompt(
        name="recall",
        title="Recall a topic",
        description="What is remembered of a topic, put before the model.",
        arguments=[types.PromptArgument(name="topic", title="Topic", description="What about.", required=True)],
    ),
    types.Prompt(
        name="continue",
        title="Go on with a session",
        description="The end of an earlier session, put before the model.",
        arguments=[
            types.PromptArgument(name="session", title="Session", description="The session's id.", required=True)
        ],
    ),
]


class Prompts:
    """Prompts for one caller, made by the same tools as a call. Raises `ToolError` for what is not there."""

    def __init__(self, context: Context, tools: dict[str, Tool]) -> None:
        self._context = context
        self._tools = tools

    async def get(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """The messages of a prompt."""
        known = {prompt.name: prompt for prompt in PROMPTS}
        if name not in known:
            raise ToolError(f"unknown prompt {name!r:.80}{did_you_mean(name[:80], known)}")
        [wanted] = [argument.name for argument in known[name].arguments or ()]
        if set(arguments) != {wanted} or not arguments[wanted].strip():
            raise ToolError(f"the prompt {name!r} takes one argument: {wanted}")
        value = arguments[wanted].strip()
        if name == "recall":
            found = await self._tools["memory_search"].run({"query": value, "limit": _HITS})
            asked = f"Tell me what is remembered of this: {value}"
        else:
            found = await self._tools["session_read"].run({"session_id": value, "last": _ENTRIES})
            asked = "Let us go on with this session."
        said = f"{asked}\n\nFrom memory ({FRAME}):\n{found}"
        message = types.PromptMessage(role="user", content=types.TextContent(text=said))
        return types.GetPromptResult(description=known[name].description, messages=[message])

    async def complete(self, asked: types.CompleteRequestParams) -> types.Completion:
        """Values that begin with what is typed; ids are also found by the titles of what they name."""
        typed = asked.argument.value.strip().casefold()
        match asked.ref, asked.argument.name:
            case types.PromptReference(name="recall"), "topic":
                return _completion(await self._names(typed))
            case types.PromptReference(name="continue"), "session":
                return _completion(await self._sessions(typed))
            case types.ResourceTemplateReference(uri="chatbot://sessions/{id}"), "id":
                return _completion(await self._sessions(typed))
            case types.ResourceTemplateReference(uri="chatbot://memories/{id}"), "id":
                return _completion(await self._memories(typed))
        raise ToolError("this argument has no completions")

    async def _names(self, typed: str) -> list[str]:
        """People, who are most often asked about."""
        people = await self._context.memories.people()
        return [person.name for person in people if person.name.casefold().startswith(typed)]

    async def _sessions(self, typed: str) -> list[str]:
        records = await self._context.sessions.list_sessions(
            self._context.agent, limit=_LOOKED_AT, wanted=self._context.is_open, clearance=self._context.clearance
        )
        return [each.id for each in records if _fits(typed, each.id, each.title)]

    async def _memories(self, typed: str) -> list[str]:
        page = await self._context.memories.list_observations(order="created", limit=_LOOKED_AT)
        return [row.id for row in page.rows if _fits(typed, row.id, str(row.brief()["title"]))]


def _fits(typed: str, own_id: str, title: str | None) -> bool:
    return own_id.startswith(typed) or typed in (title or "").casefold()


def _completion(values: Iterable[Any]) -> types.Completion:
    found = list(values)
    return types.Completion(values=found[:_MOST_VALUES], total=len(found), has_more=len(found) > _MOST_VALUES)
