"""Interface of telemetry: a span around each piece of work, and counts. Both do nothing unless an observer is set.

The observer is set where work begins: an operation on memory, a turn. Everything called from there inherits it,
also in new tasks, so it is not an argument. Labels are plain words; the observer maps them to attributes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Self


class Span:
    """A piece of work, from `span` to the end of a `with` block or `end`. This one does nothing."""

    __slots__ = ()

    def note(self, **details: Any) -> None:
        """Add details."""

    def fail(self, error_type: str, *, is_fault: bool = True) -> None:
        """Mark the work as failed, or as stopped if `is_fault` is false."""

    def end(self) -> None:
        """End the work. Only for work that no `with` block can hold, as in a generator."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        return


class Observer(ABC):
    """Receives spans and counts."""

    @abstractmethod
    def begin(self, kind: str, labels: Mapping[str, Any]) -> Span:
        """Begin a span."""

    @abstractmethod
    def count(self, what: str, amount: float, labels: Mapping[str, Any]) -> None:
        """Count something, or record its size."""

    @abstractmethod
    def opened(self, memory: Any) -> None:
        """Measure a memory system from now on. Called once or more, in its event loop."""

    @abstractmethod
    def closed(self, memory: Any) -> None:
        """Stop measuring a memory system."""


NOTHING = Span()
_observer: ContextVar[Observer | None] = ContextVar("_observer", default=None)


def span(kind: str, **labels: Any) -> Span:
    """Begin a piece of work of that kind."""
    observer = _observer.get()
    return NOTHING if observer is None else observer.begin(kind, labels)


def count(what: str, amount: float = 1, **labels: Any) -> None:
    """Count something, or record its size."""
    if (observer := _observer.get()) is not None:
        observer.count(what, amount, labels)


def present_observer() -> Observer | None:
    """Return the current observer, for work that continues in another context."""
    return _observer.get()


def observed(observer: Observer | None) -> AbstractContextManager[None]:
    """Set the observer within a block; None changes nothing."""
    return nullcontext() if observer is None or _observer.get() is observer else _observed(observer)


@contextmanager
def _observed(observer: Observer) -> Iterator[None]:
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
