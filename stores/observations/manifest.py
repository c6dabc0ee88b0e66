"""The list of the segments that count, and the rule of who may write: one at a time, and nothing unlisted stays.

Three locks, each a folder's: the index itself for moments, whenever a name in it changes; `writing` for as long as a
segment is made, until it is published or given up; `waiting` for the one process that may wait for that.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from chatbot.stores.errors import StoreBusy, StoreError
from chatbot.stores.files import Folder, Stamp, locked, make_folder, stamp
from chatbot.stores.observations.segments import FORMAT, Entry, remove

NAME = "manifest.json"
_WRITING = "writing"
_WAITING = "waiting"
_OURS = {NAME, _WRITING, _WAITING, ".lock"}
_WAIT_S = 60.0
_LOCK_S = 10.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments in the order of their rows; `erasures` counts how often texts were purged."""

    generation: int = 0
    erasures: int = 0
    entries: tuple[Entry, ...] = ()

    def replaced(self, entries: Iterable[Entry], *, erased: bool = False) -> Manifest:
        """The next manifest."""
        ordered = tuple(sorted(entries, key=lambda entry: entry.start))
        return Manifest(self.generation + 1, self.erasures + erased, ordered)


def prepare(folder: Path) -> None:
    """Make the folder and those of its locks."""
    for each in (folder, folder / _WRITING, folder / _WAITING):
        make_folder(each)


def current_stamp(folder: Path) -> Stamp | None:
    """What the manifest looks like now, in one call to the system."""
    return stamp(folder / NAME)


def read(folder: Path) -> Manifest:
    """The manifest; an empty one where there is none, or none that we could have written."""
    path = folder / NAME
    try:
        value: Any = json.loads(path.read_bytes()) if _is_ours(path) else None
        entries = tuple(map(Entry.parse, value["segments"]))
        ordered = all(a.end <= b.start for a, b in pairwise(entries))
        if value["format"] == FORMAT and ordered:
            return Manifest(int(value["generation"]), int(value["erasures"]), entries)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return Manifest()


@contextmanager
def changing(folder: Path) -> Iterator[Folder]:
    """Be the only one who changes names in the index, for a moment."""
    with locked(folder, timeout_s=_LOCK_S) as place:
        yield place


def write(place: Folder, manifest: Manifest) -> Stamp | None:
    """Replace the manifest durably; returns what it looks like now. Needs the lock of `changing`."""
    value = {
        "format": FORMAT,
        "generation": manifest.generation,
        "erasures": manifest.erasures,
        "segments": [entry.to_json() for entry in manifest.entries],
    }
    place.replace(NAME, json.dumps(value).encode())
    return place.stamp(NAME)


def sweep(place: Folder, manifest: Manifest) -> None:
    """Remove whatever the manifest does not list. Needs the lock of `changing`."""
    remove(place.path, _unlisted(place.names(), manifest))


def _unlisted(names: Iterable[str], manifest: Manifest) -> list[str]:
    listed = {entry.name for entry in manifest.entries} | _OURS
    return [name for name in names if name not in listed]


def begin_writing(folder: Path, *, wait: bool) -> ExitStack | None:
    """The right to make a segment, held until the stack is closed; None if another has it and this one may not wait."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder / _WRITING, timeout_s=0))
            return held.pop_all()
        except StoreBusy:
            return _queue(folder) if wait else None


def _queue(folder: Path) -> ExitStack | None:
    with ExitStack() as held:
        try:
            with locked(folder / _WAITING, timeout_s=0):
                held.enter_context(locked(folder / _WRITING, timeout_s=_WAIT_S))
        except StoreBusy:
            return None
        return held.pop_all()


def try_sweep(folder: Path, known: Manifest) -> None:
    """Remove what is unlisted, where there is anything that is not `known`, unless somebody is just writing."""
    try:
        names = {path.name for path in folder.iterdir()}
        if _unlisted(names, known) and (right := begin_writing(folder, wait=False)):
            with right, changing(folder) as place:
                sweep(place, read(folder))
    except StoreError:
        return


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
