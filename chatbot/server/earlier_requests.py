"""Stored requests with an `Idempotency-Key`: one record per key, of a running or completed request.

identities/.server/requests-00 … -ff    {key: {"caller", "request", "at", "status", "made"}}, by hash of user or token

Keys and requests are hashes, created items ids, so nothing needs erasing. A request is stored before any work, and
deleted if it fails. One without a status was interrupted: it may be partly done, so it is never repeated.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

import msgspec

from chatbot.memory.scope import namespace_digest, utc_now
from chatbot.stores.backend import Document
from chatbot.stores.home import Home
from chatbot.stores.plugins import open_place

logger = logging.getLogger(__name__)

MOST_KEPT = 200
"""Completed requests stored per caller."""
_KNOWN_FOR = timedelta(days=1)


class EarlierRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored request."""

    caller: str
    request: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    status: int | None = None
    """Status of the answer; None while it is running, or if it was interrupted."""
    made: Mapping[str, str] | None = None
    """Ids of created items; None if its answer cannot be repeated."""


_Known = dict[str, EarlierRequest]
_Result = TypeVar("_Result")


class EarlierRequests:
    """The requests of all callers, in a home. Blocking; safe between processes."""

    def __init__(self, home: Home, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._place = open_place(home)
        self._clock = clock

    def begin(self, caller: str, key: str, request: str) -> EarlierRequest | None:
        """Return the request that is stored under the key; if there is none, store this one and return None."""
        begun = EarlierRequest(caller, request, self._clock())
        found = self._change(self._document(caller), lambda known: known.setdefault(_name(caller, key), begun))
        return None if found is begun else found

    def end(self, caller: str, key: str, status: int, made: Mapping[str, str] | None = None) -> None:
        """Store the status of the answer, and the ids of what was created. Durable on return."""

        def change(known: _Known) -> None:
            begun = known.pop(_name(caller, key), None)
            if begun is not None and is_success(status):
                known[_name(caller, key)] = msgspec.structs.replace(begun, status=status, made=made)

        self._change(self._document(caller), change)

    def forget(self, namespace: str) -> int:
        """Delete the records of requests for the user of that namespace; return how many. Durable on return."""
        parts = namespace.split("/")  # a caller ends in a digest of it, maybe without first parts that the server adds
        endings = tuple(f"/{namespace_digest('/'.join(parts[begin:]))}" for begin in range(len(parts)))

        def change(known: _Known) -> int:
            gone = [key for key, each in known.items() if each.caller.endswith(endings)]
            return len([known.pop(key) for key in gone])

        documents = map(self._document, endings)
        return sum(self._change(each, change) for each in documents if each.read() is not None)

    def _document(self, caller: str) -> Document:
        return self._place.document(f"requests-{namespace_digest(caller.rpartition('/')[2])[:2]}")

    def _change(self, document: Document, change: Callable[[_Known], _Result]) -> _Result:
        """Change the requests in a document, and drop old and surplus ones."""
        results: list[_Result] = []

        def changed(data: bytes | None) -> bytes:
            since = self._clock() - _KNOWN_FOR
            known = {key: each for key, each in _parse_known(data, document.name).items() if each.at > since}
            results.append(change(known))
            return msgspec.json.encode(_without_surplus(known))

        document.change(changed)
        return results[-1]


def is_success(status: int) -> bool:
    """Return True for the status of a successful request; the page redirects after one."""
    return 200 <= status < 400


def _without_surplus(known: _Known) -> _Known:
    """Return the latest completed requests of each caller, and all that are running or were interrupted."""
    stored: Counter[str] = Counter()
    kept: _Known = {}
    for key, each in reversed(known.items()):
        stored[each.caller] += each.status is not None
        if each.status is None or stored[each.caller] <= MOST_KEPT:
            kept[key] = each
    return dict(reversed(kept.items()))


def _parse_known(data: bytes | None, name: str) -> _Known:
    try:
        return msgspec.json.decode(data or b"{}", type=_Known)
    except (ValueError, RecursionError) as error:
        logger.warning("%s is damaged, so the Idempotency-Keys in it are forgotten: %s", name, error)
        return {}


def _name(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()
