"""The index of sessions: `sessions.json` for people, and a journal that keeps it cheap to change. Blocking.

A change adds a line with a checksum to `sessions.journal.jsonl`; once that is as large as `sessions.json` it is folded
in. Sessions are in the order of their last use: a use is written as `put`; any other change, as `set`, keeps the order.

Both files are caches of the session folders, so writes are not synced. The last line records the state of the sessions
folder at our last change. If the folder differs, a session was copied, restored or removed by hand, or a process was
killed in between: then the folders are read until the next change rebuilds the index. So reading takes no lock and
writes nothing, and a failed write only makes the index stale.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from chatbot.stores import json_lines
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat, MissingFolder
from chatbot.stores.files import Folder, locked, opened
from chatbot.stores.records import VERSION, SessionRecord, decode_record, is_id, parse_record
from chatbot.stores.transcript import last_time

logger = logging.getLogger(__name__)

NAME = "sessions.json"
JOURNAL_NAME = "sessions.journal.jsonl"
SESSION_NAME = "session.json"
_HEAD_BYTES = 200
_ATTEMPTS = 4
_PAUSE_S = 0.001
_SMALLEST_FOLD = 4 * 1024
_LARGEST_FOLD_AT_CLOSE = 256 * 1024

_JsonRecord = dict[str, Any]
"""A record in the form of `SessionRecord.as_json`."""


class SessionIndex:
    """Finds sessions without opening them. `home` is an identity's memory folder, `sessions` the folder in it."""

    def __init__(self, home: Path, sessions: Path) -> None:
        self._home = home
        self._sessions = sessions
        self._is_damaged = False
        """True if the folders were read because of damage, or a rebuild failed: the next change rebuilds the index."""
        self._warned: set[str] = set()
        self.has_changed = False
        """True if `fold_if_small` may have something to do."""

    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        """Return the wanted sessions, most recently used first; reads no further than needed to find `limit`.

        Only those after the session `after_id`, if one is given. Takes no lock and writes nothing: if the index is
        unusable the folders are read, which takes longer.
        """
        for attempt in range(_ATTEMPTS):
            found = self._find_in_index(wanted, limit, after_id)
            if found is not None:
                return found
            time.sleep(_PAUSE_S * attempt)  # another process may be changing it
        records = self._read_folders()
        return list(islice(filter(wanted, _after(reversed(records), after_id)), limit))

    def problem(self) -> tuple[str, bool] | None:
        """Describe the fault of the index without repairing it, and return whether it is damage; None for no fault."""
        with opened(self._home) as folder:
            if folder.stamp(NAME) is None:
                return "is missing", False
            if damage := _read_intact(folder)[1]:
                return f"is damaged: {damage}", True
            return None if self._is_fresh(folder) else ("is older than the folders", False)

    def rebuild(self) -> str:
        """Rebuild the index from the folders; return the new name of a damaged one, empty for none."""
        with locked(self._home) as folder:
            aside = folder.set_aside(NAME) if folder.stamp(NAME) and _read_intact(folder)[1] else ""
            self._rebuild(folder)
            return aside

    def freshen(self, folder: Folder) -> None:
        """Rebuild the index if the folders no longer match it. Needs the lock on `home`; call before changing them."""
        if self._is_damaged or not self._is_fresh(folder):
            self._rebuild(folder)

    def distrust(self) -> None:
        """Make the index stale until `note_put` or `note_deleted` follows. Needs no disk space."""
        now = time.time_ns()
        os.utime(self._sessions, ns=(now, now))

    def note_put(self, folder: Folder, record: SessionRecord, *, is_use: bool = True) -> None:
        """Record that a session was made or changed. Needs the lock on `home`."""
        op = "put" if is_use else "set"
        self._write(folder, {"op": op, "session": record.as_json(), "folders": self._state_to_note()})

    def note_used(self, folder: Folder, record: SessionRecord) -> None:
        """Record that a session was used; a stale index stays stale. Needs the lock on `home`."""
        self._write(folder, {"op": "put", "session": record.as_json(), "folders": _recorded_state(folder)})

    def note_deleted(self, folder: Folder, session_id: str) -> None:
        """Record that a session's folder is gone. Needs the lock on `home`."""
        self._write(folder, {"op": "drop", "id": session_id, "folders": self._state_to_note()})

    def fold_if_small(self) -> None:
        """Bring `sessions.json` up to date for people who read it, if that is cheap; called on closing."""
        self.has_changed = False
        with locked(self._home) as folder:
            journal, index = folder.stamp(JOURNAL_NAME), folder.stamp(NAME)
            if journal and journal.size + (index.size if index else 0) < _LARGEST_FOLD_AT_CLOSE:
                self.fold(folder)

    def fold(self, folder: Folder, *, durable: bool = False) -> None:
        """Bring `sessions.json` up to date, so that nothing older is left. Needs the lock on `home`.

        If `durable`, former content does not return after a power cut: an index that cannot be written is then removed.
        """
        try:
            written = list(_newest_json_records(folder))
        except (DamagedFile, InvalidValue):
            self._rebuild(folder, durable=durable)
        else:
            try:
                self._replace(folder, reversed(written), _recorded_state(folder), durable=durable)
            except OSError as error:
                self._fail(folder, error, durable=durable)

    def warn_once(self, message: str, *args: object) -> None:
        """Log a warning, unless it was logged before."""
        if (warning := message % args) not in self._warned:
            self._warned.add(warning)
            logger.warning(message, *args)

    def _find_in_index(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None, after_id: str | None
    ) -> list[SessionRecord] | None:
        """Read the index; None if it is stale or damaged, or was changed meanwhile."""
        try:
            with opened(self._home) as folder:
                before = folder.stamp(NAME), folder.stamp(JOURNAL_NAME)
                if not self._is_fresh(folder):
                    return None
                found = list(islice(filter(wanted, _after(_newest_records(folder), after_id)), limit))
                return found if before == (folder.stamp(NAME), folder.stamp(JOURNAL_NAME)) else None
        except (DamagedFile, FileNotFoundError):
            return None

    def _read_folders(self) -> list[SessionRecord]:
        """Read every session, the one used last at the end, whatever the index says."""
        with opened(self._home) as folder:
            if damage := _read_intact(folder)[1] if folder.stamp(NAME) else "":
                self.warn_once("%s is damaged (%s): the folders are read instead", self._home / NAME, damage)
            self._is_damaged = bool(damage)
            return self._records_in_folders(folder)

    def _folders_state(self) -> str:
        """Return the state of the folder of sessions: its time and, as times can be coarse, its number of links."""
        status = self._sessions.stat()
        return f"{status.st_mtime_ns}-{status.st_nlink}"

    def _state_to_note(self) -> str | None:
        """Return the state of the folders; None while the index may lack a session, so that it stays stale."""
        return None if self._is_damaged else self._folders_state()

    def _is_fresh(self, folder: Folder) -> bool:
        return _recorded_state(folder) == self._folders_state()

    def _write(self, folder: Folder, line: dict[str, Any]) -> None:
        self.has_changed = True
        try:
            with folder.open_to_append(JOURNAL_NAME, durable=False) as journal:
                journal.write(json_lines.encode(line))
                size = journal.stamp().size
            index = folder.stamp(NAME)
            if size > max(_SMALLEST_FOLD, index.size if index else 0):
                self.fold(folder)
        except OSError as error:
            logger.warning("%s could not be written: %s", self._home / JOURNAL_NAME, error)

    def _rebuild(self, folder: Folder, *, durable: bool = False) -> None:
        state = self._folders_state()
        records = self._records_in_folders(folder)
        try:
            self._replace(folder, (record.as_json() for record in records), state, durable=durable)
            self._is_damaged = False
        except OSError as error:
            self._is_damaged = True
            self._fail(folder, error, durable=durable)

    def _fail(self, folder: Folder, error: OSError, *, durable: bool) -> None:
        """Log that the index could not be written; if `durable`, delete the old one too."""
        logger.warning("%s could not be written and will be built again: %s", self._home / NAME, error)
        if durable:
            folder.remove(JOURNAL_NAME)
            folder.remove(NAME)
            folder.sync()

    def _records_in_folders(self, folder: Folder) -> list[SessionRecord]:
        """Read the records from all folders; for a session whose file is damaged, from the index."""
        known, _ = _read_intact(folder)
        found = [self._read_session(path, known) for path in self._sessions.iterdir() if is_id(path.name)]
        records = [record for record in found if record is not None]
        return sorted(records, key=lambda record: (record.used_at, record.id))

    def _replace(self, folder: Folder, written: Iterable[_JsonRecord], state: str | None, *, durable: bool) -> None:
        lines = b",\n".join(json_lines.encode(each).rstrip() for each in written)
        head = json.dumps({"version": VERSION, "folders": state})[:-1]
        folder.replace(NAME, b'%s, "sessions": [\n%s\n]}\n' % (head.encode(), lines), durable=durable)
        folder.remove(JOURNAL_NAME)
        if durable:
            folder.sync()

    def _read_session(self, path: Path, known: dict[str, SessionRecord]) -> SessionRecord | None:
        try:
            with opened(path) as folder:
                record = decode_record(folder.read(SESSION_NAME), path.name)
                with suppress(OSError, ValueError):  # the transcript's fault is reported when it is read
                    record = replace(record, used_at=max(record.used_at, last_time(folder) or record.used_at))
        except MissingFolder:  # it was deleted meanwhile
            return None
        except (OSError, ValueError) as error:
            self.warn_once("%s cannot be read, see `chatbot doctor`: %s", path / SESSION_NAME, error)
            return known.get(path.name)
        return record


def _head(folder: Folder) -> dict[str, Any]:
    """Return the first line of the index; empty if there is none."""
    try:
        head = json.loads(folder.read(NAME, 0, _HEAD_BYTES).partition(b"\n")[0] + b"]}")
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def _read_intact(folder: Folder) -> tuple[dict[str, SessionRecord], str]:
    """Return the records up to the first damage, by id, and that damage; empty if the index is intact."""
    known: dict[str, SessionRecord] = {}
    try:
        for record in _newest_records(folder):
            known[record.id] = record
    except DamagedFile as error:
        return known, str(error)
    return known, ""


def _newest_records(folder: Folder) -> Iterator[SessionRecord]:
    try:
        yield from map(parse_record, _newest_json_records(folder))
    except (InvalidValue, LaterFormat) as error:
        raise DamagedFile(str(error)) from error


def _newest_json_records(folder: Folder) -> Iterator[_JsonRecord]:
    """Yield the newest record of each session, last used first; adds deleted ones to `seen`, changed to `changed`."""
    seen: set[str] = set()
    changed: dict[str, _JsonRecord] = {}
    for written in chain(_journal_backwards(folder, seen, changed), _index_backwards(folder)):
        session_id = str(written.get("id"))
        if session_id not in seen:
            seen.add(session_id)
            latest = changed.get(session_id)
            yield written if latest is None else latest | {"used_at": written.get("used_at")}
    yield from (latest for session_id, latest in changed.items() if session_id not in seen)


def _after(records: Iterable[SessionRecord], session_id: str | None) -> Iterator[SessionRecord]:
    records = iter(records)
    if session_id is not None:
        next((record for record in records if record.id == session_id), None)
    return records


def _journal_backwards(folder: Folder, dropped: set[str], changed: dict[str, _JsonRecord]) -> Iterator[_JsonRecord]:
    for line in _decode(filter(None, json_lines.lines_backwards(folder, JOURNAL_NAME))):
        if line.get("op") == "drop":
            dropped.add(str(line.get("id")))
        elif isinstance(line.get("session"), dict):
            if line["op"] == "set":
                changed.setdefault(str(line["session"].get("id")), line["session"])
            else:
                yield line["session"]


def _index_backwards(folder: Folder) -> Iterator[_JsonRecord]:
    lines = (line.strip(b" ,\r") for line in json_lines.lines_backwards(folder, NAME))
    lines = (line for line in lines if line and not line.endswith(b'"sessions": ['))
    if next(lines, b"") != b"]}":
        raise DamagedFile("it has no end")
    yield from _decode(lines)


def _decode(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if damage := json_lines.damage_of(line):
            raise DamagedFile(f"{line[:80]!r}: {damage}")
        yield json_lines.record_of(line)


def _recorded_state(folder: Folder) -> str | None:
    """Return the recorded state of the sessions folder; None if it is unknown."""
    if folder.stamp(NAME) is None:
        return None  # a journal alone is no index
    with suppress(DamagedFile):
        for line in json_lines.read_backwards(folder, JOURNAL_NAME):
            return line.get("folders")
    state = _head(folder).get("folders")
    return state if isinstance(state, str) else None
