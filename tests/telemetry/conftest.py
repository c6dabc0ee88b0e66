"""Observers of these tests: the SDK itself, which keeps the spans; metrics are read as Prometheus reads them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
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
from tests.talk import begun
from tests.telemetry.collector import Collector, collecting

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
        """Those of that name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one of that name."""
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
        """All metrics, as they are read."""
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
