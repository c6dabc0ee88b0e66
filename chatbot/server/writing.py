"""What a write with an `Idempotency-Key` has made, by ids alone: enough to find it again, and no text of anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

Made = Mapping[str, str]


@dataclass(slots=True)
class Writing:
    """One write. Where it was done `before`, its route looks up what it made then, and does nothing again."""

    before: Made | None = None
    made: Made | None = None

    def note(self, **made: str) -> None:
        """What was made; nothing at all counts, too. Without a note the answer can be given by this process alone."""
        self.made = made


async def _writing(request: Request) -> Writing:
    return getattr(request.state, "writing", None) or Writing()


WritingHere = Annotated[Writing, Depends(_writing)]
