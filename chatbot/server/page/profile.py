"""Page of the profile: lines with their dates and history, set, pinned and forgotten."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.server.page.routes import Fields, PageRoute, VisitHere
from chatbot.server.page.sheets import base, goto, sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/profile")

Slot = Annotated[str, Path(max_length=100)]


@router.get("")
async def show(request: Request, visit: VisitHere) -> Response:
    """Render the current lines and the proposals."""
    lines = await visit.memories.profile()
    proposals = await visit.memories.profile_proposals()
    return sheet(request, "profile.html", visit, here="profile", lines=lines, proposals=proposals, slot="")


@router.get("/{slot}")
async def history(request: Request, visit: VisitHere, slot: Slot) -> Response:
    """All that a slot held."""
    lines = await visit.memories.profile_history(slot)
    return sheet(request, "profile.html", visit, here="profile", lines=lines, proposals=(), slot=slot)


@router.post("")
async def set_(visit: VisitHere, fields: Fields) -> Response:
    """Give a slot a value."""
    await visit.memories.profile_set(fields.get("slot", ""), fields.get("value", ""))
    return goto(f"{base(visit)}/profile")


@router.post("/{slot}")
async def change(visit: VisitHere, slot: Slot, fields: Fields) -> Response:
    """Pin a slot, forget it, or accept or reject a proposal, which is named by its id."""
    deed = fields.get("deed", "")
    if deed == "accept":
        await visit.memories.profile_accept(slot)
    elif deed == "reject":
        await visit.memories.profile_reject(slot)
    elif deed == "forget":
        await visit.memories.profile_forget(slot)
    else:
        await visit.memories.profile_pin(slot, pinned=deed == "pin")
    return goto(f"{base(visit)}/profile")
