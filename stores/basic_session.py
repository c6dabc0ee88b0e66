"""Store of a conversation in readable files: a capped `kv.json` and a capped `transcript.md`.

The files are the source of truth, also after a manual edit: a cache is dropped when its file changes. `kv.json`
has one entry a line, the oldest first; its `cap` is informative, the setting decides:

    {"cap": 200, "entries": [{"key": …, "value": …, "ts": …}, …]}
"""

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path

from chatbot.stores.base import Cap, KeyValueStore, TranscriptStore
from chatbot.stores.errors import MISFITS, DamagedFile, too_long
from chatbot.stores.files import Folder, locked, opened
from chatbot.stores.loops import GroupCommit, in_thread
from chatbot.stores.records import LONGEST_CONTENT, KeyValue, SessionRef, TranscriptEntry, format_time, parse_time
from chatbot.stores.transcript import TranscriptFile, transcript_stamp

_MOST_CACHED = 256


class BasicSessionStore(KeyValueStore, TranscriptStore):
    """Keeps at most `kv_cap` key-value entries a session, and the last `transcript_cap` entries in `transcript.md`.

    Older key-value entries are dropped. Older transcript entries move to the archive once there are half as many more.
    """

    def __init__(self, home: Path, *, kv_cap: Cap = 200, transcript_cap: Cap = 500) -> None:
        super().__init__(home)
        self._kv_cap = kv_cap
        self._transcript_cap = transcript_cap
        self._cached: OrderedDict[str, _SessionFiles] = OrderedDict()
        self._guard = threading.Lock()

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        entry = (await self._key_values(session)).get(key)
        return None if entry is None else entry.value

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        await asyncio.to_thread(self._files(session).key_values.set, entry)

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        return await asyncio.to_thread(self._files(session).key_values.delete, key)

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        return list((await self._key_values(session)).values())

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        longest = max((len(entry.content) for entry in entries), default=0)
        if longest > LONGEST_CONTENT:  # refused here, as entries of several calls are written together
            raise too_long("the content", longest, LONGEST_CONTENT)
        await self._files(session).appends.add(entries)

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        file = self._files(session).transcript
        known = file.glance_last(n)
        return known if known is not None else await asyncio.to_thread(file.read_last, n)

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        return await asyncio.to_thread(self._files(session).transcript.read_all)

    async def transcript_count(self, session: SessionRef, roles: Collection[str] = ()) -> int:
        return await asyncio.to_thread(self._files(session).transcript.count, roles)

    @in_thread
    def transcript_stamps(self, sessions: Sequence[SessionRef]) -> list[str]:
        return [transcript_stamp(each.folder) for each in sessions]

    async def transcript_drop_last(
        self, session: SessionRef, n: int, instead: Sequence[TranscriptEntry] = ()
    ) -> list[TranscriptEntry]:
        return await asyncio.to_thread(self._files(session).transcript.drop_last, n, instead)

    async def forget_session(self, session: SessionRef) -> None:
        with self._guard:
            files = self._cached.pop(session.id, None)
        if files is not None:
            await files.appends.finish()

    async def aclose(self) -> None:
        for files in list(self._cached.values()):
            await files.appends.finish()

    async def _key_values(self, session: SessionRef) -> dict[str, KeyValue]:
        return await asyncio.to_thread(self._files(session).key_values.read)

    def _files(self, session: SessionRef) -> "_SessionFiles":
        with self._guard:
            files = self._cached.get(session.id)
            if files is None or files.folder != session.folder:
                files = _SessionFiles(session.folder, self._kv_cap, self._transcript_cap)
                self._cached[session.id] = files
            self._cached.move_to_end(session.id)
            if len(self._cached) > _MOST_CACHED:
                self._cached.pop(next((key for key, each in self._cached.items() if each.appends.idle), ""), None)
        return files


class _SessionFiles:
    """The files of one session, with their caches."""

    __slots__ = ("appends", "folder", "key_values", "transcript")

    def __init__(self, folder: Path, kv_cap: int, transcript_cap: int) -> None:
        self.folder = folder
        self.key_values = KeyValueFile(folder, kv_cap)
        self.transcript = TranscriptFile(folder, transcript_cap)
        self.appends: GroupCommit[Sequence[TranscriptEntry]] = GroupCommit(
            self.transcript.write, self.transcript.compact
        )


KEY_VALUES_NAME = "kv.json"


class KeyValueFile:
    """File of at most `cap` entries; setting one makes it the newest, and the oldest are dropped above the cap."""

    def __init__(self, folder: Path, cap: int) -> None:
        self._folder = folder
        self._cap = cap

    def read(self) -> dict[str, KeyValue]:
        """Return all entries by key, oldest first. A damaged file is left until the next write."""
        with opened(self._folder) as folder:
            try:
                entries = _read_entries(folder)
            except DamagedFile as error:
                raise DamagedFile(f"{error}; repair it, or set it aside with `chatbot doctor --fix`") from error
            if not entries:
                folder.check_there()
        return entries

    def set(self, entry: KeyValue) -> None:
        """Keep `entry` as the newest. Durable on return."""
        with locked(self._folder) as folder:
            entries = _read_or_set_aside(folder)
            entries.pop(entry.key, None)
            entries[entry.key] = entry
            folder.replace(KEY_VALUES_NAME, render_key_values(self._cap, list(entries.values())[-self._cap :]))

    def delete(self, key: str) -> bool:
        """Remove `key`; return whether it existed. Durable on return."""
        with locked(self._folder) as folder:
            entries = _read_or_set_aside(folder)
            if key not in entries:
                return False
            del entries[key]
            folder.replace(KEY_VALUES_NAME, render_key_values(self._cap, list(entries.values())))
        return True


def _read_or_set_aside(folder: Folder) -> dict[str, KeyValue]:
    """Read under the lock; a damaged file is set aside, so that the next access starts afresh."""
    try:
        return _read_entries(folder)
    except DamagedFile as error:
        aside = folder.set_aside(KEY_VALUES_NAME)
        raise DamagedFile(
            f"{error}; it was set aside as {aside}: repair it and rename it back, or continue without its entries"
        ) from error


def _read_entries(folder: Folder) -> dict[str, KeyValue]:
    try:
        data = folder.read(KEY_VALUES_NAME)
    except FileNotFoundError:
        return {}
    try:
        return {entry.key: entry for entry in parse_key_values(data)}
    except MISFITS as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else error
        raise DamagedFile(f"{folder.path / KEY_VALUES_NAME} is damaged: {reason}") from error


def parse_key_values(data: bytes) -> list[KeyValue]:
    """Return the entries. Raises `KeyError`, `TypeError`, `ValueError` or `RecursionError` for a damaged file."""
    entries = json.loads(data)["entries"]
    if not isinstance(entries, list):
        raise TypeError("the entries should be a list")
    return [KeyValue(entry["key"], entry["value"], parse_time(entry["ts"])) for entry in entries]


def render_key_values(cap: int, entries: list[KeyValue]) -> bytes:
    """Return the entries as a file, oldest first."""
    lines = [
        json.dumps({"key": entry.key, "value": entry.value, "ts": format_time(entry.at)}, ensure_ascii=False)
        for entry in entries
    ]
    body = ",\n  ".join(lines)
    return f'{{"cap": {cap}, "entries": [\n  {body}\n]}}\n'.encode() if lines else b'{"cap": %d, "entries": []}\n' % cap
