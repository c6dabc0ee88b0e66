"""`/v1/models`, the identities that the caller may talk to, and `/v1/embeddings`, vectors by the encoder of one."""

import base64
from array import array
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from chatbot.server.callers import ServerCaller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import EVERYWHERE, OF_IDENTITY, OF_MEMORY, OF_MODELS, UNSUPPORTED, Problem, invalid
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.wire import IdentityRequest, Lenient
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


async def access_of(identities: Identities, caller: ServerCaller, asked: IdentityRequest) -> IdentityAccess:
    """Return the access to the identity that a request names in `identity`, else in `model`."""
    caller = named_in(caller, user=asked.user, safety_identifier=asked.safety_identifier)
    name = asked.model if asked.identity is None else asked.identity
    if asked.identity is not None or identities.knows(caller, name):
        return await identities.access(caller, name)
    if name != DEFAULT:
        raise unknown_model(name)
    return await identities.access(caller)


def _texts(value: object) -> object:
    """Accept only texts: token numbers are those of another tokenizer."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise PydanticCustomError(
            UNSUPPORTED,
            "it must be a text or a list of texts, none of them empty; if your client sends token numbers, turn that "
            "off, for example with check_embedding_ctx_length=False",
        )
    return given


class EmbeddingsRequest(IdentityRequest):
    """Texts to embed with the encoder of the identity's memory."""

    input: Annotated[list[str], BeforeValidator(_texts), Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or the bytes of 32-bit floats, little-endian, in base64."""
    dimensions: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Dimensions of a vector; only those of the encoder are accepted."""


class Embeddings(Lenient):
    """The vectors, in the order of the texts, as OpenAI documents them."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    model: str
    """The encoder: vectors of different ones cannot be compared."""
    usage: dict[str, int]
    """Tokens that the encoder counted; of `local/auto` only those of English texts."""


@router.post("/embeddings", summary="Create embeddings", responses={**OF_IDENTITY, **OF_MODELS, 409: OF_MEMORY[409]})
async def embed(
    asked: Annotated[EmbeddingsRequest, Body()], identities: IdentitiesHere, caller: CallerHere
) -> Embeddings:
    """Compatible with OpenAI's API. Only the cost is stored."""
    access = await access_of(identities, caller, asked)
    access.memory.caller.check("chat")
    name, found = await access.embed(asked.input)
    size = len(found.vectors[0]) if found.vectors else 0
    if asked.dimensions not in {None, size}:
        raise invalid(f"{name} makes vectors of {size} numbers", "dimensions", UNSUPPORTED)
    numbers = [array("f", vector) for vector in found.vectors]
    is_text = asked.encoding_format == "base64"
    vectors = [base64.b64encode(each.tobytes()).decode() if is_text else list(each) for each in numbers]
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    read = found.usage.input_tokens
    return Embeddings(data=data, model=name, usage={"prompt_tokens": read, "total_tokens": read})
