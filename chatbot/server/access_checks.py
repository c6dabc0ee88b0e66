"""Access checks of every request and web socket, for all routes, and limits on request bodies.

Any page can make a browser send requests. So the Host header must be a known name of this server (otherwise a foreign
domain could point to it), and requests from pages of other sites are refused.
"""

import asyncio
import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from urllib.parse import quote, unquote_to_bytes, urlsplit

from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.config import ServerSettings
from chatbot.errors import ChatbotError
from chatbot.server.callers import OWNER, ServerCaller, Tokens
from chatbot.server.errors import Problem, problem_of
from chatbot.server.request_values import named_in_headers
from chatbot.stores.errors import StoreAway, StoreBusy, StoreError
from chatbot.trust import is_loopback

COOKIE = "chatbot_token"
LOGIN = "/login"
OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths that need no token; Host and Origin are still checked."""
IS_SURPLUS = "is_surplus"
"""State of requests over connections above `[server] connections`: a function, True while there are more than that."""
LONGEST_HEAD = 32 * 1024
"""Maximum bytes of a request's address and headers."""
_FAILURES_PER_MINUTE = 60
_LOOK_EVERY_S = 1.0
"""How often a token is checked while an answer is streamed."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


_MOST_BUCKETS = 10_000


class RateLimits:
    """A bucket of requests for each caller, refilled evenly; above a maximum, the least recently used are dropped."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, per_minute: int) -> float:
        """Take one request; return 0, or the seconds to wait if the bucket is empty. A rate of 0 is no limit."""
        if per_minute <= 0:
            return 0.0
        now = time.monotonic()
        left, at = self._buckets.pop(key, (float(per_minute), now))
        left = min(per_minute, left + (now - at) * per_minute / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / per_minute
        self._buckets[key] = (left if wait else left - 1, now)
        while len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return wait


class AccessChecks:
    """ASGI middleware that sets the `ServerCaller` in `scope["state"]["caller"]` or refuses the request.

    The owner needs no token if `settings.host` is loopback and no token has existed since the start. `open_paths` need
    none; one that ends with a slash covers all paths below. If only one `identity` is served, a token must open it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServerSettings,
        tokens: Tokens,
        rates: RateLimits,
        open_paths: Collection[str] = OPEN_PATHS,
        identity: str | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._tokens = tokens
        self._open_paths = open_paths
        self._identity = identity
        self._rates = rates
        self._hosts = _LOOPBACK | {each.lower() for each in (settings.host, *settings.allowed_hosts)}
        self._allows_any_address = not is_loopback(settings.host)
        self._owner_may_enter = is_loopback(settings.host) and not tokens.all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request or web socket."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        try:
            caller = scope.setdefault("state", {})["caller"] = await self._let_in(scope, Headers(scope=scope))
        except (ChatbotError, StoreError) as error:
            return await _turn_away(problem_of(error).for_path(scope["path"]), scope, receive, send)
        if scope["type"] == "http" and caller is not None and caller.token:
            send = self._while_valid(send, caller.token)
        return await self._app(scope, receive, send)

    def _while_valid(self, send: Send, token_id: str) -> Send:
        """Return a `send` that ends a long answer once the token is revoked."""
        looked_at, is_over, is_stream = time.monotonic(), False, False

        async def checked(message: Message) -> None:
            nonlocal looked_at, is_over, is_stream
            if message["type"] == "http.response.start":
                is_stream = not any(name == b"content-length" for name, _ in message["headers"])
            elif is_stream and not is_over and time.monotonic() - looked_at > _LOOK_EVERY_S:
                looked_at = time.monotonic()
                with suppress(StoreAway, StoreBusy):  # no token can be revoked there meanwhile
                    is_over = all(each.id != token_id for each in await asyncio.to_thread(self._tokens.all))
                if is_over:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            if not is_over:
                await send(message)

        return checked

    async def _let_in(self, scope: Scope, headers: Headers) -> ServerCaller | None:
        _check_head(scope)
        self._check_host(headers)
        self._check_site(scope, headers)
        path = scope["path"]
        if any(path == known or (known.endswith("/") and path.startswith(known)) for known in self._open_paths):
            return None
        is_surplus = scope["state"].get(IS_SURPLUS)
        if is_surplus is not None and is_surplus():
            why = f"all {self._settings.connections} connections are in use: see [server] connections"
            raise Problem(503, "busy", why, headers={"retry-after": "5", "connection": "close"})
        caller = await self._caller(headers, (scope.get("client") or ("", 0))[0])
        self._check_rate(caller.key, caller.rate_per_minute or self._settings.rate_per_minute)
        return named_in_headers(caller, headers)

    def _check_host(self, headers: Headers) -> None:
        values = headers.getlist("host")
        name = _host_name(values[0]) if len(values) == 1 else None
        if name is None or not (name in self._hosts or (self._allows_any_address and _is_address(name))):
            raise Problem(421, "host_not_allowed", "Host does not name this server: see [server] allowed_hosts")

    def _check_site(self, scope: Scope, headers: Headers) -> None:
        """Refuse requests of other sites' pages, except following a link to this server."""
        origin = headers.get("origin")
        if origin is not None:
            is_own = origin.lower() in {f"{scheme}://{headers['host'].lower()}" for scheme in ("http", "https")}
            allowed = is_own or origin in self._settings.allowed_origins
        else:
            follows_link = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in {"GET", "HEAD"}
            allowed = headers.get("sec-fetch-site") in {None, "same-origin", "none"} or follows_link
        if not allowed:
            raise Problem(403, "origin_not_allowed", "this page is of a site that is not in [server] allowed_origins")

    async def _caller(self, headers: Headers, address: str) -> ServerCaller:
        self._owner_may_enter = self._owner_may_enter and not await asyncio.to_thread(self._tokens.all)
        if self._owner_may_enter:  # not once there was a token: revoking it must not give its holder more rights
            # Any key is accepted: some clients need one.
            return replace(OWNER, users=self._settings.users, memory=self._settings.memory)
        token = await asyncio.to_thread(self._tokens.find, token_in(headers))
        if token is None or not (self._identity is None or token.caller().may_enter(self._identity)):
            self._check_rate(f"failed {address}", _FAILURES_PER_MINUTE)
            why = "a valid token is required: `Authorization: Bearer …`; `chatbot token add` creates one"
            raise Problem(401, "invalid_token", why, headers={"www-authenticate": "Bearer"})
        return token.caller()

    def _check_rate(self, key: str, per_minute: int) -> None:
        wait = math.ceil(self._rates.take(key, per_minute))
        if wait:
            why = f"at most {per_minute} requests per minute: try again in {wait} s"
            raise Problem(429, "too_many_requests", why, headers={"retry-after": str(wait)})


def _check_head(scope: Scope) -> None:
    """Refuse a large head that arrived in one piece (uvicorn limits only incomplete ones), and one with two lengths.

    And an address that is not UTF-8: two such keys or users would be decoded to one.
    """
    parts = (scope["path"].encode(), scope["query_string"], *(part for header in scope["headers"] for part in header))
    if sum(map(len, parts)) > LONGEST_HEAD:
        raise Problem(400, "bad_request", f"the head has more than {LONGEST_HEAD:,} bytes")
    try:
        unquote_to_bytes(b"?".join((scope["raw_path"], scope["query_string"]))).decode()
    except UnicodeDecodeError:
        raise Problem(400, "bad_request", "the address is not valid UTF-8") from None
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:  # a proxy may use either
        raise _closing_refusal(400, "bad_request", "send Content-Length or Transfer-Encoding, not both")


def token_in(headers: Mapping[str, str]) -> str:
    """Return the token of a request, as bearer or in the page's cookie; empty if it has neither."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    if scheme:
        return text.strip() if scheme.lower() == "bearer" else ""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")  # as browsers do, whatever others set beside it


def _host_name(host: str) -> str | None:
    """Return the name in a Host header without the port; None if it is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return None
    is_plain = not ("@" in host or parts.path or parts.query or parts.fragment)
    return parts.hostname if is_plain else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def shows_page(scope: Scope) -> bool:
    """Return True for a browser that opens a page."""
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


async def _turn_away(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": problem.message})
    elif problem.status == 401 and shows_page(scope):
        query = scope["query_string"].decode("latin-1")
        back = quote(f"{scope['path']}?{query}" if query else scope["path"])
        await RedirectResponse(f"{LOGIN}?to={back}", 303, headers={"cache-control": "no-store"})(scope, receive, send)
    else:
        await problem.response()(scope, receive, send)


_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MEDIA_TYPES = {"/v1/": _JSON, "/mcp": _JSON, "/i/": _FORM, "/log": _FORM}
"""Required media types by start of the path."""
_WITH_FILES = re.compile(r"/v1/(chat/completions|responses|sync|sessions/[^/]+/chat)|/i/[^/]+/(say|c/[^/]+/say)")
"""Paths to which files may be sent."""
_FILE = re.compile(rb"data(?::|%3A)[\w.+/%;= -]{0,200}?base64(?:,|%2C)[\w+/=%-]*", re.IGNORECASE)
"""A `data:` URL in JSON or in a form; text that only begins like one counts as text."""
_MOST_WITH_FILES = 8
"""How many bodies with files are read at once, as each is held until it is complete."""
_READ_ON = 4
"""Before it is refused, a request with files is read to its end, up to this many times the limit."""
_BYTES_PER_TIMEOUT = 1 << 20
"""A body gets its time limit once more for each this many bytes."""


class RequestBodies:
    """ASGI middleware that reads the bodies of requests to the API, to the page and over MCP.

    JSON for the API and MCP, forms for the page; bounded in size and time. The app gets a body once it is complete.
    """

    def __init__(self, app: ASGIApp, *, most_bytes: int, timeout_s: float, attached_bytes: int = 0) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._attached_bytes = attached_bytes
        self._timeout_s = timeout_s
        self._reading = asyncio.Semaphore(_MOST_WITH_FILES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the body of one request."""
        media = next((kind for begin, kind in _MEDIA_TYPES.items() if scope.get("path", "").startswith(begin)), None)
        if media is None or scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = await self._read(scope, receive, media)
        if body is None:
            return None
        if isinstance(body, Problem):
            return await body.response()(scope, receive, send)
        scope["state"]["body"] = body
        return await self._app(scope, replay_body(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, media_type: str) -> bytes | Problem | None:  # noqa: PLR0911 - one for each fault
        """Return the whole body, or why it is refused; None if the client left before its end."""
        headers = Headers(scope=scope)
        takes_files = _WITH_FILES.fullmatch(scope["path"]) is not None
        most = self._most_bytes + (self._attached_bytes if takes_files else 0)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            if takes_files and length.isdecimal() and int(length) < _READ_ON * most:
                await self._read_on(receive)
            return self._too_large(takes_files=takes_files)
        body = bytearray()
        may_be_large = takes_files and ("transfer-encoding" in headers or int(length) > self._most_bytes)
        turn: AbstractAsyncContextManager[None] = self._reading if may_be_large else nullcontext()
        timeout_s = self._timeout_s * (1 + int(length) // _BYTES_PER_TIMEOUT)
        try:
            async with turn, asyncio.timeout(timeout_s):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > most:
                        return self._too_large(takes_files=takes_files)
                    if not message.get("more_body"):
                        break
                else:  # the client left
                    return None
        except TimeoutError:
            return _closing_refusal(408, "request_timeout", f"the request did not arrive within {timeout_s:g} s")
        if len(body) > self._most_bytes and len(_FILE.sub(b"", body)) > self._most_bytes:
            return self._too_large(takes_files=False)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_readable = kind == media_type and headers.get("content-encoding", "identity") == "identity"
        if body and scope["method"] not in _WITHOUT_BODY and not is_readable:
            return Problem(415, "unsupported_media_type", f"the body must be sent as {media_type}, uncompressed")
        return bytes(body)

    async def _read_on(self, receive: Receive) -> None:
        """Read and discard the rest: a client that is still sending would not see the answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                    pass

    def _too_large(self, *, takes_files: bool) -> Problem:
        files = f", and {self._attached_bytes:,} bytes of files in base64: see attachments_kb" if takes_files else ""
        most = f"a request may hold at most {self._most_bytes:,} bytes: see body_kb{files}"
        return _closing_refusal(413, "body_too_large", most)


def _closing_refusal(status: int, code: str, message: str) -> Problem:
    """Return a refusal that closes the connection, as the rest of the request is unread."""
    return Problem(status, code, message, headers={"connection": "close"})


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body, and then later messages."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
