"""What routes are given: who asks, and where they are. All are coroutines: for others FastAPI takes a thread each."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from chatbot.server.callers import Caller
from chatbot.server.house import House
from chatbot.server.visit import Visit


async def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


HouseHere = Annotated[House, Depends(_house)]
CallerHere = Annotated[Caller, Depends(_caller)]


async def _visit(
    house: HouseHere,
    caller: CallerHere,
    identity: Annotated[
        str | None, Query(max_length=100, description="Who is asked; default: the first that the token opens.")
    ] = None,
) -> Visit:
    return await house.visit(caller, identity)


VisitHere = Annotated[Visit, Depends(_visit)]
