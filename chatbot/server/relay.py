"""Listening to a turn that another server runs: that server writes its events while somebody asks for them.

They are lines of the session until a few seconds after the turn. Listeners at the turn's own server need none of this.
A listener notices if that server dies, because the lease of the turn lapses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

from chatbot.chat.events import Event, event_as_json, event_from_json
from chatbot.errors import ChatbotError
from chatbot.memory import SessionHandle
from chatbot.memory.scope import utc_now
from chatbot.server.elsewhere import is_free
from chatbot.server.errors import Problem, ProblemError, TurnLost, problem_of, unexpected
from chatbot.server.turns import KeptTurn, RunningTurn, TurnResult
from chatbot.stores.backend import Backend, Lease, Lines, Mark, Place, Record
from chatbot.stores.errors import StoreError
from chatbot.stores.records import format_time

logger = logging.getLogger(__name__)

_LINES = "relay"
_EVERY_S = 0.1
"""Seconds between two checks, of the writer for events and of the reader for lines."""
_LINGER_S = 5.0
"""How long the lines stay after the end, for readers that are slow."""
_OLD = timedelta(minutes=1)
_LEASE_EVERY_S = 0.5
_GRACE_S = 2.0
"""How long after the lease the end of a turn may be written."""


async def write_down(place: Place, turn: RunningTurn, closing: asyncio.Event) -> None:
    """Write the events of a turn, from the first on, and its end; erase them a few seconds later.

    `place` is that of its session. `closing` ends the wait for slow readers.
    """
    lines, name = place.lines(_LINES), str(uuid4())
    try:
        await _write_all(place, name, turn)
        with suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), _LINGER_S)
    except StoreError as error:
        logger.warning("a turn cannot be listened to from other servers: %s", error)
    finally:
        await asyncio.to_thread(_erase, lines, name, utc_now())


async def _write_all(place: Place, name: str, turn: RunningTurn) -> None:
    lines, sent = place.lines(_LINES), 0
    for number in count(1):
        is_over = turn.task.done()
        events = turn.so_far[sent:]
        sent += len(events)
        record: Record = {"turn": name, "at": format_time(utc_now()), "n": number, "events": _as_json(events)}
        if is_over:
            record["end"] = await _end(turn)
        if events or is_over or number == 1:  # the first one says that a reply comes
            await asyncio.to_thread(lines.append, [record])
        if is_over:
            return
        await asyncio.wait([turn.task], timeout=_EVERY_S)


class RemoteTurn:
    """A turn of a session that another server runs, read from the events that it writes."""

    def __init__(self, session: SessionHandle, backend: Backend, others: set[str], receipts: int) -> None:
        place = _place_of(session, backend)
        self.begun_at = utc_now()
        self._session = session
        self._lines: Lines = place.lines(_LINES)
        self._lease: Lease = place.lease("turn")
        self._mark: Mark | None = None
        self._others = others
        """The turns that had ended before."""
        self._receipts = receipts
        """Number of turns that had ended by then."""
        self._turn = ""
        self._read_to = 0
        self._end: Mapping[str, Any] | None = None

    @classmethod
    async def of(cls, session: SessionHandle, backend: Backend) -> RemoteTurn:
        """Note which turns have ended; call this before asking the server to write."""
        receipts = len(await session.receipts())
        records = await asyncio.to_thread(_place_of(session, backend).lines(_LINES).all)
        return cls(session, backend, {record["turn"] for record in records if "end" in record}, receipts)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events from the first on, until the turn ends or its server is known to be dead."""
        look_at, give_up = time.monotonic() + _LEASE_EVERY_S, math.inf
        while self._end is None and time.monotonic() < give_up:
            for event in await asyncio.to_thread(self._new):
                yield event
            if give_up == math.inf and time.monotonic() > look_at:
                look_at = time.monotonic() + _LEASE_EVERY_S
                if await asyncio.to_thread(is_free, self._lease):
                    give_up = time.monotonic() + (_GRACE_S if self._turn else 0)
            await asyncio.sleep(_EVERY_S)
        receipts = await self._session.receipts()
        if self._end is None and len(receipts) > self._receipts:  # it ended before its server read our request
            kept = await KeptTurn.of(self._session, str(receipts[-1]["turn"]))
            self._end = {"turn": str(receipts[-1]["turn"])}
            if not self._turn:
                async for event in kept.events():
                    yield event

    async def ended(self) -> TurnResult:
        """Return the result, once `events` has ended. Raises the turn's error, or `TurnLost` if its server died."""
        match self._end:
            case {"turn": str(turn)}:
                return await (await KeptTurn.of(self._session, turn)).ended()
            case {"problem": dict(problem)}:
                raise ProblemError(Problem(**problem))
        raise TurnLost("the server that wrote this reply has stopped before its end: your message is kept, ask again")

    def _new(self) -> list[Event]:
        """Return newly written events, without those of turns that had ended before we started."""
        records = []
        while (reading := self._lines.since(self._mark)).records:
            self._mark = reading.mark
            records += reading.records
        self._mark = reading.mark
        return [event for record in records for event in self._taken(record)]

    def _taken(self, record: Record) -> list[Event]:
        if record["turn"] in self._others or (self._turn and record["turn"] != self._turn):
            return []
        self._turn = record["turn"]
        if record["n"] <= self._read_to:  # lines are read again after others were erased
            return []
        self._read_to, self._end = record["n"], record.get("end")
        return [event_from_json(*each) for each in record["events"]]


def _place_of(session: SessionHandle, backend: Backend) -> Place:
    return backend.place_of(backend.sessions.ref(session.id))


async def _end(turn: RunningTurn) -> dict[str, Any]:
    try:
        return {"turn": (await turn.ended()).turn}
    except (ChatbotError, StoreError) as error:
        problem = problem_of(error)
    except Exception as error:  # noqa: BLE001 - a model may be a plug-in's
        problem = unexpected(error)
    return {"problem": {**asdict(problem), "headers": dict(problem.headers)}}


def _erase(lines: Lines, name: str, now: datetime) -> None:
    """Erase the lines of that turn, and those that a killed server left."""
    since = format_time(now - _OLD)
    try:
        lines.rewrite(lambda record: None if record["turn"] == name or record["at"] < since else record)
    except StoreError as error:
        logger.warning("what was written for listeners of a turn stays: %s", error)


def _as_json(events: Sequence[Event]) -> list[tuple[str, dict[str, Any]]]:
    """Return the events as JSON, with the pieces of a text in one."""
    found: list[tuple[str, dict[str, Any]]] = []
    for event in events:
        kind, data = event_as_json(event)
        if kind == "text" and found and found[-1][0] == "text":
            found[-1][1]["text"] += data["text"]
        else:
            found.append((kind, data))
    return found
