"""Arrays on a shelf, in parts of which a later one wins: what vectors and sessions are kept in.

Little is written at a time, so what is added takes the last parts into itself while they are no more than twice as
large: there are few parts, and each row is written again a few times only. A part that is not what was written is
left out, and what was in it is made again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from chatbot.stores.errors import MissingFolder
from chatbot.stores.observations.arrays import Arrays, DamagedArrays
from chatbot.stores.shelf import Hands, Shelf

logger = logging.getLogger(__name__)

_ATTEMPTS = 3


class Part:
    """One of the parts, of which only what is asked for is read. Subclasses check it when they are made."""

    def __init__(self, name: str, digest: str, arrays: Arrays) -> None:
        self.name = name
        self.digest = digest
        self.arrays = arrays

    def __len__(self) -> int:
        """Number of rows."""
        raise NotImplementedError


class PackedPart(NamedTuple):
    """A part that is not on the shelf yet: what `packed` returned."""

    data: bytes
    digest: str


P = TypeVar("P", bound=Part)


class Parts(Generic[P]):
    """The parts that count, as they were when `refresh` was last called. Guarded by its owner's lock."""

    def __init__(self, shelf: Shelf, layout: str, make: Callable[[str, str, Arrays], P], most: int) -> None:
        """Parts of at most so many rows, about: a part is written again as a whole when one of them is erased."""
        self._shelf = shelf
        self._layout = layout
        self._make = make
        self._most = most
        self._stamp: Hashable | None = None
        self.all: Sequence[P] = ()

    def refresh(self) -> bool:
        """Take over what was published; returns whether anything was. One call to the system if not."""
        if self._shelf.stamp() == self._stamp:
            return False
        for _ in range(_ATTEMPTS):
            stamp, listed = self._shelf.stamp(), self._listed()
            self._adopt(stamp, listed)
            if len(self.all) == len(listed) or self._shelf.stamp() == stamp:
                break
        return True

    def is_all_there_is(self) -> bool:
        """False where the shelf holds something else: a damaged part, or one that a killed process left."""
        try:
            return {*self._shelf.names()} == {part.name for part in self.all}
        except MissingFolder:
            return not self.all

    def drop(self, part: P, why: Exception) -> None:
        """Do without a part that turned out to be damaged, unless another list was published meanwhile."""
        if not self.refresh():
            logger.warning("a part of %s is made again: %s", self._shelf.name, why)
            self.all = [each for each in self.all if each is not part]

    @contextmanager
    def changing(self, *, make: bool = True) -> Iterator[Hands]:
        """Lock the parts for changes, with `all` up to date. Raises `MissingFolder` if not to `make` a shelf."""
        if make:
            self._shelf.prepare()
        with self._shelf.alone() as hands:
            self.refresh()
            yield hands

    def split(self, added: int, used: Mapping[P, int]) -> tuple[list[P], list[P]]:
        """The parts to leave as they are when so many rows are added, and those to take along.

        `used` says how many rows of each part still count: one that is of little use goes.
        """
        count, total = len(self.all), added
        while count and len(self.all[count - 1]) <= 2 * total and total + len(self.all[count - 1]) <= self._most:
            count -= 1
            total += len(self.all[count])
        kept, taken = [], [*self.all[count:]]
        for part in self.all[:count]:
            if 2 * used[part] <= len(part) and total + used[part] <= self._most:
                total += used[part]
                taken.append(part)
            else:
                kept.append(part)
        return kept, taken

    def publish(self, hands: Hands, parts: Sequence[P | PackedPart], *, durable: bool = True) -> None:
        """Publish exactly these parts, in this order.

        Where it is `durable`, no byte of the others is left on return, and none comes back after a power cut.
        """
        if [*parts] == [*self.all] and self.is_all_there_is():
            return
        listed = []
        for part in parts:
            name = f"part-{secrets.token_hex(8)}" if isinstance(part, PackedPart) else part.name
            if isinstance(part, PackedPart):
                hands.put(name, part.data, durable=durable)
            listed.append((name, part.digest))
        stamp = hands.publish({"format": self._layout, "parts": listed}, durable=durable)
        hands.remove({*self._shelf.names()} - {name for name, _ in listed})
        if durable:
            hands.sync()
        self._adopt(stamp, listed)

    def _listed(self) -> list[tuple[str, str]]:
        value = self._shelf.listed()
        try:
            if value["format"] == self._layout:
                return [(str(name), str(digest)) for name, digest in value["parts"]]
        except (TypeError, KeyError, ValueError):
            pass
        return []

    def _adopt(self, stamp: Hashable | None, listed: Sequence[tuple[str, str]]) -> None:
        known = {(part.name, part.digest): part for part in self.all}
        found = (known.get(each) or self._opened(*each) for each in listed)
        self.all = [part for part in found if part is not None]
        self._stamp = stamp

    def _opened(self, name: str, digest: str) -> P | None:
        try:
            arrays = Arrays(partial(self._shelf.opened, name), name, digest, whole=self._shelf.is_remote)
            return self._make(name, digest, arrays)
        except (DamagedArrays, ValueError, KeyError, TypeError) as error:
            logger.warning("a part of %s is made again: %s", self._shelf.name, error)
            return None
