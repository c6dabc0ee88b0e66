"""`/v1/profile`: what holds of the caller, with its dates, its source and its history."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query
from starlette.responses import JSONResponse

from chatbot.memory.profile import LONGEST_SLOT
from chatbot.memory.profile_lines import OWN
from chatbot.memory.profile_lines import Line as Known
from chatbot.server.dependencies import AccessHere
from chatbot.server.error_responses import OF_MEMORY, Responses
from chatbot.server.idempotency import WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.request_values import VISIBLE, Flag, Moment, Named
from chatbot.server.shapes import RequestBody, Shape
from chatbot.stores.access import Sensitivity
from chatbot.stores.errors import UnknownObservation

router = APIRouter(prefix="/v1/profile", tags=["memory"], responses=OF_MEMORY)

Slot = Annotated[
    str,
    Path(max_length=LONGEST_SLOT, pattern=VISIBLE, description="The slot, such as `home`, or the id of one line."),
]


class Line(Shape):
    """One value of a slot."""

    id: str
    """The id of the memory that it is."""
    slot: str
    """The slot, such as `home`."""
    value: str
    """Its value."""
    title: str
    """The value as it is told in a prompt."""
    valid_from: datetime
    """When it began to hold."""
    valid_to: datetime | None
    """When it ceased to hold; null while it holds."""
    said_at: datetime
    """When it was said last."""
    ended: bool
    """True if the value does not hold, or no longer does."""
    pinned: bool
    """True if it is shown in every prompt."""
    by: str
    """How it was set: `rule`, `model` or `person`."""
    sources: tuple[str, ...]
    """The ids of the memories that it was taken from."""
    sensitivity: Sensitivity
    """How delicate it is."""


class OpenProposal(Shape):
    """A value that holds once a person accepts it."""

    proposed: str
    """The id of the proposal, for `/v1/profile/proposals/{memory_id}`."""


class NewValue(RequestBody):
    """A value to set."""

    value: Named
    """Its value."""
    since: Moment | None = None
    """When it began to hold; default: now."""


class Pin(RequestBody):
    """Where a slot is shown."""

    pinned: Flag = True
    """True shows it in every prompt."""


class Profile(Shape):
    """Lines of a profile."""

    data: tuple[Line, ...]
    """The lines, pinned ones first."""


@router.get("", summary="Show the profile")
async def show_profile(
    access: AccessHere,
    *,
    as_of: Annotated[Moment | None, Query(description="What was true at that time.")] = None,
    known_at: Annotated[Moment | None, Query(description="What was known at that time.")] = None,
) -> Profile:
    """Profile of the caller now, or as it was true, or known, at a time."""
    return _told(await access.memories.profile(as_of=as_of, known_at=known_at, ask=OWN))


@router.get("/{slot}/history", summary="List all values that a slot had, oldest first")
async def slot_history(slot: Slot, access: AccessHere) -> Profile:
    """Each with its dates."""
    return _told(await access.memories.profile_history(slot))


_PROPOSED: Responses = {202: {"model": OpenProposal, "description": "Proposed: the caller has not the right `chat`."}}


@router.put("/{slot}", summary="Give a slot a value", response_model=Line, responses=_PROPOSED)
async def set_slot(
    slot: Slot, access: AccessHere, given: Annotated[NewValue, Body()], writing: WritingHere
) -> Line | JSONResponse:
    """The one before stays in the history. Without the right `chat` the value is only proposed."""
    if writing.before is not None:
        return await _kept(access, slot, writing.before["id"])
    kept = await access.memories.profile_set(slot, given.value, since=given.since)
    writing.note(id=kept.id)
    return await _kept(access, slot, kept.id)


@router.put("/{slot}/pin", summary="Show a slot in every prompt, or no longer", status_code=204)
async def pin_slot(slot: Slot, access: AccessHere, given: Annotated[Pin, Body()]) -> None:
    """Pinned lines come first."""
    await access.memories.profile_pin(slot, pinned=given.pinned)


@router.delete("/{slot}", summary="Forget a slot and its history", status_code=204)
async def forget_slot(slot: Slot, access: AccessHere) -> None:
    """Forget a line of the profile. The messages stay."""
    await access.memories.profile_forget(slot)


async def _kept(access: IdentityAccess, slot: str, memory_id: str) -> Line | JSONResponse:
    """Return what a value has become: a line, or a proposal."""
    if any(row.id == memory_id for row in await access.memories.profile_proposals()):
        return JSONResponse(OpenProposal(proposed=memory_id).model_dump(), 202)
    return await _line(access, slot, memory_id)


async def _line(access: IdentityAccess, slot: str, line_id: str) -> Line:
    for line in await access.memories.profile_history(slot):  # it may have ended before
        if line.id == line_id:
            return Line.model_validate(line)
    raise UnknownObservation(f"no line has the id {line_id}")


def _told(lines: list[Known]) -> Profile:
    return Profile(data=tuple(Line.model_validate(line) for line in lines))
