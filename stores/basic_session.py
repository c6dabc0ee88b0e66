"""Store of a conversation in readable files: a capped `kv.json` and a capped `transcript.md`.

The files are the truth, also after a manual edit: memory holds only caches that a changed file invalidates.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path

from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import InvalidSettings
from chatbot.stores.group_commit import GroupCommit
from chatbot.stores.key_value_file import KeyValueFile
from chatbot.stores.open_folders import OpenFolders
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry
from chatbot.stores.transcript_file import TranscriptFile, transcript_stamp

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
        self._guard = threading.Lock()
        self._folders = OpenFolders()

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
        """Append the entries; concurrent appends are committed together."""
        await self._files(session).appends.add(entries)

    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """Read the end of the file, directly if it is short; an unchanged file is not read again."""
        file = self._files(session).transcript
        known = file.recall_last(n)
        if known is None:
            known = file.glance_last(n)
        return known if known is not None else await asyncio.to_thread(file.read_last, n)

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        return await asyncio.to_thread(self._files(session).transcript.read_all)

    async def transcript_count(self, session: SessionRef, roles: Collection[str] = ()) -> int:
        """Count the entries without decoding them."""
        return await asyncio.to_thread(self._files(session).transcript.count, roles)

    async def transcript_stamp(self, session: SessionRef) -> str:
        """Return the stamp of both files, which takes less time than a switch to a thread."""
        return transcript_stamp(session.folder)

    async def transcript_drop_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        return await asyncio.to_thread(self._files(session).transcript.drop_last, n)

    async def forget_session(self, session: SessionRef) -> None:
        """Close the files of a session that is being deleted."""
        with self._guard:
            files = self._warm.pop(session.id, None)
        if files is not None:
            await files.appends.finish()
        self._folders.close(session.folder)

    async def aclose(self) -> None:
        """Close the store after appends whose callers were cancelled."""
        for files in list(self._warm.values()):
            await files.appends.finish()
        self._folders.close_all(for_good=True)

    async def _key_values(self, session: SessionRef) -> dict[str, KeyValue]:
        file = self._files(session).key_values
        known = file.recall()
        return known if known is not None else await asyncio.to_thread(file.read)

    def _files(self, session: SessionRef) -> _SessionFiles:
        with self._guard:
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
    """The files of one session, with their caches."""

    __slots__ = ("appends", "folder", "key_values", "transcript")

    def __init__(self, folder: Path, kv_cap: int, transcript_cap: int, folders: OpenFolders) -> None:
        self.folder = folder
        self.key_values = KeyValueFile(folder, kv_cap)
        self.transcript = TranscriptFile(folder, transcript_cap, folders)
        self.appends: GroupCommit[Sequence[TranscriptEntry]] = GroupCommit(
            self.transcript.write, self.transcript.compact
        )
