"""`Idempotency-Key`: a write that is sent again because its answer was lost is done once.

The first request with a key does the work and continues if its client leaves; concurrent ones with the same key get the
same answer from its start. Later ones are answered by the same route, which finds the created items by their ids: items
erased meanwhile are missing. Failed requests can be sent again; after a crash, see `EarlierRequests`.
"""

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Depends, Request, Response
from msgspec import Struct, field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.server.access_checks import replay_body
from chatbot.server.earlier_requests import EarlierRequest, EarlierRequests, is_success
from chatbot.server.errors import Problem, problem_of
from chatbot.server.request_values import named_in_body
from chatbot.server.sse import Feed
from chatbot.stores.errors import StoreError

logger = logging.getLogger(__name__)

HEADER = "idempotency-key"
LONGEST_KEY = 255
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"
_MOST_BYTES = 1024 * 1024
_MOST_KEPT = 100
_NO_CONTENT = 204
_DISTINGUISHING = (b"x-chatbot-", b"if-match")
"""Headers that make requests with the same body different."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class IdempotentWrite(Struct):
    """One write. If it was done `before`, its route looks up the created items and does nothing."""

    before: Mapping[str, str] | None = None
    made: Mapping[str, str] | None = None
    is_unknown: bool = False
    """True if the outcome is unknown: then it is never repeated."""
    may_be_erased: bool = False
    """True if a session stores the content of the answer: then its text is never cached, even of a failed stream."""

    def note(self, **made: str) -> None:
        """Record the created ids, possibly none. Without a record only this process can repeat the answer."""
        self.made = made


async def _current_write(request: Request) -> IdempotentWrite:
    return getattr(request.state, "writing", None) or IdempotentWrite()


WritingHere = Annotated[IdempotentWrite, Depends(_current_write)]


class _Answer(Struct):
    """Answer to a request with a key, while it arrives."""

    request: str
    """The digest of the request."""
    messages: Feed[Message] = field(default_factory=Feed)
    error: Exception | None = None
    is_replayed: bool = False

    async def add(self, message: Message) -> None:
        """Add the next part."""
        self.messages.add(message)


class Idempotency:
    """ASGI middleware after `AccessChecks` and `RequestBodies`, which provide caller and body.

    Work that continues without a client is in `at_work`, which shutdown waits for.
    """

    def __init__(self, app: ASGIApp, *, at_work: set[asyncio.Task[None]], requests: EarlierRequests) -> None:
        self._app = app
        self._at_work = at_work
        self._requests = requests
        self._running: dict[tuple[str, str], _Answer] = {}
        self._kept: OrderedDict[tuple[str, str], Sequence[Message]] = OrderedDict()
        """Answers that cannot be recreated from stored data."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] not in _WRITES or "body" not in scope.get("state", {}):
            await self._app(scope, receive, send)
        elif len(key) > LONGEST_KEY or not re.fullmatch(KEY_PATTERN, key):
            why = f"an Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters, without outer spaces"
            problem = Problem(422, "invalid_idempotency_key", why, HEADER)
            await problem.response()(scope, receive, send)
        else:
            await self._answer(scope, (named_in_body(scope["state"]["caller"], scope).key, key), send)

    async def _answer(self, scope: Scope, name: tuple[str, str], send: Send) -> None:
        distinguishing = sorted(each for each in scope["headers"] if each[0].startswith(_DISTINGUISHING))
        head = repr((name, scope["method"], scope["path"], scope["query_string"], distinguishing)).encode()
        request = hashlib.sha256(head + scope["state"]["body"]).hexdigest()  # the key salts the hash of the body
        is_first = name not in self._running
        answer = self._running.setdefault(name, _Answer(request))
        if is_first:
            task = asyncio.create_task(self._handle(scope, name, answer))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)
        elif answer.request != request:
            await _OTHER_REQUEST.response()(scope, _never, send)
            return
        async for message in answer.messages.read():
            copy = {**message}  # outer layers change its headers
            if is_success(message.get("status", 0)) and (answer.is_replayed or not is_first):
                copy["headers"] = [*message["headers"], (b"idempotency-replayed", b"true")]
            await send(copy)
        if answer.error is not None:
            raise answer.error

    async def _handle(self, scope: Scope, name: tuple[str, str], answer: _Answer) -> None:
        try:
            known = await asyncio.to_thread(self._requests.begin, *name, answer.request)
            answer.is_replayed = known is not None
            await (self._do_first(scope, name, answer) if known is None else self._repeat(scope, name, answer, known))
        except Exception as error:  # noqa: BLE001 - it is raised in the waiting request
            if isinstance(error, StoreError) and not answer.messages.items:
                await problem_of(error, scope["state"]["caller"]).response()(scope, _never, answer.add)
            else:
                answer.error = error
        finally:
            del self._running[name]
            answer.messages.end()

    async def _do_first(self, scope: Scope, name: tuple[str, str], answer: _Answer) -> None:
        """Do the work, and record its end before the last part of the answer is sent."""
        writing, status = IdempotentWrite(), 500

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if is_last and not writing.is_unknown:
                await self._end(name, status, writing.made)
            answer.messages.add(message)

        try:
            await self._run_app(scope, writing, send)
        except Exception:
            await self._end(name, 500)
            raise
        if is_success(status) and status != _NO_CONTENT and writing.made is None and not writing.may_be_erased:
            self._keep(name, answer.messages.items)

    async def _end(self, name: tuple[str, str], status: int, made: Mapping[str, str] | None = None) -> None:
        """Record the end. A request whose end cannot be recorded counts as interrupted: its answer is given once."""
        try:
            await asyncio.to_thread(self._requests.end, *name, status, made)
        except StoreError as error:
            logger.warning("the end of a request could not be recorded: %s", error)

    async def _repeat(self, scope: Scope, name: tuple[str, str], answer: _Answer, known: EarlierRequest) -> None:
        if known.request != answer.request:
            await _OTHER_REQUEST.response()(scope, _never, answer.add)
        elif known.status is None:
            await _CUT_OFF.response()(scope, _never, answer.add)
        elif known.status == _NO_CONTENT:
            await Response(status_code=_NO_CONTENT)(scope, _never, answer.add)
        elif known.made is not None:
            await self._run_app(scope, IdempotentWrite(before=known.made), answer.add)
        elif name in self._kept:
            for message in self._kept[name]:
                answer.messages.add(message)
        else:
            await _NOT_KEPT.response()(scope, _never, answer.add)

    async def _run_app(self, scope: Scope, writing: IdempotentWrite, send: Send) -> None:
        scope["state"]["writing"] = writing
        # A client that leaves does not stop the work.
        await self._app(scope, replay_body(scope["state"]["body"], _never), send)

    def _keep(self, name: tuple[str, str], messages: Sequence[Message]) -> None:
        if sum(len(each.get("body", b"")) for each in messages) <= _MOST_BYTES:
            self._kept[name] = messages
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")


def _conflict(code: str, message: str) -> Problem:
    return Problem(409, f"idempotency_{code}", message, HEADER)


_OTHER_REQUEST = _conflict("key_reused", "this key was used for another request: use a new one for each request")
_CUT_OFF = _conflict("cut_off", "the request may be done or still running: if it is not done, send it with a new key")
_NOT_KEPT = _conflict("answer_gone", "this request was completed before; its answer was not stored")
