"""`Idempotency-Key`: a write that is sent again, because its answer was lost, is done once.

The first request with a key does the work, and goes on when its client leaves; whoever comes with the same key gets
the same answer, from its beginning. What failed is not kept, so that it can be tried again. Keys live in memory: for a
day, as many as `MOST_FOR_EACH` for each caller, and not past the end of the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatbot.server.callers import Caller
from chatbot.server.errors import CONFLICT, INVALID, Problem
from chatbot.server.feed import Feed

HEADER = "idempotency-key"
MOST_FOR_EACH = 200
_DAY_S = 24 * 3600.0
_MOST_BYTES = 1024 * 1024
_LONGEST_KEY = 255
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(slots=True)
class _Answer:
    """What one request with a key is answered, while it comes and after."""

    fingerprint: bytes
    at: float
    messages: Feed[Message] = field(default_factory=Feed)
    size: int = 0
    status: int = 0
    error: Exception | None = None
    has_ended: bool = False

    @property
    def is_worth_keeping(self) -> bool:
        return not self.has_ended or (self.error is None and 200 <= self.status < 300 and self.size <= _MOST_BYTES)


class Idempotency:
    """ASGI middleware. Stands behind `Doors` and `Bodies`, which find the caller and the body.

    What goes on without a client is in `at_work`, for whoever closes things to wait for.
    """

    def __init__(
        self, app: ASGIApp, *, at_work: set[asyncio.Task[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._at_work = at_work
        self._clock = clock
        self._answers: defaultdict[str, OrderedDict[str, _Answer]] = defaultdict(OrderedDict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] not in _WRITES or "body" not in scope.get("state", {}):
            return await self._app(scope, receive, send)
        if not 0 < len(key) <= _LONGEST_KEY:
            return await _bad_key().response()(scope, receive, send)
        answer, is_new = self._answer(scope, key)
        if answer.fingerprint != _fingerprint(scope):
            return await _other_request().response()(scope, receive, send)
        if is_new:
            self._begin(scope, answer)
        return await _replay(answer, send, is_new=is_new)

    def _answer(self, scope: Scope, key: str) -> tuple[_Answer, bool]:
        caller: Caller = scope["state"]["caller"]
        answers = self._answers[caller.key]
        self._tidy(answers)
        if key in answers:
            return answers[key], False
        answers[key] = _Answer(_fingerprint(scope), self._clock())
        return answers[key], True

    def _begin(self, scope: Scope, answer: _Answer) -> None:
        task = asyncio.create_task(self._work(scope, answer))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _work(self, scope: Scope, answer: _Answer) -> None:
        async def record(message: Message) -> None:
            answer.size += len(message.get("body", b""))
            answer.status = message.get("status", answer.status)
            answer.messages.add(message)

        try:
            await self._app(scope, _never_leaving(scope["state"]["body"]), record)
        except Exception as error:  # noqa: BLE001 - it is raised again where someone waits for the answer
            answer.error = error
        finally:
            answer.has_ended = True
            answer.messages.end()

    def _tidy(self, answers: OrderedDict[str, _Answer]) -> None:
        """Forget what failed, what is old, and what is too much; what is under way stays."""
        oldest = self._clock() - _DAY_S
        for key in [key for key, each in answers.items() if not each.is_worth_keeping or each.at < oldest]:
            del answers[key]
        while len(answers) >= MOST_FOR_EACH and (
            done := next((k for k, each in answers.items() if each.has_ended), "")
        ):
            del answers[done]


async def _replay(answer: _Answer, send: Send, *, is_new: bool) -> None:
    async for message in answer.messages.read():
        if message["type"] == "http.response.start" and not is_new:
            copy = {**message, "headers": list(message["headers"])}
            MutableHeaders(raw=copy["headers"])["idempotency-replayed"] = "true"
            await send(copy)
        else:
            await send(message)
    if answer.error is not None:
        raise answer.error


def _never_leaving(body: bytes) -> Receive:
    """What the app reads: the body, and then nothing, for a client that leaves does not stop the work."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError("nothing sets that event")

    return receive


def _fingerprint(scope: Scope) -> bytes:
    """What makes two requests the same."""
    parts = (scope["method"].encode(), scope["path"].encode(), scope["query_string"], scope["state"]["body"])
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _bad_key() -> Problem:
    message = f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters"
    return Problem(422, INVALID, "invalid_idempotency_key", message, HEADER)


def _other_request() -> Problem:
    message = "that Idempotency-Key was used for another request: take a new one for each"
    return Problem(409, CONFLICT, "idempotency_key_reused", message, HEADER)
