"""The application: routes, access checks, error handlers, health checks and metrics."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.errors import ChatbotError
from chatbot.operation import Operation
from chatbot.operations import OPERATIONS
from chatbot.server.access_checks import OPEN_PATHS, AccessChecks, RequestBodies, shows_page
from chatbot.server.bind import router_of
from chatbot.server.dependencies import CallerHere, IdentitiesHere, known_parameters_only
from chatbot.server.document import DocumentedApi, methods_of
from chatbot.server.errors import EVERYWHERE, OPENAI_PATHS, REQUEST, UNSUPPORTED, Problem, invalid, problem_of
from chatbot.server.idempotency import Idempotency
from chatbot.server.identities import Identities, IdentityUse
from chatbot.server.native import administration, agents, conversation
from chatbot.server.openai import completions, models, responses
from chatbot.server.page import PAGE_PATHS, add_page
from chatbot.server.page.rendering import problem_page
from chatbot.server.request_values import VISIBLE
from chatbot.server.shapes import Shape
from chatbot.server.sse import ENCODE_ERROR
from chatbot.stores.errors import FullDisk, ReadOnlyFolder, StoreAway, StoreError, UnknownOutcome

if TYPE_CHECKING:
    from chatbot.telemetry.telemetry import Telemetry  # needs the extra

_DESCRIPTION = """\
A chat bot that remembers. Send a token as `Authorization: Bearer …`; on this machine none is needed while no tokens
exist. `identity` selects the identity; the default is the first that the token opens.
"""


def create_app(identities: Identities) -> FastAPI:
    """Return the server of these identities, an ASGI app; it closes them when it shuts down."""
    settings = identities.settings
    app = DocumentedApi(
        title="chatbot",
        version="1",
        description=_DESCRIPTION,
        lifespan=_closing,
        docs_url=None,  # those pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to http:, also behind TLS; `Envelope` drops the slash
        exception_handlers={
            **dict.fromkeys((ChatbotError, StoreError), _answer_known_error),
            RequestValidationError: _answer_invalid_request,
            HTTPException: _answer_http_error,
        },
    )
    app.state.identities = identities
    app.router.routes.extend(_routes(tuple(OPERATIONS.values())))
    if identities.telemetry is not None and identities.telemetry.registry is not None:
        app.include_router(_metrics_router(identities.telemetry))
    # The last one added runs first.
    app.add_middleware(IdentityUse, runtimes=identities.runtimes)
    app.add_middleware(Idempotency, at_work=identities.at_work, requests=identities.requests)
    app.add_middleware(
        RequestBodies,
        most_bytes=settings.body_kb * 1024,
        attached_bytes=settings.attachments_kb * 1024,
        timeout_s=settings.request_timeout_s,
    )
    if identities.telemetry is not None:
        from chatbot.telemetry.telemetry import TraceparentMiddleware  # needs the extra

        app.add_middleware(TraceparentMiddleware)
    open_paths = OPEN_PATHS | PAGE_PATHS
    app.add_middleware(
        AccessChecks, settings=settings, tokens=identities.tokens, rates=identities.rates, open_paths=open_paths
    )
    app.add_middleware(Envelope)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    return app


@lru_cache(maxsize=2)  # making them takes longer than the rest of an app; they hold no state of it
def _routes(operations: tuple[Operation, ...]) -> tuple[BaseRoute, ...]:
    every = APIRouter()
    openai = models.router, completions.router, responses.router
    own = agents.router, router_of(operations), conversation.router
    administering = administration.users_router, administration.usage_router, administration.machines_router
    for router in (*openai, *own, *administering):
        every.include_router(router, dependencies=[Depends(known_parameters_only)])
    add_page(every)
    every.include_router(_health_router)
    return tuple(every.routes)


class Health(Shape):
    """State of the server."""

    status: Literal["ok"] = "ok"
    """The server runs."""
    storage: Literal["ok", "away"]
    """`away` while the storage cannot be used; the server continues by itself once it can."""


_health_router = APIRouter(tags=["server"])


@_health_router.get("/health", summary="Health check")
async def health(identities: IdentitiesHere) -> Health:
    """Return 200 for as long as the server runs, with the state of the storage: no token is needed."""
    return Health(storage="ok" if await identities.storage.error() is None else "away")


@_health_router.get("/ready", summary="Check whether requests can be served", responses={503: EVERYWHERE[503]})
async def ready(identities: IdentitiesHere) -> Health:
    """Return 503 while the storage takes no writes, so that a load balancer asks another server: no token is needed."""
    if error := await identities.storage.error():
        raise error if isinstance(error, FullDisk | ReadOnlyFolder | StoreAway) else StoreAway(str(error)) from error
    return Health(storage="ok")


def _metrics_router(telemetry: "Telemetry") -> APIRouter:
    router = APIRouter(tags=["server"], responses=EVERYWHERE)

    @router.get(
        "/metrics",
        summary="Metrics in the format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "The metrics."}},
    )
    async def metrics(request: Request, identities: IdentitiesHere, caller: CallerHere) -> Response:
        """Return the metrics to a metrics token, or one that opens every identity with full clearance."""
        if not identities.may_read_metrics(caller):
            why = "this token does not open the metrics: `chatbot token add LABEL --metrics` creates one that does"
            raise Problem(403, "metrics_not_allowed", why)
        body, media_type = await asyncio.to_thread(telemetry.read, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    return router


@asynccontextmanager
async def _closing(app: FastAPI) -> AsyncIterator[None]:
    async with app.state.identities:
        yield


async def _answer_known_error(request: Request, error: Any) -> JSONResponse:
    if isinstance(error, UnknownOutcome) and (writing := getattr(request.state, "writing", None)):
        writing.is_unknown = True
    return problem_of(error, getattr(request.state, "caller", None)).for_path(request.url.path).response()


async def _answer_invalid_request(request: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why = f"the body is not valid JSON: {first['ctx']['error'].lower()}, at character {first['loc'][-1]}"
        return invalid(why).for_path(request.url.path).response()
    code = UNSUPPORTED if first["type"] == UNSUPPORTED else "invalid_value"
    return invalid(_why(first), _place_of(first, error.body) or None, code).for_path(request.url.path).response()


def _place_of(error: dict[str, Any], given: Any) -> str:
    """Return the place of an error in the request, of which its location also names variants of types."""
    where, *parts = error["loc"]
    place = []
    for at, part in enumerate(parts, 1):
        is_there = part in given if isinstance(given, dict) else isinstance(given, list) and part in range(len(given))
        given = given[part] if is_there else given
        if is_there or where != "body" or (error["type"] == "missing" and at == len(parts)):
            place.append(str(part))
    return ".".join(place)


def _why(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field: /openapi.json lists those of each route"
    if error["type"] == "model_attributes_type" or (error["type"], error["loc"]) == ("missing", ("body",)):
        return "a JSON object is required"
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return "it must not be empty" if pattern == VISIBLE else f"it must match {pattern}"
    why = error["msg"].removeprefix("Value error, ")
    return f"{why[:1].lower()}{why[1:]}"


async def _answer_http_error(request: Request, error: Any) -> Response:
    if error.status_code == 400:
        return invalid("the body is not valid JSON").for_path(request.url.path).response()
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    route = request.scope.get("route")  # static files have none
    if error.status_code == 405 and route and (methods := await methods_of(request.app, route.path_format)):
        headers["allow"] = ", ".join(methods)  # each route knows only its own method
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    message = str(error.detail).lower()
    path = request.url.path
    if error.status_code == 404 and (path.startswith("/v1/") or f"/v1{path}" in OPENAI_PATHS):
        routes = ", ".join(OPENAI_PATHS)
        message = f"this server has no {path}: its OpenAI routes are {routes}; GET /openapi.json lists all routes"
    problem = Problem(error.status_code, code, message, headers=headers)
    is_page = shows_page(request.scope) and not path.startswith("/v1/")
    return problem_page(request, problem) if is_page else problem.response()


_OWN_WORDS = re.compile("(/(?:by-key|profile|projects|files)/).+")  # keys and names are words of a user
_STOPPED = Problem(
    503,
    "outcome_unknown",
    "the server stopped before this was complete: check whether it was done before you repeat it",
    headers={"retry-after": "5", "x-should-retry": "false"},
)


class Envelope:
    """ASGI middleware, the outermost: gives every answer an id, and forbids caches to store private content.

    Lines of the log name the id. It also answers unexpected errors, treats `HEAD` as `GET` (uvicorn omits the body),
    and drops a slash at the end of a path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        is_head = scope["method"] == "HEAD"
        request_id = f"req_{uuid.uuid4().hex}"
        address = _OWN_WORDS.sub(r"\1…", scope["raw_path"].decode("latin-1"))  # without line breaks
        REQUEST.set(f" [{request_id} {scope['method']} {address}]")
        has_begun = False
        state = scope.setdefault("state", {})

        async def send_marked(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                headers.setdefault("x-request-id", request_id)
                if scope["path"].startswith("/v1/"):
                    headers.setdefault("cache-control", "no-store")
            elif not message.get("more_body"):
                state.pop(ENCODE_ERROR, None)
            await send(message)

        inner = {**scope, "method": "GET" if is_head else scope["method"]}
        if scope["raw_path"].endswith(b"/"):  # %2F belongs to a name
            inner["path"] = scope["path"].removesuffix("/") or "/"
        try:
            await self._app(inner, receive, send_marked)
        except asyncio.CancelledError:  # the server stops, and uvicorn would say only that it failed
            await _say_stopped(inner, receive, send_marked, has_begun=has_begun)
            raise
        except Exception as error:
            if has_begun:
                raise
            await problem_of(error).response()(inner, receive, send_marked)


async def _say_stopped(scope: Scope, receive: Receive, send: Send, *, has_begun: bool) -> None:
    if not has_begun:
        await _STOPPED.response()(scope, receive, send)
    elif encode_error := scope["state"].get(ENCODE_ERROR):
        await send({"type": "http.response.body", "body": encode_error(_STOPPED)})
