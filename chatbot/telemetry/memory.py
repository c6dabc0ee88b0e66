"""Memory that is watched: its operations, those of its stores, what they found, and what maintenance did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import get_current_span

from chatbot.embedding import Embedder
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.remembering import Memories, Remembering
from chatbot.memory.scope import Scope
from chatbot.memory.told import MemoryEvent, Tell
from chatbot.telemetry import names
from chatbot.telemetry.models import WatchedEmbedder
from chatbot.telemetry.sizes import Sizes
from chatbot.telemetry.watch import Attributes, Watch
from stores.access import SENSITIVITIES
from stores.base import CONTRACTS, ObservationStore, Store
from stores.query import Stats

if TYPE_CHECKING:
    from chatbot.memory.maintenance.policy import Part, Policy
    from chatbot.memory.maintenance.report import Report

Operation = Callable[..., Awaitable[Any]]
Kind = TypeVar("Kind", bound=Remembering)

_WRITES = frozenset(
    {
        "commit",
        "forget_session",
        "forget_vectors",
        "kv_delete",
        "kv_set",
        "purge",
        "put_vectors",
        "reindex",
        "transcript_append",
        "transcript_drop_last",
    }
)
"""What changes a store. All else only reads."""


def watched_memory(watch: Watch, sizes: Sizes) -> Callable[..., MemorySystem]:
    """Makes memory systems whose operations are watched, and those of every handle that they give out."""

    def elsewhere(_: Remembering, scope: Scope) -> Memories:
        return memories(scope)

    def watched(kind: type[Kind], operations_of: type[Remembering]) -> type[Kind]:
        operations = {name: _operation(getattr(kind, name), watch) for name in _operations(operations_of)}
        return type(kind.__name__, (kind,), {"__slots__": (), "_remembering": elsewhere, **operations})

    memories = watched(Memories, Remembering)
    handle = watched(SessionHandle, Remembering)  # what else it does is done by stores, which are watched
    system = watched(WatchedMemory, MemorySystem)

    def made(home: Path | None, **settings: Any) -> MemorySystem:
        return system(home, watch=watch, sizes=sizes, handle=handle, **settings)

    return made


class WatchedMemory(MemorySystem):
    """A memory system whose stores are watched, that counts what it is told, and that can say how much there is."""

    def __init__(
        self,
        home: Path | None,
        *,
        watch: Watch,
        sizes: Sizes,
        handle: type[SessionHandle],
        tell: Tell | None = None,
        embedder: Embedder | None = None,
        **settings: Any,
    ) -> None:
        watched = None if embedder is None else WatchedEmbedder(embedder, watch)
        super().__init__(home, tell=self._hear, embedder=watched, **settings)
        self.handle_type = handle
        self._watch = watch
        self._sizes = sizes
        self._told = tell

    async def maintain(
        self,
        policy: Policy | None = None,
        *,
        part: Part = "",
        stores: Sequence[str] | None = None,
        dry_run: bool = False,
        unless_within: timedelta = timedelta(0),
        whole: bool = False,
    ) -> Report:
        """See `MemorySystem`."""
        report = await super().maintain(
            policy, part=part, stores=stores, dry_run=dry_run, unless_within=unless_within, whole=whole
        )
        if not report.dry_run:
            for deed, rows in report.counts().items():
                self._watch.instruments.maintained.add(rows, {names.DEED: deed})
        return report

    async def stats_of_all(self) -> Stats | None:
        """How much there is in all namespaces, seen as the identity sees it; None before anything was asked of it."""
        if not any(isinstance(store, ObservationStore) for store in self._stores.values()):
            return None
        return await Memories(replace(self._scope(), across=True)).stats(ask=SENSITIVITIES)

    async def aclose(self) -> None:
        """See `MemorySystem`."""
        self._sizes.remove(self)
        await super().aclose()

    def _open_store(self, name: str) -> Store:
        store = super()._open_store(name)
        for contract in CONTRACTS:
            if isinstance(store, contract):
                for operation in _operations(contract):
                    setattr(store, operation, _of_store(getattr(store, operation), name, self._watch))
        with suppress(RuntimeError):  # opened outside of a loop: how much there is stays unknown
            self._sizes.add(self, asyncio.get_running_loop())
        return store

    def _hear(self, event: MemoryEvent) -> None:
        labels: Attributes = {names.DONE: event.operation}
        rows, instruments = len(event.ids), self._watch.instruments
        if event.action == "retrieve":
            instruments.retrievals.add(1, {**labels, names.OUTCOME: "hit" if rows else "miss"})
            instruments.retrieved.add(rows, labels)
        else:
            instruments.changed.add(rows, labels)
        get_current_span().set_attribute(names.ROWS, rows)
        if self._told is not None:
            self._told(event)


def _operations(kind: type) -> list[str]:
    """The names of what can be awaited of it."""
    named = ((name, getattr(kind, name)) for name in dir(kind) if not name.startswith("_"))
    return [name for name, member in named if iscoroutinefunction(member) and name != "aclose"]


def _operation(operation: Operation, watch: Watch) -> Operation:
    name, histogram = operation.__name__, watch.instruments.operations

    @wraps(operation)
    async def watched(*arguments: Any, **options: Any) -> Any:
        with watch.begin(f"memory {name}", histogram, {names.DONE: name}):
            return await operation(*arguments, **options)

    return watched


def _of_store(operation: Operation, store: str, watch: Watch) -> Operation:
    name, histogram = operation.__name__, watch.instruments.stores
    access = "write" if name in _WRITES else "read"

    @wraps(operation)
    async def watched(*arguments: Any, **options: Any) -> Any:
        labels: Attributes = {names.STORE: store, names.DONE: name, names.ACCESS: access}
        with watch.begin(f"{name} {store}", histogram, labels) as work:
            if name == "commit" and len(arguments) > 1:
                work.note({names.CHANGES: sorted({event.kind for event in arguments[1]})})
            return await operation(*arguments, **options)

    return watched
