"""A collector on loopback that takes OTLP over HTTP for real, or does not."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.patience import PATIENCE_S
from tests.servers.in_thread import answering

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
        """The requests with spans."""
        return [ExportTraceServiceRequest.FromString(body) for path, _, body in self.bodies if path == "/v1/traces"]

    def spans(self) -> list[Span]:
        """All spans."""
        return [
            span
            for request in self.traces()
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> set[str]:
        """The names of all metrics."""
        return {
            metric.name
            for path, _, body in self.bodies
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def wait_for(self, path: str, seconds: float = PATIENCE_S) -> None:
        """Until a request to that path has come."""
        give_up = time.monotonic() + seconds
        while not any(each == path for each, *_ in self.bodies):
            assert time.monotonic() < give_up, f"nothing came to {path}"
            time.sleep(0.01)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that runs."""

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
