"""A piece of work that is watched: a span, the parent of what is done within, and its time in a histogram."""

from __future__ import annotations

import time
from contextvars import Token
from types import TracebackType
from typing import Self

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from chatbot.telemetry.instruments import Instruments
from chatbot.telemetry.names import ERROR

Attributes = dict[str, AttributeValue]


class Work:
    """Some work from its beginning to `end`. `labels` stand in the metric and in the span, `details` in the span alone.

    `with` also makes it the parent of all work within, in whichever task. Only for code that runs in one context: not
    around the `yield` of a generator, which may be closed in another.
    """

    __slots__ = ("_begun", "_histogram", "_token", "labels", "span")

    def __init__(self, span: Span, histogram: Histogram, labels: Attributes) -> None:
        self.span = span
        self.labels = labels
        """May be added to until it ends."""
        self._histogram = histogram
        self._begun = time.perf_counter()
        self._token: Token[Context] | None = None

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._begun

    def note(self, details: Attributes) -> None:
        """Add to the span."""
        self.span.set_attributes(details)

    def fail(self, error_type: str, *, is_fault: bool = True) -> None:
        """It went wrong, or was only stopped."""
        self.labels[ERROR] = error_type
        if is_fault:
            self.span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """It is over."""
        self._histogram.record(self.seconds, self.labels)
        self.span.set_attributes(self.labels)
        self.span.end()

    def __enter__(self) -> Self:
        self._token = attach(set_span_in_context(self.span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__, is_fault=issubclass(kind, Exception))
        if self._token is not None:
            detach(self._token)
        self.end()


class Watch:
    """Begins pieces of work."""

    def __init__(self, tracer: Tracer, instruments: Instruments) -> None:
        self._tracer = tracer
        self.instruments = instruments

    def begin(
        self,
        name: str,
        histogram: Histogram,
        labels: Attributes,
        details: Attributes | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Work:
        """Work that begins now."""
        return Work(self._tracer.start_span(name, kind=kind, attributes=details), histogram, labels)
