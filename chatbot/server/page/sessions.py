"""Pages of sessions: the list, and the results of a search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from msgspec.structs import replace
from starlette.responses import HTMLResponse

from chatbot.memory import SessionRecord
from chatbot.memory.session_search import SessionHit
from chatbot.memory.users_and_projects import projects_in
from chatbot.operations import list_sessions
from chatbot.server.dependencies import SessionId
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.rendering import AccessHere, PageRoute, day, render_page
from chatbot.stores.records import format_time
from chatbot.transfer.exports import export_session, render_session

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 40


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """A session with its matching line, in which the matched words are marked.

    `at` is the time of the entry with that line; empty if it is not in an entry.
    """

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
    following: str | None = None
    projects = [each.name for each in await projects_in(access.memory)]
    if project:
        access = replace(access, caller=access.caller.in_project(project))
    if q.strip():
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
    wanted = q.strip().casefold()
    titled = await access.memory.list_sessions(
        limit=_ON_A_PAGE, wanted=lambda record: wanted in record.title.casefold()
    )
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
async def projects(access: AccessHere) -> Response:
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
