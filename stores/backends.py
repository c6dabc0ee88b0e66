"""Backend of an identity by its address: a folder for plain files, a database, or nothing for memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chatbot.stores.backend import Backend, Place
from chatbot.stores.errors import BrokenStore
from chatbot.stores.home import Address, Home
from chatbot.stores.in_memory_backend import MemoryBackend, MemoryPlace
from chatbot.stores.on_disk.place import FileBackend, FilePlace


def open_backend(home: Home | None) -> Backend:
    """Return the backend of an identity: files, a database, or memory for None. Makes nothing yet.

    Raises `BrokenStore` if the driver of the database is not installed.
    """
    if home is None:
        return MemoryBackend()
    if isinstance(home, Address):
        return _open_postgres(home)
    return FileBackend(home)


def open_place(place: Place | Home | None) -> Place:
    """Return the place itself, the place of a folder or an address, or one in memory for None."""
    if place is None:
        return MemoryPlace()
    if isinstance(place, Path):
        return FilePlace(place)
    if isinstance(place, Address):
        return _open_postgres(place)
    return place


def create_tables(address: Address, *, role: str = "") -> bool:
    """Create the tables of a database; return False if they exist.

    `role`, if given, may use them from now on. Raises a `StoreError`.
    """
    with _driver():
        from chatbot.stores.postgres import schema
    return schema.create(address.url, role=role)


def _open_postgres(address: Address) -> Backend:
    with _driver():
        from chatbot.stores.postgres.backend import PostgresBackend
    return PostgresBackend(address)


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chatbot"):
            raise
        raise BrokenStore(
            f"PostgreSQL needs the package {error.name}: pip install 'chatbot-runtime[postgres]'"
        ) from error
