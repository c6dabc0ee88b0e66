"""`/v1/events`: changes of memories, sessions and users as they are made, each as the caller may know it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Header, Query, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import JSONResponse, Response

from chatbot.errors import ChatbotError
from chatbot.memory.notices import Following, MemoryChange
from chatbot.server import sse
from chatbot.server.dependencies import AccessHere, IdentitiesHere
from chatbot.server.errors import OF_MEMORY, problem_of
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.lists import Limit
from chatbot.server.request_values import Switch
from chatbot.server.shapes import MemoryRecord, Shape
from chatbot.server.sse import Follower
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.errors import ClosedResource, StoreError

router = APIRouter(prefix="/v1/events", tags=["memory"], responses=OF_MEMORY)

_POSITION = r"^[0-9~.a-f-]{1,200}$"


class ChangeEvent(Shape):
    """One change."""

    type: Literal[
        "memory.added", "memory.changed", "memory.purged",
        "session.added", "session.changed", "session.deleted", "user.erased",
    ]  # fmt: skip
    """Kind of the event."""
    at: datetime
    """When it happened."""
    position: str
    """Position to continue after, as `Last-Event-ID` or `after`."""
    memory: MemoryRecord | None = None
    """The memory that was added or changed, as it is now."""
    change: str | None = None
    """Kind of the event, as in the history, such as `update` or `supersede`."""
    ids: list[str] = Field(default_factory=list)
    """Otherwise the ids of the memories or the session; of a user the SHA-256 of the namespace, not the name."""

    @classmethod
    def of(cls, item: MemoryChange) -> Self:
        """Override `Shape`."""
        memory = None if item.memory is None else MemoryRecord.of(item.memory)
        found = {"type": item.kind, "change": item.change or None, "memory": memory, "ids": list(item.ids)}
        return cls.model_validate({**found, "at": item.at, "position": item.position})


class ChangeEvents(Shape):
    """Changes behind a position."""

    data: list[ChangeEvent]
    """The changes, in the order in which they were made; an empty list where there are none yet."""
    position: str
    """Where to go on."""


_CHANGE = {"$ref": "#/components/schemas/ChangeEvent"}
_STREAM: dict[str, Any] = {
    "content": sse.described(
        ready=(sse.data(position={"type": "string"}), "Where the stream begins. Sent first."),
        change=(_CHANGE, "A change. The `id` of the event is its position."),
        error=({"$ref": "#/components/schemas/Error"}, "The end, where something failed."),
    ),
    "description": "The changes so far, or all that come as events.",
}


@router.get("", summary="Follow changes", response_model=ChangeEvents, responses={200: _STREAM})
async def follow_changes(
    *,
    request: Request,
    access: AccessHere,
    identities: IdentitiesHere,
    after: Annotated[
        str | None,
        Query(pattern=_POSITION, description="Position to go on behind, or 0; default: what comes next."),
        WithJsonSchema({"type": "string", "pattern": _POSITION}),
    ] = None,
    follow: Annotated[Switch, Query(description="False answers at once with the changes so far, as JSON.")] = True,
    limit: Limit = 100,
    sensitivity: Annotated[
        list[Sensitivity], Query(default_factory=list, description="Return memories of these sensitivities too.")
    ],
    last_event_id: Annotated[
        str | None,
        Header(pattern=_POSITION, description="Position of the last event that you have; stronger than `after`."),
        WithJsonSchema({"type": "string", "pattern": _POSITION}),
    ] = None,
) -> Response:
    """Changes of memories, sessions and users that you may see, also those of other processes.

    Each is sent at least once, some again after a purge. What you may not read is not told, and what was purged is
    never sent again. `follow=false` is for programs that ask now and then.
    """
    following = _following(access, last_event_id or after, [*sensitivity])
    if not follow:
        found = [ChangeEvent.of(each) for each in await following.read(limit)]
        return JSONResponse(ChangeEvents(data=found, position=following.position).model_dump(mode="json"))
    if request.scope.get("is_head"):
        return Response(media_type=sse.EventStream.media_type)
    follower = identities.followers.admit(access.caller)
    first = [] if last_event_id or after else await following.read()
    return sse.EventStream(_events(following, first, follower, identities))


def _following(access: IdentityAccess, after: str | None, ask: list[Sensitivity]) -> Following:
    _ = access.memories  # raises where the agent keeps none
    asked = [each for each in SENSITIVITIES if each in {*ask, "public"}]
    return access.memory.following(access.runtime.agent, after, ask=asked)


async def _events(
    following: Following, found: list[MemoryChange], follower: Follower, identities: Identities
) -> AsyncGenerator[bytes, None]:
    """The events, until the server stops or the caller may not enter any more."""
    yield sse.event({"position": following.position}, "ready", following.position)
    try:
        while identities.admits(follower.caller):
            for each in found:
                change = ChangeEvent.of(each)
                yield sse.event(change.model_dump(mode="json"), "change", change.position)
            if not found and not await identities.followers.pause(following.wait()):
                return
            found = await following.read()
    except ClosedResource:
        return  # the identity was opened anew: the client comes back, and goes on where it is
    except (ChatbotError, StoreError) as error:
        yield sse.event(problem_of(error, follower.caller).as_json(), "error")
