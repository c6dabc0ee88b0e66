"""Prometheus metrics of all identities, which not every token may read."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.error_responses import EVERYWHERE
from chatbot.server.errors import DENIED, Problem, ProblemError
from chatbot.telemetry.telemetry import Telemetry


def router_for(telemetry: Telemetry) -> APIRouter:
    """The route of these metrics."""
    router = APIRouter(tags=["server"], responses=EVERYWHERE)

    @router.get(
        "/metrics",
        summary="Metrics in the format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "All of them."}},
    )
    async def metrics(request: Request, identities: IdentitiesHere, caller: CallerHere) -> Response:
        """Return the metrics to a metrics token, or one that opens every identity with full clearance."""
        if not identities.may_read_metrics(caller):
            raise ProblemError(
                Problem(
                    403,
                    DENIED,
                    "metrics_not_allowed",
                    "this token does not open the metrics: `chatbot token add LABEL --metrics` makes one that does",
                )
            )
        body, media_type = await asyncio.to_thread(telemetry.read, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    return router
