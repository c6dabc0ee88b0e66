"""What is worth remembering, as a capability of the other hooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from chatbot.config import Table
from chatbot.memory.memorability import GATE, TYPE_WEIGHTS, Memorability
from chatbot.pipeline.hook import Hook, HookContext
from chatbot.pipeline.plugins import plan
from stores.errors import InvalidValue, did_you_mean
from stores.observation import TYPES

Share = Annotated[float, Meta(ge=0, le=1)]


class Memorable(Hook):
    """Decides what is worth remembering: `memory.memorability`. Without it, everything is."""

    topics = ()

    def __init__(
        self, context: HookContext, *, threshold: Share = GATE, type_weights: Mapping[str, Share] = TYPE_WEIGHTS
    ) -> None:
        super().__init__(context)
        context.capabilities.provide("memory.memorability", _weighed(threshold, type_weights))

    async def handle(self, event: Any) -> None:
        """Nothing: it is asked, not told."""


def exchange_gate(tables: Mapping[str, Table], *, beside: Path | None = None) -> Memorability | None:
    """What decides which exchanges are remembered, by the hooks as they are configured; None: none are.

    Raises `ConfigError`.
    """
    keeps, judges = [plan(name, tables.get(name), beside=beside) for name in ("exchange", "memorability")]
    if not keeps.enabled:
        return None
    return _weighed(**judges.all_settings()) if judges.enabled else Memorability(gate=0)


def _weighed(threshold: float, type_weights: Mapping[str, float]) -> Memorability:
    for name in type_weights:
        if name not in TYPES:
            raise InvalidValue(f"type_weights: no type of memory is called {name!r}{did_you_mean(name, TYPES)}")
    return Memorability(threshold, {**TYPE_WEIGHTS, **type_weights})
