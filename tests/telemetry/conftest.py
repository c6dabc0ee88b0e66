"""Observers of these tests: the SDK itself, which keeps the spans; metrics are read as Prometheus reads them."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from chatbot.memory import SessionHandle
from chatbot.models.model import Model
from chatbot.runtime import Options, Runtime
from chatbot.telemetry.telemetry import Telemetry
from tests.command import project
from tests.patience import PATIENCE_S
from tests.servers.in_thread import answering
from tests.talk import begun

HANGS = 0
"""In place of a status: never answer."""


class Collector:
    """Return what has arrived so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.bodies: list[tuple[str, dict[str, str], bytes]] = []
        self.leaving = threading.Event()

    def traces(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for path, _, body in self.bodies if path == "/v1/traces"]

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.traces()
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> set[str]:
        return {
            metric.name
            for path, _, body in self.bodies
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def wait_for(self, path: str, seconds: float = PATIENCE_S) -> None:
        give_up = time.monotonic() + seconds
        while not any(each == path for each, *_ in self.bodies):
            assert time.monotonic() < give_up, f"nothing came to {path}"
            time.sleep(0.01)


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        to: ClassVar[Collector]

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.to.bodies.append((self.path, dict(self.headers), body))
            if self.to.status == HANGS:
                self.to.leaving.wait(PATIENCE_S)
                return
            self.send_response(self.to.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with answering(Handler, ThreadingHTTPServer) as address:
        Handler.to = Collector(address)
        try:
            yield Handler.to
        finally:
            Handler.to.leaving.set()


Talking = Callable[..., AbstractAsyncContextManager[tuple[Runtime, SessionHandle]]]


@dataclass
class Watched:
    """Return what was reported."""

    telemetry: Telemetry
    exporter: InMemorySpanExporter
    tracers: TracerProvider

    @property
    def spans(self) -> list[ReadableSpan]:
        """All that have ended, the one that began first first."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def above(self, span: ReadableSpan) -> list[str]:
        """The names of all that it is within, the innermost first."""
        by_id = {each.context.span_id: each for each in self.spans if each.context}
        names = []
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            names.append(span.name)
        return names

    def text(self) -> str:
        return self.telemetry.read()[0].decode()

    def value(self, sample: str, **labels: str) -> float:
        """The sum of all samples of that name that have these labels, dots written as underscores."""
        return value_in(self.text(), sample, **labels)


def value_in(text: str, sample: str, **labels: str) -> float:
    """The sum of all samples of that name that have these labels."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return sum(each.value for each in samples if each.name == sample and labels.items() <= each.labels.items())


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def watched() -> Iterator[Watched]:
    exporter, registry = InMemorySpanExporter(), CollectorRegistry()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    yield Watched(Telemetry(tracers, meters, registry=registry), exporter, tracers)
    tracers.shutdown()
    meters.shutdown()


@pytest.fixture
def talking(watched: Watched) -> Talking:
    """Opens a runtime that is watched, and a session."""

    @asynccontextmanager
    async def opened(
        model: Model, settings: str = "", *, identity: str = "ada"
    ) -> AsyncIterator[tuple[Runtime, SessionHandle]]:
        project(settings, identity)
        async with Runtime(Options(identity=identity, telemetry=watched.telemetry), model=model) as runtime:
            yield runtime, (await begun(runtime))[0]

    return opened
