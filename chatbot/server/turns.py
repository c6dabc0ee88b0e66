"""Turns under way. A turn belongs to its session, not to whoever asked: it goes on when they leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

from chatbot.chat import Chat, Event, Receipt
from chatbot.errors import ChatbotError
from chatbot.memory.record import utc_now
from chatbot.server.feed import Feed
from stores.errors import StoreError
from stores.lifecycle import AsyncResource

logger = logging.getLogger(__name__)


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

    async def receipt(self) -> Receipt:
        """The receipt, once the turn has ended. Raises what the turn raised; cancelling who waits stops no turn."""
        await asyncio.wait([self.task])
        if self._error is not None:
            raise self._error
        if self._receipt is None:
            raise TurnStopped("the turn was stopped; what had been said is kept")
        return self._receipt

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
