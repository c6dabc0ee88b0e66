"""Spans and metrics of OpenTelemetry, from the spans and counts of `chatbot.stores.span`.

The names of the conventions for generative AI are used where there are any:
https://opentelemetry.io/docs/specs/semconv/gen-ai/ is still in development, so its names are in this module alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from chatbot.messages import Usage
from chatbot.providers import provider_of
from chatbot.stores.span import Observer, Span
from chatbot.telemetry.sizes import Sizes

_ERROR = "error.type"
_OPERATION = "gen_ai.operation.name"
_MODEL = "gen_ai.request.model"
_PROVIDER = "gen_ai.provider.name"
_PURPOSE = "chatbot.purpose"
_DONE = "chatbot.operation"
_ROWS = "chatbot.rows"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "azure_text": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "watsonx_text": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers, where LiteLLM has another."""
_CALL_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Buckets as the conventions for generative AI have them."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_MEMORY_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of span: `labels` are in its metric and in the span, `details` in the span alone."""

    title: str
    metric: str
    labels: Mapping[str, str]
    details: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Attributes that are the same in every span."""
    role: SpanKind = SpanKind.INTERNAL


_KINDS = {
    "turn": _Kind(
        "invoke_agent {agent}",
        "turns",
        {"finish": "chatbot.turn.finish"},
        {"agent": "gen_ai.agent.name", "session": "gen_ai.conversation.id", "turn": "chatbot.turn.id"},
        {_OPERATION: "invoke_agent"},
    ),
    "call": _Kind(
        "{operation} {model}",
        "calls",
        {
            "operation": _OPERATION,
            "provider": _PROVIDER,
            "model": _MODEL,
            "purpose": _PURPOSE,
            "host": "server.address",
            "port": "server.port",
        },
        {
            "max_tokens": "gen_ai.request.max_tokens",
            "first_chunk": "gen_ai.response.time_to_first_chunk",
            "response_model": "gen_ai.response.model",
            "finish_reasons": "gen_ai.response.finish_reasons",
            "input_tokens": "gen_ai.usage.input_tokens",
            "output_tokens": "gen_ai.usage.output_tokens",
            "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
            "estimated": "chatbot.usage.estimated",
            "cost_usd": "chatbot.cost_usd",
        },
        role=SpanKind.CLIENT,
    ),
    "tool": _Kind(
        "execute_tool {tool}",
        "tools",
        {"tool": "gen_ai.tool.name"},
        {"call": "gen_ai.tool.call.id"},
        {_OPERATION: "execute_tool", "gen_ai.tool.type": "function"},
    ),
    "hook": _Kind("hook {hook}", "hooks", {"hook": "chatbot.hook.name"}, {"topic": "chatbot.topic"}),
    "memory": _Kind("memory {operation}", "operations", {"operation": _DONE}),
    "store": _Kind(
        "{operation} {store}",
        "stores",
        {"store": "chatbot.store", "operation": _DONE, "access": "chatbot.store.access"},
        {"changes": "chatbot.changes"},
    ),
}


class Instruments:
    """The metrics that are recorded as work happens. Those that are measured on request are in `sizes`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.turns = self._times("chatbot.turn.duration", "Turns, by how they ended", _CALL_S)
        self.first_text = self._times(
            "chatbot.turn.first_text", "Time from a message to the first text of its reply", _CALL_S
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
        self.changed = self._counts("chatbot.memory.rows.changed", "Rows written, by operation")
        self.maintained = self._counts("chatbot.memory.rows.maintained", "Rows that maintenance worked on")
        self.storage_retries = self._counts(
            "chatbot.storage.retries", "Transactions that a database was asked for again, by cause"
        )
        self.stores = self._times("chatbot.store.operation.duration", "Reads and writes of each store", _MEMORY_S)

    def _times(self, name: str, description: str, borders: Sequence[float]) -> Histogram:
        return self._meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=borders)

    def _counts(self, name: str, description: str) -> Counter:
        return self._meter.create_counter(name, description=description)


class OtelObserver(Observer):
    """Turns spans and counts into those of OpenTelemetry."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._instruments = Instruments(meter)
        self._sizes = Sizes(meter)

    def begin(self, kind: str, labels: Mapping[str, Any]) -> Span:
        """Begin a span, and the time of its metric."""
        known = _KINDS[kind]
        if kind == "call":
            labels = {**labels, **_named(labels["model"]), **_server_at(labels.get("server", ""))}
        span = self._tracer.start_span(known.title.format_map(labels), kind=known.role, attributes=dict(known.fixed))
        work = _OtelSpan(known, span, getattr(self._instruments, known.metric))
        work.note(**labels)
        return work

    def count(self, what: str, amount: float, labels: Mapping[str, Any]) -> None:
        """Add to the metrics of `what`."""
        instruments = self._instruments
        if what == "billed":
            self._add_call(labels["model"], labels["purpose"], labels["usage"])
        elif what == "first_text":
            instruments.first_text.record(amount)
        elif what == "maintained":
            instruments.maintained.add(amount, {"chatbot.deed": labels["deed"]})
        elif what == "storage_retries":
            instruments.storage_retries.add(amount, {_ERROR: labels["cause"]})
        else:
            self._add_rows(what, int(amount), {_DONE: labels["operation"]})

    def opened(self, memory: Any) -> None:
        """Measure a memory system, in the event loop that it is used in."""
        with suppress(RuntimeError):  # opened outside of a loop: its size stays unknown
            self._sizes.add(memory, asyncio.get_running_loop())

    def closed(self, memory: Any) -> None:
        """Stop measuring it."""
        self._sizes.remove(memory)

    def _add_call(self, model: str, purpose: str, usage: Usage) -> None:
        named = _named(model)
        labels = {_MODEL: named["model"], _PURPOSE: purpose}
        operation = "embeddings" if purpose == "embed" else "chat"
        of_tokens = {**labels, _PROVIDER: named["provider"], _OPERATION: operation}
        tokens = self._instruments.tokens
        tokens.record(usage.input_tokens, {**of_tokens, "gen_ai.token.type": "input"})
        tokens.record(usage.output_tokens, {**of_tokens, "gen_ai.token.type": "output"})
        if usage.cost_usd is None:
            self._instruments.unpriced.add(1, labels)
        else:
            self._instruments.cost.add(usage.cost_usd, labels)

    def _add_rows(self, action: str, rows: int, labels: dict[str, str]) -> None:
        if action == "retrieve":
            outcome = {"chatbot.outcome": "hit" if rows else "miss"}
            self._instruments.retrievals.add(1, {**labels, **outcome})
            self._instruments.retrieved.add(rows, labels)
        else:
            self._instruments.changed.add(rows, labels)
        trace.get_current_span().set_attribute(_ROWS, rows)


class _OtelSpan(Span):
    """A span, the parent of what is done within its `with` block, and its time in a histogram."""

    __slots__ = ("_began", "_histogram", "_kind", "_labels", "_span", "_token")

    def __init__(self, kind: _Kind, span: trace.Span, histogram: Histogram) -> None:
        self._kind = kind
        self._span = span
        self._histogram = histogram
        self._labels: dict[str, AttributeValue] = {}
        self._began = time.perf_counter()
        self._token: Token[Context] | None = None

    def note(self, **details: Any) -> None:
        """Add labels and details under their attributes."""
        usage = details.pop("usage", None)
        if usage is not None:
            details |= {name: getattr(usage, name) for name in usage.__dataclass_fields__}
        for name, value in details.items():
            if label := self._kind.labels.get(name):
                self._labels[label] = value
            elif value is not None and (attribute := self._kind.details.get(name)):
                self._span.set_attribute(attribute, value)

    def fail(self, error_type: str, *, is_fault: bool = True) -> None:
        """Mark the work as failed, or only as stopped."""
        self._labels[_ERROR] = error_type
        if is_fault:
            self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """End the work."""
        self._histogram.record(time.perf_counter() - self._began, self._labels)
        self._span.set_attributes(self._labels)
        self._span.end()

    def __enter__(self) -> Self:
        self._token = attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__, is_fault=issubclass(kind, Exception))
        if self._token is not None:
            detach(self._token)
        self.end()


def _named(model: str) -> dict[str, str]:
    """The provider by the conventions' name for it, and the model without the provider's, as dashboards know both."""
    provider = provider_of(model)
    return {"provider": _PROVIDERS.get(provider, provider) or "litellm", "model": model.removeprefix(f"{provider}/")}


def _server_at(address: str) -> dict[str, str | int]:
    """Host and port of an address, which may be a host alone."""
    if not address:
        return {}
    try:
        parts = urlsplit(address if "//" in address else f"https://{address}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return {}
    return {"host": parts.hostname or "", "port": port}
