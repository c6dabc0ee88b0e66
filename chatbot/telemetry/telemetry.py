"""Telemetry of any number of runtimes: setup, traces that callers begin, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk import metrics, trace
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import NoOpTracerProvider, TracerProvider, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from chatbot.config import TelemetrySettings, from_variable
from chatbot.stores.base import AsyncResource
from chatbot.stores.text.redaction import without_secrets
from chatbot.telemetry.otel import OtelObserver

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
    def of(cls, settings: TelemetrySettings, *, serves: bool) -> Telemetry:
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
            tracers = trace.TracerProvider(sampler(settings.sample), resource, shutdown_on_exit=False)
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


def sampler(share: float) -> Sampler:
    """Return a sampler of that share of traces, including those that callers began and flagged as sampled."""
    return ParentBased(TraceIdRatioBased(share), remote_parent_sampled=_RandomSampler(share))


class _RandomSampler(TraceIdRatioBased):
    """Sampler that decides at random, because a caller may choose a trace id that is always sampled."""

    def should_sample(self, parent_context: Context | None, trace_id: int, *more: Any, **named: Any) -> SamplingResult:
        del parent_context, trace_id  # chosen by the sender
        return super().should_sample(None, random.getrandbits(64), *more, **named)


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
