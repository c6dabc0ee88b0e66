"""The cost of model calls: every call has a purpose, and none is hidden."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from chatbot.messages import Usage
from chatbot.stores.records import format_time, parse_time

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One model call on the bill."""

    at: datetime
    session: str
    purpose: str
    """The purpose of the call: one of `Calls`, or `embed`."""
    model: str
    usage: Usage
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the call as one flat record."""
        head = {"at": format_time(self.at), "session": self.session, "purpose": self.purpose, "model": self.model}
        return head | asdict(self.usage) | {"seconds": round(self.seconds, 3)}


def parse_call(record: Mapping[str, Any]) -> Call:
    """Parse a record of `Call.as_json`."""
    return Call(
        at=parse_time(record["at"]),
        session=str(record["session"]),
        purpose=str(record["purpose"]),
        model=str(record["model"]),
        usage=Usage(
            input_tokens=int(record["input_tokens"]),
            output_tokens=int(record["output_tokens"]),
            cached_tokens=int(record["cached_tokens"]),
            cost_usd=record["cost_usd"],
            estimated=bool(record["estimated"]),
        ),
        seconds=float(record["seconds"]),
    )


@dataclass(slots=True)
class Bill:
    """The sum of some calls. Tokens are whole numbers, `cost_usd` US dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    calls_of_unknown_cost: int = 0
    by_purpose: dict[str, Bill] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def add(self, usage: Usage) -> None:
        """Add one call."""
        self.calls += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        self.cost_usd += usage.cost_usd or 0.0
        self.calls_of_unknown_cost += usage.cost_usd is None

    def take_in(self, other: Bill) -> None:
        """Add another bill."""
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.cost_usd += other.cost_usd
        self.calls_of_unknown_cost += other.calls_of_unknown_cost
        for purpose, part in other.by_purpose.items():
            self.by_purpose.setdefault(purpose, Bill()).take_in(part)

    def as_json(self) -> dict[str, Any]:
        """Return the bill as a record, purposes nested."""
        fields = asdict(self)
        for purpose in fields["by_purpose"].values():
            del purpose["by_purpose"]
        return fields


def merged(bills: Iterable[Bill]) -> Bill:
    """Return the sum of these bills."""
    total = Bill()
    for bill in bills:
        total.take_in(bill)
    return total


def bill_of(calls: Iterable[Call]) -> Bill:
    """Return the bill of these calls."""
    bill = Bill()
    for call in calls:
        bill.add(call.usage)
        bill.by_purpose.setdefault(call.purpose, Bill()).add(call.usage)
    return bill


def parse_calls(records: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
    """Parse the records that are calls; one that a hand edit broke is skipped and logged."""
    for record in records:
        try:
            yield parse_call(record)
        except (KeyError, TypeError, ValueError) as error:
            logger.warning("a line of the bill cannot be read and was skipped: %r (%s)", record, error)


def calls_in(receipts: Iterable[Mapping[str, Any]]) -> list[Call]:
    """Return all model calls in the receipts of a session."""
    return list(parse_calls(call for receipt in receipts for call in receipt.get("calls", ())))


def cost_text(cost_usd: float, *, is_known: bool = True) -> str:
    """Format US dollars, with as many digits as needed, and +? at the end where some calls have no known price."""
    digits = 2 if cost_usd >= 1 or cost_usd == 0 else 4
    return f"${cost_usd:.{digits}f}{'' if is_known else '+?'}"
