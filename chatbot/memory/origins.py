"""Origin of an imported row: its entries in the metadata, and marks that outlive it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chatbot.stores.fields import fold
from chatbot.stores.observation import IMPORTED, Observation, Triple

FROM, PLACES = IMPORTED, "imported_places"

Address = tuple[str, str]
"""A file, and what it calls a row; what has an id that is its own everywhere comes from the file ""."""
Said = Mapping[Address, str]
"""Digest of the text at each address."""
Mark = tuple[str, ...]
"""Identity of something purged: a kind, and its values."""


def said_in(row: Observation) -> Said:
    """Return the places that a row was imported from, by place and key, with the digest of each."""
    places = row.metadata.get(PLACES)
    return {
        (place, key): str(digest)
        for place, keys in (places.items() if isinstance(places, Mapping) else ())
        if isinstance(keys, Mapping)
        for key, digest in keys.items()
    }


def is_from(row: Observation, key: str) -> bool:
    """Return whether `key` names the origin of a row: its `source`, or an imported key or file."""
    return row.source == key or (FROM in row.metadata and any(key in address for address in said_in(row)))


def marks_of(row: Observation) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes the row: its id, its words, and its origin."""
    yield "id", row.id
    yield "words", row.namespace, row.hash
    if FROM in row.metadata:
        for (place, key), digest in said_in(row).items():
            yield "digest", digest
            if not place:
                yield "from", str(row.metadata[FROM]), row.namespace, key


def marks_of_fact(fact: Triple) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes the fact."""
    yield "fact", fact.namespace, fold(fact.subject), fold(fact.predicate), fold(fact.object)


def marks_of_session(session_id: str, origin: str) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes a session: its id, and its origin."""
    yield "session", session_id
    if origin:
        yield "origin", origin
        kind, _, key = origin.partition(":")
        if kind == "bundle":  # whose key ends in a digest of what was said by then
            yield "session", key.partition(":")[0]
