"""Stored requests with an `Idempotency-Key`: started, completed, and the ids of what they created.

identities/.server/requests.jsonl    {"key", "caller", "request", "at"}, then {"key", "status", "made"}
                                     or {"key", "failed"}

Keys and requests are stored as hashes, created items as ids: no messages or memories, so nothing needs erasing. A
request is stored as started before any work. One that was started and never completed was interrupted: it may be partly
done, so it is never repeated.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from chatbot.memory.namespaces import digest_of
from chatbot.memory.record import utc_now
from chatbot.stores.backend import Mark, Pen, Place
from chatbot.stores.backends import open_place
from chatbot.stores.home import Home
from chatbot.stores.records import format_time, parse_time

_LINES = "requests"
MOST_FOR_EACH = 200
"""Requests stored per caller."""
_MOST = 20_000
_KNOWN_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """A request that came before."""

    caller: str
    request: str
    """Return the hash that identifies a request."""
    at: datetime
    status: int | None = None
    """None if it was cut off."""
    made: Mapping[str, str] | None = None
    """None if its answer cannot be given again."""


class Requests:
    """The requests of all callers, in a place. Blocking; safe between processes."""

    def __init__(self, place: Place, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._all = place.lines(_LINES)
        self._clock = clock
        self._known: dict[str, EarlierRequest] = {}
        self._lines = 0
        self._mark: Mark | None = None
        self.when_forgotten: list[Callable[[tuple[str, ...]], None]] = []
        """Suffixes of the callers whose records were deleted."""

    @classmethod
    def of(cls, home: Home) -> Requests:
        """The requests that are kept there."""
        return cls(open_place(home))

    def begin(self, caller: str, key: str, request: str) -> EarlierRequest | None:
        """Return the stored request; if it is new, store it as started and return None."""
        name = _name(caller, key)
        with self._all.alone() as pen:
            self._read()
            known = self._known.get(name)
            if known is not None and known.at > self._clock() - _KNOWN_FOR:
                return known
            self._tidy(pen, caller)
            begun = EarlierRequest(caller, request, self._clock())
            pen.append([{"key": name, **_as_json(begun)}])
        return None

    def end(self, caller: str, key: str, status: int, made: Mapping[str, str] | None) -> None:
        """Store the request as completed. Durable on return."""
        record = {"key": _name(caller, key), "status": status, "made": None if made is None else dict(made)}
        self._all.append([record])

    def fail(self, caller: str, key: str) -> None:
        """Store the request as failed; it may be sent again."""
        self._all.append([{"key": _name(caller, key), "failed": True}])

    def forget(self, namespace: str) -> int:
        """Delete the records of requests for the user of that namespace; how many. Durable on return."""
        ends = tuple(f"/{digest_of(each)}" for each in _ways_to(namespace))
        if next(self._all.newest_first(), None) is None:
            return 0
        with self._all.alone() as pen:
            self._read()
            gone = [key for key, known in self._known.items() if known.caller.endswith(ends)]
            for key in gone:
                del self._known[key]
            if gone:
                self._write_anew(pen)
        for told in self.when_forgotten:
            told(ends)
        return len(gone)

    def _read(self) -> None:
        """Take in what was written since, by us or by other processes. Needs the right to change the lines."""
        while True:
            reading = self._all.since(self._mark)
            if reading.starts_over:
                self._known, self._lines = {}, 0
            self._mark = reading.mark
            for record in reading.records:
                with suppress(KeyError, TypeError, ValueError):  # skip a damaged line
                    self._take(record)
            if not reading.records:
                return

    def _take(self, record: dict[str, Any]) -> None:
        self._lines += 1
        key = str(record.get("key"))
        if "at" in record:
            self._known.pop(key, None)  # keeps the latest last
            self._known[key] = _parse(record)
        elif record.get("failed"):
            self._known.pop(key, None)
        elif key in self._known:
            self._known[key] = replace(self._known[key], status=int(record["status"]), made=record.get("made"))

    def _tidy(self, pen: Pen, caller: str) -> None:
        """Forget what is old or too much, and write the lines anew where most of it is forgotten."""
        since = self._clock() - _KNOWN_FOR
        surplus = Counter(each.caller for each in self._known.values())
        surplus[caller] += 1
        for key, known in list(self._known.items()):
            too_many = surplus[known.caller] > MOST_FOR_EACH or len(self._known) >= _MOST
            if known.at <= since or too_many:
                surplus[known.caller] -= 1
                del self._known[key]
        if self._lines > 2 * len(self._known) + MOST_FOR_EACH:
            self._write_anew(pen)

    def _write_anew(self, pen: Pen) -> None:
        """Keep one line of each known request, at its last beginning."""
        begun = Counter[str]()
        for record in self._all.newest_first():
            begun[str(record.get("key"))] += "at" in record

        def merged(record: dict[str, Any]) -> dict[str, Any] | None:
            key = str(record.get("key"))
            if "at" not in record:
                return None
            begun[key] -= 1
            known = self._known.get(key)
            return None if known is None or begun[key] else {"key": key, **_as_json(known)}

        pen.rewrite(merged)
        self._mark = None


def _ways_to(namespace: str) -> list[str]:
    """The namespace as tokens name it: whole, or from within the one that the server was started in."""
    parts = namespace.split("/")
    return ["/".join(parts[begin:]) for begin in range(len(parts))]


def _name(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()


def _as_json(known: EarlierRequest) -> dict[str, Any]:
    record = {"caller": known.caller, "request": known.request, "at": format_time(known.at)}
    return record if known.status is None else {**record, "status": known.status, "made": known.made}


def _parse(record: dict[str, Any]) -> EarlierRequest:
    return EarlierRequest(
        str(record["caller"]),
        str(record["request"]),
        parse_time(record["at"]),
        record.get("status"),
        record.get("made"),
    )
