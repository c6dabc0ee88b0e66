"""The rows of an identity in this process: the log read into a table, with the search and the vectors of its rows.

All methods block; those that work on the table need the lock, which `reading` takes. It also reads what other
processes have added: a read that begins after a write has returned sees it.

A snapshot of the table makes opening a long log cheap: only its last lines are read. A snapshot that is damaged or was
not made from this log is removed, and the log is read from its start.
"""

import json
import logging
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from chatbot.stores.access import Guard, View
from chatbot.stores.errors import ClosedResource, InvalidValue, ReadOnlyFolder, StoreError
from chatbot.stores.log import COUNTING, LinePlace, Log, LogMark, Shelf
from chatbot.stores.observation import Observation
from chatbot.stores.observations import lookups, search
from chatbot.stores.observations.arrays import Arrays, Pieces, pack, put
from chatbot.stores.observations.file_log import event_of
from chatbot.stores.observations.table import Table
from chatbot.stores.query import Progress
from chatbot.stores.row_events import STATUS_AFTER, Event, apply, check_fields, counts_in, implied_events, strength_in

if TYPE_CHECKING:
    from chatbot.stores.observations.row_vectors import Vectors

logger = logging.getLogger(__name__)

NAME = "table"
_LAYOUT = "table 4"


def _snapshots(shelf: Shelf) -> Pieces[tuple[Table, LogMark]]:
    return Pieces(shelf, _LAYOUT, lambda _, arrays: (_table_of(arrays), LogMark(*arrays.about["position"])))


def dump(table: Table, mark: LogMark) -> tuple[bytes, str]:
    """Return the table and its position in the log as a file, and its digest."""
    about = {
        "columns": lookups.column_names(),
        "classes": [[status, *guard] for status, guard in table.classes],
        "lines": [table.lines, table.use_lines],
        "position": [mark.inode, mark.size, mark.digest],
    }
    labels = table.labels.as_texts()
    parts = {
        **{name: getattr(table, name).tobytes() for name in lookups.COLUMNS},
        "ids": "".join(table.ids).encode(),
        "gone": array("I", sorted(table.ids.gone)).tobytes(),
        "twin_keys": bytes(table.twin_keys),
        "expiring": array("I", [number for _, number in table.expiring]).tobytes(),
        "labels": labels.texts.encode(),
        "label_ends": labels.text_ends.tobytes(),
        "holders": bytes(labels.rows),
        "holder_ends": labels.row_ends.tobytes(),
        "later": _json([[number, places] for number, places in table.later.items()]),
        "after": _json(table.after),
        "sessions": _json(table.sessions),
        "triples": _json([fact.as_json() for fact in table.triples.values()]),
        "retracted": _json(sorted(table.retracted)),
    }
    return pack(parts, about)


def _table_of(arrays: Arrays) -> Table:
    about, parts = arrays
    if about["columns"] != lookups.column_names():
        raise ValueError("it has other columns")
    table = Table(parts)
    table.ids = lookups.Ids(str(parts["ids"], "ascii"), lookups.numbers_in("I", parts["gone"]))
    table.classes = [(status, Guard(*guard)) for status, *guard in about["classes"]]
    table.lines, table.use_lines = about["lines"]
    table.retracted = set(json.loads(bytes(parts["retracted"])))
    ends, row_ends = lookups.numbers_in("I", parts["label_ends"]), lookups.numbers_in("I", parts["holder_ends"])
    texts = lookups.LabelTexts(str(parts["labels"], "utf-8"), ends, parts["holders"], row_ends)
    table.labels = lookups.Labels(texts.all())
    return table


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_MOST_KEPT_ROWS = 2_048
_SNAPSHOT_AFTER = 128
"""New lines of the log that make a new snapshot worthwhile: every process that starts reads them."""
_SHARED_AFTER, _SHARED_SHARE = 512, 8
"""A shared snapshot is rewritten after this many new lines, or after one for every 8 of its lines if that is more."""
_COUNTED_IN_A_LINE = 10
"""A line with counts takes as long to read as one line for every ten rows in it."""


class Replica:
    """The table of all rows and the texts of some, as of the last line that was read. `lock` guards it."""

    def __init__(self, log: Log, shelf: Callable[[str], Shelf]) -> None:
        self.log = log
        self.snapshots = shelf(NAME)
        """Shelf of the snapshot; needs the lock."""
        self.lock = threading.RLock()
        self.table = Table()
        self._shelf = shelf
        self._kept_rows: OrderedDict[int, Observation] = OrderedDict()
        self._is_open = False
        self._is_closed = False
        self._snapshot_lines = 0
        self._known_vectors: Vectors | None = None
        self.search = search.TextSearch(
            shelf(search.NAME), self.lock, lambda: self.table.texts, self.each_row, log.is_replaced
        )

    @contextmanager
    def reading(self, fresh_at: float = 0.0) -> Iterator[bool]:
        """Lock the rows and read all new lines of the log; yields the result of `catch_up`."""
        with self.lock:
            yield self.catch_up(fresh_at)

    def catch_up(self, fresh_at: float = 0.0) -> bool:
        """Read new lines unless all until `fresh_at` are known; return True if there were none. Needs the lock."""
        if fresh_at and self._is_open and not self._is_closed and self.log.is_known(fresh_at):
            return True
        if self._is_closed:
            raise ClosedResource("the store of memories is closed")
        known = (self.table, self.table.lines)
        if not self._is_open:
            self._open()
        elif self.log.is_replaced():
            logger.info("%s was replaced: reading it again", self.log.name)
            self._start_again()
            self._open()
        for place, line in self.log.read_new():
            self.table.lines += 1
            event = event_of(line, self.log.name)
            try:
                if event is not None:
                    self._fold(event, place)
            except InvalidValue as error:
                logger.warning("%s holds an impossible change, which was skipped: %s", self.log.name, error)
            except BaseException:
                self._start_again()  # a part of the change may be in the table
                raise
        return (self.table, self.table.lines) == known

    def add(self, event: Event, place: LinePlace) -> None:
        """Apply an event that this process has written."""
        self.table.lines += 1
        try:
            self._fold(event, place)
        except BaseException:
            self._start_again()
            raise

    def note_rewritten(self, moved: dict[int, LinePlace], added: int) -> None:
        """Update the places of rows after this process rewrote the log; `added` is the number of new lines."""
        self.table.relocate(moved)
        self.table.lines = len(moved) + added
        self.table.use_lines = 0
        self._snapshot_lines = 0  # there is no snapshot of this log

    def erase(self, numbers: set[int]) -> None:
        """Erase rows, except their ids and numbers."""
        for number in numbers:
            self._kept_rows.pop(number, None)
        self.table.erase(numbers)

    def rows(self, numbers: Sequence[int], view: View) -> list[Observation]:
        """Return the observations, without ids that the caller may not know."""
        if not numbers:
            return []
        sees = self.sees_of(view)
        self._fetch(numbers)
        return [lookups.without_hidden_ids(self.row(number), sees) for number in numbers]

    def each_row(self, numbers: Sequence[int]) -> list[Observation]:
        """Return the observations as they are now, without keeping them: reading all would evict those in use."""
        self._fetch(numbers)
        return [self.table.with_counts(self._kept_rows.get(each) or self._read_row(each), each) for each in numbers]

    def _fetch(self, numbers: Sequence[int]) -> None:
        self.log.fetch(
            place for number in numbers if number not in self._kept_rows for place in self.table.places(number)
        )

    def sees_of(self, view: View) -> Callable[[str], bool]:
        """Return a test for ids that the caller may know."""
        return lookups.sees_of(view, self._guard_of)

    def row(self, number: int) -> Observation:
        """Return the observation as it is now."""
        if (row := self._kept_rows.get(number)) is None:
            row = self._read_row(number)
            self._keep_row(number, row)
        else:
            self._kept_rows.move_to_end(number)
        now = self.table.with_counts(row, number)
        if now is not row:
            self._kept_rows[number] = now
        return now

    def events(self, number: int) -> list[Event]:
        """Return the events of a row, without those that count uses."""
        places = self.table.places(number)
        if len(places) > 1:
            self.log.fetch(places)
        row_id = self.table.ids[number]
        try:
            first, *later = map(self.log.event_at, places)
            return [first, *(_for_row(row_id, event) for event in later)]
        except InvalidValue as error:
            raise self._changed_in_place() from error

    def vectors(self) -> "Vectors":
        """Return the vectors, with those that other processes have added."""
        if self._known_vectors is None:
            from chatbot.stores.observations import row_vectors

            self._known_vectors = row_vectors.Vectors(self._shelf(row_vectors.NAME))
        self._known_vectors.catch_up()
        return self._known_vectors

    def reindex(self, progress: Progress | None = None) -> int:
        """Delete every cache and build it again from the log; return the number of rows."""
        with self.lock:
            self.snapshots.clear()
            self._start_again()
            self.catch_up()
            self.search.rebuild(progress)
            rows = len(self.table.numbers)
        self.save()  # not before our lock is free: a writer holds the log's and waits for ours
        return rows

    def save(self, *, always: bool = True) -> None:
        """Write a snapshot of the table, if it is worth it. It is only a cache: a failure is logged."""
        with self.lock:
            if not self._is_open or not (always or self.table.lines - self._snapshot_lines >= _SNAPSHOT_AFTER):
                return
        try:
            if not self.log.was_written():
                return  # not written by this program: it is a copy, which is only read
            with self.lock:
                self._snapshot_lines = self.table.lines
                mark = self.log.mark()
                made = dump(self.table, mark)
            with self.log.locked(), self.lock:
                if mark.inode == self.log.mark().inode and not self.log.is_replaced():  # nothing was erased since
                    self.snapshots.prepare()
                    with self.snapshots.alone() as writer:
                        _snapshots(self.snapshots).publish(writer, [put(writer, NAME, made)], durable=False)
        except ReadOnlyFolder:
            logger.info("no snapshot of %s is kept: it is read-only", self.log.name)
        except (OSError, StoreError) as error:
            logger.warning("no snapshot of %s could be written: %s", self.log.name, error)

    def has_batch(self) -> bool:
        """Return whether enough rows are only in memory to write a batch, or a snapshot is due."""
        return self.search.has_batch() or self._is_snapshot_due()

    def index(self) -> None:
        """Index the rows that are only in memory, in batches, without blocking other operations."""
        while self.search.index_batch():
            pass
        if self._is_snapshot_due():
            self.save()

    def close(self) -> None:
        """Save the snapshot and at most one batch of the index, if worthwhile, and close all files."""
        self.save(always=False)
        self.search.write_for_next()
        with self.lock:
            self._is_closed = True
            self.search.close()
            self.log.close()

    def _open(self) -> None:
        self.log.start_again()
        self._is_open = True
        pieces = _snapshots(self.snapshots)
        pieces.refresh()
        if not pieces.all:
            return
        table, mark = next(iter(pieces.all.values()))
        if self.log.resume(mark):
            self.table = table
            self._snapshot_lines = table.lines
            return
        try:
            self.snapshots.clear()
        except StoreError as error:
            logger.warning("an unusable snapshot could not be removed: %s", error)

    def _start_again(self) -> None:
        self.table = Table()
        self._kept_rows.clear()
        self.search.close()
        self._known_vectors = None
        self._is_open = False
        self._snapshot_lines = 0

    def _is_snapshot_due(self) -> bool:
        """Return whether a starting server would have to read many lines after the snapshot."""
        known = self._snapshot_lines
        return self.snapshots.is_shared and self.table.lines - known >= max(_SHARED_AFTER, known // _SHARED_SHARE)

    def _fold(self, event: Event, place: LinePlace) -> None:
        table = self.table
        if event.row is not None:
            self._fold_new(event, event.row, place)
        elif event.kind == "purge":
            table.add_erased(event.ids)
            for each in implied_events(event):
                self._fold_change(each, place)
        elif event.kind in {"triple", "retract"}:
            table.fold_triple(event)
        elif event.kind in COUNTING:
            self._fold_counts(event)
        else:
            self._fold_change(event, place)

    def _fold_new(self, event: Event, row: Observation, place: LinePlace) -> None:
        if self.table.numbers.get(row.id) is not None:
            raise InvalidValue(f"the id {row.id} is used twice: the first row stays")
        number = self.table.add(row, place)
        self._keep_row(number, row)
        self.search.note(number, row)
        for each in implied_events(event):
            self._fold_change(each, place)

    def _fold_counts(self, event: Event) -> None:
        table = self.table
        counts = counts_in(event) if event.kind == "counts" else {}
        for each in event.ids:
            number = table.numbers.get(each)
            if number is None:
                continue  # erased meanwhile
            if event.kind == "use":
                table.use(number, event.at)
            elif event.kind == "consolidate":
                table.consolidate(number, *strength_in(event, each))
            else:
                table.set_counts(number, counts)
                self._kept_rows.pop(number, None)
        if event.kind != "counts":
            table.use_lines += 1 + len(event.ids) // _COUNTED_IN_A_LINE

    def _fold_change(self, event: Event, place: LinePlace) -> None:
        for each in event.ids:
            number = self.table.numbers.get(each)
            if number is None:
                continue  # erased meanwhile
            if event.kind in STATUS_AFTER and event.kind != "restore":
                self._set_status(number, event)
            else:
                before = self.row(number)
                after = apply(before, event)
                self.table.change(before, after)
                self.search.note(number, after)
                self._keep_row(number, after)
            self.table.later.setdefault(number, []).append(place)

    def _set_status(self, number: int, event: Event) -> None:
        """Set the status of a row. Its text is unchanged and need not be read."""
        check_fields(event)
        self.table.set_status(number, event)
        self.search.note(number)
        self._kept_rows.pop(number, None)

    def _guard_of(self, observation_id: str) -> Guard | None:
        number = self.table.numbers.get(observation_id)
        return None if number is None else self.table.guard(number)[1]

    def _keep_row(self, number: int, row: Observation) -> None:
        self._kept_rows[number] = row
        if len(self._kept_rows) > _MOST_KEPT_ROWS:
            self._kept_rows.popitem(last=False)

    def _read_row(self, number: int) -> Observation:
        first, *later = self.events(number)
        if first.row is None or first.row.id != self.table.ids[number]:
            raise self._changed_in_place()
        return reduce(apply, later, first.row)

    def _changed_in_place(self) -> InvalidValue:
        return InvalidValue(f"{self.log.name} was changed in place: run `chatbot memory reindex`")


def _for_row(row_id: str, event: Event) -> Event:
    for each in (*implied_events(event), event):
        if row_id in each.ids:
            return each
    raise InvalidValue(f"the event {event.kind!r} is not about {row_id}")
