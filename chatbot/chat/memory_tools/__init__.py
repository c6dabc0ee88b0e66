"""The tools by which a model reads and writes what is remembered.

They see what the session sees and nothing more: identity, session and clearance come from the handle and are never an
argument, and what is more delicate than `public` is out of their reach, to read, to change and to forget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from chatbot.chat.memory_tools.observations import ObservationTools
from chatbot.chat.memory_tools.people import PeopleTools
from chatbot.chat.memory_tools.sessions import SessionTools
from chatbot.chat.memory_tools.tasks import TaskTools
from chatbot.chat.tool_context import ToolContext
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.tools import FunctionTool, Tool
from stores.base import ObservationStore

__all__ = ["memory_tools", "offered"]


def memory_tools(session: SessionHandle, memory: MemorySystem | None = None) -> tuple[Tool, ...]:
    """The tools for that session; none where its stores keep no observations.

    Those that look into other sessions need the `memory` that issues them.
    """
    if not session.supports(ObservationStore):
        return ()
    rows, people, tasks = ObservationTools(session), PeopleTools(session), TaskTools(session)
    functions: list[Callable[..., Awaitable[Any]]] = [
        rows.memory_search,
        rows.memory_timeline,
        rows.memory_get,
        rows.memory_write,
        rows.memory_history,
        people.memory_people,
        rows.memory_forget,
        rows.memory_supersede,
        people.memory_facts,
        tasks.task_add,
        tasks.task_update,
        tasks.task_list,
    ]
    if memory is not None:
        sessions = SessionTools(session, memory)
        functions += [sessions.session_search, sessions.session_read]
    return tuple(FunctionTool(function) for function in functions)


def offered(context: ToolContext) -> tuple[Tool, ...]:
    """The plug-in `memory`."""
    return () if context.session is None else memory_tools(context.session, context.memory)
