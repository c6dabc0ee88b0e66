"""`/v1/models`: the identities that the caller may talk to."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from chatbot.server.callers import ServerCaller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import EVERYWHERE, OF_IDENTITY, Problem
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.wire import Lenient, ReplyFields
from chatbot.server.request_values import named_in

DEFAULT = "default"
router = APIRouter(prefix="/v1", tags=["openai"], responses=EVERYWHERE)


class ModelEntry(Lenient):
    """An identity, as a client of OpenAI sees it."""

    id: str
    """The identity's name, to be sent as `model`."""
    object: Literal["model"] = "model"
    created: int
    """When its `identity.toml` was last written, in seconds since 1970; 0 if it has none."""
    owned_by: str = "chatbot"


class Models(Lenient):
    """All identities, the default one first."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@router.get("/models", summary="List the identities that you may talk to")
async def list_models(identities: IdentitiesHere, caller: CallerHere) -> Models:
    """Each identity is a model. The model behind it is not shown."""
    return Models(
        data=[ModelEntry(id=name, created=identities.written_at(name)) for name in identities.names_for(caller)]
    )


@router.get("/models/{name}", summary="Get an identity", responses={404: OF_IDENTITY[404]})
async def get_model(
    name: Annotated[str, Path(description="An identity's name.")], identities: IdentitiesHere, caller: CallerHere
) -> ModelEntry:
    """Return an identity that you may talk to."""
    if not identities.knows(caller, name):
        raise unknown_model(name)
    return ModelEntry(id=name, created=identities.written_at(name))


def unknown_model(name: str) -> Problem:
    """Return the error for a model that does not exist or is hidden from the caller."""
    return Problem(404, "model_not_found", f"unknown model {name!r:.80}: see /v1/models", "model")


async def access_of(identities: Identities, caller: ServerCaller, asked: ReplyFields) -> IdentityAccess:
    """Return the access to the identity that a request names in `identity`, else in `model`."""
    caller = named_in(caller, user=asked.user, safety_identifier=asked.safety_identifier)
    name = asked.model if asked.identity is None else asked.identity
    if asked.identity is not None or identities.knows(caller, name):
        return await identities.access(caller, name)
    if name != DEFAULT:
        raise unknown_model(name)
    return await identities.access(caller)
