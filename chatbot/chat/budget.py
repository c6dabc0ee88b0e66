"""Limits: a call that could pass one is not made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import Bill
from chatbot.config import BudgetSettings
from chatbot.errors import BudgetExceeded, QuotaExceeded
from chatbot.models.model import Price

_SHORTEST_REPLY = 16


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, and the amount that is already spent of it."""

    setting: str
    unit: Literal["tokens", "USD"]
    allowed: float
    spent: float
    remedy: str = "raise it in [budget] or with --budget-usd, or wait for the next session or day"
    resets_in: timedelta | None = None
    """How long until it is free again, of the limit of a token or user."""

    @property
    def left(self) -> float:
        """The amount that may still be spent."""
        return max(0.0, self.allowed - self.spent)

    def refusal(self) -> BudgetExceeded:
        """Return the error for a call that does not fit."""
        message = (
            f"this call could exceed {self.setting} = {self.allowed:g} {self.unit} ({self.spent:g} used): {self.remedy}"
        )
        return (
            BudgetExceeded(message)
            if self.resets_in is None
            else QuotaExceeded(message, self.resets_in.total_seconds())
        )


@dataclass(frozen=True, slots=True)
class Quota:
    """What may be spent on a day, in UTC; 0: no limit."""

    day_usd: float = 0.0
    day_tokens: int = 0

    def limits(self, spent: Bill, whose: str, now: datetime) -> list[Limit]:
        """Return the limits that it sets, tokens first; `whose` is for messages."""
        free = next_day(now)
        remedy = f"it is free again at {free:%Y-%m-%d %H:%M} UTC"
        limits = [
            Limit(f"the limit of {whose} a day", "tokens", self.day_tokens, spent.tokens, remedy, free - now),
            Limit(f"the limit of {whose} a day", "USD", self.day_usd, spent.cost_usd, remedy, free - now),
        ]
        return [limit for limit in limits if limit.allowed]


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Payer:
    """A token or a user on whose account a call is, beside the identity's."""

    ledger: Ledger
    key: str
    whose: str
    quota: Quota

    def account(self, at: datetime) -> str:
        """Return the name of the account of that day in the ledger."""
        return f"{self.key}@{at.astimezone(UTC):%Y-%m-%d}"

    async def spent(self, at: datetime) -> Bill:
        """Return what was spent on that day."""
        return (await self.ledger.by_session()).get(self.account(at), Bill())


def next_day(now: datetime) -> datetime:
    """Return the begin of the next day, in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def limits_of(settings: BudgetSettings, session: Bill, day: Bill) -> list[Limit]:
    """Return the limits that `[budget]` sets, tokens first."""
    limits = [
        Limit("session_tokens", "tokens", settings.session_tokens, session.tokens),
        Limit("day_tokens", "tokens", settings.day_tokens, day.tokens),
        Limit("session_usd", "USD", settings.session_usd, session.cost_usd),
        Limit("day_usd", "USD", settings.day_usd, day.cost_usd),
    ]
    return [limit for limit in limits if limit.allowed]


def reply_within(limits: Iterable[Limit], *, prompt_tokens: int, reply_tokens: int, price: Price | None) -> int:
    """Return how many tokens the reply may have so that no limit can be passed; at most `reply_tokens`.

    Raises `BudgetExceeded` where not even a short reply fits, or a limit in dollars meets a model without a price.
    """
    shortest = min(_SHORTEST_REPLY, reply_tokens)
    for limit in limits:
        if limit.unit == "tokens":
            affordable = int(limit.left) - prompt_tokens
        elif price is None:
            raise BudgetExceeded(
                f"{limit.setting} cannot be enforced: the price of this model is unknown: set input_usd_per_million "
                "and output_usd_per_million in [model], or limit tokens"
            )
        else:
            left = limit.left - prompt_tokens * price.input_usd
            affordable = -1 if left < 0 else int(left / price.output_usd) if price.output_usd else reply_tokens
        reply_tokens = min(reply_tokens, affordable)
        if reply_tokens < shortest:
            raise limit.refusal()
    return reply_tokens
