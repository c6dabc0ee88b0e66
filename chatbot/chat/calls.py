"""Model calls: each has a purpose, is checked against the budget, and is billed.

Every call of a chat model goes through `Calls`. One that was cancelled, broke off or timed out is billed by our own
count, also if it is tried again; one that the provider refused is not billed. If the process is killed, the call is
billed only where a limit is set, later and with an unknown cost. No lock is held while a model is asked.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.ledger import UNBILLED, Amount, Bill, Call, Ledger, Limit, Payer, Reservation, limits_of, reply_within
from chatbot.config import BudgetSettings
from chatbot.embedder import model_error
from chatbot.errors import BudgetExceeded, ChatbotError, ContextTooLong, ModelError, ModelTimeout, RequestRefused
from chatbot.memory import SessionHandle
from chatbot.memory.scope import utc_now
from chatbot.messages import (
    CallOptions,
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from chatbot.models.model import LARGEST_REPLY_SHARE, THINK_TAGS, Model
from chatbot.stores.errors import StoreError
from chatbot.stores.loops import is_failure, to_its_end
from chatbot.stores.observation import Observation
from chatbot.stores.records import format_time, well_formed
from chatbot.stores.span import observed, present_observer, span

logger = logging.getLogger(__name__)

Purpose = Literal["chat", "title", "answer", "extract", "reconcile", "summarize", "embed", "doctor"]

_LONGEST_REPLY = 200_000
"""Characters after which `ask` breaks off a reply that does not end."""


class _Hold(Struct, frozen=True):
    """One payer's part in a call: the account, and the reservation if there is a limit."""

    ledger: Ledger
    account: str
    reservation: Reservation | None = None


class Calls:
    """The model calls of one piece of work, such as a turn; `made` lists those without a receipt, which `note` writes.

    `reply_tokens` is the longest reply, `timeout_s` the time that `ask` waits for a whole one. The calls are billed to
    `session`; the quotas of `payers` apply as well, and the limit that `own_limit` returns for the day's bill. `report`
    is called if a line of the bill cannot be written. If `bills` is given, the functions that write the lines are added
    to it, for the caller to run.
    """

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        budget: BudgetSettings,
        *,
        reply_tokens: int,
        session: SessionHandle | None = None,
        own_limit: Callable[[Bill], Limit] | None = None,
        payers: Sequence[Payer] = (),
        timeout_s: float | None = None,
        clock: Callable[[], datetime] = utc_now,
        report: Callable[[str], None] = logger.warning,
        bills: list[Callable[[], object]] | None = None,
    ) -> None:
        self.model = model
        self.clock = clock
        self.made: list[Call] = []
        self.shortened_to = 0  # tokens that the last reply could have, where a limit left fewer than were asked for
        self._ledger = ledger
        self._budget = budget
        self._reply_tokens = reply_tokens
        self._session = session
        self._own_limit = own_limit
        self._payers = payers
        self._timeout_s = timeout_s
        self._report = report
        self._bills = bills
        self._withheld: list[str] = []
        self._observer = present_observer()
        """The caller's observer: a stream may be read in another context."""

    async def room(self, reply_tokens: int | None = None) -> int:
        """Return how many tokens a prompt may take besides the longest reply."""
        window = await self.model.context_window()
        return window - min(reply_tokens or self._reply_tokens, window // LARGEST_REPLY_SHARE)

    async def stream(
        self,
        purpose: Purpose,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        prompt_tokens: int | None = None,
        reply_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Ask the model and yield deltas, `Finished` last. Closing the generator stops the model.

        The model may yield None if a try failed; `asend` then gives it the most tokens that the next one may use.

        Raises `BudgetExceeded` or `ContextTooLong` before the call, and the model's `ModelError`.
        """
        if prompt_tokens is None:
            prompt_tokens = await self.model.count_tokens(messages, tools)
        most, held = await self._reserve(purpose, prompt_tokens, reply_tokens or self._reply_tokens)
        reply, splitter, began, is_billed = Reply(), _ThoughtSplitter(), time.monotonic(), True
        with observed(self._observer):
            labels = {"model": self.model.name, "server": self.model.server}
            work = span("call", request="chat", purpose=purpose, max_tokens=most, **labels)
        try:
            stream = self.model.stream(
                messages, tools=tools, max_output_tokens=most, json_schema=schema, options=options
            )
            if not isinstance(stream, AsyncGenerator):
                raise TypeError(f"stream returned {stream!r:.80}, which is not an async generator")
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    while delta is None:  # a try failed, and the next one must be within the limits, too
                        await to_its_end(self._bill(purpose, prompt_tokens, Reply(), began, held))
                        most, held = await self._reserve(purpose, prompt_tokens, most)
                        delta = await self._next_try(deltas, most)  # noqa: PLW2901 - what comes after it
                    if not reply.has_begun:
                        work.note(first_chunk=time.monotonic() - began)
                    if isinstance(delta, Finished):
                        work.note(response_model=delta.model, finish_reasons=[delta.reason], usage=delta.usage)
                    reply.take(delta)
                    for part in splitter.split(delta):
                        yield part
        except BaseException as error:
            work.fail(type(error).__name__, is_fault=isinstance(error, Exception))
            is_charged = isinstance(error, ModelError) and error.is_charged
            is_billed = reply.has_begun or is_charged or isinstance(error, asyncio.CancelledError)
            if is_failure(error) and not isinstance(error, ChatbotError | StoreError):  # of a plug-in
                raise model_error(self.model.name, error) from error
            raise
        finally:
            work.end()
            await to_its_end(self._bill(purpose, prompt_tokens, reply, began, held) if is_billed else self.settle(held))

    async def _next_try(self, deltas: AsyncGenerator[Delta | None, Any], most: int) -> Delta | None:
        try:
            return await deltas.asend(most)
        except StopAsyncIteration:
            raise ModelError(f"{self.model.name} ended after None, which announces another try") from None

    async def ask(
        self,
        purpose: Purpose,
        messages: Sequence[Message],
        *,
        reply_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a whole reply without thoughts, by `schema` if possible. Raises as `stream`."""
        tokens, room = await self.model.count_tokens(messages), await self.room(reply_tokens)
        if tokens > room:
            raise ContextTooLong(f"{self.model.name} has no room for a prompt of {tokens} tokens: only for {room}")

        async def reply(schema: Mapping[str, Any] | None) -> str:
            stream = self.stream(purpose, messages, prompt_tokens=tokens, reply_tokens=reply_tokens, schema=schema)
            return await self._whole(stream)

        if schema is not None and await self.model.json_mode():
            try:
                return await reply(schema)
            except RequestRefused:
                logger.debug("%s refused a schema that LiteLLM's tables promise: asking without it", self.model.name)
        return await reply(None)

    def may_send(self, rows: Sequence[Observation]) -> bool:
        """Return whether the model's provider may be sent all these rows; if not, `note` records them as withheld."""
        if not any(map(self.model.disclosure.withholds, rows)):
            return True
        self._withheld += [row.id for row in rows]
        return False

    async def note(self, kind: str, **record: Any) -> None:
        """Append a receipt of what was done, with its calls, so that the session is billed for them."""
        if self._session is None:
            return
        line = {"version": 1, "kind": kind, "at": format_time(self.clock()), **record}
        if self._withheld:
            line["withheld"] = self.model.disclosure.record(rows=self._withheld)
        line["calls"] = [call.as_json() for call in self.made]
        self.made.clear()  # not a new list: a receipt may have this one
        await self._session.receipt_append(line)

    async def _whole(self, stream: AsyncGenerator[Delta, None]) -> str:
        text = ""
        try:
            async with asyncio.timeout(self._timeout_s), aclosing(stream) as deltas:
                async for delta in deltas:
                    if isinstance(delta, TextDelta):
                        text += delta.text
                    if len(text) > _LONGEST_REPLY:
                        break
        except ModelError:
            raise  # a ModelTimeout is a TimeoutError too, and has its own message
        except TimeoutError as error:
            message = f"{self.model.name}: no whole reply within {self._timeout_s:g} s: raise timeout_s in [extraction]"
            raise ModelTimeout(message) from error
        return text

    async def _reserve(self, purpose: Purpose, prompt_tokens: int, reply_tokens: int) -> tuple[int, list[_Hold]]:
        """Return how many tokens the reply may have, and the accounts on which its cost is held."""
        room = await self.model.context_window() - prompt_tokens
        if room < 1:
            window = f"the window of {self.model.name}"
            raise ContextTooLong(f"the messages take about {prompt_tokens} tokens, more than {window} holds")
        most, price = min(reply_tokens, room), await self.model.price()

        def decide(limits: Sequence[Limit]) -> Amount:
            nonlocal most  # each payer may shorten it
            most = reply_within(limits, prompt=prompt_tokens, reply=most, price=price, model=self.model.name)
            return Amount(prompt_tokens + most, 0.0 if price is None else price.cost(prompt_tokens, most))

        held = await self.hold(purpose, decide)
        self.shortened_to = most if most < min(reply_tokens, room) else 0
        return most, held

    async def hold(self, purpose: Purpose, decide: Callable[[Sequence[Limit]], Amount]) -> list[_Hold]:
        """Reserve what `decide` returns for its limits, on the account of each payer, the identity's last, or on none.

        Raises what `decide` raises, and `BudgetExceeded` where a reservation cannot be written.
        """
        now, held = self.clock(), list[_Hold]()

        async def hold_for(ledger: Ledger, account: str, payer: Payer | None = None) -> None:
            def limits(day: Bill, own: Bill) -> list[Limit]:
                if payer is not None:
                    return payer.quota.limits(own, payer.whose, now)
                mine = [] if self._own_limit is None else [self._own_limit(day)]
                return [*limits_of(self._budget, own, day), *(each for each in mine if each.allowed)]

            reservation = None
            if limits(Bill(), Bill()):  # any limit is set
                reservation = await ledger.reserve(
                    account, lambda day, own: decide(limits(day, own)), purpose=purpose, at=now
                )
            held.append(_Hold(ledger, account, reservation))

        try:
            for payer in self._payers:
                await to_its_end(hold_for(payer.ledger, payer.account(now), payer))
            await to_its_end(hold_for(self._ledger, "" if self._session is None else self._session.id))
        except BaseException as error:
            await to_its_end(self.settle(held))
            if isinstance(error, StoreError):
                raise BudgetExceeded(f"the budget cannot be checked, so the call was not made: {error}") from error
            raise
        return held

    async def _bill(
        self, purpose: Purpose, prompt_tokens: int, reply: "Reply", began: float, held: Sequence[_Hold]
    ) -> None:
        usage = reply.finished.usage if reply.finished else await self.model.usage_of(prompt_tokens, reply.written)
        session = "" if self._session is None else self._session.id
        call = Call(self.clock(), session, purpose, self.model.name, usage, time.monotonic() - began)
        self.made.append(call)
        await self.settle(held, call)

    async def settle(self, held: Sequence[_Hold], call: Call | None = None) -> None:
        """Write the call on every bill and end the reservations; None for a call that was not made."""
        for each in held:
            bill = call and replace(call, session=each.account)
            try:
                with observed(self._observer):
                    if self._bills is not None and bill is not None and each.reservation is None:
                        self._bills.append(each.ledger.prepare_add(bill))
                    else:  # a reservation ends only once the cost is written
                        await each.ledger.settle(each.reservation, bill)
            except StoreError as error:
                self._report(f"{UNBILLED}: {error}")


class _ThoughtSplitter:
    """Separates the thoughts between tags at the beginning of a reply from its text; later tags are text."""

    def __init__(self) -> None:
        self._held: list[TextDelta | ReasoningDelta] = []
        """Pieces that may contain the beginning of a tag."""
        self._end = ""
        """The closing tag; empty until the thoughts begin."""
        self._is_over = self._is_text = False

    def split(self, delta: Delta) -> Sequence[Delta]:
        """Return a delta, in parts if it has thoughts and text, after pieces that were held before it."""
        held, self._held = self._held, []
        if self._is_text or not isinstance(delta, TextDelta):
            return [*held, delta]
        text, thought = "".join(each.text for each in (*held, delta)), ""
        if not self._end:
            begin = text.lstrip()
            tag = next((tag for tag in THINK_TAGS if begin.startswith(tag)), "")
            if not tag and any(tag.startswith(begin) for tag in THINK_TAGS):
                self._held = [*held, delta]
                return []
            if not tag:
                self._is_text = True
                return [*held, delta]
            self._end, text = f"</{tag[1:]}", begin.removeprefix(tag)
        if not self._is_over:
            thought, end, text = text.partition(self._end)
            self._is_over = bool(end)
            half = next(self._end[:n] for n in reversed(range(len(self._end))) if thought.endswith(self._end[:n]))
            if half and not end:
                thought, self._held = thought.removesuffix(half), [ReasoningDelta(half)]
        text = text.lstrip()
        self._is_text = bool(text)
        return [each for each in (ReasoningDelta(thought), replace(delta, text=text)) if each.text]


class Reply:
    """The part of a reply that has arrived."""

    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self.logprobs: list[dict[str, Any]] = []
        self.finished: Finished | None = None
        self.has_begun = False
        self._calls: list[list[str]] = []
        self._at: dict[int, list[str]] = {}

    def take(self, delta: Delta) -> None:
        """Add a delta."""
        self.has_begun = True
        if isinstance(delta, TextDelta):
            self.text += delta.text
            self.logprobs += delta.logprobs
        elif isinstance(delta, ReasoningDelta):
            self.reasoning += delta.text
        elif isinstance(delta, ToolCallDelta):
            call = self._at.get(delta.index)
            if call is None or (delta.id and delta.name and call[0] not in {"", delta.id}):
                self._at[delta.index] = call = ["", "", ""]  # some servers give all calls the same index
                self._calls.append(call)
            call[0] = delta.id or call[0]
            call[1] = delta.name or call[1]
            call[2] += delta.arguments
        elif isinstance(delta, Finished) and isinstance(delta.usage, Usage):  # type: ignore[redundant-expr]  # of plug-ins
            self.finished = delta
        else:
            raise TypeError(f"it yielded {delta!r:.80}, which is not a valid delta")

    @property
    def written(self) -> str:
        """All that the model wrote, including its reasoning and the arguments of tool calls."""
        return self.reasoning + self.text + "".join(arguments for *_, arguments in self._calls)

    def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls, in their order."""
        return [
            ToolCall(call_id or f"call_{index}", well_formed(name), well_formed(arguments))
            for index, (call_id, name, arguments) in enumerate(self._calls)
        ]
