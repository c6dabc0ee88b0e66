"""Page of one memory, with its history and actions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from chatbot.memory.writing import AddResult
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.routes import AccessHere, Fields, PageRoute
from chatbot.server.page.sheets import base, fragment, goto, is_part, sheet
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import ConflictingChange, InvalidValue, UnknownObservation
from chatbot.stores.fields import is_observation_id
from chatbot.stores.observation import Observation

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/memory/{memory_id}")

MemoryId = Annotated[str, Path(max_length=100)]
_SAID = ("title", "narrative", "user_text", "assistant_text")
_INHERITED = ("type", "tags", "concepts", "people", "subject", "category", "project", "visibility", "sensitivity")
_INHERITED_TOO = ("min_clearance", "importance", "derived_from")


@router.get("")
async def show(
    request: Request, access: AccessHere, memory_id: MemoryId, told: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the memory in any status; `told` is the last action."""
    line = await access.memories.history(_checked(memory_id), ask=SENSITIVITIES)
    return sheet(
        request,
        "memory.html",
        access,
        here="memory",
        row=next(each.observation for each in line if each.observation.id == memory_id),
        line=line,
        said=_SAID,
        told=_TOLD.get(told, ""),
    )


@router.post("/correct")
async def correct(access: AccessHere, memory_id: MemoryId, fields: Fields) -> Response:
    """Edit the memory: `how` is `wrong` (correct it) or `changed` (replace it, keeping its history)."""
    row = await _row(access, memory_id)
    said = _what_is_said(fields)
    match fields.get("how"):
        case "wrong":
            await access.memories.update(memory_id, **said)
            return _to(access, memory_id, "corrected")
        case "changed":
            new = await _supersede(access, row, said)
            return _to(access, new.id, "superseded")
    raise InvalidValue("choose a reason: wrong or changed")


@router.post("/forget")
async def forget(request: Request, access: AccessHere, memory_id: MemoryId) -> Response:
    """Hide the memory; `restore` undoes it."""
    await access.memories.forget(_checked(memory_id))
    return await _shown(request, access, memory_id, "forgotten")


@router.post("/purge")
async def purge(access: AccessHere, memory_id: MemoryId) -> Response:
    """Delete the memory permanently."""
    await access.memories.purge(_checked(memory_id))
    return goto(f"{base(access)}/memory?told=erased")


@router.post("/restore")
async def restore(request: Request, access: AccessHere, memory_id: MemoryId) -> Response:
    """Restore the memory."""
    await access.memories.restore(_checked(memory_id))
    return await _shown(request, access, memory_id, "restored")


@router.post("/confirm")
async def confirm(access: AccessHere, memory_id: MemoryId) -> Response:
    """Mark the memory as correct."""
    await access.memories.confirm(_checked(memory_id))
    return _to(access, memory_id, "confirmed")


async def _supersede(access: IdentityAccess, row: Observation, said: dict[str, object]) -> AddResult:
    inherited = {name: getattr(row, name) for name in (*_INHERITED, *_INHERITED_TOO)}
    kept = {name: getattr(row, name) for name in ("subtitle", "facts", *_SAID)}
    new = await access.memories.remember(
        **{**inherited, **kept, **said}, metadata=dict(row.metadata), source="user", supersedes=row.id
    )
    if new.outcome == "exact_dup":
        raise ConflictingChange("an identical memory already exists: nothing was changed")
    return new


def _what_is_said(fields: Fields) -> dict[str, Any]:
    said: dict[str, Any] = {name: fields[name].strip() for name in _SAID if name in fields}
    if "facts" in fields:
        said["facts"] = [line.strip() for line in fields["facts"].splitlines() if line.strip()]
    return said


async def _shown(request: Request, access: IdentityAccess, memory_id: str, told: str) -> Response:
    """Show the memory on its page, or as a row where only that is exchanged."""
    if not is_part(request):
        return _to(access, memory_id, told)
    return fragment("row.html", access, row=await _row(access, memory_id))


async def _row(access: IdentityAccess, memory_id: str) -> Observation:
    return await access.memories.row(_checked(memory_id), ask=SENSITIVITIES)


def _checked(memory_id: str) -> str:
    if not is_observation_id(memory_id):
        raise UnknownObservation(f"no memory has the id {memory_id!r:.80}")
    return memory_id


def _to(access: IdentityAccess, memory_id: str, told: str) -> Response:
    return goto(f"{base(access)}/memory/{memory_id}?told={told}")


_TOLD = {
    "corrected": "Saved. The history keeps the old text.",
    "superseded": "Saved. It replaces the old memory, which stays in the history.",
    "forgotten": "Hidden. It is not recalled; you can restore it.",
    "restored": "Restored.",
    "confirmed": "Confirmed. It now ranks higher.",
}
