"""`/v1/models`: the identities that the caller may talk to, each as a model."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from chatbot.messages import CallOptions
from chatbot.runtime import Runtime
from chatbot.server.callers import ServerCaller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import EVERYWHERE, OF_IDENTITY, UNSUPPORTED, Problem, invalid
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.wire import IdentityRequest, Lenient
from chatbot.server.request_values import named_in

DEFAULT = "default"
router = APIRouter(prefix="/v1/models", tags=["openai"], responses=EVERYWHERE)


class ModelCapabilities(Lenient):
    """Capabilities of an identity, as its model and its settings allow."""

    context_window: int
    """Tokens that prompt and reply may take together."""
    tools: bool
    """It can call your tools."""
    json_object: bool
    """It supports JSON replies."""
    json_schema: bool
    """It supports replies by a schema."""
    logprobs: bool
    """It supports log probabilities."""
    sessions: bool
    """It keeps conversations."""
    memory: bool
    """It remembers other conversations."""
    embeddings: str | None
    """The encoder behind `/v1/embeddings`, if there is one."""


class ModelEntry(Lenient):
    """An identity, as a client of OpenAI sees it."""

    id: str
    """The identity's name: what to ask for as `model`."""
    object: Literal["model"] = "model"
    created: int
    """When its `identity.toml` was last written, in seconds since 1970; 0 if it has none."""
    owned_by: str = "chatbot"


class ModelInFull(ModelEntry):
    """An identity, and what it can do."""

    capabilities: ModelCapabilities


class Models(Lenient):
    """All identities, the default one first."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@router.get("", summary="List the identities that you may talk to")
async def list_models(identities: IdentitiesHere, caller: CallerHere) -> Models:
    """Each identity is a model. The model behind it is not shown."""
    return Models(
        data=[ModelEntry(id=name, created=identities.written_at(name)) for name in identities.names_for(caller)]
    )


@router.get("/{name}", summary="One of them, with what it can do", responses={404: OF_IDENTITY[404]})
async def get_model(
    name: Annotated[str, Path(description="An identity's name.")], identities: IdentitiesHere, caller: CallerHere
) -> ModelInFull:
    """An identity, if you may talk to it. The first time its model is loaded for it."""
    if not identities.knows(caller, name):
        raise unknown_model(name)
    access = await identities.access(caller, name)
    return ModelInFull(id=name, created=identities.written_at(name), capabilities=await _capabilities(access.runtime))


async def _capabilities(runtime: Runtime) -> ModelCapabilities:
    schema = {"type": "json_schema", "json_schema": {"name": "any", "schema": {}}}
    can_format = not await runtime.model.unknown_options(CallOptions(response_format=schema))
    return ModelCapabilities(
        context_window=await runtime.model.context_window(),
        tools=runtime.model.supports_tools,
        json_object=can_format,
        json_schema=can_format,
        logprobs=not await runtime.model.unknown_options(CallOptions(logprobs=True)),
        sessions=bool(runtime.store_types),
        memory=runtime.remembers,
        embeddings=runtime.config.embedding.model or None,
    )


def unknown_model(name: str) -> Problem:
    """The problem for a model that is not there, or that the caller may not know."""
    return Problem(404, "model_not_found", f"unknown model {name!r:.80}: see /v1/models", "model")


async def access_of(identities: Identities, caller: ServerCaller, asked: IdentityRequest) -> IdentityAccess:
    """Return the identity that is asked: `identity`, else `model`, which is the name of an identity too."""
    caller = named_in(caller, user=asked.user, safety_identifier=asked.safety_identifier)
    if asked.identity is not None:
        return await identities.access(caller, asked.identity)
    is_known = identities.knows(caller, asked.model)
    if asked.model == DEFAULT and not is_known:
        return await identities.access(caller)
    if not is_known:
        raise unknown_model(asked.model)
    return await identities.access(caller, asked.model)


def unsupported(param: str, why: str) -> Problem:
    """Return the error for a parameter of OpenAI's that is not supported."""
    return invalid(why, param, UNSUPPORTED)
