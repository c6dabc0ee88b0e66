"""Rows, and a memory folder with its cache, for tests of the store of observations."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.observation import Observation
from chatbot.stores.observations import file_log as journal
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.row_events import Event

NOW = datetime(2026, 3, 4, tzinfo=UTC)
OWNER = View("full", NOW, frozenset(SENSITIVITIES), namespaces=None)
"""Sees every row but those of unknown sensitivity, in any namespace."""

Result = TypeVar("Result")


def id_of(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def row(number: int, **fields: Any) -> Observation:
    usual: dict[str, Any] = {"id": id_of(number), "title": f"title {number}", "sensitivity": "public"}
    return Observation(**usual | {"created_at": NOW, "updated_at": NOW} | fields)


def adding(number: int, **fields: Any) -> Event:
    return Event(kind="add", at=NOW, row=row(number, **fields))


def adding_all(*rows: Observation, **along: Any) -> list[Event]:
    return [Event(kind="add", at=NOW, row=each, **along) for each in rows]


def update(row_id: str, **fields: object) -> Event:
    return Event(kind="update", at=NOW, ids=(row_id,), fields=fields)


class Place:
    """A memory folder, its journal and its cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "memory"
        self.cache = root / "cache"
        self.journal = self.home / journal.NAME

    def open(self, cache: Path | None = None, /, **caps: Any) -> ObservationFileStore:
        return ObservationFileStore(self.home, cache=str(cache or self.cache), **caps)

    def run(
        self, work: Callable[[ObservationFileStore], Awaitable[Result]], cache: Path | None = None, **caps: Any
    ) -> Result:
        """Open, work and close, as a short process does."""

        async def opened() -> Result:
            async with self.open(cache, **caps) as store:
                return await work(store)

        return asyncio.run(opened())

    def commit(self, *events: Event) -> None:
        outcomes = self.run(lambda store: store.commit(OWNER, events))
        assert [outcome.reason for outcome in outcomes if outcome.error] == []

    def holding(self, *words: bytes | str) -> list[str]:
        """The names of the files, of memory and cache, that hold any of the words."""
        wanted = [word.encode() if isinstance(word, str) else word for word in words]
        files = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        assert files
        return [path.name for path, data in files.items() for word in wanted if word in data]
