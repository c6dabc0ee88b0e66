"""Cost pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from chatbot.chat.activity import Activity, Day
from chatbot.chat.usage import Bill, bill_of, calls_in, cost_text, merged
from chatbot.memory.record import utc_now
from chatbot.operations import cursor_of
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.lists import place_of
from chatbot.server.page.routes import AccessHere, PageRoute, SessionId
from chatbot.server.page.sheets import sheet

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 20
_DAYS = 30
_HEIGHT = 120.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One day of the chart; `y` and `height` in units of the drawing, which is `_HEIGHT` high."""

    day: Day
    y: float
    height: float


@router.get("/cost")
async def show(request: Request, access: AccessHere, before: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show the cost of each session, last used first, the total, and the last days as a chart."""
    records = await access.sessions(limit=_ON_A_PAGE + 1, before=place_of(before) if before else None)
    shown = records[:_ON_A_PAGE]
    bills = await access.bills()
    days = await _days(access)
    return sheet(
        request,
        "cost.html",
        access,
        here="cost",
        bills=[(record, bills.get(record.id, Bill())) for record in shown],
        total=merged(bills.values()),
        bars=_bars(days),
        peak=_peak(days),
        budget=access.runtime.config.budget,
        following=cursor_of(shown[-1]) if len(records) > _ON_A_PAGE else "",
    )


@router.get("/c/{session_id}/cost")
async def show_session(request: Request, access: AccessHere, session_id: SessionId) -> Response:
    """Show the cost of one session by purpose and by turn."""
    session = await access.session(session_id)
    receipts = await session.receipts()
    return sheet(
        request,
        "session_cost.html",
        access,
        here="session",
        session=session.record,
        bill=bill_of(calls_in(await session.records())),
        turns=[(receipt, bill_of(calls_in([receipt]))) for receipt in reversed(receipts)][:200],
    )


async def _days(access: IdentityAccess) -> Sequence[Day]:
    """Return the last days with their calls; none for a caller who may not see every session."""
    if access.caller.clearance != "full" or access.caller.namespace:
        return ()
    activity = Activity.of_last(_DAYS, utc_now())
    activity.add_calls(await access.runtime.ledger.calls_since(activity.since))
    return activity.days


def _peak(days: Sequence[Day]) -> str:
    """Return the value of the highest bar."""
    cost = max((day.cost_usd for day in days), default=0.0)
    tokens = max((day.input_tokens + day.output_tokens for day in days), default=0)
    return cost_text(cost) if cost else f"{tokens:,} tokens"


def _bars(days: Sequence[Day]) -> list[Bar]:
    """Scale the days by cost, or by tokens where nothing cost anything."""
    costs = [day.cost_usd for day in days]
    values = costs if any(costs) else [float(day.input_tokens + day.output_tokens) for day in days]
    most = max(values, default=0.0) or 1.0
    heights = [_HEIGHT * value / most for value in values]
    return [Bar(day, _HEIGHT - height, height) for day, height in zip(days, heights, strict=True)]
