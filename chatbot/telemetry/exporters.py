"""Make providers from settings: they send spans and metrics on background threads.

If a collector cannot be reached, its data is lost and one line is logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider
from opentelemetry.trace import TracerProvider as AnyTracerProvider
from prometheus_client import CollectorRegistry

from chatbot.config import TelemetrySettings, from_variable
from chatbot.redaction import without_secrets
from chatbot.telemetry.telemetry import Telemetry, sampler

logger = logging.getLogger(__name__)

_REASON = re.compile(r"\[Errno -?\d+\] ([^\"')]+)|code: (\d+), reason: (.+)")


def telemetry_of(settings: TelemetrySettings, *, serves: bool) -> Telemetry:
    """Collect what the settings ask for. Raises `ConfigError` where a header names a variable that is not set."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs every try into the terminal of a chat
    resource = Resource.create(
        {
            "service.name": settings.service,
            "service.version": version("chatbot-runtime"),
            "service.instance.id": str(uuid4()),  # several servers may send to one collector
        }
    )
    registry = CollectorRegistry() if serves and settings.prometheus else None
    readers: list[MetricReader] = []
    if registry is not None:
        readers.append(PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry))
    endings: list[Callable[[], None]] = []
    tracers: AnyTracerProvider = NoOpTracerProvider()
    if settings.endpoint:
        tracers = _tracers(settings, resource)
        endings.append(tracers.shutdown)
        readers.append(_sender(settings))
    meters = MeterProvider(readers, resource, AlwaysOffExemplarFilter(), shutdown_on_exit=False)
    endings.append(meters.shutdown)
    return Telemetry(tracers, meters, registry=registry, shut_down=lambda: _all(endings))


def check(settings: TelemetrySettings) -> None:
    """Raise `ConfigError` like `telemetry_of`; nothing is collected."""
    _target(settings, "traces")


def refusal(settings: TelemetrySettings) -> str:
    """Send the collector empty data; return why it refuses, empty if it accepts. Blocking."""
    heard = _FirstWarning(logging.WARNING)
    library = logging.getLogger("opentelemetry")
    library.addHandler(heard)
    library.propagate = False
    try:
        OTLPSpanExporter(**_target(settings, "traces")).export([])
        OTLPMetricExporter(**_target(settings, "metrics")).export(MetricsData([]))
    finally:
        library.removeHandler(heard)
        library.propagate = True
    return heard.said


def _tracers(settings: TelemetrySettings, resource: Resource) -> TracerProvider:
    tracers = TracerProvider(sampler(settings.sample), resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(_SpanExporter(**_target(settings, "traces"))))
    return tracers


def _sender(settings: TelemetrySettings) -> PeriodicExportingMetricReader:
    exporter = _MetricExporter(**_target(settings, "metrics"))
    return PeriodicExportingMetricReader(exporter, settings.interval_s * 1e3, settings.timeout_s * 1e3)


def _target(settings: TelemetrySettings, signal: str) -> dict[str, Any]:
    headers = {
        name: from_variable(value, f"{name!r} in [telemetry.headers]") for name, value in settings.headers.items()
    }
    return {
        "endpoint": f"{settings.endpoint.rstrip('/')}/v1/{signal}",
        "headers": headers,
        "timeout": settings.timeout_s,
    }


def _all(endings: list[Callable[[], None]]) -> None:
    for end in endings:
        try:
            end()
        except Exception as error:  # noqa: BLE001 - the library must not keep the program from ending
            logger.info("telemetry did not end in order: %s", type(error).__name__)


class _FirstWarning(logging.Handler):
    """Keeps the first warning of the library, shortened where it has a known form."""

    said = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first message."""
        text = record.getMessage()
        found = _REASON.search(text)
        self.said = self.said or (" ".join(filter(None, found.groups())) if found else text)


class _Warning:
    """Warns once that nothing arrives, and again after something has."""

    _has_failed = False
    _endpoint: str

    def export(self, *arguments: Any, **options: Any) -> Any:
        result = super().export(*arguments, **options)  # type: ignore[misc]
        failed = result.name != "SUCCESS"
        if failed and not self._has_failed:
            logger.warning("%s takes no telemetry: see endpoint in [telemetry]", without_secrets(self._endpoint))
        self._has_failed = failed
        return result


class _SpanExporter(_Warning, OTLPSpanExporter):
    """Sends spans."""


class _MetricExporter(_Warning, OTLPMetricExporter):
    """Sends metrics."""
