"""Pages of sessions: the list, the results of a search, why a reply was given, and what turns cost."""

from itertools import groupby
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import HTMLResponse

from chatbot.chat.ledger import Bill, bill_of, calls_in, sum_of
from chatbot.chat.receipts import IN_PROMPT, ending, memory_line, nothing_considered, outcomes, with_calls
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHit, SessionRecord, projects_in
from chatbot.memory.scope import utc_now
from chatbot.operations import list_sessions
from chatbot.server.dependencies import SessionId
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.memories import PART_NAMES, WEIGHED
from chatbot.server.page.rendering import AccessHere, PageRoute, day, render_page, render_part
from chatbot.stores.access import SENSITIVITIES, fold
from chatbot.stores.errors import UnsupportedOperation
from chatbot.stores.observation import Observation
from chatbot.stores.records import format_time, parse_time
from chatbot.transfer.exports import export_session, render_session
from chatbot.transfer.untrusted import checked_receipt

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 40


class SessionMatch(Struct, frozen=True):
    """A session with its matching line, its words marked; `at` is the time of that entry, empty if there is none."""

    record: SessionRecord
    line: tuple[tuple[str, bool], ...] = ()
    at: str = ""


@router.get("/sessions")
async def show(
    request: Request,
    access: AccessHere,
    q: Annotated[str, Query(max_length=1_000)] = "",
    before: Annotated[str, Query(max_length=200)] = "",
    done: Annotated[str, Query(max_length=100)] = "",
    *,
    project: Annotated[str, Query(max_length=1_000)] = "",
    archived: bool = False,
) -> Response:
    """List sessions by day, most recently used first; archived ones on request. A search finds both kinds."""
    q, following = q.strip(), None
    projects = [each.name for each in await projects_in(access.memory)]
    if project:
        access = replace(access, caller=access.caller.in_project(project))
    if q:
        found = await _search(access, q)
        groups = [("", found)] if found else []
    else:
        page = await list_sessions(
            access.context, limit=_ON_A_PAGE, cursor=before or None, archived=archived, with_archived=False
        )
        found, following = [SessionMatch(record) for record in page.rows], page.next_cursor
        groups = [(name, list(group)) for name, group in groupby(found, key=lambda each: day(each.record.used_at))]
    return render_page(
        request,
        "sessions.html",
        access,
        here="sessions",
        q=q,
        groups=groups,
        count=len(found),
        is_full=len(found) == _ON_A_PAGE,
        following=following,
        archived=archived,
        done="The session is deleted." if done == "deleted" else "",
        project=project,
        projects=projects,
    )


async def _search(access: IdentityAccess, q: str) -> list[SessionMatch]:
    """Return sessions whose title contains the text, which may be part of a word; then those whose messages match."""
    wanted = fold(q)
    titled = await access.memory.list_sessions(limit=_ON_A_PAGE, wanted=lambda record: wanted in fold(record.title))
    found = {record.id: SessionMatch(record) for record in titled}
    for hit in await access.memory.search_sessions(q, limit=_ON_A_PAGE):
        found.setdefault(
            hit.record.id, SessionMatch(hit.record, _marked_parts(hit), format_time(hit.at) if hit.number else "")
        )
    return list(found.values())[:_ON_A_PAGE]


def _marked_parts(hit: SessionHit) -> tuple[tuple[str, bool], ...]:
    parts, at = [], 0
    for begin, end in hit.ranges:
        parts += [(hit.line[at:begin], False), (hit.line[begin:end], True)]
        at = end
    return (*parts, (hit.line[at:], False))


@router.get("/projects")
async def show_projects(access: AccessHere) -> Response:
    """Render the projects that the caller may enter, as choices of a field."""
    names = (each.name for each in await projects_in(access.memory))
    return HTMLResponse(Markup("").join(Markup('<option value="{}">').format(name) for name in names))


@router.get("/c/{session_id}/export")
async def export(access: AccessHere, session_id: SessionId) -> Response:
    """Return the session as a Markdown file, without its memories."""
    session = await access.session(session_id)
    text = render_session(await export_session(access.memory, session_id, memories=False), "markdown")
    name = quote(session.record.title.replace("/", " ") or "session", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}.md", "cache-control": "no-store"}
    return Response(text, media_type="text/markdown; charset=utf-8", headers=headers)


@router.get("/c/{session_id}/why")
async def show_why(
    request: Request, access: AccessHere, session_id: SessionId, at: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the turn for the message of that time, or the last turn."""
    session = await access.session(session_id)
    receipts = await session.receipts_since(parse_time(at)) if at else await session.receipts()
    receipt = receipt_at(receipts, at)
    memory, tokens = receipt.get("memory") or {}, receipt.get("tokens", {})
    return render_page(
        request,
        "why.html",
        access,
        here="session",
        session=session.record,
        receipt=receipt,
        memory=memory,
        considered=await _considered_rows(access, memory),
        ending=ending(receipt),
        nothing=nothing_considered(memory),
        held=memory_line(memory),
        tokens={name: n for name, n in tokens.items() if name != "reply_reserve"},
        reserve=tokens.get("reply_reserve", 0),
        bill=bill_of(calls_in([receipt])),
        part_names=PART_NAMES,
        weighed=WEIGHED,
    )


_EMPTY = {"model": "–", "seconds": 0, "tools": [], "notices": [], "window": {}}
"""Fields that the pages show of every receipt, for one that was edited by hand and lacks them."""


def receipt_at(receipts: list[dict[str, Any]], at: str) -> dict[str, Any]:
    """Return the last receipt for the message; a message that was answered again has several."""
    found = [each for each in receipts if at in {"", each.get("at")}]
    if not found:
        raise SessionNotFound("this message has no receipt: its turn ran elsewhere, or was not completed")
    return _EMPTY | checked_receipt(with_calls(found[-1], found))


async def _considered_rows(access: IdentityAccess, memory: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the considered memories, the highest score first; the row of a deleted or hidden one is None."""
    looked_at = {str(each["id"]): each for each in memory.get("considered", [])}
    found = outcomes(memory)
    rows = await _rows(access, list(found))
    return [
        {"score": 1.0, "parts": {}}
        | looked_at.get(each, {})
        | {"id": each, "row": rows.get(each), "verdict": verdict, "is_injected": verdict in IN_PROMPT}
        for each, verdict in found.items()
    ]


async def _rows(access: IdentityAccess, ids: list[str]) -> dict[str, Observation]:
    try:
        rows = await access.memories.get(ids, sensitivities=SENSITIVITIES, count_use=False, current=False)
        return {row.id: row for row in rows}
    except UnsupportedOperation:
        return {}


_MOST_MADE = 20


@router.get("/c/{session_id}/noted")
async def show_turn_memories(
    access: AccessHere, session_id: SessionId, at: Annotated[str, Query(max_length=100)]
) -> Response:
    """Show the memories that a turn recalled and created, each with its actions."""
    session = await access.session(session_id)
    receipts = await session.receipts_since(parse_time(at))
    receipt = receipt_at(receipts, at)
    following = [str(each["at"]) for each in receipts if str(each["at"]) > str(receipt["at"])]
    memory = receipt.get("memory") or {}
    ids = [each for each, outcome in outcomes(memory).items() if outcome in IN_PROMPT]
    withheld = memory.get("withheld", {}).get("rows", ())
    rows = await _rows(access, [*ids, *withheld])
    made = await access.memories.list_observations(
        session_id=session_id,
        after=parse_time(at),
        before=parse_time(following[0]) if following else None,
        order="created",
        ascending=True,
        sensitivities=SENSITIVITIES,
        limit=_MOST_MADE,
    )
    return render_part(
        "noted.html",
        access,
        session_id=session_id,
        at=at,
        recalled=[rows[each] for each in ids if each in rows],
        withheld=[rows[each] for each in withheld if each in rows],
        provider=memory.get("withheld", {}).get("provider", ""),
        remembered=[row for row in made.rows if row.id not in ids],
        hidden=len(ids) + len(withheld) - len(rows),
    )


_BILLS_ON_A_PAGE = 20
_DAYS = 30


@router.get("/cost")
async def show_cost(
    request: Request, access: AccessHere, before: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Show the cost of each session, last used first, the total, and the last days as a chart."""
    page = await list_sessions(access.context, limit=_BILLS_ON_A_PAGE, cursor=before or None)
    bills = await access.bills()
    return render_page(
        request,
        "cost.html",
        access,
        here="cost",
        bills=[(record, bills.get(record.id, Bill())) for record in page.rows],
        total=sum_of(bills.values()),
        days=await access.runtime.ledger.by_day(_DAYS, utc_now()) if access.caller.sees_all else {},
        budget=access.runtime.config.budget,
        following=page.next_cursor,
    )


@router.get("/c/{session_id}/cost")
async def show_session_cost(request: Request, access: AccessHere, session_id: SessionId) -> Response:
    """Show the cost of one session by purpose and by turn."""
    session = await access.session(session_id)
    receipts = [_EMPTY | each | {"at": str(each.get("at", ""))} for each in await session.receipts()]
    return render_page(
        request,
        "session_cost.html",
        access,
        here="session",
        session=session.record,
        bill=bill_of(calls_in(await session.records())),
        turns=[(each, bill_of(calls_in([each]))) for each in reversed(receipts) if each.get("calls")][:200],
    )
