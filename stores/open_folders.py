"""Folders that stay open between uses, so that to be alone in one costs its lock and two looks at names.

A folder is either in use, by one thread, or idle. Only idle ones are found again, closed as too many, or closed with
all; so no descriptor is ever closed under its user, and no two users share a lock. Each use checks that the path, the
lock and the file appended to are still the ones that were opened: what was deleted or replaced is opened anew.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from stores.files import LOCK_NAME, LOCK_TIMEOUT_S, Folder, open_folder, translated

_MOST_IDLE = 16
"""With three descriptors each, well below the 256 that some systems allow a process."""


class OpenFolders:
    """At most 16 idle folders, those used last. Safe to share between threads; a child process starts with none."""

    def __init__(self, lock_name: str = LOCK_NAME) -> None:
        self._lock_name = lock_name
        self._idle: OrderedDict[str, Folder] = OrderedDict()
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

    def close(self, path: Path) -> None:
        """Close the folder at `path`, if it is idle."""
        if folder := self._idle.pop(str(path), None):
            folder.close()

    def close_all(self) -> None:
        """Close what is idle. More may be opened later."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _take(self, path: Path, timeout_s: float) -> Folder:
        if folder := self._idle.pop(str(path), None):
            with suppress(FileNotFoundError):  # deleted or replaced since
                return self._lock(folder, timeout_s)
        return self._lock(open_folder(path), timeout_s)

    def _keep(self, folder: Folder) -> None:
        self.close(folder.path)  # two threads had one each
        self._idle[str(folder.path)] = folder
        while len(self._idle) > _MOST_IDLE:
            self._idle.popitem(last=False)[1].close()

    def _lock(self, folder: Folder, timeout_s: float) -> Folder:
        try:
            folder.lock(timeout_s, self._lock_name)
        except BaseException:
            folder.close()
            raise
        return folder


def _close_everywhere() -> None:
    """A child that kept our descriptors would share our locks, and hold them when we are gone."""
    for folders in _everywhere:
        folders.close_all()


_everywhere: WeakSet[OpenFolders] = WeakSet()
os.register_at_fork(after_in_child=_close_everywhere)
