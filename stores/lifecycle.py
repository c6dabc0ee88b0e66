"""Resources opened with `async with` and closed by `aclose`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self

from chatbot.stores.errors import ClosedResource

Operation = Callable[..., Awaitable[Any]]


class AsyncResource(ABC):
    """Closes itself at the end of an `async with` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish running work and release everything. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Closable(AsyncResource):
    """A resource whose public coroutine methods raise `ClosedResource` from the start of `aclose`.

    This applies to every subclass automatically.
    """

    is_closed = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, operation in list(vars(cls).items()):
            if not iscoroutinefunction(operation) or getattr(operation, "__isabstractmethod__", False):
                continue
            if name == "aclose":
                setattr(cls, name, _closing(operation))
            elif not name.startswith("_"):
                setattr(cls, name, cls._guarding(operation))

    def check_open(self) -> None:
        """Raise `ClosedResource` after `aclose`."""
        if self.is_closed:
            raise ClosedResource(f"{type(self).__name__} is closed: open it again to go on")

    @classmethod
    def _guarding(cls, operation: Operation) -> Operation:
        @wraps(operation)
        async def guarded(self: Closable, *args: Any, **named: Any) -> Any:
            if self.is_closed:
                self.check_open()
            return await operation(self, *args, **named)

        return guarded


def _closing(operation: Operation) -> Operation:
    @wraps(operation)
    async def closing(self: Closable) -> None:
        self.is_closed = True
        await operation(self)

    return closing
