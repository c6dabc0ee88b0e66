"""Page of people with their facts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from chatbot.server.page.routes import AccessHere, PageRoute
from chatbot.server.page.sheets import sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_MOST = 200


@router.get("/people")
async def show(request: Request, access: AccessHere, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """List people, most mentioned first."""
    people = await access.memories.people(q.strip())
    return sheet(request, "people.html", access, here="people", q=q, people=people[:_MOST], more=len(people) > _MOST)
