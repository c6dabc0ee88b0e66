"""Limit on files kept open between uses in the process: the least recently used are closed first.

One process may serve hundreds of identities, and some systems allow only 256 descriptors. Every file kept open only to
save time is registered here, and can be closed while it is not in use.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST = 24
"""Holders of at most three descriptors each."""

Close = Callable[[], bool]
"""Lets go of descriptors; false where they are in use, and stay."""


class Descriptors:
    """Registry of at most `most` holders of open files, last used at the end. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.RLock()  # a holder that is garbage-collected inside the lock unregisters itself
        self._open: OrderedDict[Hashable, Close] = OrderedDict()

    def used(self, holder: Hashable, close: Close) -> None:
        """`holder` has files open and used them just now. `close` is called, from any thread, when they are too many.

        Call it without any lock that `close` waits for.
        """
        with self._lock:
            self._open[holder] = close
            self._open.move_to_end(holder)
            surplus = [self._open.popitem(last=False) for _ in range(len(self._open) - self._most)]
        for each, close_it in surplus:
            if not close_it():
                with self._lock:
                    self._open.setdefault(each, close_it)

    def closed(self, holder: Hashable) -> None:
        """`holder` has nothing open any more."""
        with self._lock:
            self._open.pop(holder, None)


def _begin_anew() -> None:
    """Reset in a forked child: the lock's thread may not exist there, and each holder closes its own."""
    OPEN.__init__()  # type: ignore[misc]


OPEN = Descriptors()
os.register_at_fork(after_in_child=_begin_anew)
