"""From where an identity lives to its backend: a folder to plain files, an address to a database, nowhere to memory."""

from __future__ import annotations

from pathlib import Path

from chatbot.stores.backend import Backend, Place
from chatbot.stores.errors import BrokenStore
from chatbot.stores.home import Address, Home


def open_backend(home: Home | None) -> Backend:
    """Return the backend of an identity: files, a database, or memory for None. Makes nothing yet.

    Raises `BrokenStore` where the driver of the database is not installed.
    """
    if home is None:
        from chatbot.stores.in_memory_backend import MemoryBackend

        return MemoryBackend()
    if isinstance(home, Address):
        return _open_postgres(home)
    from chatbot.stores.on_disk.backend import FileBackend

    return FileBackend(home)


def open_place(place: Place | Home | None) -> Place:
    """Return the place itself, that of files in a folder, of an address, or one in memory for None."""
    if place is None:
        from chatbot.stores.in_memory_backend import MemoryPlace

        return MemoryPlace()
    if isinstance(place, Path):
        from chatbot.stores.on_disk.place import FilePlace

        return FilePlace(place)
    if isinstance(place, Address):
        return _open_postgres(place)
    return place


def _open_postgres(address: Address) -> Backend:
    try:
        from chatbot.stores.postgres.backend import PostgresBackend
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chatbot"):
            raise
        raise BrokenStore(
            f"{address} needs the package {error.name}: pip install 'chatbot-runtime[postgres]'"
        ) from error
    return PostgresBackend(address)
