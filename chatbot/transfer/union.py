"""Union of two copies of a session, and the state of earlier syncs: the content that each place is known to have."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from secrets import token_hex
from typing import Any

import msgspec
from msgspec.structs import replace

from chatbot.stores.backend import Document
from chatbot.stores.errors import DamagedFile
from chatbot.stores.observations.log_union import STEP, digest_of
from chatbot.stores.records import SessionRecord, TranscriptEntry, canonical, format_time, micros, parse_time

SESSIONS, OBSERVATIONS, STATE = "basic_session", "observations", "sync.json"


def portable(record: SessionRecord) -> dict[str, Any]:
    """Return the part of a session's record that is synced: not its last use, nor stores of only one machine."""
    stores = [name for name in record.store_types if name in {SESSIONS, OBSERVATIONS}]
    fields = replace(record, store_types=tuple(stores)).as_json()
    return {name: value for name, value in fields.items() if name != "used_at"}


Transcript = Sequence[tuple[str, TranscriptEntry]]
"""Entries with ids."""
Entries = dict[str, TranscriptEntry]
"""Entries by id."""


def with_ids(entries: Iterable[TranscriptEntry]) -> list[tuple[str, TranscriptEntry]]:
    """Return a transcript: ids are digests of the content, with a number for equal ones."""
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


class SessionContent(msgspec.Struct, frozen=True):
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


class PlaceState(msgspec.Struct):
    """Contents that a place is known to have."""

    digests: set[bytes] = set()
    """Digests of lines of the journal and their parts, counts, entries, receipts, attachments, bills and erased ids."""
    sessions: dict[str, str] = {}
    """Digest of the state of each session."""
    taken: set[str] = set()
    """Files of others that were taken in."""
    own: set[str] = set()
    """Files of this machine that are there; for a server, those that it took in last."""
    at: str = ""
    """When the last sync with it was done."""

    def new(self, texts: Iterable[str], prefix: str = "") -> list[str]:
        """Return those of these texts that the place lacks, and note that it gets them, by digests after `prefix`."""
        found = {digest_of(f"{prefix}{each}"): each for each in texts}
        new = [each for digest, each in found.items() if digest not in self.digests]
        self.digests.update(found)  # `|=` with a view would copy the set
        return new


def digests_of(record: SessionRecord) -> dict[str, str]:
    """Return digests of the fields: a deleted session leaves neither its title nor the name of its user here."""
    return {name: digest_of(canonical(value)).hex() for name, value in portable(record).items()}


class SessionState(msgspec.Struct):
    """State of a session after the last sync."""

    record: dict[str, str] = {}
    """As `digests_of`."""
    times: dict[str, str] = {}
    """When fields of the record were changed."""
    ids: list[str] = []
    turns: list[str] = []
    """Times of the messages that have a receipt."""
    files: list[str] = []
    cut: list[str] = []
    """Entries and files that were removed on any machine."""
    set_at: dict[str, str] = {}
    dead: dict[str, str] = {}
    """When values were set, and when they were removed, by key."""
    stamp: str = ""
    """Changes with the session, so that an unchanged one is not read; empty if there is none."""
    digest: str = ""

    def next(self, record: SessionRecord, content: SessionContent, now: datetime, *, is_merged: bool) -> "SessionState":
        """Return the state of the session with another record and content, without stamp and digest.

        What is missing now was removed by the user, unless the sync itself has just changed the session (`is_merged`).
        """
        ids, cut = [each for each, _ in content.said], [*self.cut]
        set_at = {key: at for key, (_, at) in sorted(content.values.items())}
        dead = {key: at for key, at in self.dead.items() if key not in content.values}
        if not is_merged:
            cut += {*self.ids, *self.files} - {*ids, *content.files, *cut}
            gone = self.set_at.keys() - content.values.keys()
            dead |= {key: time_after(self.set_at[key], now) for key in gone}
        turns = sorted(_receipted(content) & _asked(content))
        new = SessionState(digests_of(record), {**self.times}, ids, turns, content.files, sorted(cut), set_at, dead)
        for name in {**self.record, **new.record}:
            if self.record.get(name) != new.record.get(name):
                new.times[name] = time_after(new.times.get(name) or format_time(record.created_at), now)
        return new

    def has_lost(self, content: SessionContent) -> bool:
        """Return whether the end of the transcript is missing, with messages that were not taken back."""
        there = {each for each, _ in content.said}
        left = [each for each in self.ids if each in there]
        is_end = len(left) < len(self.ids) and left == self.ids[: len(left)]
        return is_end and not (_receipted(content) - _asked(content)).isdisjoint(self.turns)


def _asked(content: SessionContent) -> set[str]:
    return {format_time(entry.at) for _, entry in content.said if entry.role == "user"}


def _receipted(content: SessionContent) -> set[str]:
    turns = (each for each in content.receipts if "kind" not in each and not each.get("taken_back"))
    return {str(each.get("at")) for each in turns}


def time_after(last: str, now: datetime) -> str:
    """Return the time of a change that was made `now`, by whatever clock, after another one."""
    return format_time(max(now, parse_time(last) + STEP))


class SyncState(msgspec.Struct):
    """State of earlier syncs on this machine: the document `sync.json` of the identity."""

    identity: str = ""
    machine: str = ""
    former: list[str] = []
    """Earlier names of this machine, whose files in folders it still cleans."""
    sessions: dict[str, SessionState] = {}
    erased: set[str] = set()
    """Sessions and facts that were erased on some machine, and are erased on all."""
    facts: set[str] = set()
    """Facts that were there at the last sync: those that are missing now were erased."""
    rows: int = 0
    """Highest number of rows that a sync has found, with those that were purged."""
    places: dict[str, PlaceState] = {}
    restoring: str = ""
    """The backup that is being restored, or whose restore was interrupted."""

    @classmethod
    def read(cls, document: Document) -> "SyncState":
        """Read the document; a machine that has none gets its name. Raises `DamagedFile`."""
        try:
            state = msgspec.json.decode(document.read() or b"{}", type=cls)
        except (ValueError, RecursionError) as error:
            raise DamagedFile(f"{document.name} cannot be read: {error}. Restore it, or start without it") from error
        state.machine = state.machine or token_hex(6)
        return state

    def save(self, document: Document) -> None:
        """Write the document. Durable on return."""
        data = msgspec.json.encode(self)
        document.change(lambda _: data)
