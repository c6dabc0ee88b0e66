"""`/v1/profile/{key}`: setting, pinning and forgetting lines of the profile, and their history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from starlette.responses import JSONResponse

from chatbot.memory.profile import LONGEST_KEY
from chatbot.server.dependencies import AccessHere
from chatbot.server.errors import OF_MEMORY, Responses
from chatbot.server.idempotency import WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.lists import Page
from chatbot.server.request_values import VISIBLE, Flag, Moment, Named
from chatbot.server.shapes import Line, RequestBody, Shape
from chatbot.stores.access import Sensitivity
from chatbot.stores.errors import UnknownObservation

router = APIRouter(prefix="/v1/profile", tags=["memory"], responses=OF_MEMORY)

Key = Annotated[
    str,
    Path(max_length=LONGEST_KEY, pattern=VISIBLE, description="The key, such as `home`, or the id of one line."),
]


class OpenProposal(Shape):
    """A value that becomes valid once a person accepts it."""

    proposed: str
    """The id of the proposal, for `/v1/profile/proposals/{memory_id}`."""


class NewValue(RequestBody):
    """A value to set."""

    value: Named
    since: Moment | None = None
    """When it became valid; default: now."""
    also: Flag = False
    """True to add it to the values of the key; otherwise it replaces them."""
    sensitivity: Sensitivity | None = None
    """How sensitive it is; default: as the other values of the key."""


class Pin(RequestBody):
    """Where a key is shown."""

    pinned: Flag = True
    """True shows it in every prompt."""


@router.get("/{key}/history", summary="List all values that a key had, oldest first")
async def key_history(key: Key, access: AccessHere) -> Page[Line]:
    """Each with its dates."""
    return Page(data=[Line.of(line) for line in await access.memories.profile_history(key)])


_PROPOSED: Responses = {202: {"model": OpenProposal, "description": "Proposed: the caller has not the right `chat`."}}


@router.put("/{key}", summary="Give a key a value", response_model=Line, responses=_PROPOSED)
async def set_value(
    key: Key, access: AccessHere, given: Annotated[NewValue, Body()], writing: WritingHere
) -> Line | JSONResponse:
    """The one before stays in the history. Without the right `chat` the value is only proposed."""
    if writing.before is not None:
        return await _kept(access, key, writing.before["id"])
    kept = await access.memories.profile_set(key, **given.model_dump())
    writing.note(id=kept.id)
    return await _kept(access, key, kept.id)


@router.put("/{key}/pin", summary="Show a key in every prompt, or no longer", status_code=204)
async def pin_key(key: Key, access: AccessHere, given: Annotated[Pin, Body()]) -> None:
    """Pinned lines come first."""
    await access.memories.profile_pin(key, pinned=given.pinned)


@router.delete("/{key}", summary="Forget a key and its history", status_code=204)
async def forget_key(key: Key, access: AccessHere) -> None:
    """Forget a line of the profile. The messages stay."""
    await access.memories.profile_forget(key)


async def _kept(access: IdentityAccess, key: str, memory_id: str) -> Line | JSONResponse:
    """Return the stored value: a line, or a proposal."""
    if any(row.id == memory_id for row in await access.memories.profile_proposals()):
        return JSONResponse(OpenProposal(proposed=memory_id).model_dump(), 202)
    return await _line(access, key, memory_id)


async def _line(access: IdentityAccess, key: str, line_id: str) -> Line:
    for line in await access.memories.profile_history(key):  # it may have ended before
        if line.id == line_id:
            return Line.of(line)
    raise UnknownObservation(f"no line has the id {line_id}")
