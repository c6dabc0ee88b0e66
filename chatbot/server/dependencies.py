"""Dependencies of routes: the caller, the identity, and lists in pages. Coroutines: FastAPI runs others in threads."""

from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ConfigDict, Field

from chatbot.memory import SessionHandle
from chatbot.server import request_values
from chatbot.server.callers import ServerCaller
from chatbot.server.errors import invalid
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.stores.errors import did_you_mean
from chatbot.stores.records import TranscriptEntry


async def _identities(request: Request) -> Identities:
    identities: Identities = request.app.state.identities
    return identities


async def _caller(request: Request) -> ServerCaller:
    caller: ServerCaller = request.state.caller
    return caller


async def known_parameters_only(request: Request) -> None:
    """Refuse a parameter that the route does not know: a misspelt filter must not return everything."""
    if not request.query_params:
        return
    known = _parameters_of(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            raise invalid(f"unknown parameter{did_you_mean(name[:80], known)}", name[:80])


def _parameters_of(dependant: Dependant) -> set[str]:
    """Return the names of the query parameters of a route and its dependencies."""
    return {each.alias for each in dependant.query_params}.union(*map(_parameters_of, dependant.dependencies))


IdentitiesHere = Annotated[Identities, Depends(_identities)]
CallerHere = Annotated[ServerCaller, Depends(_caller)]


async def _access(
    identities: IdentitiesHere,
    caller: CallerHere,
    identity: Annotated[
        str | None, Query(max_length=100, description="Identity to use; default: the first that the token opens.")
    ] = None,
) -> IdentityAccess:
    return await identities.access(caller, identity)


AccessHere = Annotated[IdentityAccess, Depends(_access)]


Item = TypeVar("Item")

_CURSOR = "`next_cursor` of the previous page."
RANK = "^[0-9]{1,6}$"
"""Pattern of the cursor of a list by rank: how many came before."""

Limit = Annotated[request_values.Limit, Query(description="Maximum results.")]
RankCursor = Annotated[str | None, Query(pattern=RANK, description=_CURSOR)]
EntryCursor = Annotated[str | None, Query(pattern="^[1-9][0-9]{0,7}$", description=_CURSOR)]
SessionId = Annotated[str, Path(max_length=100, description="The session's id.")]


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    # Its fields have no docstrings: for each `Page[Item]` pydantic would look for their source in the whole stack.
    model_config = ConfigDict(json_schema_extra={"description": "A part of a list."})

    data: list[Item] = Field(description="Items of this page.")
    next_cursor: str | None = Field(None, description="Cursor of the next page; null at the end.")


async def entries_between(
    session: SessionHandle, place: Callable[[int], tuple[int, int]]
) -> tuple[list[TranscriptEntry], int, int]:
    """Return a range of entries, the position of its first, and the total; `place` gives the range for a total."""
    total = await session.transcript_count()
    while True:  # a turn may add entries between counting and reading
        begin, end = place(total)
        begin, end = max(0, begin), min(end, total)
        last = await session.transcript_read_last(total - begin)
        if (now := await session.transcript_count()) == total:
            return last[: max(0, end - begin)], begin, total
        total = now
