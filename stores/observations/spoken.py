"""Index of the terms of sessions, as segments on a shelf: a document is a session, as it was when it was read.

Besides the arrays of a segment a part has `ids`, those of its sessions in order, one a line. A term is held as often
as entries of the session hold it. Of a session in several parts the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from chatbot.stores.observations.arrays import Arrays, DamagedArrays, PackedPart, Part, Parts
from chatbot.stores.observations.segments import FORMAT, MANY, DamagedSegment, Ints, Segment, SegmentDraft, SegmentEntry
from chatbot.stores.shelf import Shelf
from chatbot.stores.text.bm25 import FIELDS

LAYOUT = f"sessions {FORMAT}"
MOST_SESSIONS = 1 << 10
_FIELD = FIELDS[0]
"""The one field that is used."""

Row = tuple[str, int, Mapping[str, int]]
"""A session, the version of its transcript, and how many entries hold each term."""
T = TypeVar("T")


class SessionPart(Part):
    """The sessions of one part."""

    def __init__(self, name: str, digest: str, arrays: Arrays) -> None:
        super().__init__(name, digest, arrays)
        self.ids = bytes(arrays.whole("ids")).decode().split("\n")
        totals = tuple(map(int, arrays.about["totals"]))
        self.segment = Segment(arrays, SegmentEntry(name, 0, len(self.ids), len(self.ids), totals, digest))
        self.versions: Sequence[int] = self.segment.texts.tolist()
        if len(self.versions) != len(self.ids):
            raise DamagedArrays(f"{name} does not name each session")

    def __len__(self) -> int:
        return len(self.ids)

    def counts(self, terms: Sequence[str]) -> Ints:
        """Return for each session and term how many entries hold it. Raises `DamagedSegment`."""
        found = np.zeros((len(self), len(terms)), "i8")
        for number, run in self.segment.runs_of(terms):
            postings = self.segment.postings[run.begin : run.end]
            held = (postings & MANY).astype("i8")
            for place, count in self.segment.many(run.begin, run.end):
                held[place - run.begin] = count
            found[postings >> 16, number] += held
        return found


class SpokenTerms:
    """Guarded by its owner's lock. Raises a `StoreError` or `OSError` where nothing can be kept."""

    def __init__(self, shelf: Shelf) -> None:
        self._parts = Parts(shelf, LAYOUT, SessionPart, MOST_SESSIONS)
        self._known: Sequence[SessionPart] = ()
        self._last: dict[str, SessionPart] = {}

    def look(self, terms: Sequence[str]) -> dict[str, tuple[int, tuple[int, ...]]]:
        """For each session: its version, and how many entries hold each of the distinct terms."""
        return self._without_damage(lambda: self._looked(terms))

    def put(self, rows: Sequence[Row]) -> None:
        """Keep sessions as they are now, in place of what is known of them. Each may be given once."""
        with self._parts.changing() as hands:
            self._catch_up()
            new = {session for session, _, _ in rows}
            used = {part: self._used(part, lambda each: each not in new) for part in self._known}
            kept, taken = self._parts.split(len(rows), {part: int(flags.sum()) for part, flags in used.items()})
            made = self._without_damage(
                lambda: _packed([(part, used[part]) for part in taken if part in self._parts.all], rows)
            )
            self._parts.publish(hands, [*(part for part in kept if part in self._parts.all), made], durable=False)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Remove these sessions from every file before returning."""
        self._catch_up()
        if self._parts.is_all_there_is() and not any(is_gone(each) for part in self._known for each in part.ids):
            return
        with self._parts.changing() as hands:
            self._catch_up()
            self._parts.publish(
                hands, [left for part in self._known if (left := self._left(part, is_gone)) is not None]
            )

    def _left(self, part: SessionPart, is_gone: Callable[[str], bool]) -> SessionPart | PackedPart | None:
        if not any(map(is_gone, part.ids)):
            return part
        used = self._used(part, lambda each: not is_gone(each))
        try:
            return _packed([(part, used)], ()) if used.any() else None
        except DamagedSegment:
            return None

    def _looked(self, terms: Sequence[str]) -> dict[str, tuple[int, tuple[int, ...]]]:
        self._catch_up()
        return {
            session: (version, tuple(counts))
            for part in self._known
            for session, version, counts in zip(part.ids, part.versions, part.counts(terms).tolist(), strict=True)
            if self._last[session] is part
        }

    def _used(self, part: SessionPart, is_wanted: Callable[[str], bool]) -> Ints:
        """Return which sessions of the part are wanted, and in no later part."""
        return np.array([self._last[each] is part and is_wanted(each) for each in part.ids], bool)

    def _catch_up(self) -> None:
        self._parts.refresh()
        if self._parts.all is not self._known:
            self._known = self._parts.all
            self._last = {session: part for part in self._known for session in part.ids}

    def _without_damage(self, work: Callable[[], T]) -> T:
        """The outcome of the work, done again without each part that turns out to be damaged."""
        while True:
            try:
                return work()
            except DamagedSegment as damage:
                for part in self._known:
                    if part.segment.entry is damage.entry:
                        self._parts.drop(part, damage)
                self._catch_up()


def _packed(taken: Sequence[tuple[SessionPart, Ints]], rows: Sequence[Row]) -> PackedPart:
    """One part of what is used of others, and of new sessions. Raises `DamagedSegment`."""
    from chatbot.stores.observations.codec import RowWriter

    total = len(rows) + sum(int(used.sum()) for _, used in taken)
    writer = RowWriter(0, total)
    for number, (_, version, counts) in enumerate(rows):
        writer.add_row(number, version, {_FIELD: counts} if counts else {})
    ids = [session for session, _, _ in rows]
    for part, used in taken:
        places = np.where(used, np.cumsum(used) - 1 + len(ids), -1)
        writer.add_documents(part.segment, places)
        ids += [session for session, is_used in zip(part.ids, used.tolist(), strict=True) if is_used]
    arrays: dict[str, Any] = {**writer.finish().arrays, "ids": np.frombuffer("\n".join(ids).encode(), "u1")}
    return PackedPart(*SegmentDraft(0, total, arrays).packed())
