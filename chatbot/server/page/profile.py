"""Page of the profile: lines with their dates and history, set, pinned and forgotten, and what was said last."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from chatbot.memory.profile import Profile
from chatbot.memory.profile_lines import OWN
from chatbot.operations import show_profile
from chatbot.server.page.routes import AccessHere, Fields, PageRoute
from chatbot.server.page.sheets import base, goto, sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/profile")

Key = Annotated[str, Path(max_length=100)]


@router.get("")
async def show(request: Request, access: AccessHere) -> Response:
    """Render the current lines, the proposals, and what was said last."""
    known = await show_profile(access.context, ask=OWN)
    proposals = await access.memories.profile_proposals()
    return sheet(request, "profile.html", access, here="profile", known=known, proposals=proposals, key="")


@router.get("/{key}")
async def history(request: Request, access: AccessHere, key: Key) -> Response:
    """Render all values that a key had."""
    known = Profile(await access.memories.profile_history(key))
    return sheet(request, "profile.html", access, here="profile", known=known, proposals=(), key=key)


@router.post("")
async def set_(access: AccessHere, fields: Fields) -> Response:
    """Give a key a value."""
    await access.memories.profile_set(fields.get("key", ""), fields.get("value", ""), also="also" in fields)
    return goto(f"{base(access)}/profile")


@router.post("/{key}")
async def change(access: AccessHere, key: Key, fields: Fields) -> Response:
    """Pin a key, forget it, or accept or reject a proposal, which is named by its id."""
    deed = fields.get("deed", "")
    if deed == "accept":
        await access.memories.profile_accept(key)
    elif deed == "reject":
        await access.memories.profile_reject(key)
    elif deed == "forget":
        await access.memories.profile_forget(key)
    else:
        await access.memories.profile_pin(key, pinned=deed == "pin")
    return goto(f"{base(access)}/profile")
