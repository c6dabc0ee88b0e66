"""Telemetry of any number of runtimes, and its end."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import TracerProvider, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from chatbot.stores.lifecycle import AsyncResource
from chatbot.telemetry.otel import OtelObserver

logger = logging.getLogger(__name__)

_SCOPE = "chatbot"
_FAREWELL_S = 2.0


class Telemetry(AsyncResource):
    """Sends spans and metrics of any number of runtimes to these providers, which may be the caller's.

    `registry` is the source of metrics in the format of Prometheus. `shut_down` sends the rest; it is called at the
    end, on a thread, and waited for two seconds at most.
    """

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        *,
        registry: CollectorRegistry | None = None,
        shut_down: Callable[[], None] = lambda: None,
    ) -> None:
        meter = meters.get_meter(_SCOPE)
        self.observer = OtelObserver(tracers.get_tracer(_SCOPE), meter)
        self._registry = registry
        self._reading = threading.Lock()
        self._shut_down: Callable[[], None] | None = shut_down

    @property
    def can_be_read(self) -> bool:
        """True where there are metrics to `read`."""
        return self._registry is not None

    def read(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics, in the form that an `Accept` header asks for, and its media type. Call it on a thread."""
        if self._registry is None:
            raise RuntimeError("metrics are not collected for Prometheus")
        encode, media_type = choose_encoder(accept)
        with self._reading:  # the collector keeps what it collects in one place
            return encode(self._registry), media_type

    async def aclose(self) -> None:
        """Send the rest, within two seconds. May be called twice."""
        shut_down, self._shut_down = self._shut_down, None
        if shut_down is None:
            return
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            shut_down()
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=end, name="telemetry ends", daemon=True).start()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await done.wait()
        except TimeoutError:
            logger.warning("the last telemetry was not taken within %g s: see endpoint in [telemetry]", _FAREWELL_S)


_HEADER = "traceparent"
_ASGI = Callable[[Any, Any, Any], Awaitable[None]]


class Joining:
    """ASGI middleware: the spans of a request join the trace that its `traceparent` names.

    It comes after authentication, so that only known callers join traces. The sender chose the id and the flag: the
    flag can leave spans out, but never send more of them than `sample` allows. Nothing else of the header, and nothing
    of `tracestate` or `baggage`, is read or sent.
    """

    def __init__(self, app: _ASGI) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request within the trace that it names."""
        if scope["type"] != "http" or get_current_span().get_span_context().is_valid:  # or an embedding program did it
            return await self._app(scope, receive, send)
        token = attach(_parent(scope["headers"]))
        try:
            return await self._app(scope, receive, send)
        finally:
            detach(token)


def sampler(share: float) -> Sampler:
    """Return a sampler of that share of traces, also of those that began elsewhere and are flagged as sampled."""
    return ParentBased(TraceIdRatioBased(share), remote_parent_sampled=_Drawn(share))


def _parent(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    """Return the context of the named span; the present one if the header is malformed, missing or repeated."""
    named = [value for name, value in headers if name == _HEADER.encode()]
    carrier = {_HEADER: named[0].decode("latin-1")} if len(named) == 1 else {}
    return TraceContextTextMapPropagator().extract(carrier, get_current())


class _Drawn(TraceIdRatioBased):
    """Decides at random, because the id of a foreign trace may have been chosen to be sampled always."""

    def should_sample(self, parent_context: Context | None, trace_id: int, *more: Any, **named: Any) -> SamplingResult:
        del parent_context, trace_id  # chosen by the sender
        return super().should_sample(None, random.getrandbits(64), *more, **named)
