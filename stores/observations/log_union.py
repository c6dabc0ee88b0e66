"""The union of two logs of one identity, such as those of two machines: the events of each row in one order. Pure.

Every event of a row is a part of its own, identified by its content. In the order of time each part comes after those
that its writer knew: the time of a clock that ran backwards is moved to a microsecond after them. Uses and
strength have no identity, as compaction adds them up: the larger number of uses, and the later strength, are kept.
A row made from another one that was restricted on the other machine is restricted with it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from chatbot.stores.access import fold, is_as_strict, strictest
from chatbot.stores.errors import InvalidValue, LaterFormat, StoreError
from chatbot.stores.fields import MOST_COUNTED
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import COUNTING, ID_IN_LINE, LineChange, Writing
from chatbot.stores.observation import GUARDED, Observation
from chatbot.stores.records import EPOCH, canonical, chunks, format_time
from chatbot.stores.row_events import (
    KINDS,
    MAINTENANCE,
    STATUS_AFTER,
    Event,
    apply,
    check_fields,
    implied_events,
    parse_event,
)

STEP = timedelta(microseconds=1)
_AT_ONCE = 500
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

    def joined(self, other: "Counts") -> "Counts":
        """Return the larger number of uses, the last use, and the later strength of both."""
        strengths = [each for each in (self.strength, other.strength) if each is not None]
        return Counts(
            max(self.uses, other.uses),
            max([at for at in (self.used_at, other.used_at) if at is not None], default=None),
            max(strengths, key=lambda each: (each[0], each[1], -1 if each[2] is None else each[2]), default=None),
        )

    @classmethod
    def of(cls, row: Observation | None) -> "Counts":
        """Return the counts of a row."""
        if row is None:
            return cls()
        at = row.consolidated_at
        return cls(row.use_count, row.last_used_at, (at, row.consolidated_touches, row.strength) if at else None)

    def settled(self, parts: Iterable[Event]) -> "Counts":
        """Return the counts without the strength of a row whose importance was set later."""
        if self.strength is not None:
            at, touches, _ = self.strength
            if any("importance" in each.fields and each.at > at for each in parts):
                return replace(self, strength=(at, touches, None))
        return self

    @property
    def times(self) -> list[datetime]:
        """Times in the counts."""
        return [at for at in (self.used_at, *(self.strength or ())[:1]) if at is not None]

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
        return Event(kind="counts", at=at or EPOCH, ids=(row_id,), fields=fields)


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


def parse_parts(row_id: str, records: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Parse the parts of a row or fact. Raises `InvalidValue`, also for a part of another one, and `LaterFormat`."""
    parts = [*map(parse_event, records)]
    for part in parts:
        check_fields(part)
        if [each for each, _ in parts_of(part)] != [row_id]:
            raise InvalidValue("an event is not part of the row that its line names")
    return parts


class OtherRows(Struct):
    """Rows and facts of other machines, by id: their parts, their counts, and those that were erased there."""

    parts: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, Counts] = {}
    erased: dict[str, bool] = {}
    """True for those that every machine erased alone, without those derived from them."""

    def add(self, row_id: str, parts: Iterable[Event], counts: Counts | None) -> None:
        """Add parts of a row or fact, and its counts on another machine."""
        self.parts[row_id] += parts
        if counts is not None:
            self.counts[row_id] = self.counts.get(row_id, Counts()).joined(counts)

    def erase(self, erased: Mapping[str, bool]) -> None:
        """Add rows that were erased; True for those erased alone."""
        self.erased |= {each: alone and self.erased.get(each, True) for each, alone in erased.items()}

    def join(self, other: "OtherRows") -> None:
        """Add others."""
        for row_id, parts in other.parts.items():
            self.add(row_id, parts, other.counts.get(row_id))
        self.erase(other.erased)


class History(Struct):
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
            if (event := self._event(at)) is not None:  # of a purge, the rows that the erased one had replaced
                found |= dict.fromkeys(event.ids if event.kind in COUNTING else (each for each, _ in parts_of(event)))
        return [each for each in found if each not in self.erased]

    def added(self) -> int:
        """Return the number of rows, with those that were erased: it only grows, unless lines are lost."""
        adding = (line for line in self.lines if b'"event":"add"' in line)
        return len({match[0].decode() for line in adding if (match := ID_IN_LINE.search(line))} | self.erased.keys())

    def facts(self) -> set[str]:
        """Return the ids of all facts."""
        stating = (at for at, line in enumerate(self.lines) if b'"event":"triple"' in line)
        return {event.triple.id for event in filter(None, map(self._event, stating)) if event.triple is not None}

    def history(self, row_id: str) -> History:
        """Return the history of a row or fact."""
        if row_id not in self._histories:
            self._histories[row_id] = self._history(row_id)
        return self._histories[row_id]

    def made_from(self, row_id: str) -> set[str]:
        """Return the rows that name this one as a source and were not erased."""
        found = set[str]()
        for event in filter(None, map(self._event, self._named.get(row_id, ()))):
            if row_id in _sources_in(event):
                found |= {event.row.id} if event.row is not None else {*event.ids}
        return found - self.erased.keys()

    def new_to(self, known: set[bytes], row_id: str) -> tuple[list[Event], Counts | None]:
        """Return the parts and counts of a row or fact whose digests are not `known`, and add these."""
        history = self.history(row_id)
        parts = {digest_of(identity(part)): part for part in history.parts}
        new = [part for digest, part in parts.items() if digest not in known]
        counts = history.counts.settled(history.parts)
        digest = digest_of(f"{row_id} {counts.text()}")
        is_new = counts != Counts() and (bool(new) or digest not in known)
        known |= {*parts, digest}
        return new, counts if is_new else None

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
                    part = replace(part, at=last[1] + STEP)  # noqa: PLW2901 - the same, a little later
                last = _key(part)
                written.append((at, part))
        parts = sorted((part for _, part in written), key=_key)
        is_arranged = all(part is other and part.at == at for part, (at, other) in zip(parts, written, strict=True))
        return History(parts, is_arranged, Counts.of(row))


class JournalChanges(Struct):
    """Changes of a journal that unite it with another one."""

    events: list[Event] = []
    """Events to add at the end."""
    rearranged: set[str] = set()
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
    journal: Journal, others: OtherRows, *, also: Iterable[str], now: datetime, tightens: bool = True
) -> JournalChanges:
    """Return the changes that add what is new, and that put the rows in `also` in order if they are not.

    Rows that were erased elsewhere count as erased in the journal from now on. What is derived becomes as strict as its
    sources, unless it has to stay as the others have it.
    """
    made = JournalChanges()
    gone = {each: alone for each, alone in others.erased.items() if each not in journal.erased}
    journal.erased |= gone
    last: list[Event] = []
    united: dict[str, list[Event]] = {}
    for row_id in dict.fromkeys([*others.parts, *also]):
        if row_id in journal.erased:
            continue
        ours = journal.history(row_id)
        known = {*map(identity, ours.parts)}
        new = {identity(part): part for part in others.parts.get(row_id, ())}
        fresh = [part for each, part in new.items() if each not in known]
        fresh = [part for part in fresh if part.triple is None or part.triple.source not in journal.erased]
        whole = sorted([*ours.parts, *fresh], key=_key)
        if not whole or whole[0].kind not in _BEGINNINGS:
            made.is_waiting |= bool(fresh) or row_id in others.counts
            continue
        made.taken += bool(fresh)
        if fresh:
            united[row_id] = whole
        if not ours.is_arranged or whole[: len(ours.parts)] != ours.parts:
            made.rearranged.add(row_id)
            made.events += whole[1:] if ours.is_there else whole
        else:
            made.events += whole[len(ours.parts) :]
        joined = ours.counts.joined(others.counts.get(row_id, Counts())).settled(whole)
        if joined != ours.counts or (joined.strength and (fresh or row_id in made.rearranged)):
            last.append(joined.event(row_id))
    if tightens:
        made.events += _tightening_events(journal, united)
        made.events += [*_replacements_of_digests(journal, united), *_restorations(journal, united)]
        made.events += _undone_merges(journal, united)
    for alone, who in ((True, MAINTENANCE), (False, "sync")):
        ids = [each for each, is_alone in gone.items() if is_alone is alone]
        last += [Event(kind="purge", at=now, ids=tuple(some), who=who) for some in chunks(ids, _AT_ONCE)]
    made.events += last
    return made


def _tightening_events(journal: Journal, united: Mapping[str, list[Event]]) -> Iterator[Event]:
    """Yield the events that make rows as strict as their sources, where one of both has `united` parts."""
    rows = {each: _row_of(parts) for each, parts in united.items() if any(map(_sources_in, parts))}
    last = {each: parts[-1].at for each, parts in united.items()}
    made_from = defaultdict[str, set[str]](set)
    pairs = [(source_id, each) for each, row in rows.items() if row for source_id in row.derived_from]
    for source_id, row_id in pairs:
        made_from[source_id].add(row_id)
    pairs += [(source_id, each) for source_id in united for each in journal.made_from(source_id)]
    while pairs:
        pair = source_id, row_id = pairs.pop()
        for each in pair:
            if each not in rows:
                parts = _parts_of(each, journal, united)
                rows[each], last[each] = _row_of(parts), parts[-1].at if parts else EPOCH
        source, row = rows[source_id], rows[row_id]
        if not source or not row or source.namespace != row.namespace or is_as_strict(row, source):
            continue
        guard, why, at = strictest([row, source]), f"as strict as {source_id}", max(last[each] for each in pair) + STEP
        strict = {name: getattr(guard, name) for name in GUARDED}
        event = Event(kind="tighten", at=at, ids=(row_id,), fields=strict, who="sync", why=why)
        rows[row_id], last[row_id] = apply(row, event), at
        pairs += [(row_id, each) for each in sorted(journal.made_from(row_id) | made_from[row_id])]
        yield event


def _replacements_of_digests(journal: Journal, united: Mapping[str, list[Event]]) -> Iterator[Event]:
    """Yield the events that leave one of the digests that two machines made of the same rows, the first by its id."""
    for row_id, parts in united.items():
        row = parts[0].row
        if row is None or row.type != "compressed_summary" or not row.derived_from:
            continue
        for each in sorted(journal.made_from(row.derived_from[0]) - {row_id}):
            both = parts, _parts_of(each, journal, united)
            one, other = map(_row_of, both)
            if one and other and one.status == other.status == "active" and one.hash == other.hash:
                kept, repeated = sorted((row_id, each))
                at = max(part[-1].at for part in both) + STEP
                yield Event(kind="supersede", at=at, ids=(repeated,), by=kept, who="sync", why="made of the same")


def _restorations(journal: Journal, united: Mapping[str, list[Event]]) -> Iterator[Event]:
    """Yield the events that restore a row that was said again after it ended elsewhere, or that replaced another last.

    Rows that replaced each other on different machines would else all be superseded.
    """
    restored = dict[str, datetime]()
    for row_id, parts in united.items():
        since = max((at for at, part in enumerate(parts) if part.kind in STATUS_AFTER), default=0)
        said_again = any(part.kind == "mention" for part in parts[since:])
        if said_again and parts[since].kind in {"delete", "supersede"}:
            restored[row_id] = parts[-1].at
        circle = dict[str, Observation]()
        row = _row_of(parts)
        while row is not None and row.status == "superseded" and row.superseded_by and row.id not in circle:
            circle[row.id] = row
            row = _row_of(_parts_of(row.superseded_by, journal, united))
        if row is not None and row.id == row_id and row_id in circle:
            last = max(circle.values(), key=lambda each: (each.superseded_at or EPOCH, each.id))
            kept = str(last.superseded_by)
            restored[kept] = max(_parts_of(each, journal, united)[-1].at for each in (kept, last.id))
    for row_id, at in restored.items():
        yield Event(kind="restore", at=at + STEP, ids=(row_id,), who="sync", why="said, or chosen, last")


def _undone_merges(journal: Journal, united: Mapping[str, list[Event]]) -> Iterator[Event]:
    """Yield the events that undo a merge of which a row was corrected, forgotten or replaced elsewhere.

    Its digest has the former text. Each row gets the state that it would have without the merge.
    """
    stale = set[str]()
    for parts in united.values():
        digest_id = next((part.by for part in reversed(parts) if part.kind == "compress"), None)
        made = _parts_of(digest_id, journal, united) if digest_id and digest_id not in stale else []
        digest = None if _is_edited(made) else _row_of(made)
        if digest is None or digest.status != "active" or (row := _row_of(parts)) is None:
            continue
        state = _unmerged_state(parts, digest.id)
        text, is_gone = fold(digest.text()), state.kind in {"delete", "supersede"} and state.who != MAINTENANCE
        if is_gone or (_is_edited(parts) and any(fold(each) not in text for each in row.text().splitlines())):
            stale.add(digest.id)
            yield Event(kind="archive", at=made[-1].at + STEP, ids=(digest.id,), who="sync", why="a source was changed")
            for each in digest.derived_from:
                sources = _parts_of(each, journal, united)
                if (source := _row_of(sources)) and (source.status, source.superseded_by) == ("compressed", digest.id):
                    state = replace(_unmerged_state(sources, digest.id), ids=(each,))
                    yield replace(state, at=sources[-1].at + STEP, who="sync", why="undoes a merge")


def _unmerged_state(parts: Sequence[Event], digest_id: str) -> Event:
    """Return the last event that changed the state of a row, except its merge; one that restores it without any."""
    states = (part for part in reversed(parts) if part.kind in STATUS_AFTER and part.by != digest_id)
    return next(states, Event(kind="restore", at=EPOCH))


def _is_edited(parts: Iterable[Event]) -> bool:
    return any(part.kind == "update" for part in parts)


def _parts_of(row_id: str, journal: Journal, united: Mapping[str, list[Event]]) -> list[Event]:
    return united.get(row_id) or journal.history(row_id).parts


def _sources_in(event: Event) -> Sequence[str]:
    sources: Sequence[str] = event.fields.get("derived_from", ())
    return sources if event.row is None else event.row.derived_from


def _row_of(parts: Sequence[Event]) -> Observation | None:
    """Return the row after these parts; None for a fact or a row that is missing."""
    row = parts[0].row if parts else None
    for part in parts[1:] if row else ():
        with suppress(StoreError):  # it is skipped by every reader
            row = row and apply(row, part)
    return row


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
