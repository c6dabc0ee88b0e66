"""Traces that begin elsewhere: the spans of a request join the trace that its `traceparent` names.

The sender chose the id and the flag: the flag can leave spans out, but never send more of them than `sample` allows.
Nothing else of the header, and nothing of `tracestate` or `baggage`, is read or sent.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_HEADER = "traceparent"
_ASGI = Callable[[Any, Any, Any], Awaitable[None]]


class Joining:
    """ASGI middleware. It comes after authentication, so that only known callers join traces."""

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
