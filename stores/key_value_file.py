"""One session's key-value entries on the disk: `kv.json`, one entry a line so that it reads and diffs well. Blocking.

    {"cap": 200, "entries": [{"key": …, "value": …, "ts": …}, …]}

The oldest entry is first. The `cap` in the file is the one when it was written; the setting decides.
"""

from __future__ import annotations

import json
from pathlib import Path

from chatbot.stores.errors import DamagedFile
from chatbot.stores.files import Folder, Stamp, locked, opened, stamp
from chatbot.stores.records import KeyValue, format_time, parse_time

NAME = "kv.json"


class KeyValueFile:
    """File of at most `cap` entries; setting one makes it the newest, and the oldest are dropped above the cap."""

    def __init__(self, folder: Path, cap: int) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._cap = cap
        self._cached: tuple[Stamp, dict[str, KeyValue]] | None = None

    def recall(self) -> dict[str, KeyValue] | None:
        """Return the result of `read` if it is cached; else None. Takes microseconds."""
        if self._cached is None or stamp(self._path) != self._cached[0]:
            return None
        return self._cached[1]

    def read(self) -> dict[str, KeyValue]:
        """Return all entries by key, the one set longest ago first. A damaged file is left until the next write."""
        with opened(self._folder) as folder:
            before = folder.stamp(NAME)
            is_settled = before is not None and before.is_settled()
            try:
                entries = _read(folder)
            except DamagedFile as error:
                raise DamagedFile(f"{error}; mend it, or set it aside with `chatbot doctor --fix`") from error
            if before is None:
                folder.check_there()
            if before is not None and is_settled and folder.stamp(NAME) == before:
                self._cached = (before, entries)
        return entries

    def set(self, entry: KeyValue) -> None:
        """Keep `entry` as the newest. Durable on return."""
        with locked(self._folder) as folder:
            entries = _read_guarded(folder)
            entries.pop(entry.key, None)
            entries[entry.key] = entry
            folder.replace(NAME, render(self._cap, list(entries.values())[-self._cap :]))

    def delete(self, key: str) -> bool:
        """Remove `key`; whether it was there. Durable on return."""
        with locked(self._folder) as folder:
            entries = _read_guarded(folder)
            if key not in entries:
                return False
            del entries[key]
            folder.replace(NAME, render(self._cap, list(entries.values())))
        return True


def _read_guarded(folder: Folder) -> dict[str, KeyValue]:
    """Read under the lock; a damaged file is set aside, so that the next access starts afresh."""
    try:
        return _read(folder)
    except DamagedFile as error:
        aside = folder.set_aside(NAME)
        raise DamagedFile(
            f"{error}; it was set aside as {aside}: mend it and rename it back, or go on without its entries"
        ) from error


def _read(folder: Folder) -> dict[str, KeyValue]:
    try:
        data = folder.read(NAME)
    except FileNotFoundError:
        return {}
    try:
        return {entry.key: entry for entry in parse(data)}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{folder.path / NAME} is damaged: {_reason(error)}") from error


def parse(data: bytes) -> list[KeyValue]:
    """The entries in a file; raises `KeyError`, `TypeError`, `ValueError` or `RecursionError` where it is damaged."""
    entries = json.loads(data)["entries"]
    if not isinstance(entries, list):
        raise TypeError("the entries should be a list")
    return [KeyValue(_text(entry["key"]), _text(entry["value"]), parse_time(_text(entry["ts"]))) for entry in entries]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be text")
    return value


def _reason(error: Exception) -> str:
    return f"missing {error}" if isinstance(error, KeyError) else str(error)


def render(cap: int, entries: list[KeyValue]) -> bytes:
    """The entries as a file, the one set longest ago first."""
    lines = [
        json.dumps({"key": entry.key, "value": entry.value, "ts": format_time(entry.at)}, ensure_ascii=False)
        for entry in entries
    ]
    body = ",\n  ".join(lines)
    return f'{{"cap": {cap}, "entries": [\n  {body}\n]}}\n'.encode() if lines else b'{"cap": %d, "entries": []}\n' % cap
