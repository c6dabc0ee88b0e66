"""From where an identity lives to its backend: a folder to plain files, nowhere to memory."""

from __future__ import annotations

from pathlib import Path

from chatbot.stores.backend import Backend, Place


def open_backend(home: Path | None) -> Backend:
    """Return the backend of an identity: files in `home`, or memory for None. Makes nothing yet."""
    if home is None:
        from chatbot.stores.in_memory_backend import MemoryBackend

        return MemoryBackend()
    from chatbot.stores.on_disk.backend import FileBackend

    return FileBackend(home)


def open_place(place: Place | Path | None) -> Place:
    """Return the place itself, that of files in a folder, or one in memory for None. Makes nothing yet."""
    if place is None:
        from chatbot.stores.in_memory_backend import MemoryPlace

        return MemoryPlace()
    if isinstance(place, Path):
        from chatbot.stores.on_disk.place import FilePlace

        return FilePlace(place)
    return place
