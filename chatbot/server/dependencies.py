"""Dependencies of routes: the caller and the identity. All are coroutines: FastAPI runs others in threads."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from chatbot.server.callers import ServerCaller
from chatbot.server.document import parameters_of
from chatbot.server.errors import invalid
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.stores.errors import did_you_mean


async def _identities(request: Request) -> Identities:
    identities: Identities = request.app.state.identities
    return identities


async def _caller(request: Request) -> ServerCaller:
    caller: ServerCaller = request.state.caller
    return caller


async def known_parameters_only(request: Request) -> None:
    """Refuse a parameter that the document does not know: a misspelt filter must not return everything."""
    if not request.query_params:
        return
    known = await parameters_of(request.app, request.scope["route"].path, request.method)
    for name in request.query_params:
        if name not in known:
            raise invalid(f"unknown parameter{did_you_mean(name[:80], known)}", name[:80])


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
