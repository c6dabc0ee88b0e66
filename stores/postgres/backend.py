"""Backend of an identity in PostgreSQL, and its examination. Blocking."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping

from chatbot.stores.backend import Backend, Examination, Flaw, Hint
from chatbot.stores.errors import StoreError, StoreFailed
from chatbot.stores.fields import how_many
from chatbot.stores.home import Address
from chatbot.stores.json_lines import damage_of, record_of
from chatbot.stores.postgres import statements
from chatbot.stores.postgres.database import Database
from chatbot.stores.postgres.database_connection import is_direct
from chatbot.stores.postgres.place import PostgresPlace
from chatbot.stores.postgres.sessions import PostgresSessions
from chatbot.stores.records import SessionRef
from chatbot.stores.row_events import parse_event

_POOLED = (
    "{where} is reached through a pooler such as PgBouncer, so servers look twice a second for what another one was "
    "asked; over a direct connection they are told at once"
)


class PostgresBackend(PostgresPlace, Backend):
    """The rows of one identity. Connects when it is first used."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, Database.of(address.url))
        self._address = address
        self._leave = weakref.finalize(self, self.database.leave)
        self.sessions: PostgresSessions = PostgresSessions(self)

    def place_of(self, session: SessionRef) -> PostgresPlace:
        """Return the rows of the session as a place."""
        return PostgresPlace(self._address, self.database, session.id)

    def is_there(self) -> bool:
        """Return whether the database holds the identity."""
        return bool(self.rows(statements.IS_THERE))

    def refusal(self) -> OSError | None:
        """Return the error of a write that changes nothing; None if it succeeds."""
        try:
            self.rows(statements.NOTE_USED, durable=False, id="", used_at="-infinity")
        except StoreError as error:
            return error if isinstance(error, OSError) else StoreFailed(str(error))
        return None

    def hint(self, *topics: str) -> Hint:
        """Override `Backend`."""
        return self.database.hints.of(self.identity, topics)

    def why_no_hints(self) -> str:
        """Connect, and compare the servers that answer."""
        try:
            with self.database.connection() as connection:
                is_heard = is_direct(connection)
        except StoreError:
            return ""  # which other checks report
        return "" if is_heard else _POOLED.format(where=self.database.shown)

    def why_not_apart(self) -> str:
        """Explain why the role could read other identities; empty if it cannot."""
        reason = self.database.may_see_all()
        return reason and (
            f"{self.database.shown}: its role {reason}, so the database would not keep identities apart: "
            "use a role that `chatbot storage create --role NAME` was run for"
        )

    def examine(self, wish: Examination) -> Iterator[Flaw]:
        """Check the identity's rows for damage."""
        return examine(self, wish)

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each part, measured by the database."""
        return {part: int(size) for part, size in self.rows(statements.SIZES)}

    def close(self) -> None:
        """Leave the connection pool."""
        self._leave()


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
