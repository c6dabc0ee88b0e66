"""What went wrong in hooks, kept with the identity so that `chatbot doctor` can tell: a small file, bounded."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path

from stores import json_lines
from stores.files import locked, make_folder, opened

NAME = "hook_failures.jsonl"
_KEPT = 50
_SLACK = 50
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: when, as ISO 8601, of which hook, at which topic, in which session, and what was said."""

    at: str
    hook: str
    topic: str
    session: str
    message: str


class Failures:
    """The last failures of an identity's hooks; kept in memory alone where `home` is None."""

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._recent: list[Failure] = []

    async def add(self, failure: Failure) -> None:
        """Write one down. Raises a `StoreError` where that is not possible."""
        self._recent = [*self._recent, failure][-_KEPT:]
        if self._home is not None:
            await asyncio.to_thread(self._add, self._home, failure)

    def read(self) -> list[Failure]:
        """The last ones, oldest first. Lines that cannot be understood are passed over."""
        if self._home is None or not self._home.is_dir():
            return self._recent
        with opened(self._home) as folder:
            lines = json_lines.read(folder, NAME)[-_KEPT:]
        return [Failure(**{name: str(line.get(name, "")) for name in Failure.__slots__}) for line in lines]

    @staticmethod
    def _add(home: Path, failure: Failure) -> None:
        make_folder(home)
        with locked(home) as folder:
            folder.append(NAME, json_lines.encode(asdict(failure) | {"message": failure.message[:_LONGEST]}))
            lines = json_lines.read(folder, NAME)
            if len(lines) > _KEPT + _SLACK:
                folder.replace(NAME, b"".join(map(json_lines.encode, lines[-_KEPT:])))
