"""`/v1/embeddings`: vectors of texts, by the encoder that an identity's memory uses."""

from __future__ import annotations

import base64
from array import array
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import OF_IDENTITY, OF_MEMORY, OF_MODELS, UNSUPPORTED
from chatbot.server.openai.models import access_of, unsupported
from chatbot.server.openai.wire import IdentityRequest, Lenient
from chatbot.stores.vectors import Vector

router = APIRouter(prefix="/v1/embeddings", tags=["openai"], responses=OF_IDENTITY)
_MOST_TEXTS = 2048


def _texts(value: object) -> object:
    """Accept only texts: token numbers are those of another tokenizer than ours."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise PydanticCustomError(
            UNSUPPORTED,
            "it should be a text or a list of texts, none of them empty; if your client sends token numbers, turn that "
            "off, for example with check_embedding_ctx_length=False",
        )
    return given


class AskedEmbeddings(IdentityRequest):
    """Texts to be turned into vectors, by the encoder of the identity's memory."""

    input: Annotated[list[str], BeforeValidator(_texts), Field(min_length=1, max_length=_MOST_TEXTS)]
    """One text, or several."""
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
    """Tokens that were read."""


@router.post("", summary="Turn texts into vectors", responses={**OF_MODELS, 409: OF_MEMORY[409]})
async def embed(
    asked: Annotated[AskedEmbeddings, Body()], identities: IdentitiesHere, caller: CallerHere
) -> Embeddings:
    """Compatible with OpenAI's. Nothing is kept but the cost."""
    access = await access_of(identities, caller, asked)
    access.check_chat()
    name, found = await access.runtime.embed(asked.input, payers=access.payers)
    size = len(found.vectors[0]) if found.vectors else 0
    if asked.dimensions not in {None, size}:
        raise unsupported("dimensions", f"{name} makes vectors of {size} numbers")
    vectors = [_encoded(vector, asked.encoding_format) for vector in found.vectors]
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    read = found.usage.input_tokens
    return Embeddings(data=data, model=name, usage={"prompt_tokens": read, "total_tokens": read})


def _encoded(vector: Vector, form: str) -> Any:
    numbers = array("f", vector)
    return base64.b64encode(numbers.tobytes()).decode() if form == "base64" else list(numbers)
