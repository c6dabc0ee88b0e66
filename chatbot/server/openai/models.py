"""`/v1/models`: the identities that the caller may talk to, each as a model."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from chatbot.server.dependencies import CallerHere, HouseHere
from chatbot.server.errors import UNKNOWN, UNSUPPORTED, Problem, Refused, invalid
from chatbot.server.responses import EVERYWHERE, OF_IDENTITY

router = APIRouter(prefix="/v1/models", tags=["openai"], responses=EVERYWHERE)


class Model(BaseModel):
    """An identity, as a client of OpenAI sees it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    """The identity's name: what to ask for as `model`."""
    object: Literal["model"] = "model"
    """What this is."""
    created: int = 0
    """Unknown, and so 0."""
    owned_by: str = "chatbot"
    """Always the same."""


class Models(BaseModel):
    """All of them, the one first that answers when none is asked for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    object: Literal["list"] = "list"
    """What this is."""
    data: list[Model]
    """The identities."""


@router.get("", summary="List the identities that you may talk to")
async def list_models(house: HouseHere, caller: CallerHere) -> Models:
    """Each identity is a model. Which model stands behind it is its own business."""
    return Models(data=[Model(id=name) for name in house.identities(caller)])


@router.get("/{name}", summary="One of them", responses={404: OF_IDENTITY[404]})
async def get_model(
    name: Annotated[str, Path(description="An identity's name.")], house: HouseHere, caller: CallerHere
) -> Model:
    """An identity, if you may talk to it."""
    if name not in house.identities(caller):
        raise Refused(unknown_model(name))
    return Model(id=name)


def unknown_model(name: str) -> Problem:
    """The problem for a model that is not there, or that the caller may not know."""
    return Problem(404, UNKNOWN, "model_not_found", f"there is no model {name!r:.80}: see /v1/models", "model")


def unsupported(param: str, why: str) -> Refused:
    """The refusal of something that OpenAI has and we have not."""
    return Refused(invalid(why, param, UNSUPPORTED))
