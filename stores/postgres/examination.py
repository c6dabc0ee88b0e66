"""Examination of what an identity has in a database. Blocking; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from chatbot.stores.backend import Examination, Flaw
from chatbot.stores.errors import StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.json_lines import damage_of, record_of
from chatbot.stores.postgres import statements
from chatbot.stores.row_events import parse_event

if TYPE_CHECKING:
    from chatbot.stores.postgres.backend import PostgresBackend

_PAGE = 1_024
_NAMED = 3
_END = 2**62


def examine(backend: PostgresBackend, wish: Examination) -> Iterator[Flaw]:
    """Examine the connection, the role, the sessions, and the lines that `wish` names."""
    try:
        reason = backend.why_not_apart()
        ids = backend.sessions.ids()
        skew = backend.database.clock_skew()
    except StoreError as error:
        yield Flaw("storage", "bad", str(error))
        return
    yield Flaw("storage", "note" if reason else "ok", reason or f"PostgreSQL: {backend.name}")
    yield Flaw("clock", "ok", f"differs from that of the database by less than {abs(skew) + 0.1:.1f} s")
    yield _sessions(backend, ids)
    for name, (subject, understand) in wish.subjects.items():
        yield _lines(subject, _texts(backend, name), understand, verify=wish.verify)


def examine_events(pages: Iterable[bytes], *, verify: bool) -> list[Flaw]:
    """Examine every line of the log of observations; nothing if it is empty."""
    added = 0

    def understand(line: bytes) -> None:
        nonlocal added
        added += parse_event(record_of(line)).kind == "add"

    flaw = _lines("memory", pages, understand, verify=verify)
    if flaw.state == "ok":
        return [Flaw("memory", "ok", f"{added} memories added in total, all readable")] if added else []
    return [flaw]


def _sessions(backend: PostgresBackend, ids: list[str]) -> Flaw:
    readable = {record.id for record in backend.sessions.find(lambda _: True)}
    damaged = sorted(set(ids) - readable)
    if damaged:
        return Flaw("sessions", "bad", f"{len(damaged)} of {len(ids)} cannot be read: {', '.join(damaged[:_NAMED])}")
    return Flaw("sessions", "ok", f"{how_many(len(ids), 'session')}, all valid" if ids else "no sessions yet")


def _texts(backend: PostgresBackend, name: str) -> Iterator[bytes]:
    before = _END
    while rows := backend.rows(statements.LINES_BEFORE, name=name, before=before, limit=_PAGE):
        yield from (text.encode() for _, text in rows)
        before = rows[-1][0]


def _lines(subject: str, lines: Iterable[bytes], understand: Callable[[bytes], object], *, verify: bool) -> Flaw:
    count, wrong = 0, []
    for line in lines:
        count += 1
        try:
            understand(line)
            problem = damage_of(line) if verify else ""
        except (ValueError, KeyError, TypeError) as error:
            problem = str(error) or type(error).__name__
        if problem:
            wrong.append(problem)
    if wrong:
        return Flaw(subject, "bad", f"{len(wrong)} of {how_many(count, 'line')} damaged: {'; '.join(wrong[:_NAMED])}")
    return Flaw(subject, "ok", f"{how_many(count, 'line')}, all valid" if count else "empty")
