"""Running turns. A turn belongs to its session: it continues when the caller leaves."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any
from uuid import uuid4

from msgspec import Struct

from chatbot.attachments.read import Upload
from chatbot.chat.chat import Chat
from chatbot.chat.dialogue import ASSISTANT, USER, ClientRequest, read_back, replies_of, unanswered_calls
from chatbot.chat.events import ClientCall, Emit, TurnEvent
from chatbot.chat.receipts import Receipt, with_calls
from chatbot.memory import SessionHandle
from chatbot.memory.scope import utc_now
from chatbot.messages import Message, TextDelta, ToolCall
from chatbot.server.errors import TurnGone, TurnLost, TurnStopped, problem_of
from chatbot.server.sse import Feed, cancel_all
from chatbot.stores.backend import Backend, Lease, Mark
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import StoreError
from chatbot.stores.records import TranscriptEntry, format_time, parse_time

logger = logging.getLogger(__name__)

_GONE = "this message or its reply was undone or could not be stored: check the session's messages before you send it"
_STOPPED = "the turn was stopped; the text so far is kept, unless the session was deleted"
_NOT_FOUND_AGAIN = "the session's history could not be indexed: a request that sends it may begin another session"
_LOOK_EVERY_S = 0.5
_LINGER_S = 5.0
"""Seconds for which stop requests are read without a running turn."""
_LONGEST_STOP_S = 15.0
"""Longest wait for another server to stop."""
_MOST_STOPS = 200
_STOP_KEPT_FOR = timedelta(hours=1)
_ENTRIES = 64
_ROUNDED_S = 0.001  # the seconds of a receipt may be rounded down by this
_WITH_TEXT = frozenset({"stop", "length", "content_filter"})
"""Finish reasons of turns whose last entry is a reply."""
_KEPT_TURNS = 64
_KEPT_FILES = 8


SessionKey = tuple[str, str]
"""An identity and the id of a session."""

AfterTurn = Callable[[Sequence[TurnEvent]], Awaitable[None]]
"""Called with all events once the exchange is kept, before the turn's waiters resume; also if it was stopped."""


class TurnResult(Struct, frozen=True):
    """Result of a turn; `receipt` is the stored line."""

    reply: str
    receipt: dict[str, Any]


class RunningTurn:
    """A running `chat.turn` with these parameters, independent of its listeners."""

    def __init__(
        self,
        chat: Chat,
        text: str,
        *,
        attachments: Sequence[Upload],
        max_output_tokens: int | None,
        client: ClientRequest,
        then: AfterTurn | None,
    ) -> None:
        self.text, self.files = text, attachments
        self.begun_at = utc_now()
        self.asked = () if client.tool_results else (client.asked or Message("user", text),)
        """The message that it adds to the session."""
        self.is_again = client.again
        """True if it answers a message that is in the transcript already."""
        self._feed: Feed[TurnEvent] = Feed()
        self._receipt: Receipt | None = None
        self.error: BaseException | None = None
        """The error with which it ended; the transcript may lack its message then, and `files` are kept."""
        self._then = then
        run = partial(chat.turn, attachments=attachments, max_output_tokens=max_output_tokens, client=client)
        self.task = asyncio.create_task(self._run(run))

    def events(self) -> AsyncIterator[TurnEvent]:
        """Yield the events from the start to the end of the turn; its errors are not raised here."""
        return self._feed.read()

    @property
    def is_left(self) -> bool:
        """True if it belongs to a request with a history, and no client reads its reply any more."""
        return self._then is not None and self._feed.readers == 0

    @property
    def text_so_far(self) -> str:
        """The text of the reply so far."""
        return "".join(event.text for event in self._feed.items if isinstance(event, TextDelta))

    async def ended(self) -> TurnResult:
        """Wait for the result of the turn. Raises its error; cancelling the wait does not stop the turn."""
        await asyncio.wait([self.task])
        if self.error is not None or self._receipt is None:
            raise self.error or TurnStopped(_STOPPED)
        return TurnResult(self._receipt.reply, self._receipt.as_json())

    async def _run(self, run: Callable[[str, Emit], Awaitable[Receipt]]) -> None:
        try:
            self._receipt = await run(self.text, self._feed.add)
            if self._receipt.lost:
                logger.error("turn %s could not be stored: %s", self._receipt.turn, "; ".join(self._receipt.notices))
            if self._then is not None:
                await self._follow(self._then, self._receipt.notices)
        except asyncio.CancelledError:
            if self._then is not None and len(self._feed.items) > bool(self.files):  # files are read before it is kept
                await self._follow(self._then, [])
            raise
        except Exception as error:  # noqa: BLE001 - plug-ins may raise anything; the waiting caller gets the error
            problem_of(error)  # logs it, also if nobody waits
            self.error = error
        finally:
            if self.error is None:
                self.files = ()
            self._feed.end()

    async def _follow(self, then: AfterTurn, notices: list[str]) -> None:
        try:
            await then(self._feed.items)
        except StoreError as error:  # the reply is stored, so its caller gets it
            logger.warning("%s: %s", _NOT_FOUND_AGAIN, error)
            notices.append(_NOT_FOUND_AGAIN)


class KeptTurn:
    """A completed turn, reproduced from the stored session."""

    def __init__(self, said: Sequence[str], calls: Sequence[ToolCall], receipt: dict[str, Any]) -> None:
        self._said = said
        self._calls = calls
        self._receipt = receipt
        self.begun_at = begun_at(receipt)

    @classmethod
    async def of(cls, session: SessionHandle, turn: str) -> "KeptTurn":
        """Return the turn of that id. Raises `TurnGone` if it was taken back."""
        receipts = await session.receipts()
        receipt = next((each for each in reversed(receipts) if each["turn"] == turn), None)
        if receipt is None:
            raise TurnGone(_GONE)
        return cls(*await _reply_of(session, receipt), with_calls(receipt, receipts))

    async def events(self) -> AsyncIterator[TurnEvent]:
        """Yield the reply as one text, with paragraphs between uses of tools, then the calls of the client's tools."""
        if self._said:
            yield TextDelta("\n\n".join(self._said))
        for call in self._calls:
            yield ClientCall(call)

    async def ended(self) -> TurnResult:
        """Return the result."""
        return TurnResult(self._said[-1] if self._said else "", self._receipt)


def begun_at(receipt: Mapping[str, Any]) -> datetime:
    """Return when a turn began; its message may be older, if it was answered again."""
    return parse_time(receipt.get("resumed_at") or receipt["at"])


async def _reply_of(session: SessionHandle, receipt: Mapping[str, Any]) -> tuple[list[str], list[ToolCall]]:
    """Return what was said in a turn, and the tools that the client was asked to run."""
    asked, begun = parse_time(receipt["at"]), begun_at(receipt)
    until = begun + timedelta(seconds=receipt["seconds"] + _ROUNDED_S)
    entries = await entries_since(session, asked)
    if not entries or entries[0].role != USER or entries[0].at > asked:
        raise TurnGone(_GONE)
    replies = list(takewhile(lambda each: each.role != USER, entries[1:]))
    lines = [(each.role, each.content) for each in replies if begun <= each.at <= until]
    if not lines:  # a later reply to the message rewrote all its replies with new times: find it by number
        lines = replies_of(replies)[0].get(receipt.get("reply_number", 1), [])
    if receipt["finish"] in _WITH_TEXT and (not lines or lines[-1][0] != ASSISTANT):
        raise TurnGone(_GONE)
    said = [content for role, content in lines if role == ASSISTANT]
    is_unanswered = receipt["finish"] == "tool_calls"
    return said, unanswered_calls([TranscriptEntry(*line, asked) for line in lines]) if is_unanswered else []


async def entries_since(session: SessionHandle, moment: datetime) -> list[TranscriptEntry]:
    """Return the entries from that moment on."""
    entries = await read_back(session, lambda entries: entries[0].at < moment, _ENTRIES)
    return [each for each in entries if each.at >= moment]


class RemoteTurn:
    """A turn of a session that another server or program runs: its reply is read once it is complete."""

    def __init__(self, session: SessionHandle, lease: Lease, last: datetime, known: int) -> None:
        self._session = session
        self._lease = lease
        self._last = last
        """Start of the last turn that has ended."""
        self._known = known
        """Number of turns that began at that time."""
        self._kept: KeptTurn | None = None

    @classmethod
    async def of(cls, session: SessionHandle, lease: Lease) -> "RemoteTurn":
        """Note which turns have ended. `lease` is held while a turn runs: check it after this."""
        receipts = await session.receipts()
        last = parse_time(receipts[-1]["at"]) if receipts else session.record.created_at
        return cls(session, lease, last, len(await session.receipts_since(last)))

    async def events(self) -> AsyncIterator[TurnEvent]:
        """Yield the events of `KeptTurn` at the turn's end; none if its server died."""
        while not await asyncio.to_thread(self._lease.is_free):
            if await self._ended_receipts():  # it has ended, and the next one holds the lease
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        if receipts := await self._ended_receipts():
            self._kept = await KeptTurn.of(self._session, str(receipts[0]["turn"]))
            async for event in self._kept.events():
                yield event

    async def ended(self) -> TurnResult:
        """Return the result, once `events` has ended. Raises `TurnStopped` and `TurnLost`."""
        if self._kept is None:
            raise TurnLost("the server that wrote this reply stopped before the end: your message is kept")
        ended = await self._kept.ended()
        if ended.receipt["finish"] == "cancelled":
            raise TurnStopped(_STOPPED)
        if ended.receipt["finish"] == "error":
            raise TurnLost("the reply failed: the session's messages say why")
        return ended

    async def _ended_receipts(self) -> list[dict[str, Any]]:
        """Return the receipts of turns that have ended meanwhile, oldest first."""
        return (await self._session.receipts_since(self._last))[self._known :]


class StopRequests:
    """Requests to stop a turn that another server runs, stored as lines of the identity.

    Servers with running turns read them twice a second. The session's lease shows whether anyone runs a turn. `stop`
    ends the turns of a session here; `is_busy` returns whether any run here.
    """

    def __init__(self, backend: Backend, stop: Callable[[str], Awaitable[object]], is_busy: Callable[[], bool]) -> None:
        self._backend = backend
        self._lines = backend.lines("stops")
        self._stop = stop
        self._is_busy = is_busy
        self._mark: Mark | None = None
        self._seen: set[str] = set()
        self._wanted_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def listen(self) -> None:
        """Read requests from now on, while a turn runs here."""
        async with self._beginning:
            self._wanted_until = time.monotonic() + _LINGER_S
            if self._task is None or self._task.done():
                await asyncio.to_thread(self._read_new)
                self._task = asyncio.create_task(self._watch(), name="stop requests", context=Context())

    async def is_running(self, session_id: str) -> bool:
        """Return whether anyone runs a turn of the session."""
        return not await asyncio.to_thread(self.lease(session_id).is_free)

    async def ask_to_stop(self, session_id: str) -> int:
        """Stop a turn of the session that another server runs; return 1 if there was one and it has ended, else 0."""
        lease = self.lease(session_id)
        if await asyncio.to_thread(lease.is_free):
            return 0
        await asyncio.to_thread(self._write, session_id, utc_now())
        give_up = time.monotonic() + _LONGEST_STOP_S
        while not await asyncio.to_thread(lease.is_free):
            if time.monotonic() > give_up:
                return 0
            await asyncio.sleep(_LOOK_EVERY_S / 4)
        return 1

    async def aclose(self) -> None:
        """Stop reading requests."""
        if self._task is not None:
            await cancel_all([self._task])

    def lease(self, session_id: str) -> Lease:
        """Return the lease that a running turn of the session holds."""
        return self._backend.place_of(self._backend.sessions.ref(session_id)).lease("turn")

    async def _watch(self) -> None:
        while self._is_busy() or time.monotonic() < self._wanted_until:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                for session_id in await asyncio.to_thread(self._read_new):
                    await self._stop(session_id)
            except StoreError as error:
                logger.warning("requests of other servers about a turn cannot be read: %s", error)

    def _read_new(self) -> list[str]:
        mark, read, starts_over = self._mark, dict[str, str](), False
        while (reading := self._lines.since(mark)).records:
            mark = reading.mark
            starts_over |= reading.starts_over
            read |= {record["id"]: str(record["session"]) for record in reading.records}
        sessions = [session for request, session in read.items() if request not in self._seen]
        self._mark = reading.mark
        self._seen = set(read) if starts_over else self._seen | set(read)  # bounded by the number of lines
        return sessions

    def _write(self, session_id: str, now: datetime) -> None:
        since = format_time(now - _STOP_KEPT_FOR)
        with self._lines.alone() as writer:
            writer.append([{"id": str(uuid4()), "session": session_id, "at": format_time(now)}])
            if sum(1 for _ in self._lines.newest_first()) > _MOST_STOPS:
                writer.rewrite(lambda record: record if record["at"] >= since else None)


class Turns(AsyncResource):
    """The running turns, and the most recent ones."""

    def __init__(self) -> None:
        self._running: dict[RunningTurn, SessionKey] = {}
        self._begun: deque[tuple[SessionKey, RunningTurn]] = deque(maxlen=_KEPT_TURNS)
        self._stop_requests: dict[str, StopRequests] = {}
        self.claimed: set[SessionKey] = set()
        """Sessions in which a turn is about to begin."""

    def stop_requests(self, identity: str, backend: Backend) -> StopRequests:
        """Return the requests between servers to stop turns, which `backend` stores."""
        if identity not in self._stop_requests:
            self._stop_requests[identity] = StopRequests(
                backend, lambda session_id: self.stop((identity, session_id)), lambda: bool(self.of_identity(identity))
            )
        return self._stop_requests[identity]

    async def drop_backend(self, identity: str) -> None:
        """Drop the backend of an identity before it is closed; later turns and requests open another."""
        if (requests := self._stop_requests.pop(identity, None)) is not None:
            await requests.aclose()

    def add(self, key: SessionKey, turn: RunningTurn) -> None:
        """Add a turn that runs in the session with that key. Turns of one session run in order."""
        self._running[turn] = key
        self._begun.append((key, turn))
        for old in [each for _, each in self._begun if each.files][:-_KEPT_FILES]:
            old.files = ()
        turn.task.add_done_callback(lambda _: self._running.pop(turn, None))

    def under_way(self, key: SessionKey) -> list[RunningTurn]:
        """Return the turns of that session that have not ended, in their order."""
        return [turn for turn, place in self._running.items() if place == key]

    def latest(self, key: SessionKey) -> list[RunningTurn]:
        """Return the latest turns of that session, ended ones too, for a listener that comes just after the end."""
        return [turn for place, turn in self._begun if place == key]

    def left(self, identity: str) -> list[tuple[str, RunningTurn]]:
        """Return the turns of an identity that were left, each with its session, in which no other waits."""
        turns = [(key[1], turn) for turn, key in self._running.items() if key[0] == identity and turn.is_left]
        return [(session, turn) for session, turn in turns if self.under_way((identity, session)) == [turn]]

    def of_identity(self, identity: str) -> list[RunningTurn]:
        """Return the turns of all sessions of an identity that have not ended."""
        return [turn for turn, place in self._running.items() if place[0] == identity]

    async def stop(self, key: SessionKey) -> int:
        """Stop the turns of that session, wait until each has cleaned up, and return how many there were."""
        stopped = self.under_way(key)
        for each in [each for each in self._begun if each[0] == key]:
            self._begun.remove(each)
        return await cancel_all(turn.task for turn in stopped)

    async def aclose(self) -> None:
        """Stop all turns, and wait until each has cleaned up."""
        await cancel_all(turn.task for turn in self._running)
        while self._stop_requests:
            await self._stop_requests.popitem()[1].aclose()
