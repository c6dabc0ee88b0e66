"""Other workers of the same server: a turn that one of them runs is listed, listened to and stopped through any.

Each worker listens on a socket in a folder that only this user can enter. A request is one frame, an answer one or
more. A worker that does not answer, because it has ended or is being replaced, has nothing to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from chatbot.chat import Event
from chatbot.errors import ChatbotError
from chatbot.frames import connected, is_own, read_frame, write_frame
from chatbot.server.errors import ERRORS, TurnStopped
from chatbot.server.turns import LiveTurn, SessionKey, TurnResult, Turns
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.lifecycle import AsyncResource
from chatbot.stores.records import format_time, parse_time

logger = logging.getLogger(__name__)

_PATIENCE_S = 5.0
"""Longest wait for the first frame of a worker, which answers at once unless it is very busy."""
_EVENTS = {each.__name__: each for each in Event.__args__}
_ERRORS = {f"{each.__module__}.{each.__name__}": each for each in ERRORS}
_GONE = "the worker that ran this turn ended: what arrived until then is kept"


class SiblingQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request between workers."""

    kind: str
    """`turns` or `lately` of a place, `events` of a turn, `stop` it, `is_busy` or `reopen` an identity, `writes`."""
    name: tuple[str, ...] = ()
    """A place, a turn's id, an identity, or caller and key of a request."""


class SiblingAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value, an event by the name of its class, or how a turn ended."""

    value: Any = None
    event: str = ""
    error: str = ""


class SiblingTurn:
    """A turn that another worker runs."""

    def __init__(self, path: Path, name: str, text: str, begun_at: datetime) -> None:
        self._path = path
        self._name = name
        self.text = text
        self.begun_at = begun_at
        self._ended: TurnResult | None = None
        self._error: Exception | None = None

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events from the start to the end of the turn; its errors are not raised here."""
        async with aclosing(_asked(self._path, SiblingQuestion("events", (self._name,)))) as answers:
            async for answer in answers:
                if answer.event:
                    event: Event = msgspec.convert(answer.value, _EVENTS[answer.event])
                    yield event
                else:
                    self._take_end(answer)

    async def ended(self) -> TurnResult:
        """Wait for the result of the turn. Raises its error, or `TurnStopped` where its worker has died."""
        if self._ended is None and self._error is None:
            async for _ in self.events():
                pass
        if self._ended is None:
            raise self._error or TurnStopped(_GONE)
        return self._ended

    async def stop(self) -> None:
        """Stop the model; the text so far is kept."""
        await _first(self._path, SiblingQuestion("stop", (self._name,)))

    def _take_end(self, answer: SiblingAnswer) -> None:
        if answer.error:
            self._error = _ERRORS.get(answer.error, ChatbotError)(str(answer.value))
        else:
            self._ended = TurnResult(answer.value["reply"], answer.value["receipt"])


class Siblings(AsyncResource):
    """The workers whose sockets are in `folder`, of which this one is `number`; without a folder it is alone."""

    def __init__(self, folder: Path | None = None, number: int = 0, count: int = 1) -> None:
        self._own = folder and socket_of(folder, number)
        self._others = [socket_of(folder, each) for each in range(count) if each != number] if folder else []
        self._server: asyncio.Server | None = None
        self.writing: set[tuple[str, str]] = set()
        """Caller and key of each request with an `Idempotency-Key` that is under way here."""

    async def listen(self, turns: Turns, reopen: Callable[[str], Awaitable[None]]) -> None:
        """SiblingAnswer the other workers from now on."""
        if self._own is None:
            return
        self._own.unlink(missing_ok=True)  # of the worker that this one replaces
        answerer = _Answerer(turns, reopen, self.writing)
        self._server = await asyncio.start_unix_server(answerer.answer, self._own)

    async def turns(self, place: SessionKey, *, lately: bool = False) -> list[LiveTurn]:
        """Return the turns of a session that others run, or `lately` ran."""
        answers = await self._all(SiblingQuestion("lately" if lately else "turns", place))
        return [
            SiblingTurn(path, told["id"], told["text"], parse_time(told["begun_at"]))
            for path, answer in answers
            for told in answer or ()
        ]

    async def are_busy(self, identity: str) -> bool:
        """Return whether another worker answers for the identity."""
        return any(busy for _, busy in await self._all(SiblingQuestion("is_busy", (identity,))))

    async def are_writing(self, name: tuple[str, str]) -> bool:
        """Return whether another worker is at the request of that caller and key."""
        return any(writes for _, writes in await self._all(SiblingQuestion("writes", name)))

    async def reopen(self, identity: str) -> None:
        """Have the others open the identity with its settings as they are now, once it is at rest there."""
        await self._all(SiblingQuestion("reopen", (identity,)))

    async def aclose(self) -> None:
        """SiblingAnswer no more."""
        if self._server is not None:
            self._server.close()

    async def _all(self, question: SiblingQuestion) -> list[tuple[Path, Any]]:
        answers = await asyncio.gather(*(_first(path, question) for path in self._others))
        return list(zip(self._others, answers, strict=True))


class _Answerer:
    """Answers of this worker to the others."""

    def __init__(self, turns: Turns, reopen: Callable[[str], Awaitable[None]], writing: set[tuple[str, str]]) -> None:
        self._turns = turns
        self._reopen = reopen
        self._writing = writing
        self._reopening: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """SiblingAnswer one request."""
        with suppress(OSError, EOFError, msgspec.MsgspecError, InvalidValue):  # the other one has left
            try:
                if is_own(writer.get_extra_info("socket")):
                    question = msgspec.json.decode(await read_frame(reader), type=SiblingQuestion)
                    async for answer in self._answers(question):
                        await write_frame(writer, msgspec.json.encode(answer))
            finally:
                writer.close()

    async def _answers(self, question: SiblingQuestion) -> AsyncGenerator[SiblingAnswer, None]:
        name = question.name
        match question.kind:
            case "events":
                async for answer in self._events(*name):
                    yield answer
            case "turns":
                yield SiblingAnswer(_listed(self._turns.under_way((name[0], name[1]))))
            case "lately":
                yield SiblingAnswer(_listed(self._turns.lately((name[0], name[1]))))
            case "is_busy":
                yield SiblingAnswer(bool(self._turns.of_identity(*name)))
            case "writes":
                yield SiblingAnswer(name in self._writing)
            case "stop":
                if turn := self._turns.named(*name):
                    await turn.stop()
                yield SiblingAnswer()
            case "reopen":
                task = asyncio.create_task(self._reopened(*name))
                self._reopening.add(task)
                task.add_done_callback(self._reopening.discard)
                yield SiblingAnswer()

    async def _events(self, name: str) -> AsyncGenerator[SiblingAnswer, None]:
        turn = self._turns.named(name)
        if turn is None:
            return
        async for event in turn.events():
            yield SiblingAnswer(event, event=type(event).__name__)
        try:
            ended = await turn.ended()
            yield SiblingAnswer({"reply": ended.reply, "receipt": ended.receipt})
        except (ChatbotError, StoreError) as error:
            known = next(kind for kind in type(error).__mro__ if kind in ERRORS)
            yield SiblingAnswer(str(error), error=f"{known.__module__}.{known.__name__}")
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the listener gets no more of it
            yield SiblingAnswer(f"the turn failed: {type(error).__name__}", error=f"{__name__}.{type(error).__name__}")

    async def _reopened(self, identity: str) -> None:
        while running := self._turns.of_identity(identity):
            await asyncio.wait([turn.task for turn in running])
        try:
            await self._reopen(identity)
        except (ChatbotError, StoreError) as error:
            logger.warning("%s goes on with its former settings in this worker: %s", identity, error)


def socket_of(folder: Path, number: int) -> Path:
    """Return the socket of a worker."""
    return folder / f"{number}.sock"


def _listed(turns: Sequence[Any]) -> list[dict[str, str]]:
    return [{"id": turn.name, "text": turn.text, "begun_at": format_time(turn.begun_at)} for turn in turns]


async def _first(path: Path, question: SiblingQuestion) -> Any:
    """Return the value of the first answer; None where that worker says nothing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S), aclosing(_asked(path, question)) as answers:
            async for answer in answers:
                return answer.value
    return None


async def _asked(path: Path, question: SiblingQuestion) -> AsyncGenerator[SiblingAnswer, None]:
    """Yield the answers of a worker, until it ends."""
    with suppress(OSError, EOFError):
        reader, writer = await connected(path)
        try:
            await write_frame(writer, msgspec.json.encode(question))
            while True:
                yield msgspec.json.decode(await read_frame(reader), type=SiblingAnswer)
        finally:
            writer.close()
