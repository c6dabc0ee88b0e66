"""`Idempotency-Key`: a write that is sent again because its answer was lost is done once.

The first request with a key does the work and continues if its client leaves; concurrent requests with the same key
get the same answer from its start. Later ones are answered by the same route, which finds the created items by their
ids and creates nothing: no text is stored, and items erased meanwhile are missing in the answer. Failed requests are
not stored, so that they can be sent again. `Requests` describes crashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.server.callers import Caller
from chatbot.server.earlier_requests import EarlierRequest, Requests
from chatbot.server.errors import CONFLICT, INVALID, Problem, problem_of
from chatbot.server.feed import Feed
from chatbot.server.idempotent_write import IdempotentWrite
from chatbot.server.request_values import named_in_body
from chatbot.stores.errors import StoreError

HEADER = "idempotency-key"
_MOST_BYTES = 1024 * 1024
_MOST_KEPT = 100
LONGEST_KEY = 255
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"
_NO_CONTENT = 204
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Name = tuple[str, str]


@dataclass(slots=True)
class _Answer:
    """Answer to a request with a key, while it arrives, and afterwards if no stored item can reproduce it."""

    request: str
    writing: IdempotentWrite = field(default_factory=IdempotentWrite)
    messages: Feed[Message] = field(default_factory=Feed)
    size: int = 0
    status: int = 0
    error: Exception | None = None
    is_replayed: bool = False

    @property
    def is_done(self) -> bool:
        return self.error is None and 200 <= self.status < 300

    @property
    def is_kept(self) -> bool:
        """True if only this process can repeat the answer."""
        return self.is_done and self.writing.made is None and self.size <= _MOST_BYTES and not self.is_replayed


class Idempotency:
    """ASGI middleware after `Doors` and `Bodies`, which provide caller and body.

    Work that continues without a client is in `at_work`, which shutdown waits for. `is_known` returns False for paths
    that do not exist, whose requests are passed on.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        at_work: set[asyncio.Task[None]],
        requests: Requests,
        is_known: Callable[[Scope], bool] = lambda _: True,
    ) -> None:
        self._app = app
        self._is_known = is_known
        self._at_work = at_work
        self._requests = requests
        self._answers: OrderedDict[Name, _Answer] = OrderedDict()
        requests.when_forgotten.append(self._forget)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] not in _WRITES or "body" not in scope.get("state", {}):
            return await self._app(scope, receive, send)
        if not self._is_known(scope):
            return await self._app(scope, receive, send)
        if len(key) > LONGEST_KEY or not re.fullmatch(KEY_PATTERN, key):
            return await _bad_key().response()(scope, receive, send)
        caller: Caller = named_in_body(scope["state"]["caller"], scope)
        name, request = (caller.key, key), _request(scope, key)
        answer, is_new = self._answers.get(name), False
        if answer is None:
            answer, is_new = self._begin(scope, name, request), True
        if answer.request != request:
            return await _other_request().response()(scope, receive, send)
        return await _replay(answer, send, is_first=is_new)

    def _forget(self, ends: tuple[str, ...]) -> None:
        for name in [each for each in self._answers if each[0].endswith(ends)]:
            if self._answers[name].is_done:
                del self._answers[name]

    def _begin(self, scope: Scope, name: Name, request: str) -> _Answer:
        answer = self._answers[name] = _Answer(request)
        task = asyncio.create_task(self._work(scope, name, answer))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        return answer

    async def _work(self, scope: Scope, name: Name, answer: _Answer) -> None:
        try:
            known = await asyncio.to_thread(self._requests.begin, *name, answer.request)
            if known is None:
                await self._do(scope, name, answer)
            else:
                answer.is_replayed = True
                await self._tell(scope, known, answer)
        except StoreError as error:
            await problem_of(error, scope["state"]["caller"]).response()(scope, _nothing, _into(answer))
        except Exception as error:  # noqa: BLE001 - it is raised again where someone waits for the answer
            answer.error = error
        finally:
            self._let_go(name, answer)
            answer.messages.end()

    async def _do(self, scope: Scope, name: Name, answer: _Answer) -> None:
        """Do the work, and record its completion before the last part of the answer is sent."""

        async def send(message: Message) -> None:
            answer.status = message.get("status", answer.status)
            answer.size += len(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await self._end(name, answer)
            answer.messages.add(message)

        try:
            await self._run(scope, answer, send)
        except Exception:
            await asyncio.to_thread(self._requests.fail, *name)
            raise

    async def _end(self, name: Name, answer: _Answer) -> None:
        writing = answer.writing
        if answer.status == _NO_CONTENT and writing.made is None:
            writing.note()
        if answer.is_done:
            await asyncio.to_thread(self._requests.end, *name, answer.status, writing.made)
        else:
            await asyncio.to_thread(self._requests.fail, *name)

    async def _tell(self, scope: Scope, known: EarlierRequest, answer: _Answer) -> None:
        """Answer a repeated request."""
        send = _into(answer)
        if known.request != answer.request:
            return await _other_request().response()(scope, _nothing, send)
        if known.status is None:
            return await _cut_off().response()(scope, _nothing, send)
        if known.made is None:
            return await _not_kept().response()(scope, _nothing, send)
        if known.status == _NO_CONTENT:
            await send({"type": "http.response.start", "status": known.status, "headers": []})
            return await send({"type": "http.response.body", "body": b""})
        answer.writing.before = known.made
        return await self._run(scope, answer, send)

    async def _run(self, scope: Scope, answer: _Answer, send: Send) -> None:
        scope["state"]["writing"] = answer.writing
        await self._app(scope, _never_leaving(scope["state"]["body"]), send)

    def _let_go(self, name: Name, answer: _Answer) -> None:
        if not answer.is_kept:
            del self._answers[name]
        for old in list(self._answers)[: max(0, len(self._answers) - _MOST_KEPT)]:
            if self._answers[old].is_kept:
                del self._answers[old]


def _into(answer: _Answer) -> Send:
    async def send(message: Message) -> None:
        answer.status = message.get("status", answer.status)
        answer.messages.add(message)

    return send


async def _replay(answer: _Answer, send: Send, *, is_first: bool) -> None:
    async for message in answer.messages.read():
        if message["type"] == "http.response.start" and (answer.is_replayed or not is_first) and answer.is_done:
            copy = {**message, "headers": list(message["headers"])}
            MutableHeaders(raw=copy["headers"])["idempotency-replayed"] = "true"
            await send(copy)
        else:
            await send(message)
    if answer.error is not None:
        raise answer.error


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _never_leaving(body: bytes) -> Receive:
    """Receive channel of the app: the body, then nothing, because a disconnect must not stop the work."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError("this event is never set")

    return receive


def _request(scope: Scope, key: str) -> str:
    """Return the hash that identifies a request. The key, which is hard to guess, hides the body."""
    parts = (key.encode(), scope["method"].encode(), scope["path"].encode(), scope["query_string"])
    return hashlib.sha256(
        b"\0".join(hashlib.sha256(part).digest() for part in (*parts, scope["state"]["body"]))
    ).hexdigest()


def _bad_key() -> Problem:
    message = f"an Idempotency-Key has 1 to {LONGEST_KEY} characters of ASCII, and no space at its ends"
    return Problem(422, INVALID, "invalid_idempotency_key", message, HEADER)


def _other_request() -> Problem:
    message = "this Idempotency-Key was used for another request: use a new key for each request"
    return Problem(409, CONFLICT, "idempotency_key_reused", message, HEADER)


def _cut_off() -> Problem:
    message = (
        "the server was stopped while it did that, or another one is at it: look whether it was done, "
        "and send it with a new Idempotency-Key if it was not"
    )
    return Problem(409, CONFLICT, "idempotency_cut_off", message, HEADER)


def _not_kept() -> Problem:
    message = "this request was completed before; its answer was not stored"
    return Problem(409, CONFLICT, "idempotency_answer_gone", message, HEADER)
