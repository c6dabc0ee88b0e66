"""Page of the profile: lines with their dates and history, set, pinned and forgotten."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.server.page.routes import AccessHere, Fields, PageRoute
from chatbot.server.page.sheets import base, goto, sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/profile")

Slot = Annotated[str, Path(max_length=100)]


@router.get("")
async def show(request: Request, access: AccessHere) -> Response:
    """Render the current lines and the proposals."""
    lines = await access.memories.profile()
    proposals = await access.memories.profile_proposals()
    return sheet(request, "profile.html", access, here="profile", lines=lines, proposals=proposals, slot="")


@router.get("/{slot}")
async def history(request: Request, access: AccessHere, slot: Slot) -> Response:
    """Render all values that a slot had."""
    lines = await access.memories.profile_history(slot)
    return sheet(request, "profile.html", access, here="profile", lines=lines, proposals=(), slot=slot)


@router.post("")
async def set_(access: AccessHere, fields: Fields) -> Response:
    """Give a slot a value."""
    await access.memories.profile_set(fields.get("slot", ""), fields.get("value", ""))
    return goto(f"{base(access)}/profile")


@router.post("/{slot}")
async def change(access: AccessHere, slot: Slot, fields: Fields) -> Response:
    """Pin a slot, forget it, or accept or reject a proposal, which is named by its id."""
    deed = fields.get("deed", "")
    if deed == "accept":
        await access.memories.profile_accept(slot)
    elif deed == "reject":
        await access.memories.profile_reject(slot)
    elif deed == "forget":
        await access.memories.profile_forget(slot)
    else:
        await access.memories.profile_pin(slot, pinned=deed == "pin")
    return goto(f"{base(access)}/profile")
