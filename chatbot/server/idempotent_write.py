"""Ids created by a write with an `Idempotency-Key`: enough to find the items again, without any text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

Made = Mapping[str, str]


@dataclass(slots=True)
class IdempotentWrite:
    """One write. If it was done `before`, its route looks up the created items and does nothing."""

    before: Made | None = None
    made: Made | None = None

    def note(self, **made: str) -> None:
        """Record the created ids, possibly none. Without a record only this process can repeat the answer."""
        self.made = made


async def _writing(request: Request) -> IdempotentWrite:
    return getattr(request.state, "writing", None) or IdempotentWrite()


WritingHere = Annotated[IdempotentWrite, Depends(_writing)]
