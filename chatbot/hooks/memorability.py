"""The gate that decides what is worth remembering, as a capability of turns and other hooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from chatbot.chat.events import MEMORABILITY
from chatbot.config import Table
from chatbot.hooks.hook import Hook, HookContext
from chatbot.hooks.plugins import plan_hook
from chatbot.memory.memorability import GATE, TYPE_WEIGHTS, Memorability
from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.stores.observation import TYPES

Share = Annotated[float, Meta(ge=0, le=1)]


class Memorable(Hook):
    """Decides what is worth remembering: `memory.memorability`. Without it, everything is."""

    topics = ()

    def __init__(
        self, context: HookContext, *, threshold: Share = GATE, type_weights: Mapping[str, Share] = TYPE_WEIGHTS
    ) -> None:
        super().__init__(context)
        context.capabilities.provide(MEMORABILITY, _gate(threshold, type_weights))

    async def handle(self, event: Any) -> None:
        """Do nothing: this hook only provides a capability."""


def exchange_gate(tables: Mapping[str, Table], *, beside: Path | None = None) -> Memorability | None:
    """Return the gate for exchanges as the hooks are configured; None where none are kept.

    Raises `ConfigError`.
    """
    keeps, judges = [plan_hook(name, tables.get(name), beside=beside) for name in ("exchange", "memorability")]
    if not keeps.enabled:
        return None
    return _gate(**judges.all_settings()) if judges.enabled else Memorability(gate=0)


def _gate(threshold: float, type_weights: Mapping[str, float]) -> Memorability:
    for name in type_weights:
        if name not in TYPES:
            raise InvalidValue(f"type_weights: no type of memory is called {name!r}{did_you_mean(name, TYPES)}")
    return Memorability(threshold, {**TYPE_WEIGHTS, **type_weights})
