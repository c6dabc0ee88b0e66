"""A clock for tests."""

from datetime import UTC, datetime, timedelta


class Clock:
    """Stands still until it is moved, or goes on by `step` whenever it is looked at."""

    def __init__(
        self, now: datetime = datetime(2026, 3, 4, 9, 0, tzinfo=UTC), *, step: timedelta = timedelta(0)
    ) -> None:
        self.now = now
        self._step = step

    def __call__(self) -> datetime:
        self.now += self._step
        return self.now

    def move(self, **by: float) -> None:
        """Go on by so many `days`, `hours` or the like."""
        self.now += timedelta(**by)
