"""Log in and out: a token is typed once, and kept in a cookie that no script can read."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from chatbot.errors import IdentityError
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.doors import COOKIE, LOGIN, is_loopback
from chatbot.server.page.rendering import Fields, PageRoute, goto, render_page

_TRIES_PER_MINUTE = 30
_FOR_30_DAYS = 30 * 24 * 3600

router = APIRouter(route_class=PageRoute)


@router.get("/")
async def begin(identities: IdentitiesHere, caller: CallerHere) -> Response:
    """Redirect to the default identity."""
    known = identities.names_for(caller)
    if not known:
        raise IdentityError("no identity is available to you")
    return goto(f"/i/{known[0]}")


@router.get(LOGIN)
async def ask_for_token(request: Request) -> Response:
    """Render the login form."""
    return render_page(request, "login.html", wrong="")


@router.post(LOGIN)
async def log_in(request: Request, identities: IdentitiesHere, fields: Fields) -> Response:
    """Set the cookie if the token is valid."""
    wait = identities.rates.take(f"login {request.client.host if request.client else ''}", _TRIES_PER_MINUTE)
    if wait:
        return render_page(request, "login.html", status=429, wrong=f"Too many attempts: wait {wait:.0f} seconds.")
    text = fields.get("token", "").strip()
    if await asyncio.to_thread(identities.tokens.find, text) is None:
        return render_page(request, "login.html", status=401, wrong="Invalid token.")
    answer = goto("/")
    secure = _came_over_tls(request)
    answer.set_cookie(COOKIE, text, max_age=_FOR_30_DAYS, httponly=True, samesite="strict", secure=secure)
    return answer


def came_safely(request: Request) -> bool:
    """Return True for a request over TLS, or from this machine without a proxy between."""
    is_forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-forwarded-proto"))
    is_here = request.client is not None and is_loopback(request.client.host) and not is_forwarded
    return is_here or _came_over_tls(request)


def _came_over_tls(request: Request) -> bool:
    """Return True if the browser or a proxy reports TLS; a false report affects only the client that sends it."""
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return "https" in {request.url.scheme, forwarded, request.headers.get("origin", "").partition(":")[0].lower()}


@router.post("/logout")
async def log_out() -> Response:
    """Delete the cookie."""
    answer = goto(LOGIN)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
