"""Tools that look into other sessions of the same agent: which one spoke of something, and what was said there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from chatbot.chat.memory_tools.answers import Answer, Id, Line, listed, shortened
from chatbot.errors import SessionError, SessionExpired, SessionNotFound, ToolError, WrongAgent, without_folders
from chatbot.memory import MemorySystem, SessionFilter, SessionHandle, SessionRecord
from chatbot.memory.redaction import redact
from chatbot.memory.session_search import SessionHit
from chatbot.tools.function import Within
from stores.access import Clearance
from stores.base import TranscriptStore
from stores.records import format_time


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """The sessions of one agent that are open to a caller of that clearance."""

    memory: MemorySystem
    agent_id: str
    clearance: Clearance

    async def load(self, session_id: str) -> SessionHandle:
        """Raises `ToolError` where it is not among them, or cannot be read."""
        try:
            return await self.memory.load_session(session_id, self.agent_id, clearance=self.clearance)
        except (SessionNotFound, SessionExpired, WrongAgent):
            raise ToolError(f"there is no session {session_id}") from None
        except SessionError as error:
            raise ToolError(f"the session {session_id} cannot be read: {without_folders(str(error))}") from error


class SessionTools:
    """What a model may ask about sessions, on behalf of one, or of none."""

    def __init__(self, sessions: OpenSessions, own: SessionHandle | None = None) -> None:
        self._sessions = sessions
        self._own = own

    async def session_search(self, query: Line, *, limit: Annotated[int, Within(1, 20)] = 5) -> Answer:
        """Which past sessions spoke of something, best first. Go on with session_read.

        Args:
            query: keywords
        """
        hits = await self._sessions.memory.search_sessions(
            query,
            limit=limit,
            clearance=self._sessions.clearance,
            wanted=SessionFilter(agent_id=self._sessions.agent_id),
            exclude=[self._own.id] if self._own else [],
        )
        return listed("sessions", map(_told, hits))

    async def session_read(self, session_id: Id, *, last: Annotated[int, Within(1, 100)] = 20) -> Answer:
        """Read the end of a session, oldest first, without keys and passwords.

        Args:
            last: how many entries
        """
        session = self._own if self._own and session_id == self._own.id else await self._sessions.load(session_id)
        if not session.supports(TranscriptStore):
            raise ToolError(f"the session {session_id} keeps no transcript")
        entries = [
            {"role": entry.role, "at": format_time(entry.at), "content": shortened(redact(entry.content)[0])}
            for entry in await session.transcript_read_last(last)
        ]
        return _from_the_end(session.record, entries)


def _told(hit: SessionHit) -> Answer:
    return {
        "session_id": hit.record.id,
        "title": hit.record.title,
        "used_at": format_time(hit.record.used_at),
        "line": hit.line,
    }


def _from_the_end(record: SessionRecord, entries: list[Answer]) -> Answer:
    """As many of the last entries as fit, in their order."""
    answer = listed("entries", entries[::-1], session_id=record.id, title=record.title)
    answer["entries"].reverse()
    return answer
