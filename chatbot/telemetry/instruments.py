"""The metrics: what each is called, what it counts, and where the borders of its buckets are."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import Counter, Histogram, Meter

_CALL_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""As the conventions for generative AI have it."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_MEMORY_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class Instruments:
    """Every metric that is told as it happens. Those that are asked for are in `sizes`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.turns = self._times("chatbot.turn.duration", "Turns, by how they ended", _CALL_S)
        self.first_text = self._times(
            "chatbot.turn.first_text", "From a message to the first word of its reply", _CALL_S
        )
        self.calls = self._times("gen_ai.client.operation.duration", "Model calls", _CALL_S)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of billed calls",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.cost = self._counts("chatbot.cost.usd", "US dollars, of calls whose price is known")
        self.unpriced = self._counts("chatbot.calls.unpriced", "Billed calls whose price is not known")
        self.tools = self._times("chatbot.tool.duration", "Runs of tools", _CALL_S)
        self.hooks = self._times("chatbot.hook.duration", "Runs of hooks", _MEMORY_S)
        self.operations = self._times("chatbot.memory.operation.duration", "Operations on memory", _MEMORY_S)
        self.retrievals = self._counts(
            "chatbot.memory.retrievals", "Searches, recalls and reads, by whether they found any"
        )
        self.retrieved = self._counts("chatbot.memory.rows.retrieved", "Rows that those found")
        self.changed = self._counts("chatbot.memory.rows.changed", "Rows that were written, by what was done")
        self.maintained = self._counts("chatbot.memory.rows.maintained", "Rows that maintenance worked on")
        self.stores = self._times("chatbot.store.operation.duration", "Reads and writes of each store", _MEMORY_S)

    def _times(self, name: str, description: str, borders: Sequence[float]) -> Histogram:
        return self._meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=borders)

    def _counts(self, name: str, description: str) -> Counter:
        return self._meter.create_counter(name, description=description)
