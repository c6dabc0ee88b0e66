"""Turns under way. A turn belongs to its session, not to whoever asked: it goes on when they leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from chatbot.chat import Chat, Event, Receipt
from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.errors import ChatbotError
from chatbot.memory import SessionHandle
from chatbot.memory.record import utc_now
from chatbot.messages import TextDelta
from chatbot.server.feed import Feed
from stores.errors import StoreError
from stores.lifecycle import AsyncResource
from stores.records import TranscriptEntry, parse_time

logger = logging.getLogger(__name__)

_GONE = "that was said, and taken back since: it is not said again"
_ENTRIES = 64
_ROUNDED_S = 0.001


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a turn; `receipt` is the line that the session keeps."""

    reply: str
    receipt: dict[str, Any]

    @property
    def turn(self) -> str:
        """The turn's id."""
        return str(self.receipt["turn"])


class RunningTurn:
    """One turn, on its way to its end whoever listens."""

    def __init__(self, chat: Chat, text: str, *, max_output_tokens: int | None = None) -> None:
        self.text = text
        self.begun_at = utc_now()
        self._feed: Feed[Event] = Feed()
        self._receipt: Receipt | None = None
        self._error: BaseException | None = None
        self.task = asyncio.create_task(self._run(chat, text, max_output_tokens))

    async def events(self) -> AsyncIterator[Event]:
        """What happens, from the beginning on; ends with the turn, and never raises what the turn raised."""
        async for event in self._feed.read():
            yield event

    async def ended(self) -> Ended:
        """What came of the turn, once it has ended. Raises what it raised; cancelling who waits stops no turn."""
        await asyncio.wait([self.task])
        if self._error is not None:
            raise self._error
        if self._receipt is None:
            raise TurnStopped("the turn was stopped; what had been said is kept")
        return Ended(self._receipt.reply, self._receipt.as_json())

    def stop(self) -> None:
        """Stop the model; what it has said so far is kept."""
        self.task.cancel()

    async def _run(self, chat: Chat, text: str, max_output_tokens: int | None) -> None:
        try:
            self._receipt = await chat.turn(text, self._feed.add, max_output_tokens=max_output_tokens)
        except (ChatbotError, StoreError) as error:
            self._error = error
        except Exception as error:  # models and stores may be a stranger's; whoever waits shall know
            logger.exception("a turn failed")
            self._error = error
        finally:
            self._feed.end()


class KeptTurn:
    """A turn that ended some time ago, told again from what the session keeps of it."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    @classmethod
    async def of(cls, session: SessionHandle, turn: str) -> KeptTurn:
        """The turn of that id. Raises `TurnGone` where it was taken back."""
        for receipt in reversed(await session.receipts()):
            if receipt["turn"] == turn:
                return cls(Ended(await _reply_of(session, receipt), receipt))
        raise TurnGone(_GONE)

    async def events(self) -> AsyncIterator[Event]:
        """The reply, in one piece."""
        if self._ended.reply:
            yield TextDelta(self._ended.reply)

    async def ended(self) -> Ended:
        """What came of it."""
        return self._ended


async def _reply_of(session: SessionHandle, receipt: Mapping[str, Any]) -> str:
    begun = parse_time(receipt["at"])
    until = begun + timedelta(seconds=receipt["seconds"] + _ROUNDED_S)
    entries = [each for each in await _entries_since(session, begun) if each.at <= until]
    if not any(each.role == USER for each in entries):
        raise TurnGone(_GONE)
    return next((each.content for each in reversed(entries) if each.role == ASSISTANT), "")


async def _entries_since(session: SessionHandle, moment: datetime) -> list[TranscriptEntry]:
    n = _ENTRIES
    while True:
        entries = await session.transcript_read_last(n)
        if len(entries) < n or entries[0].at < moment:
            return [each for each in entries if each.at >= moment]
        n *= 4


class TurnGone(ChatbotError):
    """A turn was done, and what was said was taken back since."""


class TurnStopped(ChatbotError):
    """A turn ended before its reply was whole, because someone stopped it."""


class Turns(AsyncResource):
    """All turns under way, the last one of each session by its place."""

    def __init__(self) -> None:
        self._running: dict[RunningTurn, tuple[str, str]] = {}

    def begin(
        self, place: tuple[str, str], chat: Chat, text: str, *, max_output_tokens: int | None = None
    ) -> RunningTurn:
        """Begin a turn of the session at `place`: its identity and its id. Turns of one session take their order."""
        turn = RunningTurn(chat, text, max_output_tokens=max_output_tokens)
        self._running[turn] = place
        turn.task.add_done_callback(lambda _: self._running.pop(turn, None))
        return turn

    def under_way(self, place: tuple[str, str]) -> list[RunningTurn]:
        """The turns of that session that have not ended, in their order."""
        return [turn for turn, where in self._running.items() if where == place]

    async def stop(self, place: tuple[str, str]) -> int:
        """Stop the turns of that session; how many there were. On return each has put the session in order."""
        return await cancelled(turn.task for turn in self.under_way(place))

    async def aclose(self) -> None:
        """Stop all turns, and return when each has put its session in order."""
        await cancelled(turn.task for turn in self._running)


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> int:
    """Cancel the tasks, and return how many there were when all have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)
