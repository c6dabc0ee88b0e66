"""What is opened with `async with` and closed by `aclose`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class AsyncResource(ABC):
    """Closes itself at the end of an `async with` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what is under way and let go of everything. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
