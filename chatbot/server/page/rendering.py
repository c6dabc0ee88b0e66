"""Rendering of pages, and the base of their routes, which read forms and show errors as pages."""

import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from chatbot.attachments import is_image
from chatbot.chat.ledger import usd_text
from chatbot.errors import ChatbotError
from chatbot.memory import SessionRecord
from chatbot.memory.scope import utc_now
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import Problem, problem_of
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.markdown import render
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.records import parse_time
from chatbot.stores.text.dates import local
from chatbot.trust import is_loopback

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",  # with none at all, forms would be sent without an Origin, and refused
    "x-content-type-options": "nosniff",
    "x-dns-prefetch-control": "off",
    "x-frame-options": "DENY",
}
_UNITS = ((86_400 * 365, "year"), (86_400 * 30, "month"), (86_400, "day"), (3_600, "hour"), (60, "minute"))

_DAYS_OF_A_WEEK = 7
_NAME = re.compile(r"\S*(?:[/_\d]|\.\w)")
"""The first word of a message if it names a file, a model or a field: then its case matters."""

_HAPPENED = {
    "add": "created",
    "update": "changed",
    "tighten": "restricted with its source",
    "mention": "repeated",
    "confirm": "confirmed",
    "supersede": "superseded",
    "archive": "archived",
    "delete": "hidden",
    "restore": "restored",
    "compress": "merged",
}


def render_page(
    request: Request, name: str, access: IdentityAccess | None = None, *, status: int = 200, **shown: Any
) -> HTMLResponse:
    """Render a page of an identity; without `access`, one without links."""
    theme = request.cookies.get("theme")
    caller = getattr(request.state, "caller", None)
    about: dict[str, Any] = {
        "access": access,
        "base": "" if access is None else base(access),
        "identities": [] if access is None else request.app.state.identities.names_for(access.caller),
        "sidebar": getattr(request.state, "sidebar", ()),
        "may_log_out": caller is not None and not caller.is_owner,
        "theme": theme if theme in {"light", "dark"} else "",
        "attached_bytes": request.app.state.identities.settings.attachments_kb * 1024 * 3 // 4,  # of base64
    }
    return HTMLResponse(render_html(name, **about, **shown), status, headers=_HEADERS)


def render_part(name: str, access: IdentityAccess, **shown: Any) -> HTMLResponse:
    """Render a part of a page, which the page's script inserts."""
    html = render_html(name, access=access, base=base(access), identity=access.identity, **shown)
    return HTMLResponse(html, headers=_HEADERS)


def is_part(request: Request) -> bool:
    """Return True if the script of the page asks for a part of a page; a followed link asks for a whole one."""
    return "hx-request" in request.headers and "hx-boosted" not in request.headers


def render_html(name: str, **shown: Any) -> Markup:
    """Render a template as HTML."""
    return Markup(_templates().get_template(name).render(shown))  # noqa: S704 - Jinja2 has escaped it


def base(access: IdentityAccess) -> str:
    """Return the base path of an identity's pages."""
    return f"/i/{access.identity}"


def goto(address: str) -> RedirectResponse:
    """Redirect the browser to another page, after a form or instead of this one."""
    return RedirectResponse(address, 303, headers={"cache-control": "no-store", "referrer-policy": "same-origin"})


def as_words(value: object) -> str:
    """Format a value of a memory for reading: a list with commas, a table as names and values."""
    if isinstance(value, Mapping):
        return "; ".join(f"{str(name).replace('_', ' ')}: {as_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(as_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def shorten(text: str, most: int) -> str:
    """Return the text on one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def day(moment: datetime) -> str:
    """Return the day of a time in words, in the time zone of this machine."""
    then, today = local(moment).date(), utc_now().astimezone().date()
    match (today - then).days:
        case 0:
            return "Today"
        case 1:
            return "Yesterday"
        case days if 1 < days < _DAYS_OF_A_WEEK:
            return f"{then:%A}"
    return f"{then.day} {then:%B}" if then.year == today.year else f"{then.day} {then:%B %Y}"


def span_of_days(moment: datetime) -> str:
    """Return the part of a list of sessions that a time belongs to."""
    then, today = local(moment).date(), utc_now().astimezone().date()
    for days, name in ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"), (30, "Previous 30 days")):
        if (today - then).days <= days:
            return name
    return f"{then:%B %Y}"


def ago(moment: datetime) -> str:
    """Return the distance of a time from now in words."""
    seconds = (utc_now() - moment).total_seconds()
    for length, unit in _UNITS:
        if abs(seconds) >= length:
            n = int(abs(seconds) // length)
            distance = f"{n} {unit}{'' if n == 1 else 's'}"
            return f"{distance} ago" if seconds > 0 else f"in {distance}"
    return "just now"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("chatbot.server.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        ago=ago,
        anchor=lambda text: re.sub(r"[^0-9A-Za-z]", "-", text),
        capitalize_first=lambda text: text if _NAME.match(text) else text[:1].upper() + text[1:],
        happened=lambda kind: _HAPPENED.get(kind, kind),
        local_time=_local_time,
        markdown=render,
        query=urlencode,
        span_of_days=span_of_days,
        shortened=lambda value: shorten(as_words(value), 300),
        title_of=lambda row: shorten(row.headline, 120),
        usd=usd_text,
        as_words=as_words,
    )
    templates.globals.update(assets=addresses(), how_many=how_many, is_image=is_image)
    return templates


PATH = "/page"
_FILES = Path(__file__).with_name("static")
_FOR_A_YEAR = "public, max-age=31536000, immutable"


class Assets(StaticFiles):
    """The static files; browsers may cache them, because their `addresses` change with their content."""

    def __init__(self) -> None:
        super().__init__(directory=_FILES)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with caching headers."""
        response = await super().get_response(path, scope)
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["cache-control"] = _FOR_A_YEAR
        if path.endswith(".webmanifest"):
            response.headers["content-type"] = "application/manifest+json"
        return response


def _local_time(text: str) -> str:
    """Return a time in the machine's time zone; as it is in a receipt that was edited."""
    try:
        return f"{local(parse_time(text)):%Y-%m-%d %H:%M}"
    except InvalidValue:
        return text


def addresses() -> dict[str, str]:
    """Return the address of each file."""
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in _FILES.iterdir()}
    return {name: f"{PATH}/{name}?v={digest[:12]}" for name, digest in digests.items()}


_MOST_FIELDS = 200


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that renders errors as pages."""
        handle = super().get_route_handler()

        async def handle_or_show(request: Request) -> Response:
            try:
                return await handle(request)
            except (ChatbotError, StoreError) as error:
                return problem_page(request, problem_of(error, getattr(request.state, "caller", None)))
            except RequestValidationError:
                return problem_page(request, Problem(422, "", "invalid address"))

        return handle_or_show


async def _access(
    request: Request, identities: IdentitiesHere, caller: CallerHere, identity: Annotated[str, InPath(max_length=100)]
) -> IdentityAccess:
    access = await identities.access(caller, identity)
    if request.method == "GET" and not is_part(request):
        request.state.access, request.state.sidebar = access, await sidebar(access)
    return access


AccessHere = Annotated[IdentityAccess, Depends(_access)]


def _fields(request: Request) -> dict[str, str]:
    try:
        text = request.state.body.decode()
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:  # also for text that is not UTF-8
        raise InvalidValue(f"the form cannot be read: {error}") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


Fields = Annotated[dict[str, str], Depends(_fields)]
"""Fields of a form, each once."""


def problem_page(request: Request, problem: Problem) -> Response:
    """Render an error as a page."""
    access = getattr(request.state, "access", None)
    response = render_page(request, "problem.html", access, status=problem.status, here="", problem=problem)
    response.headers.update(problem.headers)
    return response


_MOST_IN_SIDEBAR = 40


async def sidebar(access: IdentityAccess) -> list[SessionRecord]:
    """Return the sessions in the sidebar of every page: pinned ones, then those used last, without empty ones."""
    listed = await access.memory.list_sessions(wanted=lambda each: each.archived_at is None)
    others = [each for each in listed if each.pinned_at is None]
    first = [*(each for each in listed if each.pinned_at is not None), *others[:_MOST_IN_SIDEBAR]]
    return [each for each in first if each.title or await _has_messages(access, each)]


async def _has_messages(access: IdentityAccess, record: SessionRecord) -> bool:
    """Return whether anything was said in a session; False for one whose first message could not be kept."""
    with suppress(ChatbotError, StoreError):
        return bool(await (await access.memory.load_session(record.id, any_agent=True)).transcript_count())
    return True


def came_safely(request: Request) -> bool:
    """Return True for a request over TLS, or from this machine without a proxy between."""
    is_forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-forwarded-proto"))
    is_here = request.client is not None and is_loopback(request.client.host) and not is_forwarded
    return is_here or came_over_tls(request)


def came_over_tls(request: Request) -> bool:
    """Return True if the browser or a proxy reports TLS; a false report affects only the client that sends it."""
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return "https" in {request.url.scheme, forwarded, request.headers.get("origin", "").partition(":")[0].lower()}
