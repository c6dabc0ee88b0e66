"""A disk that can be filled, and what is put into the place of a file to fill the memory of its reader."""

import os
import sys
from collections.abc import Callable
from pathlib import Path


def fill(disk: Path) -> None:
    """Take what space there is, to the last byte."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        for size in (4096, 1):
            try:
                while ballast.write(bytes(size)):
                    pass
            except OSError:
                continue


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 40 << 30)


def _folders(path: Path) -> None:
    path.mkdir()
    folder = os.open(path, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("d", 0o700, dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


Put = Callable[[Path, str], None]
ENDLESS: dict[str, Callable[[Path], object]] = {
    "a sparse file": _sparse,
    "lists in lists": lambda path: path.write_bytes(b"[" * 1_000_000),
    "one line": lambda path: path.write_bytes(b"x" * 9_000_000),
    "folders in folders": _folders,
}
"""Files and folders without an end, by kind, each with a function that makes it at a path."""
