"""The list of the segments that count, in the order of their rows; nothing unlisted stays."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from chatbot.stores.errors import StoreError
from chatbot.stores.observations.segments import FORMAT, SegmentEntry
from chatbot.stores.shelf import Hands, Shelf


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments in the order of their rows; `erasures` counts how often texts were purged."""

    generation: int = 0
    erasures: int = 0
    entries: tuple[SegmentEntry, ...] = ()

    def replaced(self, entries: Iterable[SegmentEntry], *, erased: bool = False) -> Manifest:
        """The next manifest."""
        ordered = tuple(sorted(entries, key=lambda entry: entry.start))
        return Manifest(self.generation + 1, self.erasures + erased, ordered)


def read(shelf: Shelf) -> Manifest:
    """The manifest; an empty one where there is none, or none that we could have written."""
    value = shelf.listed()
    try:
        entries = tuple(map(SegmentEntry.parse, value["segments"]))
        ordered = all(a.end <= b.start for a, b in pairwise(entries))
        if value["format"] == FORMAT and ordered:
            return Manifest(int(value["generation"]), int(value["erasures"]), entries)
    except (ValueError, TypeError, KeyError):
        pass
    return Manifest()


def write(hands: Hands, manifest: Manifest) -> Hashable:
    """Publish the manifest; returns the stamp of the shelf now."""
    return hands.publish(
        {
            "format": FORMAT,
            "generation": manifest.generation,
            "erasures": manifest.erasures,
            "segments": [entry.to_json() for entry in manifest.entries],
        }
    )


def sweep(shelf: Shelf, hands: Hands, manifest: Manifest) -> None:
    """Remove whatever the manifest does not list."""
    hands.remove(_unlisted(shelf, manifest))


def try_sweep(shelf: Shelf, known: Manifest) -> None:
    """Remove unlisted pieces, if any are not `known`, unless another process is writing."""
    try:
        if _unlisted(shelf, known) and (right := shelf.making(wait=False)):
            with right, shelf.alone() as hands:
                sweep(shelf, hands, read(shelf))
    except StoreError:
        return


def _unlisted(shelf: Shelf, manifest: Manifest) -> Collection[str]:
    listed = {entry.name for entry in manifest.entries}
    return [name for name in shelf.names() if name not in listed]
