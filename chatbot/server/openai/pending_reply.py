"""One request on its way to its reply, for each of the routes that make one."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from chatbot.memory import SessionHandle
from chatbot.memory.record import new_id
from chatbot.server.idempotency import IdempotentWrite, Made
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.asked import Ask
from chatbot.server.openai.models import unsupported
from chatbot.server.openai.places import ReplyPlace, place_of
from chatbot.server.openai.replies import Piece, Whole, answered, begin, check_options, said


@dataclass(slots=True)
class PendingReply:
    """A reply that is being made. Its `pieces` are read once."""

    id: str
    """The reply's id, as 32 hexadecimal digits."""
    turn: str
    """The turn's id; of a reply without a session an id that nothing is kept under."""
    created: int
    """In seconds since 1970."""
    session: SessionHandle | None
    pieces: AsyncGenerator[Piece, None]

    @property
    def session_id(self) -> str | None:
        """The session that it is said in."""
        return None if self.session is None else self.session.id

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response that name its session."""
        return {} if self.session is None else {"x-session-id": self.session.id, "x-chatbot-session": self.session.id}

    async def first(self) -> Piece | None:
        """The first piece. Raises what goes wrong before it."""
        return await anext(self.pieces, None)

    async def rest(self, first: Piece | None) -> AsyncGenerator[Piece, None]:
        """The first piece again, and all that follow."""
        try:
            if first is not None:
                yield first
            async for piece in self.pieces:
                yield piece
        finally:
            await self.pieces.aclose()

    async def whole(self) -> Whole:
        """All of it, once it has come."""
        whole = Whole()
        async for piece in self.pieces:
            whole.take(piece)
        return whole


async def answer_to(access: IdentityAccess, ask: Ask, writing: IdempotentWrite) -> PendingReply:
    """Begin to answer, or answer again what was answered before. Raises where that cannot be done."""
    if writing.before:
        return await _again(access, writing.before, writing)
    access.check_chat()
    await check_options(access, ask)
    if not ask.new and (ask.session is not None or ask.previous is not None):
        raise unsupported("messages", "the last message must be the user's, or a tool's answer, in a session")
    place = await place_of(ask, access)
    reply, turn, created = new_id().hex, str(new_id()), int(time.time())
    made: Made = {"id": reply, "created": str(created)}
    if place.session is None:
        return PendingReply(reply, turn, created, None, answered(access, ask, place.before))
    running = await begin(access, ask, place, place.session, turn)
    made = {**made, "session": place.session.id}
    pieces = _tidied(access, place, said(running, partial(writing.note, **made)))
    return PendingReply(reply, turn, created, place.session, pieces)


async def _again(access: IdentityAccess, before: Made, writing: IdempotentWrite) -> PendingReply:
    session = await access.session(before["session"])
    turn = await access.kept_turn(session.id, before["turn"])
    pieces = said(turn, partial(writing.note, **before))
    return PendingReply(before["id"], before["turn"], int(before["created"]), session, pieces)


async def _tidied(
    access: IdentityAccess, place: ReplyPlace, pieces: AsyncGenerator[Piece, None]
) -> AsyncGenerator[Piece, None]:
    """The pieces; a session that was begun for a request that fails goes again, for the client sends it again."""
    try:
        async for piece in pieces:
            yield piece
    except Exception:
        if place.is_new and place.session is not None:
            await access.forget_new(place.session)
        raise
