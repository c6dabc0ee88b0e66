"""Spans and metrics of OpenTelemetry, of any number of runtimes, from the spans and counts of `chatbot.stores.span`.

The names of the conventions for generative AI are used where there are any:
https://opentelemetry.io/docs/specs/semconv/gen-ai/ is still in development, so only this module has its names.
"""

import asyncio
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import Token
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec import Struct
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Histogram, Meter, MeterProvider, Observation
from opentelemetry.sdk import metrics
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode, Tracer, TracerProvider, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from chatbot.config import TelemetrySettings, from_variable
from chatbot.memory import MemorySystem
from chatbot.messages import Usage
from chatbot.providers import provider_of
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import AsyncResource
from chatbot.stores.query import Stats
from chatbot.stores.span import Observer, Span
from chatbot.stores.text.redaction import without_secrets

logger = logging.getLogger(__name__)

_SCOPE = "chatbot"
_SHUTDOWN_S = 2.0
_REASON = re.compile(r"\[Errno -?\d+\] ([^\"')]+)|code: (\d+), reason: (.+)")


class Telemetry(AsyncResource):
    """Spans and metrics of any number of runtimes, sent through providers that may be the caller's own.

    `registry` is the source of metrics in the format of Prometheus. At the end `shut_down` sends the rest, on a thread;
    it may be called twice.
    """

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        *,
        registry: CollectorRegistry | None = None,
        shut_down: Callable[[], None] = lambda: None,
    ) -> None:
        self.observer = OtelObserver(tracers.get_tracer(_SCOPE), meters.get_meter(_SCOPE))
        self.registry = registry
        """None if no metrics can be `read`."""
        self._reading = threading.Lock()
        self._shut_down = shut_down

    @classmethod
    def of(cls, settings: TelemetrySettings, *, serves: bool) -> "Telemetry":
        """Create telemetry from settings. Raises `ConfigError` if a header names a variable that is not set."""
        refused = f"{settings.endpoint} accepts no telemetry"
        remedy = "see endpoint in [telemetry]"
        _on_first_failure(lambda why: logger.warning("%s", without_secrets(f"{refused}: {why}; {remedy}")))
        resource = Resource.create(
            {
                "service.name": settings.service,
                "service.version": version("chatbot-runtime"),
                "service.instance.id": str(uuid4()),
            }
        )
        ending = ExitStack()
        registry = CollectorRegistry() if serves and settings.prometheus else None
        readers: list[MetricReader] = []
        if registry is not None:
            prometheus = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
            readers.append(prometheus)
        tracers: TracerProvider = NoOpTracerProvider()
        if settings.endpoint:
            sent = PeriodicExportingMetricReader(
                OTLPMetricExporter(**_target(settings, "metrics")), settings.interval_s * 1e3, settings.timeout_s * 1e3
            )
            readers.append(sent)
            share = TraceIdRatioBased(settings.sample)
            sampler = ParentBased(share, remote_parent_sampled=share)
            tracers = sdk_trace.TracerProvider(sampler, resource, shutdown_on_exit=False)
            tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**_target(settings, "traces"))))
            ending.callback(tracers.shutdown)
        meters = metrics.MeterProvider(readers, resource, metrics.AlwaysOffExemplarFilter(), shutdown_on_exit=False)
        ending.callback(meters.shutdown)
        return cls(tracers, meters, registry=registry, shut_down=ending.close)

    @staticmethod
    def check(settings: TelemetrySettings, *, network: bool) -> str:
        """Return why the collector refuses empty data; empty if it does not. Blocking. Raises like `of`."""
        traces, measures = _target(settings, "traces"), _target(settings, "metrics")
        failures: list[str] = []
        if network and settings.endpoint:
            _on_first_failure(failures.append)
            OTLPSpanExporter(**traces).export([])
            OTLPMetricExporter(**measures).export(MetricsData([]))
        return "".join(failures)

    def read(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics, in the form that an `Accept` header asks for, and its media type. Call it on a thread."""
        if self.registry is None:
            raise RuntimeError("metrics are not collected for Prometheus")
        encode, media_type = choose_encoder(accept)
        with self._reading:  # the reader collects into one shared buffer
            return encode(self.registry), media_type

    async def aclose(self) -> None:
        """Send remaining data within 2 s. May be called twice."""

        def end() -> None:
            try:
                self._shut_down()
            except Exception as error:  # noqa: BLE001 - the library must not keep the program from ending
                logger.info("telemetry did not end cleanly: %s", type(error).__name__)

        ending = threading.Thread(target=end, name="telemetry ends", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _SHUTDOWN_S)
        if ending.is_alive():
            logger.warning("the last telemetry was not accepted within %g s: see endpoint in [telemetry]", _SHUTDOWN_S)


def _target(settings: TelemetrySettings, signal: str) -> dict[str, Any]:
    headers = {
        name: from_variable(value, f"{name!r} in [telemetry.headers]") for name, value in settings.headers.items()
    }
    endpoint = f"{settings.endpoint.rstrip('/')}/v1/{signal}"
    return {"endpoint": endpoint, "headers": headers, "timeout": settings.timeout_s}


def _on_first_failure(report: Callable[[str], object]) -> None:
    """Report only the first failure to send: the library would log every attempt into the terminal of a chat."""
    library = logging.getLogger("opentelemetry")
    library.handlers, library.propagate = [_FirstFailure(report)], False


class _FirstFailure(logging.Handler):
    """Reports the exporters' first warning, shortened where its form is known."""

    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self.addFilter(logging.Filter("opentelemetry.exporter"))
        self._report: Callable[[str], object] | None = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report the first reason; ignore the others."""
        report, self._report = self._report, None
        if report is not None:
            found = _REASON.search(text := record.getMessage())
            report(" ".join(filter(None, found.groups())) if found else text)


class TraceparentMiddleware:
    """ASGI middleware: the spans of a request join the trace that its `traceparent` names.

    It comes after authentication, so that only known callers join traces. Nothing but the id and the flag is read.
    """

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request within the trace that it names; a header that is malformed or repeated names none."""
        if scope["type"] != "http" or get_current_span().get_span_context().is_valid:  # the host program joined it
            return await self._app(scope, receive, send)
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"]
        carrier = {"traceparent": named[0]} if len(named) == 1 else {}
        token = attach(TraceContextTextMapPropagator().extract(carrier, get_current()))
        try:
            return await self._app(scope, receive, send)
        finally:
            detach(token)


_ERROR = "error.type"
_REQUEST = "gen_ai.operation.name"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that LiteLLM names differently."""
_CALL_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Buckets of the conventions for generative AI."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_MEMORY_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_MEASURED_EVERY_S = 60.0
_LONGEST_WAIT_S = 2.0

_ATTRIBUTES = {
    "access": "chatbot.store.access",
    "agent": "gen_ai.agent.name",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "call": "gen_ai.tool.call.id",
    "cause": _ERROR,
    "change": "chatbot.change",
    "changes": "chatbot.changes",
    "cost_usd": "chatbot.cost_usd",
    "estimated": "chatbot.usage.estimated",
    "finish": "chatbot.turn.finish",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "first_chunk": "gen_ai.response.time_to_first_chunk",
    "hook": "chatbot.hook.name",
    "host": "server.address",
    "input_tokens": "gen_ai.usage.input_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "model": "gen_ai.request.model",
    "operation": "chatbot.operation",
    "output_tokens": "gen_ai.usage.output_tokens",
    "port": "server.port",
    "provider": "gen_ai.provider.name",
    "purpose": "chatbot.purpose",
    "request": _REQUEST,
    "response_model": "gen_ai.response.model",
    "session": "gen_ai.conversation.id",
    "store": "chatbot.store",
    "tool": "gen_ai.tool.name",
    "topic": "chatbot.topic",
    "turn": "chatbot.turn.id",
}


class _Kind(Struct, frozen=True):
    """A kind of span, and the histogram of its durations, which has only these `labels`."""

    title: str
    metric: str
    about: str
    labels: Collection[str]
    fixed: Mapping[str, str] = {}
    borders: Sequence[float] = _MEMORY_S
    role: SpanKind = SpanKind.INTERNAL


_TOOL = {_REQUEST: "execute_tool", "gen_ai.tool.type": "function"}
_KINDS = {
    "turn": _Kind(
        "invoke_agent {agent}", "chatbot.turn.duration", "Turns, by how they ended", ("finish",),
        {_REQUEST: "invoke_agent"}, _CALL_S,
    ),
    "call": _Kind(
        "{request} {model}", "gen_ai.client.operation.duration", "Model calls",
        ("request", "provider", "model", "purpose", "host", "port"), borders=_CALL_S, role=SpanKind.CLIENT,
    ),
    "tool": _Kind("execute_tool {tool}", "chatbot.tool.duration", "Runs of tools", ("tool",), _TOOL, _CALL_S),
    "hook": _Kind("hook {hook}", "chatbot.hook.duration", "Runs of hooks", ("hook",)),
    "memory": _Kind("memory {operation}", "chatbot.memory.operation.duration", "Operations on memory", ("operation",)),
    "store": _Kind(
        "{operation} {store}", "chatbot.store.operation.duration", "Reads and writes of each store",
        ("store", "operation", "access"),
    ),
}  # fmt: skip
_COUNTERS = {
    "cost": ("chatbot.cost.usd", "US dollars, of calls whose price is known"),
    "unpriced": ("chatbot.calls.unpriced", "Billed calls whose price is not known"),
    "retrievals": ("chatbot.memory.retrievals", "Searches, recalls and reads, by whether they found any"),
    "retrieve": ("chatbot.memory.rows.retrieved", "Rows found by searches, recalls and reads"),
    "update": ("chatbot.memory.rows.changed", "Rows written, by operation"),
    "maintained": ("chatbot.memory.rows.maintained", "Rows that maintenance worked on"),
    "storage_retries": ("chatbot.storage.retries", "Repeated transactions of a database, by cause"),
}
"""Metrics by what is counted."""


class OtelObserver(Observer):
    """Turns spans and counts into those of OpenTelemetry."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        def histogram(name: str, about: str, borders: Sequence[float], unit: str = "s") -> Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=borders)

        self._tracer = tracer
        self._durations = {name: histogram(kind.metric, kind.about, kind.borders) for name, kind in _KINDS.items()}
        self._first_text = histogram(
            "chatbot.turn.first_text", "Time from a message to the first text of its reply", _CALL_S
        )
        self._tokens = histogram("gen_ai.client.token.usage", "Tokens of billed calls", _TOKENS, "{token}")
        self._counters = {
            what: meter.create_counter(name, description=about) for what, (name, about) in _COUNTERS.items()
        }
        self._sizes = _Sizes(meter)

    def begin(self, kind: str, labels: Mapping[str, Any]) -> Span:
        """Begin a span, and the time of its metric."""
        known = _KINDS[kind]
        if kind == "call":
            labels = {**labels, **_model_labels(labels["model"]), **_server_at(labels.get("server", ""))}
        span = self._tracer.start_span(known.title.format_map(labels), kind=known.role, attributes=dict(known.fixed))
        work = _OtelSpan(known, span, self._durations[kind])
        work.note(**labels)
        return work

    def count(self, what: str, amount: float, labels: Mapping[str, Any]) -> None:
        """Add to the metrics of `what`."""
        if what == "billed":
            self._add_call(**labels)
        elif what == "first_text":
            self._first_text.record(amount)
        else:
            named = _attributes(**labels)
            if what == "retrieve":
                self._counters["retrievals"].add(1, {**named, "chatbot.outcome": "hit" if amount else "miss"})
            if what in {"retrieve", "update"}:
                get_current_span().set_attribute("chatbot.rows", amount)
            self._counters[what].add(amount, named)

    def opened(self, memory: Any) -> None:
        """Measure a memory system, in the event loop that it is used in."""
        with suppress(RuntimeError):  # opened outside of a loop: its size stays unknown
            self._sizes.open[memory] = asyncio.get_running_loop()
            self._sizes.measured_at = -math.inf

    def closed(self, memory: Any) -> None:
        """Stop measuring it."""
        self._sizes.open.pop(memory, None)

    def _add_call(self, model: str, purpose: str, usage: Usage) -> None:
        known = _model_labels(model)
        labels = _attributes(model=known["model"], purpose=purpose)
        request = "embeddings" if purpose == "embed" else "chat"
        of_tokens = labels | _attributes(provider=known["provider"], request=request)
        self._tokens.record(usage.input_tokens, {**of_tokens, "gen_ai.token.type": "input"})
        self._tokens.record(usage.output_tokens, {**of_tokens, "gen_ai.token.type": "output"})
        if usage.cost_usd is None:
            self._counters["unpriced"].add(1, labels)
        else:
            self._counters["cost"].add(usage.cost_usd, labels)


@dataclass(slots=True)
class _OtelSpan(Span):
    """A span, the parent of what is done within its `with` block, and its time in a histogram."""

    _kind: _Kind
    _span: trace.Span
    _histogram: Histogram
    _labels: dict[str, AttributeValue] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)
    _token: Token[Context] = field(init=False)

    def note(self, **details: Any) -> None:
        """Add labels and details under their attributes."""
        usage = details.pop("usage", None)
        if usage is not None:
            details |= {name: getattr(usage, name) for name in usage.__struct_fields__}
        for name, value in details.items():
            attribute = _ATTRIBUTES.get(name)
            if attribute is not None and name in self._kind.labels:
                self._labels[attribute] = value
            elif attribute is not None and value is not None:
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.fail(kind.__name__, is_fault=issubclass(kind, Exception))
        detach(self._token)
        self.end()


class _Sizes:
    """Rows and bytes of the memory systems that are open; sums, so that no metric names one.

    They are measured when metrics are read, but not from a thread that runs an event loop: it could wait for itself.
    """

    def __init__(self, meter: Meter) -> None:
        self.open: dict[MemorySystem, asyncio.AbstractEventLoop] = {}
        self.measured_at = -math.inf
        self._lock = threading.Lock()
        self._rows, self._bytes = Counter[str](), Counter[str]()
        rows, taken = (lambda _: self._sums("chatbot.status")), (lambda _: self._sums("chatbot.part"))
        meter.create_observable_gauge("chatbot.memory.rows", [rows], description="Rows by status")
        meter.create_observable_gauge("chatbot.memory.storage", [taken], "By", "Size of memory")

    def _sums(self, label: str) -> list[Observation]:
        """Return the sums by that label; measured again if this thread runs no event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._measure()
        sums = self._rows if label == "chatbot.status" else self._bytes
        return [Observation(amount, {label: name}) for name, amount in sums.items()]

    def _measure(self) -> None:
        with self._lock:
            if time.monotonic() - self.measured_at < _MEASURED_EVERY_S:
                return
            self.measured_at = time.monotonic()
            rows, taken = Counter[str](), Counter[str]()
            for system, loop in list(self.open.items()):
                try:
                    stats = asyncio.run_coroutine_threadsafe(_stats(system), loop).result(_LONGEST_WAIT_S)
                    sizes = system.backend.sizes()
                except Exception as error:  # noqa: BLE001 - a plug-in, or a loop that has ended: the others still count
                    logger.info("one memory could not be measured: %s", type(error).__name__)
                    continue
                if stats is not None:
                    rows.update(stats.by_status)
                    taken.update({"observations": stats.journal_bytes or 0, "cache": stats.cache_bytes or 0})
                taken.update(sizes)
            self._rows, self._bytes = rows, taken


async def _stats(system: MemorySystem) -> Stats | None:
    memories = system.unobserved()
    return None if memories is None else await memories.stats(sensitivities=SENSITIVITIES)


def _attributes(**labels: str) -> dict[str, str]:
    return {_ATTRIBUTES[name]: value for name, value in labels.items()}


def _model_labels(model: str) -> dict[str, str]:
    """Return the provider by its name in the conventions, and the model without it, as dashboards expect both."""
    provider = provider_of(model)
    return {"provider": _PROVIDERS.get(provider, provider) or "litellm", "model": model.removeprefix(f"{provider}/")}


def _server_at(address: str) -> dict[str, str | int]:
    """Return host and port of an address, which may be only a host."""
    if not address:
        return {}
    try:
        parts = urlsplit(address if "//" in address else f"https://{address}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return {}
    return {"host": parts.hostname or "", "port": port}
