"""The requests with an `Idempotency-Key`, on the disk: what was begun, what was done, and what it made.

identities/.server/requests.jsonl    {"key", "caller", "request", "at"}, then {"key", "status", "made"}
                                     or {"key", "failed"}

Keys and requests stand there as hashes, what was made as ids: nothing that was said or remembered is kept here, so
there is nothing to erase. A request is on the disk as begun before anything of it is done. One that was begun and never
ended was cut off: nobody knows how much of it was done, so it is never done again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from chatbot.memory.record import utc_now
from chatbot.server.tokens import FOLDER
from stores import json_lines
from stores.files import Folder, Stamp, locked, make_folder
from stores.records import format_time, parse_time

NAME = "requests.jsonl"
MOST_FOR_EACH = 200
"""How many are known of each caller."""
_MOST = 20_000
_KNOWN_FOR = timedelta(days=1)
_LOCK = "requests.lock"


@dataclass(frozen=True, slots=True)
class Known:
    """A request that came before."""

    caller: str
    request: str
    """What tells it from others: a hash of all of it."""
    at: datetime
    status: int | None = None
    """None where it was cut off."""
    made: Mapping[str, str] | None = None
    """None where its answer cannot be given again."""


class Requests:
    """The requests of all callers, in a folder. Blocking; safe between processes."""

    def __init__(self, folder: Path, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._folder = folder
        self._clock = clock
        self._known: dict[str, Known] = {}
        self._lines = 0
        self._stamp: Stamp | None = None

    @classmethod
    def of(cls, identities: Path) -> Requests:
        """Those to the identities in that folder."""
        return cls(identities / FOLDER)

    def begin(self, caller: str, key: str, request: str) -> Known | None:
        """What is known of the request; None where it is new, and then it is on the disk as begun on return."""
        name = _name(caller, key)
        make_folder(self._folder)
        with locked(self._folder, name=_LOCK) as folder:
            self._read(folder)
            known = self._known.get(name)
            if known is not None and known.at > self._clock() - _KNOWN_FOR:
                return known
            self._tidy(folder, caller)
            begun = Known(caller, request, self._clock())
            self._append(folder, {"key": name, **_as_json(begun)})
        return None

    def end(self, caller: str, key: str, status: int, made: Mapping[str, str] | None) -> None:
        """It was done, and that is on the disk on return."""
        self._change({"key": _name(caller, key), "status": status, "made": None if made is None else dict(made)})

    def fail(self, caller: str, key: str) -> None:
        """It was not done, and may be tried again."""
        self._change({"key": _name(caller, key), "failed": True})

    def _change(self, record: dict[str, Any]) -> None:
        with locked(self._folder, name=_LOCK) as folder:
            self._read(folder)
            self._append(folder, record)

    def _read(self, folder: Folder) -> None:
        """Take in what other processes have written meanwhile."""
        now = folder.stamp(NAME)
        if now == self._stamp and now is not None:
            return
        self._known, self._lines = {}, 0
        for record in json_lines.read(folder, NAME):
            with suppress(KeyError, TypeError, ValueError):  # a line that someone broke tells of nothing
                self._take(record)
        self._stamp = now

    def _append(self, folder: Folder, record: dict[str, Any]) -> None:
        folder.append(NAME, json_lines.encode(record))
        self._take(record)
        self._stamp = folder.stamp(NAME)

    def _take(self, record: dict[str, Any]) -> None:
        self._lines += 1
        key = str(record.get("key"))
        if "at" in record:
            self._known.pop(key, None)  # so that the latest stand last
            self._known[key] = _parse(record)
        elif record.get("failed"):
            self._known.pop(key, None)
        elif key in self._known:
            self._known[key] = replace(self._known[key], status=int(record["status"]), made=record.get("made"))

    def _tidy(self, folder: Folder, caller: str) -> None:
        """Forget what is old or too much, and write the file anew where most of it is forgotten."""
        since = self._clock() - _KNOWN_FOR
        surplus = Counter(each.caller for each in self._known.values())
        surplus[caller] += 1
        for key, known in list(self._known.items()):
            too_many = surplus[known.caller] > MOST_FOR_EACH or len(self._known) >= _MOST
            if known.at <= since or too_many:
                surplus[known.caller] -= 1
                del self._known[key]
        if self._lines > 2 * len(self._known) + MOST_FOR_EACH:
            kept = [{"key": key, **_as_json(known)} for key, known in self._known.items()]
            folder.replace(NAME, b"".join(map(json_lines.encode, kept)))
            self._lines, self._stamp = len(kept), folder.stamp(NAME)


def _name(caller: str, key: str) -> str:
    return hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()


def _as_json(known: Known) -> dict[str, Any]:
    record = {"caller": known.caller, "request": known.request, "at": format_time(known.at)}
    return record if known.status is None else {**record, "status": known.status, "made": known.made}


def _parse(record: dict[str, Any]) -> Known:
    return Known(
        str(record["caller"]),
        str(record["request"]),
        parse_time(record["at"]),
        record.get("status"),
        record.get("made"),
    )
