"""The sessions that someone of little clearance may know of: to them, the others are not there."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from chatbot.errors import SessionNotFound
from chatbot.memory.catalog import Change, SessionCatalog, Wanted
from chatbot.memory.record import SessionRecord
from stores.access import Clearance
from stores.records import SessionRef


class SeenCatalog(SessionCatalog):
    """A part of another catalog, which outlives it."""

    def __init__(self, catalog: SessionCatalog, clearance: Clearance) -> None:
        self._catalog = catalog
        self._clearance = clearance

    def making(self, record: SessionRecord) -> AbstractAsyncContextManager[SessionRef]:
        """See `SessionCatalog`."""
        return self._catalog.making(record)

    async def get(self, session_id: str) -> SessionRecord:
        """See `SessionCatalog`."""
        record = await self._catalog.get(session_id)
        if not record.is_seen_with(self._clearance):
            raise SessionNotFound(f"there is no session {session_id}")
        return record

    async def find(self, wanted: Wanted, limit: int | None = None, *, behind: str | None = None) -> list[SessionRecord]:
        """See `SessionCatalog`."""
        return await self._catalog.find(
            lambda record: record.is_seen_with(self._clearance) and wanted(record), limit, behind=behind
        )

    async def ids(self) -> Collection[str]:
        """See `SessionCatalog`: of those that are hidden, too."""
        return await self._catalog.ids()

    async def change(self, session_id: str, change: Change) -> SessionRecord:
        """See `SessionCatalog`."""
        await self.get(session_id)
        return await self._catalog.change(session_id, change)

    async def note_used(self, session_id: str, now: datetime) -> None:
        """See `SessionCatalog`."""
        await self._catalog.note_used(session_id, now)

    async def delete(self, session_id: str) -> None:
        """See `SessionCatalog`."""
        await self.get(session_id)
        await self._catalog.delete(session_id)

    async def append_receipt(self, session: SessionRef, receipt: dict[str, Any]) -> None:
        """See `SessionCatalog`."""
        await self._catalog.append_receipt(session, receipt)

    async def receipts(self, session: SessionRef) -> list[dict[str, Any]]:
        """See `SessionCatalog`."""
        return await self._catalog.receipts(session)

    def ref(self, session_id: str) -> SessionRef:
        """See `SessionCatalog`."""
        return self._catalog.ref(session_id)
