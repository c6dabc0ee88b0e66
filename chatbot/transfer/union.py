"""Merge of two machines' data of one identity: the events of each row in one order, and transcripts. Pure.

The end of the module has the state of earlier syncs: the content that each place is known to have.

Every event of a row is a part of its own, identified by its content. In the order of time each part comes after those
that its writer knew: the time of a clock that ran backwards is moved to a microsecond after them. Uses and
strength have no identity, as compaction adds them up: the larger number of uses, and the later strength, are kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from secrets import token_hex
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from chatbot.memory.maintenance import WHO as MAINTENANCE
from chatbot.stores.backend import Document
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat, StoreError
from chatbot.stores.fields import MOST_COUNTED
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import COUNTING, ID_IN_LINE, LineChange, Writing
from chatbot.stores.observation import Observation
from chatbot.stores.records import SessionRecord, TranscriptEntry, canonical, format_time, micros, parse_time
from chatbot.stores.row_events import KINDS, Event, apply, check_fields, implied_events, parse_event

SESSIONS, OBSERVATIONS, STATE = "basic_session", "observations", "sync.json"
_STEP = timedelta(microseconds=1)
_BEGINNINGS = ("add", "triple")
_Key = tuple[int, datetime, int, str]
"""Place of a part among those of its row: what began it, then by time, kind and content."""


def identity(event: Event) -> str:
    """Return the content of a part, without author and reason: those of an erased row differ between machines."""
    return canonical(replace(event, who="", why="").as_json())


def digest_of(text: str) -> bytes:
    """Return the eight bytes that identify a part."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


class Counts(Struct, frozen=True):
    """Number of uses of a row, when it was last used, and its strength.

    The strength has its time, its number of touches, and its value: None if the importance was set since.
    """

    uses: Annotated[int, Meta(ge=0, le=MOST_COUNTED)] = 0
    used_at: datetime | None = None
    strength: tuple[datetime, int, Annotated[float, Meta(ge=0, le=1)] | None] | None = None

    def joined(self, other: Counts) -> Counts:
        """Return the larger number of uses, the last use, and the later strength of both."""
        strengths = [each for each in (self.strength, other.strength) if each is not None]
        return Counts(
            max(self.uses, other.uses),
            max([at for at in (self.used_at, other.used_at) if at is not None], default=None),
            max(strengths, key=lambda each: (each[0], each[1], -1 if each[2] is None else each[2]), default=None),
        )

    @classmethod
    def of(cls, row: Observation | None) -> Counts:
        """Return the counts of a row."""
        if row is None:
            return cls()
        at = row.consolidated_at
        return cls(row.use_count, row.last_used_at, (at, row.consolidated_touches, row.strength) if at else None)

    def settled(self, parts: Iterable[Event]) -> Counts:
        """Return the counts without the strength of a row whose importance was set later."""
        if self.strength is not None:
            at, touches, _ = self.strength
            if any("importance" in each.fields and each.at > at for each in parts):
                return replace(self, strength=(at, touches, None))
        return self

    def text(self) -> str:
        """Return the text of the counts for a digest."""
        return msgspec.json.encode(self).decode()

    def event(self, row_id: str) -> Event:
        """Return the event that sets them."""
        fields: dict[str, Any] = {"use_count": self.uses}
        if (at := self.used_at) is not None:
            fields["last_used_at"] = format_time(at)
        if self.strength is not None:
            when, touches, strength = self.strength
            fields |= {"strength": strength, "consolidated_at": format_time(when), "consolidated_touches": touches}
            at = max(at or when, when)
        return Event(kind="counts", at=at or parse_time("1970-01-01T00:00:00Z"), ids=(row_id,), fields=fields)


def _key(event: Event) -> _Key:
    return (event.kind not in _BEGINNINGS, event.at, KINDS.index(event.kind), identity(event))


def parts_of(event: Event) -> Iterator[tuple[str, Event]]:
    """Yield the parts of an event, each with the id of its row or fact; none for an event that only counts."""
    if event.kind in COUNTING:
        return
    if event.row is not None:
        yield event.row.id, replace(event, supersedes=None, forgets=None, compresses=())
    elif event.triple is not None:
        yield event.triple.id, event
    elif event.kind != "purge":
        yield from ((each, replace(event, ids=(each,))) for each in event.ids)
    for implied in implied_events(event):
        yield from ((each, replace(implied, ids=(each,))) for each in implied.ids)


@dataclass(slots=True)
class History:
    """The history of a row or fact: its parts in the order of time, and its counts."""

    parts: list[Event]
    is_arranged: bool
    """True if the journal has the parts in this order and with these times: it need not be rewritten."""
    counts: Counts
    """Counts as the journal has them, in its own order."""

    @property
    def is_there(self) -> bool:
        """True if it was ever added."""
        return bool(self.parts) and self.parts[0].kind in _BEGINNINGS


class Journal:
    """The lines of a log, found by the ids in them; each is parsed when it is first needed."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.lines = list(lines)
        self._events: dict[int, Event | None] = {}
        self._histories: dict[str, History] = {}
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        self.erased: dict[str, bool] = {}
        """The ids of erased rows; True for those erased alone, without those derived from them."""
        for at, line in enumerate(self.lines):
            for each in dict.fromkeys(ID_IN_LINE.findall(line)):
                self._named[each.decode()].append(at)
            if b'"event":"purge"' in line and (event := self._event(at)) and event.kind == "purge":
                self.erased |= dict.fromkeys(event.ids, event.who == MAINTENANCE)

    def _event(self, at: int) -> Event | None:
        if at not in self._events:
            try:
                self._events[at] = event = parse_event(record_of(self.lines[at]))
                check_fields(event)
            except LaterFormat:
                raise
            except StoreError:
                self._events[at] = None  # it is skipped by every reader
        return self._events[at]

    def has(self, row_id: str) -> bool:
        """Return whether a line names a row that was not erased."""
        return row_id in self._named and row_id not in self.erased

    def digests(self) -> set[bytes]:
        """Return the digests of all lines."""
        return {blake2b(line, digest_size=8).digest() for line in self.lines}

    def touched(self, known: Collection[bytes] = ()) -> list[str]:
        """Return the ids of the rows and facts of lines whose digests are not in `known`."""
        found: dict[str, None] = {}
        for at, line in enumerate(self.lines):
            if known and blake2b(line, digest_size=8).digest() in known:
                continue
            if (event := self._event(at)) is not None:  # a purge is here for the rows that the erased one replaced
                found |= dict.fromkeys(event.ids if event.kind in COUNTING else (each for each, _ in parts_of(event)))
        return [each for each in found if each not in self.erased]

    def has_fact(self, fact_id: str) -> bool:
        """Return whether a line states a fact of that id; such a line also names its source and its session."""
        stating = (at for at in self._named.get(fact_id, ()) if b'"event":"triple"' in self.lines[at])
        events = filter(None, map(self._event, stating))
        return any(event.triple is not None and event.triple.id == fact_id for event in events)

    def history(self, row_id: str) -> History:
        """Return the history of a row or fact."""
        if row_id not in self._histories:
            self._histories[row_id] = self._history(row_id)
        return self._histories[row_id]

    def _history(self, row_id: str) -> History:
        """Fold the lines of the row into counts, and its parts, each moved behind those that its writer knew."""
        written: list[tuple[datetime, Event]] = []
        row: Observation | None = None
        last: _Key | None = None
        for event in filter(None, map(self._event, self._named.get(row_id, ()))):
            if row and row_id in event.ids and (event.kind in COUNTING or "importance" in event.fields):
                with suppress(StoreError):  # it is skipped by every reader
                    row = apply(row, event)
            for part in (each for about, each in parts_of(event) if about == row_id):
                row, at = row or part.row, part.at
                if last is not None and _key(part) <= last:
                    part = replace(part, at=last[1] + _STEP)  # noqa: PLW2901 - the same, a little later
                last = _key(part)
                written.append((at, part))
        parts = sorted((part for _, part in written), key=_key)
        is_arranged = all(part is other and part.at == at for part, (at, other) in zip(parts, written, strict=True))
        return History(parts, is_arranged, Counts.of(row))


@dataclass(slots=True)
class JournalChanges:
    """Changes of a journal that unite it with another one."""

    events: list[Event] = field(default_factory=list)
    """Events to add at the end."""
    rearranged: set[str] = field(default_factory=set)
    """Rows whose events, except the one that added them, are removed and written again in order."""
    taken: int = 0
    """Number of rows and facts that are new here, or have changes that are."""
    is_waiting: bool = False
    """True if events of a row that is still missing were left out."""

    def write(self, writing: Writing, journal: Journal) -> Journal:
        """Change the journal, and return the changed one."""
        lines = journal.lines
        if not self.events and not self.rearranged:
            return journal
        if self.rearranged:
            change = _removal_of(self.rearranged)
            writing.rewrite(change, self.events)
            lines = [left for line in lines if (left := change(line, 0)) is not None]
        else:
            for event in self.events:
                writing.append(event)
        return Journal([*lines, *(encode(event.as_json()).rstrip(b"\n") for event in self.events)])


def changes_to_unite(
    journal: Journal, parts: Mapping[str, list[Event]], counts: Mapping[str, Counts], *, also: Iterable[str] = ()
) -> JournalChanges:
    """Return the changes that add what is new, and that put the rows in `also` in order if they are not.

    `parts` and `counts` are those of other machines, by the id of the row or fact.
    """
    made = JournalChanges()
    counted: list[Event] = []
    for row_id in dict.fromkeys([*parts, *counts, *also]):
        if row_id in journal.erased:
            continue
        ours = journal.history(row_id)
        known = {*map(identity, ours.parts)}
        new = {identity(part): part for part in parts.get(row_id, ())}
        fresh = [part for each, part in new.items() if each not in known]
        fresh = [part for part in fresh if part.triple is None or part.triple.source not in journal.erased]
        whole = sorted([*ours.parts, *fresh], key=_key)
        if not whole or whole[0].kind not in _BEGINNINGS:
            made.is_waiting |= bool(fresh) or row_id in counts
            continue
        made.taken += bool(fresh)
        if not ours.is_arranged or whole[: len(ours.parts)] != ours.parts:
            made.rearranged.add(row_id)
            made.events += whole[1:] if ours.is_there else whole
        else:
            made.events += whole[len(ours.parts) :]
        joined = ours.counts.joined(counts.get(row_id, Counts())).settled(whole)
        if joined != ours.counts or (joined.strength and (fresh or row_id in made.rearranged)):
            counted.append(joined.event(row_id))
    made.events += counted
    return made


def _removal_of(rows: Collection[str]) -> LineChange:
    """Return a change that removes all events of these rows except those that added, used or counted them."""
    marks = {each.encode() for each in rows}

    def change(line: bytes, _: int) -> bytes | None:
        if marks.isdisjoint(ID_IN_LINE.findall(line)):
            return line
        try:
            event = parse_event(record_of(line))
        except InvalidValue:
            return line
        if event.kind in COUNTING or event.kind == "triple":
            return line
        without: dict[str, Any] = {"compresses": tuple(each for each in event.compresses if each not in rows)}
        without |= {name: None for name in ("supersedes", "forgets") if getattr(event, name) in rows}
        if event.kind not in {"add", "purge"}:
            without["ids"] = tuple(each for each in event.ids if each not in rows)
            if not without["ids"]:
                return None
        return encode(replace(event, **without).as_json()).rstrip(b"\n")

    return change


def digested_text(journal: Journal, row_id: str) -> str:
    """Return the text of a row or fact for a digest of its identity: its parts and counts."""
    history = journal.history(row_id)
    counts = history.counts.settled(history.parts)
    return canonical({"row": row_id, "parts": [*map(identity, history.parts)], "counted": counts.text()})


def portable(record: SessionRecord) -> dict[str, Any]:
    """Return the part of a session's record that is synced: not its last use, nor stores of only one machine."""
    stores = [name for name in record.store_types if name in {SESSIONS, OBSERVATIONS}]
    fields = replace(record, store_types=tuple(stores)).as_json()
    return {name: value for name, value in fields.items() if name != "used_at"}


Transcript = Sequence[tuple[str, TranscriptEntry]]
"""Entries of a transcript with their ids."""


def with_ids(entries: Iterable[TranscriptEntry]) -> list[tuple[str, TranscriptEntry]]:
    """Return entries with ids: digests of their content, with a number for equal ones."""
    seen: defaultdict[str, int] = defaultdict(int)
    found = []
    for entry in entries:
        text = json.dumps([entry.role, format_time(entry.at), entry.content])
        seen[text] += 1
        found.append((digest_of(f"{text}{seen[text]}").hex(), entry))
    return found


def unite(session_id: str, ours: Transcript, theirs: Transcript) -> tuple[Transcript, tuple[str, Transcript] | None]:
    """Return the transcript of a session from two copies, and, if both were continued, a fork with its id.

    The copy that was continued first keeps the session: every machine gets the same result, in any order.
    """
    differs = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one[0] != other[0]), None)
    if differs is None:
        return (ours if len(ours) >= len(theirs) else theirs), None
    main, other = sorted((ours, theirs), key=lambda copy: (copy[differs][1].at, copy[differs][0]))
    return main, (fork_id(session_id, other[differs]), other)


def fork_id(session_id: str, first: tuple[str, TranscriptEntry]) -> str:
    """Return the id of the fork that begins with an entry: a UUIDv7 of its time."""
    drawn = digest_of(f"{session_id} {first[0]}").hex()
    at = f"{micros(first[1].at) // 1000 % (1 << 48):012x}"
    return f"{at[:8]}-{at[8:]}-7{drawn[:3]}-8{drawn[3:6]}-{drawn[6:16]}{at[-2:]}"


def is_newer(other: tuple[str, Any], one: tuple[str, Any] | None) -> bool:
    """Return whether the `other` of two values with times wins: it is later or, at the same time, greater."""
    return one is None or (one[0], canonical(one[1])) < (other[0], canonical(other[1]))


class SessionContent(Struct, frozen=True):
    """Entries, values, choices, receipts and file names of a session."""

    said: Transcript
    values: dict[str, tuple[str, str]]
    choices: tuple[str, str] | None
    receipts: list[dict[str, Any]]
    files: list[str]


def digested_session(record: SessionRecord, content: SessionContent) -> str:
    """Return the text of a session for a digest of its identity."""
    ids, values = [each for each, _ in content.said], sorted([key, *each] for key, each in content.values.items())
    receipts = sorted(map(canonical, content.receipts))
    return canonical({"session": [portable(record), ids, values, receipts, content.files]})


def digest_of_all(texts: Iterable[str]) -> str:
    """Return the digest of everything that is synced, in any order: the same on machines that are in sync."""
    return sha256("\n".join(sorted(texts)).encode(errors="surrogatepass")).hexdigest()[:32]


@dataclass(slots=True)
class PlaceState:
    """Contents that a place is known to have."""

    digests: set[bytes] = field(default_factory=set)
    """Digests of lines of the journal and their parts, counts, entries, receipts, attachments, bills and erased ids."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Digest of the state of each session."""
    taken: set[str] = field(default_factory=set)
    """Files of others that were taken in."""
    own: set[str] = field(default_factory=set)
    """Files of this machine that are there; for a server, those that it took in last."""
    at: str = ""
    """When the last sync with it was done."""

    def new(self, texts: Iterable[str], prefix: str = "") -> list[str]:
        """Return those of these texts that the place lacks, and note that it gets them, by digests after `prefix`."""
        found = {digest_of(f"{prefix}{each}"): each for each in texts}
        new = [each for digest, each in found.items() if digest not in self.digests]
        self.digests |= found.keys()
        return new


class SessionState(Struct):
    """State of a session after the last sync."""

    record: dict[str, Any] = {}
    times: dict[str, str] = {}
    """When fields of the record were changed."""
    ids: list[str] = []
    """Ids of its entries."""
    files: list[str] = []
    cut: list[str] = []
    """Entries and files that were removed on any machine."""
    keys: list[str] = []
    """Keys of its values."""
    dead: dict[str, str] = {}
    """When values were removed, by key."""
    stamp: str = ""
    """Changes with the session, so that an unchanged one is not read; empty if there is none."""
    digest: str = ""

    def next(self, record: SessionRecord, content: SessionContent, now: datetime, *, is_merged: bool) -> SessionState:
        """Return the state of the session with another record and content, without stamp and digest.

        What is missing now was removed by the user, unless the sync itself has just changed the session (`is_merged`).
        """
        fields, ids = portable(record), [each for each, _ in content.said]
        cut, times = [*self.cut], {**self.times}
        dead = {key: at for key, at in self.dead.items() if key not in content.values}
        if not is_merged:
            cut += {*self.ids, *self.files} - {*ids, *content.files, *cut}
            dead |= dict.fromkeys({*self.keys} - content.values.keys() - dead.keys(), format_time(now))
        for name in {**self.record, **fields}:
            if self.record.get(name) != fields.get(name):
                last = parse_time(times[name]) if name in times else record.created_at
                times[name] = format_time(max(now, last + _STEP))
        return SessionState(fields, times, ids, content.files, sorted(cut), sorted(content.values), dead)


@dataclass(slots=True)
class SyncState:
    """State of earlier syncs on this machine: the document `sync.json` of the identity."""

    identity: str = ""
    machine: str = ""
    former: list[str] = field(default_factory=list)
    """Earlier names of this machine, whose files in folders it still cleans."""
    sessions: dict[str, SessionState] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    """Sessions and facts that were erased on some machine, and are erased on all."""
    facts: list[str] = field(default_factory=list)
    places: dict[str, PlaceState] = field(default_factory=dict)
    restoring: str = ""
    """The backup that is being restored, or whose restore was interrupted."""

    @classmethod
    def read(cls, document: Document) -> SyncState:
        """Read the document; a machine that has none gets its name. Raises `DamagedFile`."""
        try:
            state = msgspec.json.decode(document.read() or b"{}", type=cls)
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{document.name} cannot be read: {error}. Restore it from a backup") from error
        state.machine = state.machine or token_hex(6)
        return state

    def save(self, document: Document) -> None:
        """Write the document. Durable on return."""
        data = msgspec.json.encode(self)
        document.change(lambda _: data)
