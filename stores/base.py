"""What a store is: the contracts that a plug-in inherits, and the promises that it makes by doing so.

A store object is opened once for an identity and shared by all sessions of it, so each operation names its session.
A plug-in inherits the contracts that it can keep; a session that uses it then offers just those operations. The
keyword-only arguments of its constructor are its settings: `[memory.<name>]` in the configuration fills them, checked
against their annotations.

Every operation is safe to call from many tasks at once. A store that keeps files is safe between processes too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from stores.errors import UnsupportedOperation
from stores.lifecycle import AsyncResource
from stores.records import KeyValue, SessionRef, TranscriptEntry


class Store(AsyncResource):
    """The root of every plug-in. `home` is the identity's memory folder; a store may write nowhere else but in it."""

    keeps_files: ClassVar[bool] = True
    """False for a store that forgets everything when it is closed; only such stores serve `--ephemeral`."""

    def __init__(self, home: Path) -> None:
        self.home = home

    async def forget_session(self, session: SessionRef) -> None:
        """A session is being deleted: let go of what is kept outside of its folder. Unknown sessions are no error."""

    async def aclose(self) -> None:
        """Finish what is under way and let go of everything. May be called twice."""


class KeyValueStore(Store):
    """Keeps a capped set of text entries for each session; past the cap, what was set longest ago goes first."""

    @abstractmethod
    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        """The value of `key`, or None."""

    @abstractmethod
    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        """Keep `entry`, as the newest, in place of any with the same key. Durable on return."""

    @abstractmethod
    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        """Remove `key`; whether it was there. Durable on return."""

    @abstractmethod
    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        """All entries, the one set longest ago first. A session that has none gives an empty list."""


class TranscriptStore(Store):
    """Keeps the conversation of each session, in order; past the cap, the oldest entries leave the transcript."""

    @abstractmethod
    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        """Add `entries` at the end, in order and next to each other. Durable on return."""

    @abstractmethod
    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """The last `n` entries, oldest first; fewer where there are fewer, or where the cap is lower."""

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        """Every entry that is still known, oldest first, those past the cap included where the store keeps them."""
        return await self.transcript_read_last(session, 2**31)

    async def transcript_drop_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """Remove the last `n` entries within the cap for good, and return them, oldest first. Durable on return."""
        raise UnsupportedOperation(f"{type(self).__name__} cannot take back the last {n} entries of {session.id}")


CONTRACTS: dict[type[Store], str] = {KeyValueStore: "key-value", TranscriptStore: "transcript"}
"""Every contract there is."""


def contracts_of(store: type[Store]) -> list[str]:
    """The contracts that a plug-in keeps, in words for people."""
    return [words for contract, words in CONTRACTS.items() if issubclass(store, contract)]
