"""Health of a server: it runs, and its storage answers. No token is needed, so nothing else is told."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from chatbot.server.dependencies import IdentitiesHere
from chatbot.server.error_responses import OF_STORAGE
from chatbot.stores.errors import StoreAway


class Health(BaseModel):
    """State of the server."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    status: Literal["ok"] = "ok"
    """The server runs."""
    storage: Literal["ok", "away"]
    """`away` while the storage cannot be used; the server goes on by itself once it can."""


router = APIRouter(tags=["server"])


@router.get("/health", summary="Health check")
async def health(identities: IdentitiesHere) -> Health:
    """Return 200 for as long as the server runs, with the state of the storage: no token is needed."""
    return Health(storage="ok" if await identities.storage.error() is None else "away")


@router.get("/ready", summary="Check whether requests can be served", responses=OF_STORAGE)
async def ready(identities: IdentitiesHere) -> Health:
    """Return 503 while the storage cannot be used, so that a load balancer asks another server: no token is needed."""
    if error := await identities.storage.error():
        raise error if isinstance(error, StoreAway) else StoreAway(str(error)) from error
    return Health(storage="ok")
