"""Waiting times between tries."""

from __future__ import annotations

import random

from chatbot.errors import ModelError

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Longest wait that is accepted."""


def pause_before(tried: int, error: ModelError, first_pause_s: float = FIRST_PAUSE_S) -> float:
    """Return the seconds until the next try: as the provider asks, or exponential back-off with jitter."""
    if error.retry_after_s is not None:
        return error.retry_after_s
    backoff = first_pause_s * 2**tried * random.uniform(0.75, 1.25)  # noqa: S311 - jitter needs no secrecy
    return float(min(backoff, LONGEST_PAUSE_S))
