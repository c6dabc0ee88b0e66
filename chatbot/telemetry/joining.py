"""Traces that begin elsewhere: what a request does joins the one that its `traceparent` names.

Whoever sends it chose the id and the flag, and their word can leave their spans out, but never get more of them sent
than `sample` lets through. Nothing else of the header, and nothing of `tracestate` or `baggage`, is read or told.
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
    """ASGI middleware; it belongs behind the doors, where only those come who were let in."""

    def __init__(self, app: _ASGI) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] != "http" or get_current_span().get_span_context().is_valid:  # or whoever embeds us did it
            return await self._app(scope, receive, send)
        token = attach(_parent(scope["headers"]))
        try:
            return await self._app(scope, receive, send)
        finally:
            detach(token)


def sampler(share: float) -> Sampler:
    """Takes that share of traces, and no larger one of those that began elsewhere and of which their flag says so."""
    return ParentBased(TraceIdRatioBased(share), remote_parent_sampled=_Drawn(share))


def _parent(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    """With the span that is named; as it is where it is malformed, or there is not exactly one."""
    named = [value for name, value in headers if name == _HEADER.encode()]
    carrier = {_HEADER: named[0].decode("latin-1")} if len(named) == 1 else {}
    return TraceContextTextMapPropagator().extract(carrier, get_current())


class _Drawn(TraceIdRatioBased):
    """Draws a lot for each: an id that came from elsewhere may have been chosen for being taken always."""

    def should_sample(self, parent_context: Context | None, trace_id: int, *more: Any, **named: Any) -> SamplingResult:
        del parent_context, trace_id  # which a stranger chose
        return super().should_sample(None, random.getrandbits(64), *more, **named)
