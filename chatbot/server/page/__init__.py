"""The web page: rendered on the server, usable without JavaScript. Most of its forms run an operation."""

import asyncio
from typing import Any, get_args

from fastapi import APIRouter, Request, Response
from msgspec import Struct

from chatbot.operation import REQUIRED, Parameter
from chatbot.operations import OPERATIONS
from chatbot.server.access_checks import COOKIE, LOGIN
from chatbot.server.bind import check_value
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.page import chat, memories, rendering, sessions, settings
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import InvalidValue

_TRIES_PER_MINUTE = 30
_FOR_30_DAYS = 30 * 24 * 3600
_CHOSEN = "id:"
"""Prefix of the checkboxes that select memories."""
PAGE_PATHS = frozenset({LOGIN, f"{rendering.PATH}/"})
"""Paths that need no token: the login and the assets."""
_entrance = APIRouter(route_class=rendering.PageRoute)
"""Routes of no identity: a token is typed once, and kept in a cookie that no script can read."""


class PageForm(Struct, frozen=True):
    """A form that runs `operation` with fixed values `given`, and shows the page `then`, or that of the field `back`.

    A field separates several values by commas; checkboxes can select memories.
    """

    operation: str
    then: str
    given: dict[str, Any] = {}


FORMS = {
    "/memory": PageForm("remember", "/memory?done={outcome}"),
    "/memory/hide": PageForm("forget_memory", "/memory?hidden={chosen}"),
    "/memory/restore": PageForm("restore_memory", "/memory?done=restored"),
    "/memory/{memory_id}/confirm": PageForm("confirm_memory", "/memory/{memory_id}?done=confirmed"),
    "/memory/{memory_id}/forget": PageForm("forget_memory", "/memory/{memory_id}?done=forgotten"),
    "/memory/{memory_id}/mark": PageForm("change_memory", "/memory/{memory_id}?done=marked"),
    "/memory/{memory_id}/purge": PageForm("forget_memory", "/memory?done=erased", {"purge": True}),
    "/memory/{memory_id}/restore": PageForm("restore_memory", "/memory/{memory_id}?done=restored"),
    "/c/{session_id}/delete": PageForm("delete_session", "/sessions?done=deleted"),
    "/c/{session_id}/mark": PageForm("mark_session", "/c/{session_id}"),
    "/c/{session_id}/pin": PageForm("pin_session", "/c/{session_id}"),
    "/c/{session_id}/rename": PageForm("rename_session", "/c/{session_id}"),
    "/profile": PageForm("set_profile", "/profile"),
    "/profile/{key:path}/pin": PageForm("pin_profile", "/profile"),
    "/profile/{key:path}/forget": PageForm("forget_profile", "/profile?hidden={key}"),
    "/profile/proposals/{memory_id}/accept": PageForm("accept_proposal", "/profile"),
    "/profile/proposals/{memory_id}/reject": PageForm("reject_proposal", "/profile"),
    "/tasks": PageForm("add_task", "/tasks"),
    "/tasks/{task_id}": PageForm("change_task", "/tasks"),
}


def add_page(app: APIRouter) -> None:
    """Serve the page at `/`. Its routes are not part of the documented API."""
    for routes in (_entrance, *(part.router for part in (chat, sessions, memories, settings))):
        app.include_router(routes, include_in_schema=False)
    forms = APIRouter(route_class=rendering.PageRoute, prefix="/i/{identity}")
    for path, form in FORMS.items():
        _add_form(forms, path, form)
    app.include_router(forms, include_in_schema=False)
    app.mount(rendering.PATH, rendering.Assets(), name="assets")


def _add_form(router: APIRouter, path: str, form: PageForm) -> None:
    operation = OPERATIONS[form.operation]
    offered = {  # text fields, choices and checkboxes
        name: each
        for name, each in operation.at("http").items()
        if each.item is bool or each.choices or str in get_args(each.item)
    }

    @router.post(path)
    async def run(request: Request, access: rendering.AccessHere, fields: rendering.Fields) -> Response:
        chosen = ",".join(name.removeprefix(_CHOSEN) for name in fields if name.startswith(_CHOSEN))
        sent = fields | ({"memory_id": chosen} if chosen else {}) | request.path_params
        given = {each.name: _value(each, sent[name]) for name, each in offered.items() if name in sent} | form.given
        if missing := [
            each.name for each in offered.values() if each.default_at("http") is REQUIRED and each.name not in given
        ]:
            raise InvalidValue("choose at least one" if missing[0] == "ids" else f"{missing[0]}: a value is required")
        result = await operation.run(access.context, "http", given)
        if not rendering.is_part(request):
            then = form.then.format(**request.path_params, chosen=chosen, outcome=getattr(result, "outcome", ""))
            return rendering.goto(rendering.base(access) + (fields.get("back") or then))
        if "memory_id" not in request.path_params:
            return Response(status_code=204)
        row = await access.memories.row(request.path_params["memory_id"], sensitivities=SENSITIVITIES)
        return rendering.render_part("row.html", access, row=row)


def _value(parameter: Parameter, text: str) -> Any:
    if parameter.item is bool:
        return True
    if parameter.choices and text not in parameter.choices:
        raise InvalidValue(f"{parameter.name}: {text!r:.40} is not one of {', '.join(parameter.choices)}")
    return check_value(parameter, list(filter(None, map(str.strip, text.split(",")))) if parameter.is_list else text)


@_entrance.get("/")
async def show_default(identities: IdentitiesHere, caller: CallerHere) -> Response:
    """Redirect to the default identity."""
    return rendering.goto(f"/i/{identities.default_for(caller)}")


@_entrance.get(LOGIN)
async def ask_for_token(request: Request, to: str = "") -> Response:
    """Render the login form, which leads back to the page `to`."""
    return rendering.render_page(request, "login.html", wrong="", to=to)


@_entrance.post(LOGIN)
async def log_in(request: Request, identities: IdentitiesHere, fields: rendering.Fields) -> Response:
    """Set the cookie if the token is valid."""
    text, to = fields.get("token", "").strip(), fields.get("to", "")
    if wait := identities.rates.take(f"login {request.client.host if request.client else ''}", _TRIES_PER_MINUTE):
        wrong = f"Too many attempts: wait {wait:.0f} seconds."
        return rendering.render_page(request, "login.html", status=429, wrong=wrong, to=to)
    if await asyncio.to_thread(identities.tokens.find, text) is None:
        return rendering.render_page(request, "login.html", status=401, wrong="Invalid token.", to=to)
    answer = rendering.goto(to if to.startswith("/i/") else "/")
    secure = rendering.came_over_tls(request)
    answer.set_cookie(COOKIE, text, max_age=_FOR_30_DAYS, httponly=True, samesite="strict", secure=secure)
    return answer


@_entrance.post("/logout")
async def log_out() -> Response:
    """Delete the cookie, and the pictures that the browser keeps for an hour."""
    answer = rendering.goto(LOGIN)
    answer.headers["clear-site-data"] = '"cache"'
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
