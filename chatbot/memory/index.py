"""The index of sessions: `sessions.json` for people, and a journal that keeps it cheap to change. Blocking.

Both are caches of the session folders, so nobody waits until they are on the disk. Each change adds one line to
`sessions.journal.jsonl`; when the journal has grown as large as `sessions.json` it is folded in, so that a change costs
the same however many sessions there are.
Sessions stand in the order of their last use, so the newest are read from the end of the files.

The last line carries what the folder of sessions looked like when we last changed it. If it looks otherwise, then
someone copied, restored or removed a session by hand, or a process was killed between folder and line: the index is
stale and is built anew from the folders. So an index that cannot be written fails nothing else: it is stale as well.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from chatbot.memory.record import VERSION, SessionRecord, decode_record, is_session_id, parse_record
from stores import json_lines
from stores.errors import InvalidValue, LaterFormat
from stores.files import Folder, locked, opened

logger = logging.getLogger(__name__)

NAME = "sessions.json"
JOURNAL_NAME = "sessions.journal.jsonl"
SESSION_NAME = "session.json"
_SMALLEST_FOLD = 4 * 1024
_LARGEST_FOLD_AT_CLOSE = 256 * 1024


class SessionIndex:
    """Finds sessions without opening them. `home` is an identity's memory folder, `sessions` the folder in it."""

    def __init__(self, home: Path, sessions: Path) -> None:
        self._home = home
        self._sessions = sessions

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, behind: str | None = None
    ) -> list[SessionRecord]:
        """The sessions that are wanted, the one used last first; reads no further than it takes to find `limit`.

        Only those that come behind the session `behind`, where one is named. An index that nobody changes meanwhile
        is read without the lock, so that looking needs no right to write.
        """
        found = self._glance(wanted, limit, behind)
        if found is not None:
            return found
        with locked(self._home) as folder:
            try:
                if self._is_fresh(folder):
                    return list(islice(filter(wanted, _behind(_records_backwards(folder), behind)), limit))
            except _DamagedIndexError as error:
                logger.warning("%s is damaged (%s): rebuilding it", self._home / NAME, error)
            return list(islice(filter(wanted, _behind(reversed(self._rebuild(folder)), behind)), limit))

    def problem(self) -> str | None:
        """What is wrong with the index, in words, mending nothing; None where it is as it should be."""
        with locked(self._home) as folder:
            if folder.stamp(NAME) is None:
                return "is missing"
            if damage := _damage(folder):
                return f"is damaged: {damage}"
            return None if self._is_fresh(folder) else "is older than the folders"

    def rebuild(self) -> str:
        """Build the index again from the folders; returns what a damaged one is kept as, empty for none."""
        with locked(self._home) as folder:
            aside = folder.set_aside(NAME) if folder.stamp(NAME) and _damage(folder) else ""
            self._rebuild(folder)
            return aside

    def freshen(self, folder: Folder) -> None:
        """Rebuild the index if the folders no longer match it. Needs the lock on `home`; call before changing them."""
        if not self._is_fresh(folder):
            self._rebuild(folder)

    def distrust(self) -> None:
        """Make the index stale, whatever it says, until `note_put` or `note_deleted` follows. Needs no space."""
        now = time.time_ns()
        os.utime(self._sessions, ns=(now, now))

    def note_put(self, folder: Folder, record: SessionRecord) -> None:
        """Write down that a session was made or changed. Needs the lock on `home`."""
        self._write(folder, {"op": "put", "session": record.as_json(), "folders": self._folders()})

    def note_used(self, folder: Folder, record: SessionRecord) -> None:
        """Write down that a session was used, its folder being there. Needs the lock on `home`."""
        self._write(folder, {"op": "put", "session": record.as_json(), "folders": _marker(folder)})

    def note_deleted(self, folder: Folder, session_id: str) -> None:
        """Write down that a session's folder is gone. Needs the lock on `home`."""
        self._write(folder, {"op": "drop", "id": session_id, "folders": self._folders()})

    def fold_if_small(self) -> None:
        """Bring `sessions.json` up to date where that costs next to nothing: for people's eyes, when we close."""
        with locked(self._home) as folder:
            journal, index = folder.stamp(JOURNAL_NAME), folder.stamp(NAME)
            if journal and journal.size + (index.size if index else 0) < _LARGEST_FOLD_AT_CLOSE:
                self.fold(folder)

    def fold(self, folder: Folder, *, durable: bool = False) -> None:
        """Bring `sessions.json` up to date, so that nothing older is left. Needs the lock on `home`.

        Where it is `durable`, what it said before is not there either after a power cut.
        """
        try:
            records = list(_records_backwards(folder))
        except _DamagedIndexError:
            self._rebuild(folder, durable=durable)
        else:
            self._replace(folder, reversed(records), _marker(folder), durable=durable)

    def _glance(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None, behind: str | None
    ) -> list[SessionRecord] | None:
        """What a sound index says that stays as it is while it is read; None where only the lock can tell."""
        try:
            with opened(self._home) as folder:
                before = folder.stamp(NAME), folder.stamp(JOURNAL_NAME)
                if not self._is_fresh(folder):
                    return None
                found = list(islice(filter(wanted, _behind(_records_backwards(folder), behind)), limit))
                return found if before == (folder.stamp(NAME), folder.stamp(JOURNAL_NAME)) else None
        except (_DamagedIndexError, OSError):
            return None

    def _folders(self) -> str:
        """What the folder of sessions looks like: its time, and as clocks can be coarse, the number of its links."""
        status = self._sessions.stat()
        return f"{status.st_mtime_ns}-{status.st_nlink}"

    def _is_fresh(self, folder: Folder) -> bool:
        return _marker(folder) == self._folders()

    def _write(self, folder: Folder, line: dict[str, Any]) -> None:
        try:
            with folder.appending(JOURNAL_NAME, durable=False) as journal:
                journal.write(json_lines.encode(line))
                size = journal.stamp().size
            index = folder.stamp(NAME)
            if size > max(_SMALLEST_FOLD, index.size if index else 0):
                self.fold(folder)
        except OSError as error:
            logger.warning("%s could not be written: %s", self._home / JOURNAL_NAME, error)

    def _rebuild(self, folder: Folder, *, durable: bool = False) -> list[SessionRecord]:
        marker = self._folders()
        known = _whatever_is_readable(folder)
        found = [self._read_session(path, known) for path in self._sessions.iterdir() if is_session_id(path.name)]
        records = [record for record in found if record is not None]
        records.sort(key=lambda record: (record.used_at, record.id))
        try:
            self._replace(folder, records, marker, durable=durable)
        except OSError as error:
            logger.warning("%s could not be written and will be built again: %s", self._home / NAME, error)
        return records

    def _replace(self, folder: Folder, records: Iterable[SessionRecord], marker: str | None, *, durable: bool) -> None:
        lines = ",\n".join(json.dumps(record.as_json(), ensure_ascii=False) for record in records)
        head = json.dumps({"version": VERSION, "folders": marker})[:-1]
        folder.replace(NAME, f'{head}, "sessions": [\n{lines}\n]}}\n'.encode(), durable=durable)
        folder.remove(JOURNAL_NAME)
        if durable:
            folder.sync()

    def _read_session(self, path: Path, known: dict[str, SessionRecord]) -> SessionRecord | None:
        try:
            with opened(path) as folder:
                record = decode_record(folder.read(SESSION_NAME), path.name)
        except (OSError, ValueError) as error:
            logger.warning("%s has no readable %s: %s", path, SESSION_NAME, error)
            return known.get(path.name)
        transcript = path / "transcript.md"
        if transcript.exists():
            used_at = datetime.fromtimestamp(transcript.stat().st_mtime, UTC)
            record = replace(record, used_at=max(record.used_at, used_at))
        return record


class _DamagedIndexError(Exception):
    pass


def _damage(folder: Folder) -> str:
    """What cannot be understood in the index; empty where all can."""
    try:
        for _ in _records_backwards(folder):
            pass
    except _DamagedIndexError as error:
        return str(error)
    return ""


def _records_backwards(folder: Folder) -> Iterator[SessionRecord]:
    seen: set[str] = set()
    for fields in chain(_journal_backwards(folder, seen), _index_backwards(folder)):
        try:
            record = parse_record(fields)
        except (InvalidValue, LaterFormat) as error:
            raise _DamagedIndexError(str(error)) from error
        if record.id not in seen:
            seen.add(record.id)
            yield record


def _behind(records: Iterable[SessionRecord], session_id: str | None) -> Iterator[SessionRecord]:
    records = iter(records)
    if session_id is not None:
        next((record for record in records if record.id == session_id), None)
    return records


def _journal_backwards(folder: Folder, dropped: set[str]) -> Iterator[dict[str, Any]]:
    for line in _decoded(filter(None, json_lines.lines_backwards(folder, JOURNAL_NAME))):
        if line.get("op") == "drop":
            dropped.add(str(line.get("id")))
        elif isinstance(line.get("session"), dict):
            yield line["session"]


def _index_backwards(folder: Folder) -> Iterator[dict[str, Any]]:
    lines = (line.strip(b" ,\r") for line in json_lines.lines_backwards(folder, NAME))
    lines = (line for line in lines if line and not line.endswith(b"["))
    if next(lines, b"") != b"]}":
        raise _DamagedIndexError("it has no end")
    yield from _decoded(lines)


def _decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _DamagedIndexError(f"{line[:80]!r} is no JSON: {error}") from error
        if not isinstance(fields, dict):
            raise _DamagedIndexError(f"{line[:80]!r} is no record")
        yield fields


def _whatever_is_readable(folder: Folder) -> dict[str, SessionRecord]:
    known = {}
    try:
        for record in _records_backwards(folder):
            known[record.id] = record
    except _DamagedIndexError as error:
        logger.info("reading the index of sessions stopped where it is damaged: %s", error)
    return known


def _marker(folder: Folder) -> str | None:
    """What the folder of sessions looked like when we last changed it, as far as the index knows."""
    if folder.stamp(NAME) is None:
        return None  # a journal adds to an index, it is none
    for line in json_lines.read_backwards(folder, JOURNAL_NAME):
        return line.get("folders")
    try:
        head = folder.read(NAME, 0, 200).partition(b"\n")[0]
        marker = json.loads(head + b"]}")["folders"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return marker if isinstance(marker, str) else None
