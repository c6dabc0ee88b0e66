"""Memories of one turn: what it recalled, and what was remembered of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response

from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.routes import AccessHere, PageRoute, SessionId
from chatbot.server.page.sheets import fragment
from chatbot.server.page.why import receipt_at
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import Observation
from chatbot.stores.records import parse_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_MOST = 20


@router.get("/c/{session_id}/noted")
async def show(access: AccessHere, session_id: SessionId, at: Annotated[str, Query(max_length=100)]) -> Response:
    """Show both lists, each memory with what can be done with it."""
    session = await access.session(session_id)
    receipts = sorted(await session.receipts_since(parse_time(at)), key=lambda each: str(each["at"]))
    receipt = receipt_at(receipts, at)
    following = [str(each["at"]) for each in receipts if str(each["at"]) > str(receipt["at"])]
    memory = receipt.get("memory") or {}
    ids = [str(each) for each in memory.get("injected") or ()]
    recalled = await access.memories.get(ids, ask=SENSITIVITIES, count_use=False) if ids else []
    made = await _made(access, session_id, parse_time(at), parse_time(following[0]) if following else None)
    return fragment(
        "noted.html",
        access,
        session_id=session_id,
        at=at,
        recalled=recalled,
        remembered=[row for row in made if row.id not in ids],
        hidden=len(ids) - len(recalled),
    )


async def _made(
    access: IdentityAccess, session_id: str, begin: datetime, end: datetime | None
) -> Sequence[Observation]:
    page = await access.memories.list_observations(
        order="created",
        session_id=session_id,
        after=begin,
        ask=SENSITIVITIES,
        limit=_MOST,
        ascending=True,
        before=end,
    )
    return page.rows
