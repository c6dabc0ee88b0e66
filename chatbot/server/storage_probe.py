"""Availability of the storage, as seen from a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from chatbot.stores.errors import StoreAway, StoreError
from chatbot.stores.lifecycle import AsyncResource

_KNOWN_FOR_S = 1.0
_PATIENCE_S = 1.0


class StorageProbe(AsyncResource):
    """Looks whether the storage answers: `look` is blocking, and is called by one at a time, once a second at most."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._error: StoreError | None = None
        self._looked_at = -_KNOWN_FOR_S
        self._looking: asyncio.Task[None] | None = None

    async def error(self) -> StoreError | None:
        """Return why the storage cannot be used just now; None where it can. Takes at most a second."""
        if self._looking is None and time.monotonic() >= self._looked_at + _KNOWN_FOR_S:
            self._looking = asyncio.create_task(self._looked(), name="looking at the storage")
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_PATIENCE_S)
        return StoreAway("the storage gives no answer") if self._looking is not None else self._error

    async def aclose(self) -> None:
        """Wait for no answer any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _looked(self) -> None:
        try:
            await asyncio.to_thread(self._look)
            self._error = None
        except StoreError as error:
            self._error = error
        finally:
            self._looking, self._looked_at = None, time.monotonic()
