"""Blobs as rows of `chatbot.document`: their names begin with the name of their kind, which no document's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatbot.stores.backend import Blobs, blob_name, checked_blob, checked_blob_name
from chatbot.stores.postgres import statements

if TYPE_CHECKING:
    from chatbot.stores.postgres.place import PostgresPlace


class PostgresBlobs(Blobs):
    """The blobs of one kind in a place. They go with their session, as documents do."""

    def __init__(self, place: PostgresPlace, kind: str) -> None:
        self._place = place
        self._kind = kind

    def put(self, data: bytes, suffix: str = "") -> str:
        """Write the row of the blob and return its name. Its version is not used: the value never changes."""
        name = blob_name(data, suffix)
        lock = statements.LOCK_DOCUMENT_OF_SESSION if self._place.session else statements.LOCK_OWN_DOCUMENT
        with self._place.transaction(lock, name=self._row(name)):
            self._place.run(statements.WRITE_DOCUMENT, name=self._row(name), value=data, version=1)
        return name

    def read(self, name: str) -> bytes | None:
        """Select the bytes; None if there are none. Raises `DamagedFile` for changed content."""
        row = self._row(checked_blob_name(name))
        rows = self._place.rows(statements.READ_DOCUMENT, name=row, version=0)
        return checked_blob(name, bytes(rows[0][1])) if rows else None

    def sizes(self) -> dict[str, int]:
        """Select the size in bytes of each blob, sorted by name."""
        rows = self._place.rows(statements.SIZES_OF_BLOBS, kind=f"{self._kind}/")
        return dict(sorted((name.partition("/")[2], size) for name, size in rows))

    def drop(self, name: str) -> None:
        """Delete the row of a blob; a missing one is no error."""
        self._place.run(statements.DROP_BLOB, name=self._row(checked_blob_name(name)))

    def _row(self, name: str) -> str:
        return f"{self._kind}/{name}"
