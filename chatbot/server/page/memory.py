"""One remembered thing: all that it says, how it came to be, and what can be done with it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from chatbot.memory.writing import Remembered
from chatbot.server.page.routes import Fields, PageRoute, VisitHere
from chatbot.server.page.sheets import base, goto, sheet
from chatbot.server.visit import Visit
from stores.access import SENSITIVITIES
from stores.errors import ConflictingChange, InvalidValue, UnknownObservation
from stores.observation import Observation, is_observation_id
from stores.query import Version

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/memory/{memory_id}")

MemoryId = Annotated[str, Path(max_length=100)]
_SAID = ("title", "narrative", "user_text", "assistant_text")
_INHERITED = ("type", "tags", "concepts", "people", "subject", "category", "project", "visibility", "sensitivity")
_INHERITED_TOO = ("min_clearance", "importance", "derived_from")


@router.get("")
async def show(
    request: Request, visit: VisitHere, memory_id: MemoryId, told: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """The thing, whatever its status; `told` is what was just done to it."""
    line = await _line(visit, memory_id)
    return sheet(
        request,
        "memory.html",
        visit,
        here="memory",
        row=_of(line, memory_id),
        line=line,
        said=_SAID,
        told=_TOLD.get(told, ""),
    )


@router.post("/correct")
async def correct(visit: VisitHere, memory_id: MemoryId, fields: Fields) -> Response:
    """`how` says why: it was wrong, so that it is set right, or things have changed, so that a new one follows it."""
    row = _of(await _line(visit, memory_id), memory_id)
    said = _what_is_said(fields)
    match fields.get("how"):
        case "wrong":
            await visit.memories.update(memory_id, **said)
            return _to(visit, memory_id, "corrected")
        case "changed":
            new = await _supersede(visit, row, said)
            return _to(visit, new.id, "superseded")
    raise InvalidValue("say whether it was wrong or has changed")


@router.post("/forget")
async def forget(visit: VisitHere, memory_id: MemoryId) -> Response:
    """It is not recalled any more, and can be brought back."""
    await visit.memories.forget(_checked(memory_id))
    return _to(visit, memory_id, "forgotten")


@router.post("/purge")
async def purge(visit: VisitHere, memory_id: MemoryId) -> Response:
    """Erase it from every file, for good."""
    await visit.memories.purge(_checked(memory_id))
    return goto(f"{base(visit)}/memory?told=erased")


@router.post("/restore")
async def restore(visit: VisitHere, memory_id: MemoryId) -> Response:
    """Bring it back."""
    await visit.memories.restore(_checked(memory_id))
    return _to(visit, memory_id, "restored")


@router.post("/confirm")
async def confirm(visit: VisitHere, memory_id: MemoryId) -> Response:
    """Vouch for it."""
    await visit.memories.confirm(_checked(memory_id))
    return _to(visit, memory_id, "confirmed")


async def _supersede(visit: Visit, row: Observation, said: dict[str, object]) -> Remembered:
    inherited = {name: getattr(row, name) for name in (*_INHERITED, *_INHERITED_TOO)}
    kept = {name: getattr(row, name) for name in ("subtitle", "facts", *_SAID)}
    new = await visit.memories.remember(
        **{**inherited, **kept, **said}, metadata=dict(row.metadata), source="user", supersedes=row.id
    )
    if new.outcome == "exact_dup":
        raise ConflictingChange("that says what is remembered already: there is nothing to take its place")
    return new


def _what_is_said(fields: Fields) -> dict[str, object]:
    said: dict[str, object] = {name: fields[name].strip() for name in _SAID if name in fields}
    if "facts" in fields:
        said["facts"] = [line.strip() for line in fields["facts"].splitlines() if line.strip()]
    return said


async def _line(visit: Visit, memory_id: str) -> list[Version]:
    return await visit.memories.history(_checked(memory_id), ask=SENSITIVITIES)


def _of(line: list[Version], memory_id: str) -> Observation:
    return next(each.observation for each in line if each.observation.id == memory_id)


def _checked(memory_id: str) -> str:
    if not is_observation_id(memory_id):
        raise UnknownObservation(f"there is no observation {memory_id!r:.80}")
    return memory_id


def _to(visit: Visit, memory_id: str, told: str) -> Response:
    return goto(f"{base(visit)}/memory/{memory_id}?told={told}")


_TOLD = {
    "corrected": "Corrected. The history keeps what it said before.",
    "superseded": "Kept. It has taken the place of the old one, which stays in the history.",
    "forgotten": "Forgotten. It is not recalled any more; you can bring it back.",
    "restored": "It is back.",
    "confirmed": "Thank you: it now weighs more.",
}
