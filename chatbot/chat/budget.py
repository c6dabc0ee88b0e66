"""The hard limit: a call that could pass it is not made."""

from __future__ import annotations

from dataclasses import dataclass

from chatbot.chat.usage import Bill
from chatbot.config import BudgetSettings
from chatbot.errors import BudgetExceeded
from chatbot.models.base import Price

_SHORTEST_REPLY = 16


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and what is already spent of it, in US dollars or tokens."""

    setting: str
    allowed: float
    spent: float

    @property
    def left(self) -> float:
        """What may still be spent."""
        return max(0.0, self.allowed - self.spent)

    def refusal(self, unit: str) -> BudgetExceeded:
        """The error for a call that does not fit."""
        return BudgetExceeded(
            f"{self.setting} is {self.allowed:g} {unit}, {self.spent:g} are spent and the next call could pass it: "
            "raise it in [budget] or with --budget-usd, or wait for the next session or day"
        )


def reply_within_budget(
    settings: BudgetSettings, session: Bill, day: Bill, *, prompt_tokens: int, reply_tokens: int, price: Price | None
) -> int:
    """How long the reply may be, in tokens, so that no limit can be passed; at most `reply_tokens`.

    Raises `BudgetExceeded` where not even a short reply fits, or a limit in dollars meets a model without a price.
    """
    for limit in _limits(settings.session_tokens, settings.day_tokens, session.tokens, day.tokens, "tokens"):
        reply_tokens = min(reply_tokens, int(limit.left) - prompt_tokens)
        if reply_tokens < _SHORTEST_REPLY:
            raise limit.refusal("tokens")
    for limit in _limits(settings.session_usd, settings.day_usd, session.cost_usd, day.cost_usd, "usd"):
        if price is None:
            raise BudgetExceeded(
                f"{limit.setting} cannot be kept, for the price of this model is not known: set input_usd_per_million "
                "and output_usd_per_million in [model], or limit tokens"
            )
        left = limit.left - prompt_tokens * price.input_usd
        affordable = int(left / price.output_usd) if price.output_usd else reply_tokens
        reply_tokens = min(reply_tokens, affordable)
        if reply_tokens < _SHORTEST_REPLY or left < 0:
            raise limit.refusal("USD")
    return reply_tokens


def _limits(session: float, day: float, session_spent: float, day_spent: float, unit: str) -> list[Limit]:
    limits = [Limit(f"session_{unit}", session, session_spent), Limit(f"day_{unit}", day, day_spent)]
    return [limit for limit in limits if limit.allowed]
