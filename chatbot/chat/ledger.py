"""Bill of model calls, each with a purpose; budgets, and their remaining amounts.

Days are UTC. Calls of ephemeral sessions are included, without the id of the session.

A call with a limit is reserved before it is made and settled after it. Reservations count as spent, so that calls made
at the same time, in any number of processes, cannot exceed a limit together.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from threading import Lock
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from chatbot.config import BudgetSettings
from chatbot.errors import BudgetExceeded, QuotaExceeded
from chatbot.memory.scope import utc_now
from chatbot.messages import Usage
from chatbot.models.model import Price
from chatbot.providers import provider_of
from chatbot.stores.backend import Document, Flaw, Mark, Place
from chatbot.stores.errors import MISFITS, DamagedFile, LaterFormat, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.home import Home
from chatbot.stores.loops import in_thread
from chatbot.stores.plugins import open_place
from chatbot.stores.records import format_time, parse_time
from chatbot.stores.span import count

logger = logging.getLogger(__name__)


class Call(Struct, frozen=True):
    """One model call on the bill."""

    at: datetime
    session: str
    purpose: str
    """A `Purpose` of `chatbot.chat.calls`."""
    model: str
    usage: Usage
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the call as one flat record."""
        head = {"at": format_time(self.at), "session": self.session, "purpose": self.purpose, "model": self.model}
        return head | asdict(self.usage) | {"seconds": round(self.seconds, 3)}


def parse_call(record: Mapping[str, Any]) -> Call:
    """Parse a record of `Call.as_json`."""
    usage = {name: record[name] for name in Usage.__struct_fields__}
    return msgspec.convert({**record, "at": parse_time(record["at"]), "usage": usage}, Call)


class Bill(Struct):
    """The sum of some calls. Tokens are whole numbers, `cost_usd` US dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    calls_of_unknown_cost: int = 0
    by_purpose: "dict[str, Bill]" = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> str:
        """The cost as text, such as `$0.1234`; if some is not known, `over $0.1234` or `cost unknown`."""
        if not self.calls_of_unknown_cost:
            return usd_text(self.cost_usd)
        return f"over {usd_text(self.cost_usd)}" if self.cost_usd else "cost unknown"

    def add(self, other: "Bill") -> None:
        """Add another bill."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for purpose, part in other.by_purpose.items():
            self.by_purpose.setdefault(purpose, Bill()).add(part)

    def as_json(self) -> dict[str, Any]:
        """Return the bill as a record, purposes nested."""
        return _sums(self) | {"by_purpose": {purpose: _sums(part) for purpose, part in self.by_purpose.items()}}


_SUMMED = tuple(name for name in Bill.__struct_fields__ if name != "by_purpose")


def _sums(bill: Bill) -> dict[str, Any]:
    return {name: getattr(bill, name) for name in _SUMMED}


def sum_of(bills: Iterable[Bill]) -> Bill:
    """Return the sum of these bills; of one bill a copy."""
    total = Bill()
    for bill in bills:
        total.add(bill)
    return total


def bill_of(calls: Iterable[Call]) -> Bill:
    """Return the bill of these calls."""
    total = Bill()
    for each in calls:
        used, cost = each.usage, each.usage.cost_usd
        one = Bill(1, used.input_tokens, used.output_tokens, used.cached_tokens, cost or 0.0, int(cost is None))
        total.add(replace(one, by_purpose={each.purpose: one}))
    return total


def parse_calls(records: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
    """Parse the records that are calls; one that a hand edit broke is skipped and logged."""
    for record in records:
        try:
            yield parse_call(record)
        except MISFITS as error:
            logger.warning("a line of the bill cannot be read and was skipped: %r (%s)", record, error)


def calls_in(receipts: Iterable[Mapping[str, Any]]) -> list[Call]:
    """Return all model calls in the receipts of a session."""
    listed = (receipt.get("calls", ()) for receipt in receipts)
    return list(parse_calls(each for calls in listed for each in (calls if isinstance(calls, Sequence) else [calls])))


def usd_text(amount: float) -> str:
    """Format US dollars, below one with four decimals, or with more if all four would be 0."""
    decimals = 2 if amount >= 1 or amount == 0 else max(4, -math.floor(math.log10(amount)))
    return f"${amount:.{decimals}f}"


_SHORTEST_REPLY = 16
"""Tokens: a call whose reply could not have so many is refused."""


class Limit(Struct, frozen=True):
    """A limit, and the amount already spent; `setting` names it in messages, `remedy` says what to do at the limit."""

    setting: str
    unit: Literal["tokens", "USD"]
    allowed: float
    spent: float
    remedy: str
    resets_in: timedelta | None = None
    """Time until the limit resets, if it is that of a token or user."""

    @property
    def left(self) -> float:
        """The amount that may still be spent."""
        return max(0.0, self.allowed - self.spent)

    def room(self, amount: float, prompt_tokens: int, price: Price | None) -> float:
        """Return how many tokens of reply `amount` pays for after the prompt; below 0 if not even for the prompt."""
        if self.unit == "tokens" or price is None:  # `reply_within` refuses a limit in dollars without a price
            return amount - prompt_tokens
        left = amount - prompt_tokens * price.input_usd
        if left < 0:
            return -1
        return left / price.output_usd if price.output_usd else math.inf

    def refusal(self, prompt_tokens: int, *, fits_alone: bool = True) -> BudgetExceeded:
        """Return the error for a call that does not fit; `fits_alone` if it would as long as nothing is spent."""
        beyond = f"with {prompt_tokens:,} tokens of prompt it exceeds the whole limit: raise it, or shorten the message"
        limit = f"{self.setting} = {self.allowed:,.10g} {self.unit} ({self.spent:,.10g} used)"
        message = f"this call could exceed {limit}: {self.remedy if fits_alone else beyond}"
        if self.resets_in is None or not fits_alone:
            return BudgetExceeded(message)
        return QuotaExceeded(message, self.resets_in.total_seconds())


class Quota(Struct, frozen=True):
    """Limits of a day in UTC; 0 means no limit."""

    day_usd: Annotated[float, Meta(ge=0)] = 0.0
    day_tokens: Annotated[int, Meta(ge=0)] = 0

    def limits(self, spent: Bill, whose: str, now: datetime) -> list[Limit]:
        """Return the limits that are set, tokens first; `whose` names the token or user in messages."""
        resets_at = next_day(now)
        remedy = f"it resets at {resets_at:%Y-%m-%d %H:%M} UTC"
        limits = [
            Limit(f"the daily limit of {whose}", "tokens", self.day_tokens, spent.tokens, remedy, resets_at - now),
            Limit(f"the daily limit of {whose}", "USD", self.day_usd, spent.cost_usd, remedy, resets_at - now),
        ]
        return [limit for limit in limits if limit.allowed]


NO_QUOTA = Quota()


class Payer(Struct, frozen=True):
    """A token or a user that pays for a call, besides the identity."""

    ledger: "Ledger"
    key: str
    whose: str
    quota: Quota

    def account(self, at: datetime) -> str:
        """Return the key of the payer's bill of that day; it stands where other lines name a session."""
        return f"{self.key}@{at.astimezone(UTC):%Y-%m-%d}"


def next_day(now: datetime) -> datetime:
    """Return the start of the next day, in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def limits_of(settings: BudgetSettings, session: Bill, day: Bill) -> list[Limit]:
    """Return the limits that `[budget]` sets, tokens first."""
    session_remedy = "raise it in [budget], or start another session"
    day_remedy = "raise it in [budget], or wait for the next day (UTC)"
    limits = [
        Limit("session_tokens", "tokens", settings.session_tokens, session.tokens, session_remedy),
        Limit("day_tokens", "tokens", settings.day_tokens, day.tokens, day_remedy),
        Limit("session_usd", "USD", settings.session_usd, session.cost_usd, f"use --budget-usd, {session_remedy}"),
        Limit("day_usd", "USD", settings.day_usd, day.cost_usd, day_remedy),
    ]
    return [limit for limit in limits if limit.allowed]


def reply_within(limits: Iterable[Limit], *, prompt: int, reply: int, price: Price | None, model: str) -> int:
    """Return the most tokens, up to `reply`, that the reply may have without exceeding a limit.

    Raises `BudgetExceeded` if not even a short reply fits, or for a limit in dollars and a model without a price.
    """
    shortest = min(_SHORTEST_REPLY, reply)
    for limit in limits:
        if limit.unit == "USD" and price is None:
            remedy = f"set it in [providers.{provider_of(model) or model}.prices], or limit tokens"
            raise BudgetExceeded(f"{limit.setting} cannot be enforced: the price of {model} is unknown: {remedy}")
        reply = int(min(reply, limit.room(limit.left, prompt, price)))
        if reply < shortest:
            raise limit.refusal(prompt, fits_alone=limit.room(limit.allowed, prompt, price) >= shortest)
    return reply


UNBILLED = "the cost of this call could not be written to the bill"
"""Notice of a line that could not be written, to be followed by the reason."""
_RESERVATIONS = "reservations.json"
_RUNNING = (
    "the calls that are running now ({}) could use up what is left of a limit: try again when they have ended; "
    "those of a program that was killed count for an hour"
)
_SHORT_WAIT_S = 5.0
_HELD_FOR = timedelta(hours=1)
"""How long the reservation of a process that died counts: longer than any call takes."""


class Amount(Struct, frozen=True):
    """Upper limit of what a call may use."""

    tokens: int = 0
    cost_usd: float = 0.0


class Reservation(Struct, frozen=True):
    """Permission for one call until it is settled, or until it lapses; `session` may be a payer's account."""

    id: str
    session: str
    purpose: str
    until: Annotated[datetime, Meta(tz=True)]
    tokens: int
    cost_usd: float


class _Reservations(Struct):
    reservations: list[Reservation]
    v: int = 1


Decide = Callable[[Bill, Bill], Amount]
"""Gets the bills of the day and of the session, with reservations; returns the amount to reserve, or raises."""


class Ledger:
    """Appends calls, and sums them up.

    The place may be given as a folder or an address. `counts` is false if telemetry counts these calls already.
    With `names_sessions` false, no line names its session, so only this object can sum up a session.
    """

    def __init__(self, place: Place | Home, *, counts: bool = True, names_sessions: bool = True) -> None:
        place = open_place(place)
        self._counts = counts
        self._names_sessions = names_sessions
        self._unnamed: dict[datetime | str, str] = {}
        """Sessions of lines that name none, by the time of the call or the id of the reservation."""
        self._lines = place.lines("usage")
        self._reservations = place.document(_RESERVATIONS)
        self._summed: dict[str, Bill] = {}
        self._by_day: dict[str, Bill] = {}
        self._mark: Mark | None = None
        self._summing = Lock()

    def prepare_add(self, call: Call) -> Callable[[], None]:
        """Count the call for telemetry now, whatever follows; return the blocking function that writes it."""
        if self._counts:
            count("billed", model=call.model, purpose=call.purpose, usage=call.usage)
        if not self._names_sessions:
            self._unnamed[call.at] = call.session
            call = replace(call, session="")
        return partial(self._lines.append, [call.as_json()])

    @in_thread
    def reserve(self, session: str, decide: Decide, *, purpose: str = "", at: datetime | None = None) -> Reservation:
        """Reserve the amount that `decide` returns, under the lock. Raises what `decide` raises.

        `decide` gets the bills of the day of `at` and of the session (empty without one), with all reservations under
        their purposes. Raises a `StoreError` if these cannot be read or written.
        """
        today = _day(at or utc_now())
        reserved: list[Reservation] = []
        lapsed: list[Reservation] = []

        def add(before: bytes | None) -> bytes:
            now = utc_now()
            known = _parse_reservations(self._reservations, before)
            running = [each for each in known if now < each.until <= now + 2 * _HELD_FOR]  # later: the clock was ahead
            lapsed.extend(each for each in known if each not in running)
            with self._summing:  # after the reservations: a call settled meanwhile counts twice rather than never
                self._read_new()
                day = sum_of([self._by_day.get(today, Bill())])
                own = sum_of([self._summed.get(session, Bill()) if session else Bill()])
            spent = sum_of([day]), sum_of([own])  # copies: the running calls are added below
            for each in running:
                part = Bill(input_tokens=each.tokens, cost_usd=each.cost_usd)
                is_own = session and session in {each.session, self._unnamed.get(each.id)}
                for bill in [day, own] if is_own else [day]:
                    bill.add(replace(part, by_purpose={each.purpose: part}))
            try:
                amount = decide(day, own)
            except BudgetExceeded as error:
                if not running:
                    raise
                decide(*spent)  # raises, too, if the call would not fit even without the running ones
                raise QuotaExceeded(_RUNNING.format(len(running)), _SHORT_WAIT_S) from error
            until = now + _HELD_FOR
            new = Reservation(secrets.token_hex(8), session, purpose, until, amount.tokens, amount.cost_usd)
            if not self._names_sessions:
                self._unnamed[new.id], new = session, replace(new, session="")
            reserved.append(new)
            return msgspec.json.encode(_Reservations([*running, new]))

        self._reservations.change(add, durable=False)  # a power cut ends the reserving processes, too
        for each in lapsed:  # the call began, and its process was killed: nobody knows what it cost
            began = min(each.until - _HELD_FOR, utc_now())
            self.prepare_add(Call(began, each.session, each.purpose, "", Usage(), 0.0))()
        return reserved[0]

    async def settle(self, reservation: Reservation | None, call: Call | None = None) -> None:
        """Write a call, and end its reservation if it has one; `call` is None if it was not made. Durable on return."""
        if call is not None:
            await asyncio.to_thread(self.prepare_add(call))
        if reservation is not None:
            await asyncio.to_thread(self._release, reservation)

    @in_thread
    def by_day(self, days: int, now: datetime) -> dict[date, Bill]:
        """Return the bill of each of the last `days` days in UTC, today included."""
        wanted = [next_day(now) + timedelta(days=n) for n in range(-days, 0)]
        with self._summing:
            self._read_new()
            return {day.date(): sum_of([self._by_day.get(_day(day), Bill())]) for day in wanted}

    @in_thread
    def by_session(self) -> Mapping[str, Bill]:
        """Return the bill of each session by its id; spending without a session is under ""."""
        with self._summing:
            self._read_new()
            return {session: sum_of([bill]) for session, bill in self._summed.items()}

    def _read_new(self) -> None:
        """Add new calls to the sums. The caller holds the lock."""
        while True:
            reading = self._lines.since(self._mark)
            if reading.starts_over:
                self._summed, self._by_day = {}, {}
            self._mark = reading.mark
            for call in parse_calls(reading.records):
                bill = bill_of([call])
                session = call.session or self._unnamed.get(call.at, "")
                for bills, key in ((self._summed, session), (self._by_day, _day(call.at))):
                    bills.setdefault(key, Bill()).add(bill)
            if not (reading.records and reading.may_go_on):
                return

    def _release(self, reservation: Reservation) -> None:
        def without(before: bytes | None) -> bytes:
            kept = [each for each in _parse_reservations(self._reservations, before) if each.id != reservation.id]
            return msgspec.json.encode(_Reservations(kept))

        self._reservations.change(without, durable=False)


def _parse_reservations(document: Document, data: bytes | None) -> list[Reservation]:
    """Read every reservation. Raises `DamagedFile` or `LaterFormat`: unknown calls could exceed a limit together."""
    try:
        written = {"reservations": []} if data is None else msgspec.json.decode(data)
        if written.get("v", 0) <= _Reservations([]).v:
            return msgspec.convert(written, _Reservations).reservations
    except MISFITS as error:
        raise DamagedFile(f"{document.name} is damaged ({error}): delete it while no model call is running") from error
    raise LaterFormat(f"{document.name} was written by a later release: upgrade chatbot to use this memory")


def examine_reservations(place: Place | Home) -> Flaw | None:
    """Check the file of reservations: while it is damaged, no call can be made. None if nothing is reserved."""
    document = open_place(place).document(_RESERVATIONS)
    try:
        number = len(_parse_reservations(document, document.read()))
    except DamagedFile as error:
        done = "kept as {}; calls that are running now are not counted until they end"
        return Flaw("bill", "bad", str(error), mend=lambda: done.format(document.set_aside()))
    except StoreError as error:
        return Flaw("bill", "bad", str(error))
    return Flaw("bill", "ok", f"budget is reserved for {how_many(number, 'call')}") if number else None


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()
