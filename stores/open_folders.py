"""Folders kept open between uses, so that exclusive access costs only the lock and two checks of names.

A folder is in use by one thread, or idle. Only idle ones are reused or closed, so no descriptor is closed during use
and no two users share a lock. Each use checks that the path, the lock and the appended file are still the opened ones;
a deleted or replaced one is opened again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakMethod, WeakSet

from chatbot.stores.files import LOCK_NAME, LOCK_TIMEOUT_S, Folder, open_folder, translated

MOST = 24
"""Maximum holders, of at most three descriptors each."""

Close = Callable[[], bool]
"""Closes descriptors; returns False if they are in use and stay open."""


class Descriptors:
    """Registry of at most `most` holders of open files, last used at the end. Safe to share between threads.

    One process may serve hundreds of identities, and some systems allow only 256 descriptors. Every file kept open only
    to save time is registered here; the least recently used are closed first, while they are not in use.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.RLock()  # a holder that is garbage-collected inside the lock unregisters itself
        self._open: OrderedDict[Hashable, Close] = OrderedDict()

    def used(self, holder: Hashable, method: Callable[..., bool], *args: Any) -> None:
        """Note that `holder` has used its open files. `method` closes them: any thread calls it if there are too many.

        The method is held weakly. Call this without holding a lock that it waits for.
        """
        held = WeakMethod(method)

        def close() -> bool:
            return (present := held()) is None or present(*args)

        with self._lock:
            self._open[holder] = close
            self._open.move_to_end(holder)
            surplus = [self._open.popitem(last=False) for _ in range(len(self._open) - self._most)]
        for each, close_it in surplus:
            if not close_it():
                with self._lock:
                    self._open.setdefault(each, close_it)

    def closed(self, holder: Hashable) -> None:
        """Note that `holder` has closed its files."""
        with self._lock:
            self._open.pop(holder, None)


OPEN = Descriptors()


class OpenFolders:
    """Idle folders, as many as `descriptors` allows. Safe between threads; a child process starts with none."""

    def __init__(self, lock_name: str = LOCK_NAME) -> None:
        self._lock_name = lock_name
        self._guard = threading.Lock()
        self._idle: dict[str, Folder] = {}
        self._is_closed = False
        _everywhere.add(self)

    @contextmanager
    def locked(self, path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[Folder]:
        """Like `files.locked`. After an error the folder does not stay open."""
        with translated(path):
            folder = self._take(path, timeout_s)
            try:
                yield folder
            except BaseException:
                folder.unlock()
                folder.close()
                raise
            folder.unlock()
            self._keep(folder)

    def close(self, path: Path) -> bool:
        """Close the folder at `path` if it is idle; one in use is not registered. Returns True."""
        folder = self._popped(str(path))
        if folder is not None:
            OPEN.closed((id(self), str(path)))
            folder.close()
        return True

    def close_all(self, *, for_good: bool = False) -> None:
        """Close idle folders. Others may be opened later; after `for_good` none stays open after its use."""
        self._is_closed = self._is_closed or for_good
        for path in list(self._idle):
            self.close(Path(path))

    def begin_anew(self) -> None:
        """Reset in a forked child, which would otherwise share locks and keep them after the parent's end."""
        self._guard = threading.Lock()
        self.close_all()

    def __del__(self) -> None:
        for path in list(self._idle):
            OPEN.closed((id(self), path))

    def _popped(self, path: str) -> Folder | None:
        with self._guard:
            return self._idle.pop(path, None)

    def _take(self, path: Path, timeout_s: float) -> Folder:
        if folder := self._popped(str(path)):
            OPEN.closed((id(self), str(path)))
            with suppress(FileNotFoundError):  # deleted or replaced since
                return self._lock(folder, timeout_s)
        return self._lock(open_folder(path), timeout_s)

    def _keep(self, folder: Folder) -> None:
        path = str(folder.path)
        with self._guard:
            other = self._idle.pop(path, None)  # two threads had opened it
            self._idle[path] = folder
        if other is not None:
            other.close()
        OPEN.used((id(self), path), self.close, folder.path)
        if self._is_closed:
            self.close(folder.path)

    def _lock(self, folder: Folder, timeout_s: float) -> Folder:
        try:
            folder.lock(timeout_s, self._lock_name)
        except BaseException:
            folder.close()
            raise
        return folder


def _begin_anew() -> None:
    """Reset in a forked child: the lock's thread may not exist there."""
    OPEN.__init__()  # type: ignore[misc]
    for folders in _everywhere:
        folders.begin_anew()


_everywhere: WeakSet[OpenFolders] = WeakSet()
os.register_at_fork(after_in_child=_begin_anew)
