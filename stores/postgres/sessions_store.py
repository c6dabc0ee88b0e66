"""The plug-in `basic_session` for an identity in PostgreSQL: transcripts and key-values of its sessions."""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct

from chatbot.stores.base import Cap, KeyValueStore, TranscriptStore
from chatbot.stores.errors import UnknownOutcome
from chatbot.stores.home import Address
from chatbot.stores.loops import in_thread
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database, TurnRead
from chatbot.stores.postgres.database_connection import Row
from chatbot.stores.postgres.place import PostgresPlace, new_generation
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry

_MESSAGES = ".messages"
_VALUES = ".key_values"
"""Names of rows in `chatbot.head`; lines cannot have them, because of the dot."""
_READ_AHEAD = 20
_MOST_AHEAD = 200
"""Fewest and most entries to read with a turn's lease; between them, as many as earlier turns used."""
_MOST_TURNS = 1_000
"""Sessions whose reads are kept in memory."""


class _TurnReads(Struct):
    """Entries and values read at the beginning of a turn, with those appended here since."""

    fresh_at: float
    entries: list[TranscriptEntry] = []
    is_part: bool = False
    """True if there may be earlier entries."""
    values: dict[str, KeyValue] | None = None


class PostgresSessionStore(KeyValueStore, TranscriptStore):
    """Keeps at most `kv_cap` key-value entries a session and all transcript entries: `transcript_cap` has no effect."""

    def __init__(self, home: Address, *, kv_cap: Cap = 200, transcript_cap: Cap = 500) -> None:  # noqa: ARG002
        super().__init__(home)
        self._kv_cap = kv_cap
        self._home = home
        self._database = Database.of(home.url)
        self._release = weakref.finalize(self, self._database.release)
        self._most_read = _READ_AHEAD
        self._turns: dict[str, _TurnReads] = {}

    def turn_reads(self, session: SessionRef, fresh_at: float) -> Sequence[TurnRead]:
        """Return the reads of as many entries as turns have used so far, and of the key-values."""
        reads, limit = _TurnReads(fresh_at), self._most_read

        def keep_entries(rows: list[Row]) -> None:
            reads.entries, reads.is_part = _entries(rows), len(rows) == limit
            if len(self._turns) >= _MOST_TURNS:
                self._turns.clear()
            self._turns[session.id] = reads

        def keep_values(rows: list[Row]) -> None:
            reads.values = {each.key: each for each in _values(rows)}

        read, where = partial(TurnRead, self._database, self._home.identity), {"session": session.id}
        return [
            read(statements.LAST_MESSAGES, {**where, "limit": limit}, keep_entries),
            read(statements.ALL_VALUES, where, keep_values),
        ]

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        if (reads := self._current_reads(session)) is not None and reads.values is not None:
            entry = reads.values.get(key)
            return None if entry is None else entry.value
        rows = await self._rows(session, statements.GET_VALUE, key=escape_nul(key))
        return unescape_nul(rows[0][0]) if rows else None

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        self._turns.pop(session.id, None)
        await asyncio.to_thread(self._set, session, entry)

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        self._turns.pop(session.id, None)
        return bool(await asyncio.to_thread(self._place(session).run, statements.DELETE_VALUE, key=escape_nul(key)))

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        if (reads := self._current_reads(session)) is not None and reads.values is not None:
            return [*reads.values.values()]
        return _values(await self._rows(session, statements.ALL_VALUES))

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        if entries:
            await asyncio.to_thread(self._append, session, entries)

    def blocking_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> Callable[[], None]:
        return partial(self._append, session, entries)

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        if n <= 0:
            return []
        if (reads := self._current_reads(session)) is not None and (len(reads.entries) >= n or not reads.is_part):
            return reads.entries[-n:]
        if session.fresh_at:
            self._most_read = max(self._most_read, min(n, _MOST_AHEAD))
        return _entries(await self._rows(session, statements.LAST_MESSAGES, limit=min(n, statements.BEYOND_ALL)))

    async def transcript_count(self, session: SessionRef, roles: Collection[str] = ()) -> int:
        rows = await asyncio.to_thread(self._rows_of, [session], statements.COUNT_MESSAGES, roles=list(roles))
        return int(rows[0][1]) if rows else 0

    async def transcript_counts(
        self, sessions: Sequence[SessionRef], roles: Collection[str] = ()
    ) -> list[int | BaseException]:
        rows = await asyncio.to_thread(self._rows_of, sessions, statements.COUNT_MESSAGES, roles=list(roles))
        counts = dict(rows)
        return [counts.get(each.id, 0) for each in sessions]

    async def transcript_stamps(self, sessions: Sequence[SessionRef]) -> list[str]:
        rows = await asyncio.to_thread(self._rows_of, sessions, statements.STATES_OF_HEADS, name=_MESSAGES)
        stamps = {session: f"{generation}:{end}" for session, generation, end in rows}
        return [stamps.get(each.id, "0") for each in sessions]

    @in_thread
    def transcripts_read_all(self, sessions: Sequence[SessionRef]) -> list[list[TranscriptEntry] | BaseException]:
        found = defaultdict[str, list[TranscriptEntry]](list)
        for session, *entry in self._rows_of(sessions, statements.MESSAGES_OF):
            found[session].append(_entry(*entry))
        return [found[each.id] for each in sessions]

    async def transcript_drop_last(
        self, session: SessionRef, n: int, instead: Sequence[TranscriptEntry] = ()
    ) -> list[TranscriptEntry]:
        self._turns.pop(session.id, None)
        return await asyncio.to_thread(self._drop_last, session, max(0, n), instead) if n > 0 or instead else []

    async def forget_session(self, session: SessionRef) -> None:
        for statement in (statements.DELETE_MESSAGES, statements.DELETE_VALUES):
            await self._rows(session, statement, id=session.id)
        self._turns.pop(session.id, None)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._release)

    def _current_reads(self, session: SessionRef) -> _TurnReads | None:
        """Return the reads of the current turn; None if they must be repeated."""
        reads = self._turns.get(session.id)
        return reads if reads is not None and session.fresh_at and reads.fresh_at >= session.fresh_at else None

    def _append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        write_all = partial(self._append_all, session, entries)
        if len(entries) != 1 or not self._append_one(session, entries[0], write_all):
            write_all()
        if (reads := self._turns.get(session.id)) is not None:
            reads.entries += entries

    def _append_all(
        self, session: SessionRef, entries: Sequence[TranscriptEntry], *, unknown: UnknownOutcome | None = None
    ) -> None:
        """Append, also to a transcript without entries."""
        self._database.append(
            self._home.identity,
            statements.APPEND_MESSAGES,
            statements.APPEND_MISSING_MESSAGES,
            unknown=unknown,
            session=session.id,
            **_head(_MESSAGES, len(entries)),
            roles=[entry.role for entry in entries],
            contents=[escape_nul(entry.content) for entry in entries],
            times=[entry.at for entry in entries],
        )

    def _append_one(self, session: SessionRef, entry: TranscriptEntry, write_all: Callable[..., None]) -> bool:
        """Append to a transcript with entries, which is cheaper."""
        values: dict[str, Any] = {"role": entry.role, "content": escape_nul(entry.content), "at": entry.at}
        where = {"session": session.id, "name": _MESSAGES}
        return self._database.add(self._home.identity, statements.ADD_MESSAGE, write_all, **where, **values)

    def _set(self, session: SessionRef, entry: KeyValue) -> None:
        place = self._place(session)
        with place.transaction(statements.LOCK_LINES, **_head(_VALUES, 0)):
            kept = {"key": escape_nul(entry.key), "value": escape_nul(entry.value), "at": entry.at}
            place.run(statements.SET_VALUE, **_head(_VALUES, 1), **kept)
            place.run(statements.TRIM_VALUES, cap=self._kv_cap)

    def _drop_last(self, session: SessionRef, n: int, instead: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
        place = self._place(session)
        with place.transaction(statements.LOCK_LINES, **_head(_MESSAGES, 0)):
            rows = place.rows(statements.DROP_MESSAGES, limit=min(n, statements.BEYOND_ALL))
            place.run(statements.RENEW_GENERATION, name=_MESSAGES, generation=new_generation())
            if instead:
                self._append_all(session, instead)
        return [_entry(*row[1:]) for row in sorted(rows)]

    def _place(self, session: SessionRef) -> PostgresPlace:
        return PostgresPlace(self._home, self._database, session.id)

    def _rows_of(self, sessions: Sequence[SessionRef], statement: str, **values: Any) -> list[Row]:
        ids = [each.id for each in sessions]
        return self._database.rows(self._home.identity, statement, sessions=ids, **values)

    async def _rows(self, session: SessionRef, statement: str, **values: Any) -> list[Row]:
        return await asyncio.to_thread(self._place(session).rows, statement, **values)


def escape_nul(text: str) -> str:
    """Return the text with NUL escaped, which PostgreSQL cannot store."""
    return text.replace("\x10", "\x10p").replace("\0", "\x10n")


def unescape_nul(text: str) -> str:
    """Undo `escape_nul`."""
    return text.replace("\x10n", "\0").replace("\x10p", "\x10")


def _head(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "generation": new_generation(), "count": count}


def _values(rows: Sequence[Row]) -> list[KeyValue]:
    return [KeyValue(unescape_nul(key), unescape_nul(value), at.astimezone(UTC)) for key, value, at in rows]


def _entries(rows: Sequence[Row]) -> list[TranscriptEntry]:
    return [_entry(*row) for row in reversed(rows)]


def _entry(role: str, content: str, at: datetime) -> TranscriptEntry:
    return TranscriptEntry(role, unescape_nul(content), at.astimezone(UTC))
