"""The store of a conversation in files that a person can read: a capped `kv.json` and a capped `transcript.md`.

What is on the disk is the truth, also after a hand edit: memory holds only caches that a changed file invalidates.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path

from stores.base import KeyValueStore, TranscriptStore
from stores.errors import InvalidSettings
from stores.group_commit import GroupCommit
from stores.key_value_file import KeyValueFile
from stores.open_folders import OpenFolders
from stores.records import KeyValue, SessionRef, TranscriptEntry
from stores.transcript_file import TranscriptFile, transcript_stamp

_WARM_SESSIONS = 256


class BasicSessionStore(KeyValueStore, TranscriptStore):
    """Keeps at most `kv_cap` key-value entries and shows at most `transcript_cap` transcript entries a session.

    Key-value entries past the cap are dropped, transcript entries past it move to `transcript.archive.md`.
    """

    def __init__(self, home: Path, *, kv_cap: int = 200, transcript_cap: int = 500) -> None:
        super().__init__(home)
        for name, cap in {"kv_cap": kv_cap, "transcript_cap": transcript_cap}.items():
            if cap < 1:
                raise InvalidSettings(f"{name} is {cap}: it must be at least 1")
        self._kv_cap = kv_cap
        self._transcript_cap = transcript_cap
        self._warm: OrderedDict[str, _SessionFiles] = OrderedDict()
        self._folders = OpenFolders()

    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        """See `KeyValueStore`."""
        entry = (await self._key_values(session)).get(key)
        return None if entry is None else entry.value

    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        """See `KeyValueStore`."""
        await asyncio.to_thread(self._files(session).key_values.set, entry)

    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        """See `KeyValueStore`."""
        return await asyncio.to_thread(self._files(session).key_values.delete, key)

    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        """See `KeyValueStore`."""
        return list((await self._key_values(session)).values())

    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        """See `TranscriptStore`. Appends that meet are committed as a group."""
        await self._files(session).appends.add(entries)

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """See `TranscriptStore`. Reads the end of the file, at once if it is short; nothing while it is unchanged."""
        file = self._files(session).transcript
        known = file.recall_last(n)
        if known is None:
            known = file.glance_last(n)
        return known if known is not None else await asyncio.to_thread(file.read_last, n)

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        """See `TranscriptStore`."""
        return await asyncio.to_thread(self._files(session).transcript.read_all)

    async def transcript_count(self, session: SessionRef, roles: Collection[str] = ()) -> int:
        """See `TranscriptStore`. Decodes no entry."""
        return await asyncio.to_thread(self._files(session).transcript.count, roles)

    async def transcript_stamp(self, session: SessionRef) -> str:
        """See `TranscriptStore`. Looks at two files, which takes less time than a hop into a thread."""
        return transcript_stamp(session.folder)

    async def transcript_drop_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """See `TranscriptStore`."""
        return await asyncio.to_thread(self._files(session).transcript.drop_last, n)

    async def forget_session(self, session: SessionRef) -> None:
        """See `Store`."""
        if files := self._warm.pop(session.id, None):
            await files.appends.finish()
        self._folders.close(session.folder)

    async def aclose(self) -> None:
        """See `Store`. Waits for appends whose callers no longer do."""
        for files in list(self._warm.values()):
            await files.appends.finish()
        self._folders.close_all()

    async def _key_values(self, session: SessionRef) -> dict[str, KeyValue]:
        file = self._files(session).key_values
        known = file.recall()
        return known if known is not None else await asyncio.to_thread(file.read)

    def _files(self, session: SessionRef) -> _SessionFiles:
        files = self._warm.get(session.id)
        if files is None or files.folder != session.folder:
            files = _SessionFiles(session.folder, self._kv_cap, self._transcript_cap, self._folders)
            self._warm[session.id] = files
        self._warm.move_to_end(session.id)
        if len(self._warm) > _WARM_SESSIONS:
            self._cool_one()
        return files

    def _cool_one(self) -> None:
        idle = next((key for key, files in self._warm.items() if files.appends.idle), None)
        if idle is not None:
            del self._warm[idle]


class _SessionFiles:
    """The files of one session, with what is known of them."""

    __slots__ = ("appends", "folder", "key_values", "transcript")

    def __init__(self, folder: Path, kv_cap: int, transcript_cap: int, folders: OpenFolders) -> None:
        self.folder = folder
        self.key_values = KeyValueFile(folder, kv_cap)
        self.transcript = TranscriptFile(folder, transcript_cap, folders)
        self.appends: GroupCommit[Sequence[TranscriptEntry]] = GroupCommit(
            self.transcript.write, self.transcript.compact
        )
