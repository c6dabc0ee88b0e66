"""Cost pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from chatbot.chat.usage import Bill, bill_of, calls_in, merged
from chatbot.operations import cursor_of
from chatbot.server.lists import place_of
from chatbot.server.page.routes import PageRoute, SessionId, VisitHere
from chatbot.server.page.sheets import sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 20


@router.get("/cost")
async def show(request: Request, visit: VisitHere, before: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show the cost of each session, last used first, and the total."""
    records = await visit.sessions(limit=_ON_A_PAGE + 1, before=place_of(before) if before else None)
    shown = records[:_ON_A_PAGE]
    bills = await visit.bills()
    return sheet(
        request,
        "cost.html",
        visit,
        here="cost",
        bills=[(record, bills.get(record.id, Bill())) for record in shown],
        total=merged(bills.values()),
        following=cursor_of(shown[-1]) if len(records) > _ON_A_PAGE else "",
    )


@router.get("/c/{session_id}/cost")
async def show_session(request: Request, visit: VisitHere, session_id: SessionId) -> Response:
    """Show the cost of one session by purpose and by turn."""
    session = await visit.session(session_id)
    receipts = await session.receipts()
    return sheet(
        request,
        "session_cost.html",
        visit,
        here="chat",
        session=session.record,
        bill=bill_of(calls_in(await session.records())),
        turns=[(receipt, bill_of(calls_in([receipt]))) for receipt in reversed(receipts)][:200],
    )
