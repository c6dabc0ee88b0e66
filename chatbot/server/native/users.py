"""`/v1/users`: the end users that requests have named; what is kept of one, and its erasure."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from chatbot.memory.namespaces import LONGEST_LABEL
from chatbot.memory.users import export_user, users_in
from chatbot.server.dependencies import HouseHere, VisitHere
from chatbot.server.error_responses import OF_MEMORY
from chatbot.server.errors import CONFLICT, Problem, Refused
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.lists import Page
from chatbot.server.shapes import Shape

router = APIRouter(prefix="/v1/users", tags=["users"], responses=OF_MEMORY)

Named = Annotated[str, Query(min_length=1, max_length=LONGEST_LABEL, description="The user, as requests name them.")]


class User(Shape):
    """A user, or another part of the memory that is kept apart."""

    namespace: str
    """The part of the memory."""
    user: str | None
    """The user's name, as requests give it; null where it is not a user's."""
    memories: int
    """Number of memories, of any status."""
    sessions: int
    """Number of sessions."""
    used_at: datetime | None
    """When a session was used last."""


class UserErasure(Shape):
    """Data that was deleted permanently."""

    memories: int
    """Memories and facts."""
    sessions: list[str]
    """The ids of sessions."""
    requests: int
    """Records of requests with an Idempotency-Key."""


class Export(Shape):
    """All that is kept of a user, as far as your clearance goes."""

    namespace: str
    """The part of the memory."""
    user: str | None
    """The user's name."""
    memories: list[dict[str, Any]]
    """Memories of any status, oldest first."""
    facts: list[dict[str, Any]]
    """Facts, oldest first."""
    sessions: list[dict[str, Any]]
    """Each with its messages, values, receipts, and the names of its files."""


@router.get("", summary="List users")
async def list_users(visit: VisitHere) -> Page[User]:
    """Those inside your token's namespace. Needs the right `curate`."""
    return Page(data=[User.model_validate(each) for each in await users_in(visit.memory)])


@router.get("/export", summary="Export one user")
async def get_export(visit: VisitHere, user: Named) -> Export:
    """Memories, facts and sessions in one document."""
    return Export.model_validate(await export_user(_of_user(visit, user).memory))


@router.delete("", summary="Delete one user permanently")
async def delete_user(visit: VisitHere, house: HouseHere, user: Named) -> UserErasure:
    """Memories, facts, sessions with their files and receipts, and records of requests. Needs the right `erase`."""
    theirs = _of_user(visit, user)
    erased = await theirs.erase_user()
    requests = await asyncio.to_thread(house.requests.forget, theirs.caller.namespace)
    return UserErasure(memories=erased.memories, sessions=list(erased.sessions), requests=requests)


def _of_user(visit: IdentityAccess, user: str) -> IdentityAccess:
    """Return the access of that user. Raises `Refused` where users are shared."""
    theirs = visit.for_user(user)
    if theirs.caller.user is None:
        raise Refused(Problem(409, CONFLICT, "users_shared", "here users share one memory: there is none of one user"))
    return theirs
