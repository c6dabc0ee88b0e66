"""The log of observations as rows of `chatbot.event`. Blocking.

A line is placed behind the bytes that were written before it, and stays there when others are erased. Writing requires
the lock of the log's row in `chatbot.head`; a rewritten log has another generation.
"""

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any

from chatbot.stores.errors import StoreAway, StoreBusy, StoreError, UnknownOutcome
from chatbot.stores.home import Address
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import LineChange, LinePlace, Log, LogMark, Writing, WrittenByOthers
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database, TurnRead
from chatbot.stores.postgres.database_connection import Row, Transaction
from chatbot.stores.postgres.place import new_generation
from chatbot.stores.records import chunks
from chatbot.stores.row_events import Event, parse_event

_HEAD: dict[str, Any] = {"session": "", "name": ".observations"}
"""The log's row in `chatbot.head`; `Lines` cannot have that name."""
_AT_A_TIME = 2_000
_KEPT_LINES = 16_384
"""Lines kept in memory: reading one takes a round trip."""
_ALONE_S = 60.0
"""Seconds without another writer after which a process appends without a lock."""
_LOST = -1
"""Generation of a log that was read and then rolled back: it must be read again."""
_COMPARED = 100
"""Characters of the last line by which it is recognised: they have its time and id."""


class PostgresLog(Log):
    """The events of an identity, and how far they were read."""

    def __init__(self, address: Address) -> None:
        self.name = f"memory of {address}"
        self._database = Database.of(address.url)
        self._identity = address.identity
        self._generation = 0
        self._position = 0
        self._last, self._last_at = b"", -1
        """The last line that was read, and its place; -1 without one."""
        self._found: tuple[int, float, int] | None = None
        """The thread and time of the last `is_replaced`, and the end that it found, for `read_new`."""
        self._of_thread = threading.local()
        """Its `found` has the rows that this thread read with a turn's lease, and their values, by statement."""
        self._lines: OrderedDict[int, bytes] = OrderedDict()
        self._writing: tuple[int, int] | None = None
        """Generation and size while this process writes."""
        self._writer = 0  # the thread that writes
        self._write_lock = threading.RLock()
        """Lock for writing within this process; between processes the row is locked."""
        self._others_at = -_ALONE_S
        """When another writer was last seen."""
        self._was_read = False
        self._known_at = 0.0
        """Time up to which all writes are known to be read."""
        self._unsure: threading.Event | None = None
        """Set once it is known whether lines that count as read were written."""
        self._release = weakref.finalize(self, self._database.release)

    @property
    def position(self) -> int:
        return int(self._rows(statements.SIZE_OF_EVENTS)[0][0])

    @property
    def end(self) -> int:
        """Place of the next line."""
        return self._position

    def mark(self) -> LogMark:
        return LogMark(self._generation, self._position, _digest(self._last))

    def resume(self, mark: LogMark) -> bool:
        generation, end = self._state()
        if not generation or generation != mark.inode or end < mark.size:
            return False
        [(start, text)] = self._rows(statements.LAST_EVENT, end=mark.size) or [(-1, "")]
        if _digest(text.encode()) != mark.digest:
            return False
        self.take_as_read(generation, mark.size, (start, text.encode()))
        return True

    def is_replaced(self) -> bool:
        """Compare generation and last line in one round trip, which also gives `read_new` its end.

        A standby that took over, or a restored backup, may lack lines that were read.
        """
        if (unsure := self._unsure) is not None and self._writer != threading.get_ident():
            unsure.wait()
        is_writing, asked_at = self._writing is not None, time.monotonic()
        is_ours = is_writing and self._writer == threading.get_ident()
        if is_ours and self._writing == (self._generation, self._position):
            return False
        rows = self._rows(statements.STATE_OF_LOG, **self._read_so_far())
        generation, end, is_whole = rows[0] if rows else (0, 0, not self._position)
        self._found = (threading.get_ident(), asked_at, end)
        if is_writing and not generation:
            return False  # our first write is not committed yet
        if self._generation != generation:
            return self._generation != 0
        return not is_whole and (is_ours or not is_writing)  # what another thread writes is not committed yet

    def start_again(self) -> None:
        self._generation = self._position = 0
        self._last, self._last_at, self._found = b"", -1, None
        self._was_read = False
        self._lines.clear()

    def read_new(self) -> Iterator[tuple[LinePlace, bytes]]:
        found, self._found = self._found, None
        if found is not None and found[0] == threading.get_ident() and self._generation:
            _, asked_at, end = found
        else:
            asked_at = time.monotonic()
            generation, end = self._state()
            self._generation = self._generation or generation
            if generation != self._generation:
                return  # rewritten since we looked: the next `is_replaced` reports it
        yield from self._read_to(end)
        self._was_read = True
        if self._writing is None:
            self._known_at = asked_at

    def is_known(self, fresh_at: float) -> bool:
        """Return False in the thread that writes: it must know the end."""
        if self._writing is not None and self._writer == threading.get_ident():
            return False
        if (unsure := self._unsure) is not None:
            unsure.wait()
        return self._generation not in {0, _LOST} and self._known_at >= fresh_at

    def turn_reads(self, catch_up: Callable[[], object]) -> list[TurnRead]:
        """Return the reads of what others have written, which `catch_up` then takes in, and after it `note_known`."""
        asked = {statements.STATE_OF_LOG: self._read_so_far(), statements.READ_EVENTS: self._next_events()}
        found: dict[str, tuple[dict[str, Any], list[Row]]] = {}

        def keep(statement: str, rows: list[Row]) -> None:
            found[statement] = asked[statement], rows
            if len(found) == len(asked) and self._was_read:
                self._of_thread.found = found
                try:
                    catch_up()
                finally:
                    self._of_thread.found = {}

        read = partial(TurnRead, self._database, self._identity)
        return [read(statement, values, partial(keep, statement)) for statement, values in asked.items()]

    def note_known(self, until: float) -> None:
        """Count what others have written since then as unread."""
        self._known_at = min(self._known_at, until)

    def _read_to(self, end: int) -> Iterator[tuple[LinePlace, bytes]]:
        while self._position < end:
            rows = [row for row in self._rows(statements.READ_EVENTS, **self._next_events()) if row[0] < end]
            if self._was_read:
                self._others_at = time.monotonic()
            for start, text in rows:
                line = text.encode()
                yield (start, len(line)), line
                self._keep(start, line)
                self._position, self._last, self._last_at = start + 1, line, start
            if len(rows) < _AT_A_TIME:
                self._position = end

    def event_at(self, place: LinePlace) -> Event:
        if place[0] not in self._lines:
            self.fetch([place])
        return parse_event(record_of(self._lines.get(place[0], b"")))

    def fetch(self, places: Iterable[LinePlace]) -> None:
        missing = list(dict.fromkeys(start for start, _ in places if start not in self._lines))
        if missing:
            for start, text in self._rows(statements.EVENTS_AT, starts=missing):
                self._keep(start, text.encode())

    @contextmanager
    def locked(self) -> Iterator[Writing]:
        values = {**_HEAD, "generation": new_generation(), "count": 0}
        with (
            self._locked_here(),
            self._database.transaction(self._identity, statements.LOCK_LINES, **values) as transaction,
        ):
            self._writing, self._writer = transaction.first[0], threading.get_ident()
            writing = PostgresWriting(self, transaction)
            try:
                yield writing
                writing.release()
            except BaseException:
                if not writing.is_over:
                    self._generation = _LOST  # the table has rows that were rolled back
                raise
            finally:
                self._writing = None

    @contextmanager
    def optimistic(self) -> Iterator[Writing]:
        """Append in one round trip without a lock if no one else has written for a minute."""
        with self._locked_here():
            if self._generation in {0, _LOST} or time.monotonic() - self._others_at < _ALONE_S:
                with self.locked() as writing:
                    yield writing
                return
            self._writing, self._writer = (self._generation, self._position), threading.get_ident()
            unlocked = _UnlockedLines(self, self._position)
            try:
                yield unlocked
                unlocked.release()
            except StoreError as error:
                if unlocked.is_over:
                    raise
                raise WrittenByOthers from error
            finally:
                self._writing = None
                unlocked.end()

    @contextmanager
    def _locked_here(self) -> Iterator[None]:
        """Hold the write lock of this process. Raises `StoreBusy`."""
        longest = self._database.longest_wait_s
        if not self._write_lock.acquire(timeout=longest):
            raise StoreBusy(f"{self.name} was being written for {longest:g} s: try again")
        try:
            yield
        finally:
            self._write_lock.release()

    def hold_readers(self) -> threading.Event:
        """Have readers wait until the result is set."""
        self._unsure = threading.Event()
        return self._unsure

    def append_after(self, before: int, added: Sequence[tuple[int, bytes]]) -> None:
        """Write these lines if the log still ends at `before`. Raises `WrittenByOthers` if not."""
        starts, lines = zip(*added, strict=True)
        head = {**_HEAD, "generation": self._generation, "before": before, "next": self._position}
        texts = [line.decode() for line in lines]
        asked_at = time.monotonic()
        add = partial(
            self._database.run, self._identity, statements.ADD_EVENTS_NEXT, **head, starts=list(starts), lines=texts
        )
        try:
            is_written = bool(add())
        except UnknownOutcome as unknown:
            is_written = self.is_kept(unknown) or bool(add())
        if not is_written:
            self._others_at = time.monotonic()
            raise WrittenByOthers
        self._known_at = asked_at

    def is_kept(self, unknown: UnknownOutcome) -> bool:
        """Return whether the current write was committed though it raised that error."""
        lock = (statements.LOCK_LINES, {**_HEAD, "generation": new_generation(), "count": 0})
        last = (statements.EVENTS_AT, {"starts": [self._last_at]})
        [(generation, _)], found = self._database.find_out(self._identity, unknown, lock, last)
        is_last = found == ([(self._last_at, self._last.decode())] if self._last_at >= 0 else [])
        return is_last and self._writing is not None and self._writing[0] == generation

    def was_written(self) -> bool:
        return bool(self._state()[0])

    def close(self) -> None:
        self._lines.clear()
        self._release()

    def note_read(self, line: bytes) -> LinePlace:
        """Count our next line as read; return its place."""
        place = (self._position, len(line))
        self._keep(place[0], line)
        self._position, self._last, self._last_at = place[0] + len(line) + 1, line, place[0]
        return place

    def take_as_read(self, generation: int, position: int, last: tuple[int, bytes]) -> None:
        """Continue at that position of the log of that generation; `last` is the line before, with its place."""
        if generation != self._generation:
            self._lines.clear()
        self._generation, self._position = generation, position
        self._last_at, self._last = last

    def take_as_written(self, generation: int, position: int, last: tuple[int, bytes]) -> None:
        """Continue after the log that the writer has rewritten."""
        self.take_as_read(generation, position, last)
        self._writing = (generation, position)

    def release_readers(self, known: threading.Event) -> None:
        """Let readers continue after `hold_readers`."""
        self._unsure = None
        known.set()

    def discard(self) -> None:
        """Read everything again: what we wrote was not kept."""
        self._generation = _LOST

    def _state(self) -> tuple[int, int]:
        """Return generation and size; (0, 0) if nothing was ever written."""
        if self._writing is not None and self._writer == threading.get_ident():
            return self._writing
        [(generation, end)] = self._rows(statements.STATE_OF_HEAD, **_HEAD) or [(0, 0)]
        return generation, end

    def _read_so_far(self) -> dict[str, Any]:
        return {**_HEAD, "end": self._position, "start": self._last_at, "begins": self._last.decode()[:_COMPARED]}

    def _next_events(self) -> dict[str, Any]:
        return {"start": self._position, "end": statements.BEYOND_ALL, "limit": _AT_A_TIME}

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        asked, rows = vars(self._of_thread).get("found", {}).get(statement, (None, []))
        return rows if asked == values else self._database.rows(self._identity, statement, **values)

    def _keep(self, start: int, line: bytes) -> None:
        self._lines[start] = line
        if len(self._lines) > _KEPT_LINES:
            self._lines.popitem(last=False)


class _QueuedLines:
    """The lines of a write, sent together at its end, all or none. See `Writing`."""

    def __init__(self, log: PostgresLog) -> None:
        self._log = log
        self._added: list[tuple[int, bytes]] = []
        self.is_over = False
        """True once the lines were sent: they must not be sent again after a failure."""

    def append(self, event: Event) -> LinePlace:
        line = encode(event.as_json()).rstrip(b"\n")
        place = self._log.note_read(line)
        self._added.append((place[0], line))
        return place

    def sync(self) -> None:
        """Do nothing: `release` has made the lines durable."""


class _UnlockedLines(_QueuedLines):
    """Appending without a lock, while nobody else writes."""

    def __init__(self, log: PostgresLog, before: int) -> None:
        super().__init__(log)
        self._before = before
        self._known: threading.Event | None = None
        self._is_written = False

    def append(self, event: Event) -> LinePlace:
        """Queue the line. Readers wait from now on until it is known whether it was written."""
        self._known = self._known or self._log.hold_readers()
        return super().append(event)

    def release(self) -> None:
        """Write the lines. Raises `WrittenByOthers`, also without lines: nothing proves that the rows were current."""
        if self.is_over:
            return
        if not self._added:
            raise WrittenByOthers
        self.is_over = True
        self._log.append_after(self._before, self._added)
        self._is_written = True

    def rewrite(self, change: LineChange, more: Iterable[Event] = ()) -> dict[int, LinePlace]:  # noqa: ARG002 - nothing is rewritten
        """Raise `WrittenByOthers`: a rewrite needs the lock."""
        raise WrittenByOthers

    def end(self) -> None:
        """Let readers continue; they read everything again if the lines were not written."""
        if self._added and not self._is_written:
            self._log.discard()
        if self._known is not None:
            self._log.release_readers(self._known)


class PostgresWriting(_QueuedLines):
    """The one transaction that may write. It ends with its process, so no line is ever torn."""

    def __init__(self, log: PostgresLog, transaction: Transaction) -> None:
        super().__init__(log)
        self._transaction = transaction

    def release(self) -> None:
        if self.is_over:
            return
        try:
            try:
                self._transaction.commit(*self._unsent_statements())
            except UnknownOutcome as unknown:
                if not self._log.is_kept(unknown):
                    raise StoreAway(f"{self._log.name}: the connection broke, and nothing was written") from unknown
        except BaseException:
            self._log.discard()
            raise
        finally:
            self.is_over = True

    def rewrite(self, change: LineChange, more: Iterable[Event] = ()) -> dict[int, LinePlace]:
        """Change lines in their places; old rows are dead at once, and their bytes go with the next vacuum."""
        for statement, values in self._unsent_statements():
            self._transaction.run(statement, **values)
        moved: dict[int, LinePlace] = {}
        dropped, changed, last = list[int](), list[tuple[int, str]](), (-1, b"")
        for start, text in self._lines():
            before = text.encode()
            if (line := change(before, start)) is None:
                dropped.append(start)
                continue
            moved[start], last = (start, len(line)), (start, line)
            if line != before:
                changed.append((start, line.decode()))
        self._transaction.run(statements.DROP_EVENTS, starts=dropped)
        for some in chunks(changed, _AT_A_TIME):
            starts, lines = zip(*some, strict=True)
            self._transaction.run(statements.CHANGE_EVENTS, starts=list(starts), lines=list(lines))
        generation = new_generation()
        self._transaction.run(statements.SET_HEAD, **_HEAD, generation=generation, next=self._log.end)
        self._log.take_as_written(generation, self._log.end, last)
        for event in more:
            self.append(event)
        for statement, values in self._unsent_statements():
            self._transaction.run(statement, **values)
        return moved

    def _lines(self) -> Iterator[Row]:
        begin, pages = 0, {"end": statements.BEYOND_ALL, "limit": _AT_A_TIME}
        while rows := self._transaction.rows(statements.READ_EVENTS, start=begin, **pages):
            yield from rows
            begin = rows[-1][0] + 1

    def _unsent_statements(self) -> list[tuple[str, dict[str, Any]]]:
        if not self._added:
            return []
        starts, lines = zip(*self._added, strict=True)
        self._added.clear()
        generation, _ = self._log._writing or self._transaction.first[0]  # noqa: SLF001 - they are one
        return [
            (statements.ADD_EVENTS, {"starts": list(starts), "lines": [line.decode() for line in lines]}),
            (statements.SET_HEAD, {**_HEAD, "generation": generation, "next": starts[-1] + len(lines[-1]) + 1}),
        ]


def _digest(line: bytes) -> str:
    return blake2b(line, digest_size=16).hexdigest() if line else ""
