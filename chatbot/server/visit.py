"""A visit: one caller at one identity. Whatever they see of it, they see through this."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chatbot.chat import Bill, Chat
from chatbot.errors import ConfigError, SessionNotFound
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.memory.record import is_session_id
from chatbot.memory.remembering import Memories
from chatbot.memory.session_search import SessionHit
from chatbot.runtime import Runtime
from chatbot.server.callers import Caller
from chatbot.server.chats import Chats
from chatbot.server.turns import KeptTurn, RunningTurn, Turns
from stores.access import Clearance, least_clearance
from stores.errors import UnsupportedOperation

_ALL = sys.maxsize


@dataclass(frozen=True, slots=True)
class Visit:
    """What a caller may see and do at an identity. A session that is not open to them does not exist, to them."""

    caller: Caller
    runtime: Runtime
    chats: Chats
    turns: Turns

    @property
    def identity(self) -> str:
        """The identity's name."""
        return self.runtime.setup.identity.name

    @property
    def clearance(self) -> Clearance:
        """The least of the caller's and the identity's."""
        return least_clearance(self.caller.clearance, self.runtime.setup.identity.clearance)

    @property
    def memories(self) -> Memories:
        """What is remembered, as the caller sees it. Raises `UnsupportedOperation` where the agent keeps none."""
        try:
            return self.runtime.memories().within(clearance=self.clearance)
        except ConfigError as error:
            raise UnsupportedOperation(str(error)) from error

    async def sessions(self, *, limit: int, before: tuple[datetime, str] | None = None) -> list[SessionRecord]:
        """Sessions that are open to the caller, the one used last first, from behind `before`: its last use and id."""
        return await self.runtime.memory.list_sessions(
            limit=limit,
            wanted=lambda record: before is None or (record.used_at, record.id) < before,
            clearance=self.clearance,
        )

    async def bills(self) -> Mapping[str, Bill]:
        """What each session that is open to the caller has cost; with full clearance also those that are gone."""
        bills = await self.runtime.ledger.by_session()
        if self.caller.clearance == "full":
            return bills
        return {record.id: bills[record.id] for record in await self.sessions(limit=_ALL) if record.id in bills}

    async def search_sessions(self, text: str, *, limit: int) -> list[SessionHit]:
        """Sessions that are open to the caller and speak of `text`, best first, each with the line that does."""
        return await self.runtime.memory.search_sessions(text, limit=limit, clearance=self.clearance)

    async def session(self, session_id: str, *, any_agent: bool = True) -> SessionHandle:
        """Open a session. Raises `SessionNotFound`, also for one that is not open to the caller; see `load_session`."""
        try:
            return await self.runtime.memory.load_session(
                session_id, self.runtime.agent, any_agent=any_agent, clearance=self.clearance
            )
        except SessionNotFound:
            shown = session_id if is_session_id(session_id) else repr(session_id)[:80]
            raise SessionNotFound(f"there is no session {shown}") from None

    async def new_session(self, title: str = "") -> SessionHandle:
        """Begin a session, which stays closed to callers of less clearance."""
        runtime = self.runtime
        if not runtime.store_types:
            raise UnsupportedOperation(f"the agent {runtime.agent!r} keeps no sessions: it has no stores")
        return await runtime.memory.create_session(
            runtime.store_types, runtime.agent, title=title, clearance=self.caller.clearance
        )

    async def fork(self, session_id: str, title: str = "") -> SessionHandle:
        """A copy of a session, to go on another way. Raises like `session`."""
        session = await self.session(session_id)
        copy = await self.runtime.memory.fork_session(session.id, title=title)
        return await self.session(copy.id)

    async def delete(self, session_id: str) -> None:
        """Erase a session for good, its turns under way stopped first. Raises like `session`."""
        session = await self.session(session_id)
        await self.turns.stop((self.identity, session.id))
        await self.runtime.memory.delete_session(session.id)

    async def chat(self, session_id: str) -> Chat:
        """The conversation in a session. Raises like `session`, and `WrongAgent` for one of another agent."""
        return self.chats.of(self.runtime, await self.session(session_id, any_agent=False))

    async def begin_turn(self, session_id: str, text: str, *, max_output_tokens: int | None = None) -> RunningTurn:
        """Say something in a session. The turn goes on to its end, whoever listens."""
        chat = await self.chat(session_id)
        return self.turns.begin((self.identity, session_id), chat, text, max_output_tokens=max_output_tokens)

    async def kept_turn(self, session_id: str, turn: str) -> KeptTurn:
        """A turn that has ended, by its id. Raises like `session`, and `TurnGone` where it was taken back."""
        return await KeptTurn.of(await self.session(session_id), turn)

    async def turns_under_way(self, session_id: str) -> list[RunningTurn]:
        """The turns of a session that have not ended. Raises like `session`."""
        await self.session(session_id)
        return self.turns.under_way((self.identity, session_id))

    async def stop(self, session_id: str) -> int:
        """Stop the turns of a session; how many there were. What was said is kept. Raises like `session`."""
        await self.session(session_id)
        return await self.turns.stop((self.identity, session_id))
