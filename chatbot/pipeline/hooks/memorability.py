"""What is worth remembering, as a capability of the other hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from chatbot.memory.memorability import GATE, TYPE_WEIGHTS, Memorability
from chatbot.pipeline.hook import Hook, HookContext
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
        for name in type_weights:
            if name not in TYPES:
                raise InvalidValue(f"type_weights: no type of memory is called {name!r}{did_you_mean(name, TYPES)}")
        weights = {**TYPE_WEIGHTS, **type_weights}
        context.capabilities.provide("memory.memorability", Memorability(threshold, weights))

    async def handle(self, event: Any) -> None:
        """Nothing: it is asked, not told."""
