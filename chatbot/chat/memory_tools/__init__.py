"""The tools by which a model reads and writes what is remembered.

They see what the session sees and nothing more: identity, session and clearance come from the handle and are never an
argument, and what is more delicate than `public` is out of their reach, to read, to change and to forget.
"""

from __future__ import annotations

from chatbot.chat.memory_tools.observations import ObservationTools
from chatbot.chat.memory_tools.people import PeopleTools
from chatbot.chat.memory_tools.sessions import OpenSessions, SessionTools
from chatbot.chat.memory_tools.tasks import TaskTools
from chatbot.chat.tool_context import ToolContext
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.remembering import Remembering
from chatbot.tools import Effect, Tool
from chatbot.tools.function import FunctionTool
from stores.base import ObservationStore

__all__ = ["OpenSessions", "SessionTools", "agent_tools", "memory_tools", "offered"]

_READS = Effect(reads_only=True, destroys=False, repeats_safely=True, reaches_out=False)
_ADDS = Effect(destroys=False, reaches_out=False)
_CHANGES = Effect(repeats_safely=True, reaches_out=False)


def memory_tools(session: SessionHandle, memory: MemorySystem | None = None) -> tuple[Tool, ...]:
    """The tools for that session; none where its stores keep no observations.

    Those that look into other sessions need the `memory` that issues them.
    """
    if not session.supports(ObservationStore):
        return ()
    if memory is None:
        return _over(session)
    sessions = OpenSessions(memory, session.agent_id, session.clearance)
    return (*_over(session), *_looking_into(SessionTools(sessions, session)))


def agent_tools(memories: Remembering, sessions: OpenSessions) -> tuple[Tool, ...]:
    """The same tools for a caller who holds no session, and two more that prompts have no room for."""
    rows = ObservationTools(memories)
    more = FunctionTool(rows.memory_list, _READS), FunctionTool(rows.memory_confirm, _ADDS)
    return (*_over(memories), *more, *_looking_into(SessionTools(sessions)))


def offered(context: ToolContext) -> tuple[Tool, ...]:
    """The plug-in `memory`."""
    return () if context.session is None else memory_tools(context.session, context.memory)


def _over(memories: Remembering) -> tuple[Tool, ...]:
    rows, people, tasks = ObservationTools(memories), PeopleTools(memories), TaskTools(memories)
    return (
        FunctionTool(rows.memory_search, _READS),
        FunctionTool(rows.memory_timeline, _READS),
        FunctionTool(rows.memory_get, _READS),
        FunctionTool(rows.memory_write, _ADDS),
        FunctionTool(rows.memory_history, _READS),
        FunctionTool(people.memory_people, _READS),
        FunctionTool(rows.memory_forget, _CHANGES),
        FunctionTool(rows.memory_supersede, _CHANGES),
        FunctionTool(people.memory_facts, _READS),
        FunctionTool(tasks.task_add, _ADDS),
        FunctionTool(tasks.task_update, _CHANGES),
        FunctionTool(tasks.task_list, _READS),
    )


def _looking_into(sessions: SessionTools) -> tuple[Tool, ...]:
    return FunctionTool(sessions.session_search, _READS), FunctionTool(sessions.session_read, _READS)
