"""Readiness of the server, and its metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import EVERYWHERE, Problem
from chatbot.stores.errors import StoreAway

if TYPE_CHECKING:
    from chatbot.telemetry.telemetry import Telemetry  # needs the extra


class Health(BaseModel):
    """State of the server."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    status: Literal["ok"] = "ok"
    """The server runs."""
    storage: Literal["ok", "away"]
    """`away` while the storage cannot be used; the server continues by itself once it can."""


router = APIRouter(tags=["server"])


@router.get("/health", summary="Health check")
async def health(identities: IdentitiesHere) -> Health:
    """Return 200 for as long as the server runs, with the state of the storage: no token is needed."""
    return Health(storage="ok" if await identities.storage.error() is None else "away")


@router.get("/ready", summary="Check whether requests can be served", responses={503: EVERYWHERE[503]})
async def ready(identities: IdentitiesHere) -> Health:
    """Return 503 while the storage cannot be used, so that a load balancer asks another server: no token is needed."""
    if error := await identities.storage.error():
        raise error if isinstance(error, StoreAway) else StoreAway(str(error)) from error
    return Health(storage="ok")


def router_for(telemetry: Telemetry) -> APIRouter:
    """Return the route of these metrics."""
    router = APIRouter(tags=["server"], responses=EVERYWHERE)

    @router.get(
        "/metrics",
        summary="Metrics in the format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "The metrics."}},
    )
    async def metrics(request: Request, identities: IdentitiesHere, caller: CallerHere) -> Response:
        """Return the metrics to a metrics token, or one that opens every identity with full clearance."""
        if not identities.may_read_metrics(caller):
            why = "this token does not open the metrics: `chatbot token add LABEL --metrics` creates one that does"
            raise Problem(403, "metrics_not_allowed", why)
        body, media_type = await asyncio.to_thread(telemetry.read, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    return router
