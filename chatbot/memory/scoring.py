"""How well a row answers a question: one number from lexical match, age and mentions. Pure.

The weights are those of Coop: with a text 0.6 match, 0.2 recency, 0.2 mentions; without one 0.7 recency, 0.3 mentions.
"""

from __future__ import annotations

from datetime import datetime

_HALF_MATCH = 5.0
"""The lexical score that counts as half a match: about one rare word."""


def search_score(lexical: float | None, *, updated_at: datetime, mention_count: int, now: datetime) -> float:
    """A score from 0 to 1; `lexical` is None where no text was asked for."""
    recency = 1 / (1 + max(0.0, (now - updated_at).total_seconds()) / 86_400)
    mention = min(mention_count / 10, 1.0)
    if lexical is None:
        return 0.7 * recency + 0.3 * mention
    return 0.6 * saturated(lexical) + 0.2 * recency + 0.2 * mention


def saturated(lexical: float) -> float:
    """A lexical score as a number from 0 to 1 that does not depend on what else was found."""
    return lexical / (lexical + _HALF_MATCH)
