"""Merge of what two machines know of one identity: the events of each row in one order, and transcripts. Pure.

Every event of a row is a part of its own, known by what it says. In the order of time each part comes after those that
its writer knew, whatever the clocks say: a clock that ran backwards is corrected by a microsecond. Uses and plain
mentions have no identity, since compaction adds them up; they are counted by machine, and a row has the sum.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from chatbot.memory.maintenance import WHO as MAINTENANCE
from chatbot.stores.errors import InvalidValue, LaterFormat, StoreError
from chatbot.stores.fields import MOST_COUNTED
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import Change, Place, Writing
from chatbot.stores.records import SessionRecord, TranscriptEntry, format_time, micros, parse_time
from chatbot.stores.row_events import ELSEWHERE, KINDS, Event, implied, parse_event
from chatbot.transfer.untrusted import past

_ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_STORES = frozenset({"basic_session", "observations"})
_COUNTING = frozenset({"use", "counts", "consolidate"})
_SYNCED = "counted on "
"""Begin of the reason of a mention that stands for those of another machine, which is followed by its name and sum."""
_STEP = timedelta(microseconds=1)
_BEGINNINGS = ("add", "triple")
Strength = tuple[datetime, int, float | None]
"""When it was settled, with how many touches, and how much; None where the importance was set since."""
Folded = tuple[datetime | None, Strength | None]
_Key = tuple[int, datetime, int, str]


def identity(event: Event) -> str:
    """Return what a part says, without who made it and why: an erased row gives others as the reason."""
    return json.dumps(replace(event, who="", why="").as_json(), sort_keys=True, ensure_ascii=False)


def digest_of(text: str) -> bytes:
    """Return the eight bytes by which a part is known."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


@dataclass(slots=True)
class Counters:
    """Uses and mentions by machine, when a row was last used, and its strength with its time and touches."""

    uses: dict[str, int] = field(default_factory=dict)
    used_at: datetime | None = None
    mentions: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    strength: Strength | None = None

    def __bool__(self) -> bool:
        return bool(self.uses or self.mentions or self.strength)

    def joined(self, other: Counters) -> Counters:
        """Return the counters of both, each machine's once."""
        uses = {name: max(self.uses.get(name, 0), other.uses.get(name, 0)) for name in self.uses | other.uses}
        nothing = (0, parse_time("1970-01-01T00:00:00Z"))
        both = self.mentions | other.mentions
        mentions = {name: max(self.mentions.get(name, nothing), other.mentions.get(name, nothing)) for name in both}
        strengths = [each for each in (self.strength, other.strength) if each is not None]
        return Counters(
            uses,
            max([at for at in (self.used_at, other.used_at) if at is not None], default=None),
            mentions,
            max(strengths, key=lambda each: (each[0], each[1], -1 if each[2] is None else each[2]), default=None),
        )

    def as_json(self) -> dict[str, Any]:
        """The counters for a place."""
        strength = self.strength and [format_time(self.strength[0]), *self.strength[1:]]
        mentions = {name: [times, format_time(at)] for name, (times, at) in sorted(self.mentions.items())}
        used = self.used_at and format_time(self.used_at)
        return {"uses": dict(sorted(self.uses.items())), "used": used, "mentions": mentions, "strength": strength}

    @classmethod
    def parse(cls, line: Mapping[str, Any], until: datetime) -> Counters:
        """Read what `as_json` gave. Raises `ValueError`, `TypeError` or `KeyError`, also for times after `until`."""
        strength = line["strength"]
        uses = {str(name): int(times) for name, times in line["uses"].items()}
        mentions = {str(name): (int(times), past(at, until)) for name, (times, at) in line["mentions"].items()}
        if any(not 0 <= each <= MOST_COUNTED for each in (*uses.values(), *(times for times, _ in mentions.values()))):
            raise InvalidValue("a counter is out of range")
        if strength and not (strength[2] is None or 0 <= strength[2] <= 1):
            raise InvalidValue(f"a strength is {strength[2]!r:.40}: it must be between 0 and 1")
        return cls(
            uses,
            past(line["used"], until) if line["used"] else None,
            mentions,
            strength and (past(strength[0], until), int(strength[1]), None if strength[2] is None else strength[2]),
        )


def _key(event: Event) -> _Key:
    return (event.kind not in _BEGINNINGS, event.at, KINDS.index(event.kind), identity(event))


def parts_of(event: Event) -> Iterator[tuple[str, Event]]:
    """Yield the parts of an event with the id of the row or fact that each is about; none of what only counts."""
    if event.kind in _COUNTING:
        return
    if event.row is not None:
        yield event.row.id, replace(event, supersedes=None, forgets=None, compresses=())
    elif event.triple is not None:
        yield event.triple.id, event
    elif event.kind != "purge":
        yield from ((each, replace(event, ids=(each,))) for each in event.ids)
    for along in implied(event):
        yield from ((each, replace(along, ids=(each,))) for each in along.ids)


@dataclass(slots=True)
class History:
    """All that happened to a row or fact: its parts in the order of time, and its counters."""

    parts: list[Event] = field(default_factory=list)
    is_arranged: bool = True
    """True if the journal has the parts in this order, with these times."""
    counters: Counters = field(default_factory=Counters)
    folded: Folded = (None, None)
    """When the row was last used, and its strength, as the journal has them in its own order."""

    @property
    def is_there(self) -> bool:
        """Return whether it was ever added."""
        return bool(self.parts) and self.parts[0].kind in _BEGINNINGS

    def shared(self) -> list[Event]:
        """Return the parts that travel: not mentions, which are counted."""
        return [each for each in self.parts if not is_mention(each)]


def is_mention(event: Event) -> bool:
    """Return whether an event only says that its row was mentioned: it is counted, and does not travel."""
    return event.kind == "mention" and not event.fields and (not event.why or event.why.startswith(_SYNCED))


class Journal:
    """The lines of a log, found by the ids in them; each is parsed when it is first needed."""

    def __init__(self, lines: Iterable[tuple[Place, bytes]], machine: str) -> None:
        self.lines = list(lines)
        self.machine = machine
        self._events: dict[int, Event | None] = {}
        self._histories: dict[str, History] = {}
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        self.erased: dict[str, bool] = {}
        """The ids of erased rows; True for those that went alone, without what was made from them."""
        for at, (_, line) in enumerate(self.lines):
            for each in dict.fromkeys(_ID.findall(line)):
                self._named[each.decode()].append(at)
            if b'"event":"purge"' in line and (event := self._event(at)) and event.kind == "purge":
                self.erased |= dict.fromkeys(event.ids, event.who == MAINTENANCE)

    def _event(self, at: int) -> Event | None:
        if at not in self._events:
            try:
                self._events[at] = parse_event(record_of(self.lines[at][1]))
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
        return {blake2b(line, digest_size=8).digest() for _, line in self.lines}

    def touched(self, known: Collection[bytes] = ()) -> list[str]:
        """Return the ids of rows and facts that the lines are about whose digests are not known."""
        found: dict[str, None] = {}
        for at, (_, line) in enumerate(self.lines):
            if known and blake2b(line, digest_size=8).digest() in known:
                continue
            if (event := self._event(at)) is not None:  # a purge may say what the erased row had replaced
                found |= dict.fromkeys(event.ids if event.kind in _COUNTING else (each for each, _ in parts_of(event)))
        return [each for each in found if each not in self.erased]

    def has_fact(self, fact_id: str) -> bool:
        """Return whether a line states a fact."""
        return any(b'"event":"triple"' in self.lines[at][1] for at in self._named.get(fact_id, ()))

    def history(self, row_id: str) -> History:
        """Return what happened to a row or fact."""
        if row_id not in self._histories:
            self._histories[row_id] = self._history(row_id)
        return self._histories[row_id]

    def _history(self, row_id: str) -> History:
        said: list[tuple[datetime, Event]] = []
        counted = _Counted()
        last: _Key | None = None
        for event in filter(None, map(self._event, self._named.get(row_id, ()))):
            if event.kind in _COUNTING:
                counted.take(row_id, event)
                continue
            for part in (each for about, each in parts_of(event) if about == row_id):
                counted.note(part, self.machine)
                said.append((part.at, part))
                if not is_mention(part):
                    if last is not None and _key(part) <= last:
                        said[-1] = (part.at, replace(part, at=last[1] + _STEP))
                    last = _key(said[-1][1])
        parts = sorted((part for _, part in said), key=_key)
        is_arranged = all(part is other and part.at == at for part, (at, other) in zip(parts, said, strict=True))
        return History(parts, is_arranged, counted.counters(self.machine, parts), counted.folded)


class _Counted:
    """Counters of a row as its lines are read, which are in the order of one journal and not in that of time."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._uses = 0
        self.folded: Folded = (None, None)

    def take(self, row_id: str, event: Event) -> None:
        """Count a line of uses, counts or strengths."""
        if row_id not in event.ids:
            return
        used_at, strength = self.folded
        if event.kind == "use":
            self._uses, used_at = self._uses + 1, event.at
        elif event.kind == "consolidate":
            value, touches = event.fields[row_id]
            strength = (event.at, touches, value)
        else:
            given = event.fields
            self._uses = given.get("use_count", self._uses)
            used_at = parse_time(given["last_used_at"]) if given.get("last_used_at") else used_at
            self._counters.uses = json.loads(given.get(ELSEWHERE, "null")) or self._counters.uses
            if given.get("consolidated_at"):
                at = parse_time(given["consolidated_at"])
                strength = (at, given.get("consolidated_touches", 0), given.get("strength"))
        self.folded = (used_at, strength)
        self._counters = self._counters.joined(Counters(used_at=used_at, strength=strength))

    def note(self, part: Event, machine: str) -> None:
        """Count a mention, and let a strength go where the importance is set anew."""
        used_at, strength = self.folded
        if strength is not None and "importance" in part.fields:
            self.folded = (used_at, (*strength[:2], None))
        if not is_mention(part):
            return
        counted = self._counters.mentions
        if part.why:
            name, _, times = part.why.removeprefix(_SYNCED).rpartition(" ")
            counted[name] = max(counted.get(name, (0, part.at)), (int(times), part.at))
        else:
            before, at = counted.get(machine, (0, part.at))
            counted[machine] = (before + 1, max(at, part.at))

    def counters(self, machine: str, parts: Sequence[Event]) -> Counters:
        """Return the counters: what no other machine has counted is our own."""
        if own := self._uses - sum(self._counters.uses.values()):
            self._counters.uses = self._counters.uses | {machine: own}
        self._counters.strength = _strength(self._counters, parts)
        return self._counters


@dataclass(slots=True)
class Incoming:
    """Knowledge of another machine: parts by the id of their row or fact, and counters by row."""

    parts: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[str, Counters] = field(default_factory=dict)

    def count(self, row_id: str, counters: Counters) -> None:
        """Add counters of a row."""
        self.counters[row_id] = self.counters.get(row_id, Counters()).joined(counters)


@dataclass(slots=True)
class JournalChanges:
    """Changes of a journal that unite it with another one."""

    events: list[Event] = field(default_factory=list)
    """To be added at the end."""
    rearranged: set[str] = field(default_factory=set)
    """Rows whose events, beside the one that added them, are taken out and written again in order."""
    taken: int = 0
    """Number of parts and counters that are new here."""
    is_waiting: bool = False
    """True if something is said of a row that is not there yet: that was left out."""

    def write(self, writing: Writing) -> None:
        """Change the journal."""
        if self.rearranged:
            writing.rewrite(_taking_out(self.rearranged), self.events)
            return
        for event in self.events:
            writing.append(event)


def bringing_in(journal: Journal, incoming: Incoming, machine: str, *, also: Iterable[str] = ()) -> JournalChanges:
    """Return the changes that bring in what is new, and that put the rows in `also` in order where they are not."""
    made = JournalChanges()
    counts: list[Event] = []
    for row_id in dict.fromkeys([*incoming.parts, *incoming.counters, *also]):
        if row_id in journal.erased:
            continue
        ours = journal.history(row_id)
        known = {identity(each) for each in ours.parts}
        new = {identity(part): part for part in incoming.parts.get(row_id, ())}
        fresh = [part for each, part in new.items() if each not in known and not _is_of_erased(part, journal.erased)]
        counters = ours.counters.joined(incoming.counters.get(row_id, Counters()))
        mentions = _mentions(row_id, ours.counters, counters, machine)
        whole = sorted([*ours.parts, *fresh, *mentions], key=_key)
        if not whole or whole[0].kind not in _BEGINNINGS:
            made.is_waiting |= bool(fresh) or row_id in incoming.counters
            continue
        made.taken += len(fresh) + len(mentions)
        if not ours.is_arranged or whole[: len(ours.parts)] != ours.parts:
            made.rearranged.add(row_id)
            made.events += whole[1:] if ours.is_there else whole
        else:
            made.events += whole[len(ours.parts) :]
        counters.strength = _strength(counters, whole)
        is_counted = counters.uses != ours.counters.uses or (counters.used_at, counters.strength) != ours.folded
        if is_counted or (counters.strength and (fresh or row_id in made.rearranged)):
            made.taken += is_counted
            counts.append(_counts(row_id, counters, machine))
    made.events += counts
    return made


def _is_of_erased(part: Event, erased: Collection[str]) -> bool:
    return part.triple is not None and part.triple.source in erased


def _mentions(row_id: str, ours: Counters, joined: Counters, machine: str) -> list[Event]:
    """Return the mentions that other machines have counted and we have not."""
    return [
        Event(kind="mention", at=at, ids=(row_id,), why=f"{_SYNCED}{name} {number + 1}")
        for name, (times, at) in sorted(joined.mentions.items())
        if name != machine
        for number in range(ours.mentions.get(name, (0, at))[0], times)
    ]


def _strength(counters: Counters, parts: Sequence[Event]) -> Strength | None:
    """Return the last strength; a row whose importance was set later has none."""
    if counters.strength is None:
        return None
    at, touches, strength = counters.strength
    is_older = any("importance" in part.fields and part.at > at for part in parts)
    return (at, touches, None if is_older else strength)


def _counts(row_id: str, counters: Counters, machine: str) -> Event:
    elsewhere = {name: times for name, times in sorted(counters.uses.items()) if name != machine}
    fields: dict[str, Any] = {"use_count": sum(counters.uses.values()), ELSEWHERE: json.dumps(elsewhere)}
    at = counters.used_at
    if at is not None:
        fields["last_used_at"] = format_time(at)
    if counters.strength is not None:
        settled, touches, strength = counters.strength
        fields |= {"strength": strength, "consolidated_at": format_time(settled), "consolidated_touches": touches}
        at = max(at or settled, settled)
    return Event(kind="counts", at=at or parse_time("1970-01-01T00:00:00Z"), ids=(row_id,), fields=fields)


def _taking_out(rows: Collection[str]) -> Change:
    """Leave nothing of what happened to these rows in the lines but that they were added, used and counted."""
    marks = {each.encode() for each in rows}

    def change(line: bytes, _: int) -> bytes | None:
        if marks.isdisjoint(_ID.findall(line)):
            return line
        try:
            event = parse_event(record_of(line))
        except InvalidValue:
            return line
        if event.kind in _COUNTING or event.kind == "triple":
            return line
        without: dict[str, Any] = {"compresses": tuple(each for each in event.compresses if each not in rows)}
        without |= {name: None for name in ("supersedes", "forgets") if getattr(event, name) in rows}
        if event.kind not in {"add", "purge"}:
            without["ids"] = tuple(each for each in event.ids if each not in rows)
            if not without["ids"]:
                return None
        return encode(replace(event, **without).as_json()).rstrip(b"\n")

    return change


def said_of(journal: Journal, row_id: str) -> str:
    """Return what a digest of an identity says of a row or fact: its parts and what they are counted as together."""
    history = journal.history(row_id)
    counters = history.counters
    strength = counters.strength and [format_time(counters.strength[0]), *counters.strength[1:]]
    used = counters.used_at and format_time(counters.used_at)
    mentions = sum(times for times, _ in counters.mentions.values())
    counted = [sum(counters.uses.values()), used, mentions, strength]
    return canonical({"row": row_id, "parts": [*map(identity, history.shared())], "counted": counted})


def canonical(record: Mapping[str, Any]) -> str:
    """Return the one text of a record."""
    return json.dumps(record, sort_keys=True, ensure_ascii=False)


def portable(record: SessionRecord) -> dict[str, Any]:
    """Return what travels of a session's record: not its last use, nor stores that only one machine has."""
    stores = [name for name in record.store_types if name in _STORES]
    fields = replace(record, store_types=tuple(stores)).as_json()
    return {name: value for name, value in fields.items() if name != "used_at"}


Said = Sequence[tuple[str, TranscriptEntry]]
"""Entries of a transcript with their ids."""


def with_ids(entries: Iterable[TranscriptEntry]) -> list[tuple[str, TranscriptEntry]]:
    """Return entries with ids: digests of what they say, and which of several alike they are."""
    seen: defaultdict[str, int] = defaultdict(int)
    found = []
    for entry in entries:
        said = json.dumps([entry.role, format_time(entry.at), entry.content])
        seen[said] += 1
        found.append((digest_of(f"{said}{seen[said]}").hex(), entry))
    return found


def united(session_id: str, ours: Said, theirs: Said) -> tuple[Said, tuple[str, Said] | None]:
    """Return the transcript of a session from two copies, and a fork, with its id, where both went on.

    The one that went on first keeps the session: every machine comes to the same result, in whatever order.
    """
    same = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one[0] != other[0]), None)
    if same is None:
        return (ours if len(ours) >= len(theirs) else theirs), None
    main, other = sorted((ours, theirs), key=lambda said: (said[same][1].at, said[same][0]))
    return main, (fork_id(session_id, other[same]), other)


def fork_id(session_id: str, first: tuple[str, TranscriptEntry]) -> str:
    """Return the id of the fork that begins with an entry: a UUIDv7 of its time."""
    drawn = digest_of(f"{session_id} {first[0]}").hex()
    at = f"{micros(first[1].at) // 1000 % (1 << 48):012x}"
    return f"{at[:8]}-{at[8:]}-7{drawn[:3]}-8{drawn[3:6]}-{drawn[6:16]}{at[-2:]}"


def relabelled(journal: Journal, rows: Iterable[str]) -> JournalChanges:
    """Return the changes by which what a machine counted stays its own in a copy that counts under another name."""
    made, machine = JournalChanges(), journal.machine
    counts: list[Event] = []
    for row_id in rows:
        ours = journal.history(row_id)
        times, at = ours.counters.mentions.pop(machine, (0, None))
        if at is not None:
            made.rearranged.add(row_id)
            counted = Counters(mentions={machine: (times, at)})
            others = [each for each in ours.parts if not is_mention(each) or each.why]
            whole = sorted([*others, *_mentions(row_id, Counters(), counted, "")], key=_key)
            made.events += whole[1:] if ours.is_there else whole
        if machine in ours.counters.uses or at is not None:
            counts.append(_counts(row_id, ours.counters, ""))
    made.events += counts
    return made


def newest(one: tuple[str, Any] | None, other: tuple[str, Any]) -> bool:
    """Return whether the other of two values with their times is to be taken: the later one, else the greater one."""
    return one is None or (one[0], json.dumps(one[1], sort_keys=True)) < (
        other[0],
        json.dumps(other[1], sort_keys=True),
    )
