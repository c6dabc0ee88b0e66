"""`changes.jsonl`: changes of sessions, and ids of rows and users that were erased, for those who follow. Blocking.

The journal tells how memories change, but not what was erased, and sessions have no journal. A notice holds no text and
no name: ids, who may know of them, and the digest of their namespace. One that is lost in a crash is no harm: lists are
the truth.

`Following` is one caller's way through the changes of memories, sessions and users. Changes by other processes are seen
too. Every change is told at least once, and some again after a purge; a position stays good across restarts, and tells
nothing that its holder does not know.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from chatbot.memory.scope import Scope, Sensitivities, digest_of
from chatbot.stores import backend
from chatbot.stores.access import Guard, View, is_cleared, may, may_see
from chatbot.stores.backend import Hint, Place, Record
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.observation import Observation
from chatbot.stores.records import SessionRecord, format_time, micros, moment, parse_time
from chatbot.stores.row_changes import Change, ChangeCursor, Position

logger = logging.getLogger(__name__)

NoticeKind: TypeAlias = Literal["session.added", "session.changed", "session.deleted", "memory.purged", "user.erased"]
LINES = "changes"
_KEPT_FOR = timedelta(days=90)
_IN_A_LINE = 200
_LATE = timedelta(minutes=1)
"""Furthest that the clocks of two machines are apart."""


@dataclass(frozen=True, slots=True)
class ChangeNotice:
    """Something that happened to sessions, users, or rows that are gone."""

    kind: NoticeKind
    at: datetime
    ids: tuple[str, ...]
    """Those that the caller may know: of sessions or memories; of a user the digest of the namespace."""
    position: Position


class Notices:
    """The notices of an identity."""

    def __init__(self, place: Place, clock: Callable[[], datetime], new_id: Callable[[], UUID]) -> None:
        self._place = place
        self._lines = place.lines(LINES)
        self._clock = clock
        self._new_id = new_id

    def of_session(self, kind: NoticeKind, record: SessionRecord) -> None:
        """Note that a session was added, changed or deleted. Durable on return."""
        self._add(kind, record.namespace, {"session": record.id, "clearance": record.clearance})

    def of_purged(self, rows: Mapping[str, Guard]) -> None:
        """Note that the rows of these ids are gone, which had these guards. Durable on return."""
        for namespace in dict.fromkeys(guard.namespace for guard in rows.values()):
            those = [[each, *guard[:3]] for each, guard in rows.items() if guard.namespace == namespace]
            for begin in range(0, len(those), _IN_A_LINE):
                self._add("memory.purged", namespace, {"rows": those[begin : begin + _IN_A_LINE]})

    def of_erased_user(self, namespace: str) -> None:
        """Note that all of a user was erased. Durable on return."""
        outer = namespace.rpartition("/")[0]
        self._add("user.erased", namespace, {"within": digest_of(outer)})

    def tidy(self) -> None:
        """Drop what is too old for anybody to go on from. Durable on return."""
        oldest = format_time(self._clock() - _KEPT_FOR)
        if any(str(each.get("at", "")) < oldest for each in self._lines.all()):
            self._lines.rewrite(lambda each: each if str(each.get("at", "")) >= oldest else None)

    def reader(self, after: Position | None) -> NoticeReader:
        """Return a reader of what comes behind a position; None for what comes next."""
        return NoticeReader(self._lines, after)

    def _add(self, kind: NoticeKind, namespace: str, about: Mapping[str, Any]) -> None:
        head = {"v": 1, "id": str(self._new_id()), "at": format_time(self._clock()), "kind": kind}
        try:
            self._lines.append([{**head, "namespace": digest_of(namespace), **about}])
            self._place.tell(LINES)
        except StoreError as error:
            logger.warning("those who follow this memory are not told of a change (%s): %s", kind, error)


class NoticeReader:
    """One reader's way through the notices."""

    def __init__(self, lines: backend.Lines, after: Position | None) -> None:
        self._lines = lines
        self._mark: backend.Mark | None = None
        self._waiting: deque[Record] = deque()
        self._begins_now = after is None
        self.position = after or Position(0)
        """Position of the last notice that was told; 0 where there was none."""

    def read(self, view: View, *, limit: int) -> list[ChangeNotice]:
        """Return the next notices that the caller may know."""
        self._take_in()
        if self._begins_now:
            newest = (notice for record in reversed(self._waiting) if (notice := shown(record, view)))
            self.position = next((notice.position for notice in newest), self.position)
            self._waiting.clear()
            self._begins_now = False
        found: list[ChangeNotice] = []
        while self._waiting and len(found) < limit:
            if notice := shown(self._waiting.popleft(), view):
                found.append(notice)
                self.position = notice.position
        return found

    def _take_in(self) -> None:
        starts_over = False
        while True:
            reading = self._lines.since(self._mark)
            self._mark = reading.mark
            if reading.starts_over:
                starts_over = True
                self._waiting.clear()
            self._waiting += reading.records
            if not reading.records:
                break
        if starts_over:
            self._waiting = deque(_behind(self._waiting, self.position))


def shown(record: Record, view: View) -> ChangeNotice | None:
    """Return the notice in a record as the caller may know it; None for nothing, and for what cannot be read."""
    try:
        ids = _ids_for(record, view)
        at = parse_time(record["at"])
        return ChangeNotice(record["kind"], at, ids, Position(micros(at), record["id"])) if ids else None
    except (KeyError, TypeError, ValueError):
        return None


def _ids_for(record: Record, view: View) -> tuple[str, ...]:
    digest = record["namespace"]
    space = next((each for each in view.namespaces or () if digest_of(each) == digest), None)
    if record["kind"] == "user.erased":
        is_inside = any(digest_of(each) == record["within"] for each in view.namespaces or ())
        may_list = is_inside and view.clearance == "full" and may(view, "curate")
        return (digest,) if may_list or space is not None else ()
    if space is None:
        return ()
    if record["kind"] == "memory.purged":
        return tuple(each for each, *guard in record["rows"] if may_see(Guard._make([*guard, space]), view))
    return (record["session"],) if is_cleared(view.clearance, record["clearance"]) else ()


def _behind(records: Iterable[Record], position: Position) -> Iterator[Record]:
    """Yield what comes behind a position; where it is gone, what was written at its time and later."""
    known = list(records)
    at = next((number for number, each in enumerate(known) if position.id and each.get("id") == position.id), None)
    if at is not None:
        yield from known[at + 1 :]
        return
    since = format_time(moment(position.at) - _LATE) if position.at else ""
    yield from (each for each in known if str(each.get("at", "")) >= since)


POLLED_EVERY_S = 0.5
_LONGEST_S = 5.0
"""Between two looks where hints come."""
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One change, and the position to go on behind it."""

    kind: str
    """`memory.added`, `memory.changed`, `memory.purged`, `session.added`, `session.changed`, `session.deleted` or
    `user.erased`."""
    at: datetime
    position: str
    memory: Observation | None = None
    """The memory that was added or changed, as it is now."""
    change: str = ""
    """Kind of the event, as in the history: `update`, `supersede`, `delete` and so on."""
    ids: tuple[str, ...] = ()
    """Otherwise the ids of memories or sessions; of a user the digest of the namespace, for the name is gone."""


class Following:
    """One caller's way through the changes. `after` is a position, "0" for the beginning, None for what comes next.

    Raises `InvalidValue` for what is no position, and `UnsupportedOperation` for a store that does not report changes.
    """

    def __init__(
        self, scope: Scope, notices: Notices, after: str | None, *, ask: Sensitivities, hint: Hint | None = None
    ) -> None:
        self._scope = scope
        self._ask = ask
        memories, told = _parsed(after)
        self._after: Position | ChangeCursor | None = memories
        self._notices = notices.reader(told)
        self._position = memories or Position(0)
        self._hint = hint or Hint()

    @property
    def position(self) -> str:
        """Where to go on: behind everything that was read."""
        return f"{self._position}.{self._notices.position}"

    async def read(self, limit: int = _AT_ONCE) -> list[MemoryChange]:
        """Return the next changes, at most `limit` of memories and as many others; an empty list for none yet."""
        view = self._scope.view(self._ask)
        changes = await self._scope.store.changes(view, self._after, limit=limit)
        self._after = changes.reached
        found = []
        for each in changes.items:
            self._position = each.position
            found.append(self._of_memory(each))
        self._position = changes.reached.position
        notices = await asyncio.to_thread(self._notices.read, view, limit=limit)
        return [*found, *map(self._of_notice, notices)]

    async def watch(self, every_s: float = POLLED_EVERY_S) -> AsyncGenerator[MemoryChange, None]:
        """Yield the changes as they are made; looks for new ones every so many seconds. Never ends by itself."""
        while True:
            found = await self.read()
            for each in found:
                yield each
            if not found:
                await self.wait(every_s)

    async def wait(self, every_s: float = POLLED_EVERY_S) -> None:
        """Wait until there may be more: so many seconds, or until a database hints at it."""
        await self._hint.wait(every_s, max(every_s, _LONGEST_S))

    def _of_memory(self, change: Change) -> MemoryChange:
        kind = "memory.added" if change.kind == "add" else "memory.changed"
        return MemoryChange(kind, change.at, f"{change.position}.{self._notices.position}", change.row, change.kind)

    def _of_notice(self, notice: ChangeNotice) -> MemoryChange:
        return MemoryChange(notice.kind, notice.at, f"{self._position}.{notice.position}", ids=notice.ids)


def _parsed(after: str | None) -> tuple[Position | None, Position | None]:
    if after is None:
        return None, None
    memories, _, told = after.partition(".")
    try:
        return Position.parse(memories), Position.parse(told or memories.partition("~")[0])
    except InvalidValue as error:
        raise InvalidValue(f"after: {error}") from None
