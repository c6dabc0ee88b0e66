"""A disk that can be filled."""

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
