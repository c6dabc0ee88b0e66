"""Sessions and their receipts, for async callers, over any backend: each operation one hop into a thread."""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.errors import DamagedSession, SessionError, SessionNotFound
from chatbot.stores import errors
from chatbot.stores.access import NO_PROJECT, fold, is_same_project
from chatbot.stores.backend import Backend, Lines, Place, Record
from chatbot.stores.base import Closable
from chatbot.stores.loops import in_thread, to_its_end
from chatbot.stores.observation import Observation
from chatbot.stores.records import SessionRecord, SessionRef, format_time
from chatbot.stores.session_terms import SessionTerms

logger = logging.getLogger(__name__)

SESSIONS_AT_ONCE = 100
"""Number of sessions to delete together: each part rewrites files once."""
MESSAGES = ("user", "assistant")
"""Roles that count as messages; tool calls and errors do not."""


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Filter of sessions: every field that is set must match. Times are those of the last use.

    `after` is inclusive, `before` exclusive; `title` is part of the title, in any case; `source` is as `import:claude`.
    """

    after: datetime | None = None
    before: datetime | None = None
    agent_id: str | None = None
    project: str | None = None
    """`-` for sessions without a project."""
    title: str = ""
    source: str = ""
    min_messages: int = 0
    is_empty: bool | None = None
    """True for sessions without messages, False for the others; None for both."""
    is_archived: bool | None = None
    """None for both kinds."""
    limit: int | None = None
    """Maximum number, most recently used first."""
    after_id: str | None = None
    """Id of a session after which the list starts: the next page."""

    def fits(self, record: SessionRecord) -> bool:
        """Return whether the metadata fits, which is known without opening the session."""
        return (
            (self.after is None or record.used_at >= self.after)
            and (self.before is None or record.used_at < self.before)
            and self.agent_id in {None, record.agent_id}
            and (self.project is None or is_same_project(self.project, record.project or NO_PROJECT))
            and fold(self.title) in fold(record.title)
            and self.source in {"", f"import:{record.origin.partition(':')[0]}"}
            and self.is_archived in {None, record.archived_at is not None}
        )

    @property
    def looks_inside(self) -> bool:
        """True if sessions must be opened to decide."""
        return self.min_messages > 0 or self.is_empty is not None

    @property
    def fits_all(self) -> bool:
        """True if every session fits; bulk changes are refused for such a filter."""
        return replace(self, title=fold(self.title)) == SessionFilter(is_archived=self.is_archived, limit=self.limit)


RECEIPTS = "receipts"
NOT_KEPT = "not_kept"
"""Kind of the record of a message that must not be remembered, even if its turn is killed."""
HANDED_OVER = "remembered"
"""Kind of the record, in forks, of a turn of their deleted session, whose memory may be erased later."""
FAILURES = "hook_failures"
"""Lines with the failures of hooks; a message may quote the conversation."""


class SessionCatalog(Closable):
    """Catalog of an identity's sessions, and what their turns did. A deleted session raises `SessionNotFound`."""

    used_last: str | None = None
    """Session whose use was noted last; it is not noted again for a while."""
    has_stores = False
    """True once the memory has opened stores, which only `aclose` closes."""

    def __init__(self, backend: Backend, terms: SessionTerms | None = None) -> None:
        self.backend = backend
        self.sessions = backend.sessions
        self.terms = terms or SessionTerms(None)
        """Index of what is said in the sessions."""

    @asynccontextmanager
    async def making(self, record: SessionRecord) -> AsyncIterator[SessionRef]:
        """Make a session: it is published, durable, when the block ends without an error."""
        self.check_open()
        try:
            yield await to_its_end(asyncio.to_thread(self.sessions.begin, record))
        except BaseException:
            await to_its_end(asyncio.to_thread(self.sessions.abandon, record.id))
            raise
        await self.make(record, is_begun=True)

    async def make(self, record: SessionRecord, *, is_begun: bool = False) -> None:
        """Make an empty session, or publish one that is begun. Durable on return; none is left if cancelled."""
        try:
            await to_its_end(self._make(record, is_begun=is_begun))
        except asyncio.CancelledError:
            await to_its_end(self.delete(record.id))  # nobody knows its id
            raise

    @in_thread
    def _make(self, record: SessionRecord, *, is_begun: bool) -> None:
        try:
            if not is_begun:
                self.sessions.begin(record)
            self.sessions.publish(record)
        except BaseException:
            self.sessions.abandon(record.id)
            raise

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record of a session. Raises `SessionNotFound` or `DamagedSession`."""
        if (known := self.sessions.glance(session_id)) is not None:
            return known
        with _translated():
            return await asyncio.to_thread(self.sessions.get, session_id)

    async def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        """Return the wanted sessions, most recently used first; if `after_id` is given, those after that session."""
        return await asyncio.to_thread(self.sessions.find, wanted, limit, after_id=after_id)

    async def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Apply `change` to the current record of a session and return the result. Raises like `get`."""
        with _translated():
            return await asyncio.to_thread(self.sessions.change, session_id, change)

    async def note_used(self, session_id: str, now: datetime, until: datetime | None) -> None:
        """Record a use at `now` and the expiry `until`; cheap without an expiry. A failure is only logged."""
        self.used_last = session_id
        try:
            if until is None:
                await asyncio.to_thread(self.sessions.note_used, session_id, now)
            else:
                await self.change(session_id, lambda record: replace(record, expires_at=until).used(now))
        except (SessionError, errors.StoreError) as error:
            logger.warning("the use of session %s was not noted: %s", session_id, error)

    @in_thread
    def delete(self, *session_ids: str) -> list[str]:
        """Erase sessions and return those that were there. Raises `SessionNotFound` if none was."""
        gone: list[str] = []
        try:
            for each in session_ids:
                gone.append(each)  # also if the disk keeps some of its files
                try:
                    with _translated():
                        self.sessions.delete(each)
                except SessionNotFound:
                    gone.pop()
        finally:
            if gone:
                self.terms.forget(gone.__contains__)
                self.sessions.drop_former()
                failures = self.backend.lines(FAILURES)
                failures.rewrite(lambda line: None if line.get("session") in gone else line, holding=gone)
        if not gone:
            raise SessionNotFound.of(session_ids[0])
        return gone

    @in_thread
    def take_back(self, session: SessionRef, moments: Collection[datetime] | None, title: str = "") -> None:
        """Delete the words of turns that began at these moments, or of all, from receipts, and titles that they gave.

        `title` goes too; the cost of the turns stays. Durable on return.
        """
        receipts, began = self.receipts(session), None if moments is None else {*map(format_time, moments)}

        def is_of_turn(record: Record) -> bool:
            return began is None or record.get("at") in began

        given = {str(each.get("title", "")) for each in receipts.all() if is_of_turn(each)}
        self._untitle([session], {title, *given})  # first: after a kill in between, the receipt still has the title
        receipts.rewrite(
            lambda each: _withdrawn(each) if is_of_turn(each) and each.get("kind") in {None, HANDED_OVER} else each,
            holding=began or (),
        )

    async def parents(self) -> dict[str, str]:
        """Return the session that each fork was made from, oldest fork first; it may be deleted."""
        forks = await self.find(lambda record: record.parent is not None)
        return {each.id: str(each.parent) for each in sorted(forks, key=lambda each: each.created_at)}

    async def sessions_remembered_as(self, ids: Collection[str], *, everywhere: bool) -> list[str]:
        """Return the sessions with a turn that was remembered under one of these ids; damaged ones name none.

        Unless `everywhere`, only forks of deleted sessions are looked at: they may be forks of forks.
        """
        there, parents = await asyncio.to_thread(self.sessions.ids), await self.parents()
        orphans = [fork for fork, parent in parents.items() if parent not in there]
        return await self._remembered_as(ids, there if everywhere else orphans)

    @in_thread
    def _remembered_as(self, ids: Collection[str], sessions: Iterable[str]) -> list[str]:
        found = []
        for each in sessions:
            with suppress(errors.MissingFolder, errors.DamagedFile, errors.LaterFormat, errors.UnsafePath):
                if self.receipts(self.sessions.ref(each)).holds("remembered", ids):
                    found.append(each)
        return found

    @in_thread
    def note_remembered(self, rows: Iterable[Observation]) -> None:
        """Note in their sessions which exchanges were remembered without a turn, such as imported ones. Durable."""
        exchanges = [(str(row.session_id), row) for row in rows if row.type == "exchange"]
        for session in dict(exchanges):
            with suppress(errors.MissingFolder, errors.DamagedFile, errors.LaterFormat, errors.UnsafePath):
                receipts = self.receipts(self.sessions.ref(session))
                noted = {receipt.get("remembered") for receipt in receipts.all()}
                new = [row for where, row in exchanges if where == session and row.id not in noted]
                if new:
                    records = ({"at": format_time(row.created_at), "remembered": row.id} for row in new)
                    receipts.append([*map(handed_over, records)])

    @in_thread
    def erase_quotes(self, sessions: Sequence[SessionRef], ids: Collection[str]) -> None:
        """Erase texts of turns with these ids from receipts and titles of sessions that exist. Durable on return.

        Forks come after the sessions that they were made from.
        """
        receipts: list[Record] = []
        kept: list[SessionRef] = []
        for session in sessions:
            with suppress(errors.MissingFolder):
                receipts += self.receipts(session).all()
                kept.append(session)
        began = {receipt.get("at") for receipt in receipts if str(receipt.get("remembered")) in ids}
        those = [receipt for receipt in receipts if receipt.get("at") in began]  # several, if it was answered again
        said = {text for receipt in those for text in _queries(receipt)[-1:]}
        titles = {str(receipt["title"]) for receipt in those if receipt.get("title")}
        self._untitle(kept, titles)
        # forks first: after a kill in between, the receipts of the turns still say what is to be erased
        for session in reversed(kept):
            with suppress(errors.MissingFolder):
                self.receipts(session).rewrite(lambda receipt: _without_quotes(receipt, said, titles))

    def place_of(self, session: SessionRef) -> Place:
        """Return the place of a session: its receipts, attachments and turns. Blocking."""
        self.check_open()
        return self.backend.place_of(session)

    def ref(self, session_id: str) -> SessionRef:
        """Return the reference of a session for stores."""
        with _translated():
            return self.sessions.ref(session_id)

    async def aclose(self) -> None:
        """Tidy up the catalog's files."""
        if self.sessions.is_tidy:
            self._close()
        else:
            await asyncio.to_thread(self._close)

    def __del__(self) -> None:
        if self.has_stores and not self.is_closed:
            message = f"the memory {self.backend.name} was never closed: use async with"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def _close(self) -> None:
        self.sessions.tidy()
        self.backend.close()

    def receipts(self, session: SessionRef) -> Lines:
        """Return the receipts of a session. Blocking."""
        return self.place_of(session).lines(RECEIPTS)

    def _untitle(self, sessions: Iterable[SessionRef], titles: Collection[str]) -> None:
        """Remove these titles from the sessions, and from everything that repeats them."""
        if not any(titles):
            return
        for session in sessions:
            with suppress(errors.MissingFolder, errors.DamagedFile):
                if self.sessions.get(session.id).title in titles:
                    self.sessions.change(session.id, lambda each: each.renamed("") if each.title in titles else each)
        self.sessions.drop_former()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except errors.MissingFolder as error:
        raise SessionNotFound(str(error)) from error
    except errors.DamagedFile as error:
        raise DamagedSession(str(error)) from error


def _without_quotes(receipt: Record, said: set[str], titles: set[str]) -> Record:
    """Return a receipt without texts of some turns and the titles that they gave; later turns may quote them too."""
    if str(receipt.get("title", "")) in titles:
        receipt = {**receipt, "title": ""}
    if said.isdisjoint(asked := _queries(receipt)):
        return receipt
    return {**receipt, "memory": {**receipt["memory"], "query": [each for each in asked if each not in said]}}


def with_forks(sessions: Iterable[str], parents: Mapping[str, str]) -> list[str]:
    """Return sessions, then their direct and indirect forks by the parents of all forks."""
    found = dict.fromkeys(sessions)
    while more := [fork for fork, parent in parents.items() if parent in found and fork not in found]:
        found |= dict.fromkeys(more)
    return list(found)


def handed_over(receipt: Record) -> Record:
    """Return the record of a turn for forks of its session: its memory, and the texts that are erased with it."""
    kept: Record = {name: receipt[name] for name in ("at", "remembered", "title") if name in receipt}
    return {"version": 1, "kind": HANDED_OVER, **kept, "memory": {"query": _queries(receipt)[-1:]}}


def _withdrawn(receipt: Record) -> Record:
    """Return a receipt without query, attachments, arguments of tool calls and title, marked as taken back."""
    receipt = {name: value for name, value in receipt.items() if name != "attachments"}
    if "tools" in receipt:
        tools = [tool for tool in _part(receipt, "tools", list) if isinstance(tool, dict)]
        receipt["tools"] = [{name: value for name, value in tool.items() if name != "arguments"} for tool in tools]
    memory = {name: value for name, value in _part(receipt, "memory", dict).items() if name != "query"}
    return {**receipt, "memory": memory, "taken_back": True} | ({"title": ""} if "title" in receipt else {})


def _queries(receipt: Record) -> list[str]:
    """Return the queries to memory: recent messages, with that of the turn itself last."""
    return list(map(str, _part(_part(receipt, "memory", dict), "query", list)))


def _part(record: Record, name: str, kind: type) -> Any:
    """Return a part of a receipt; an empty one if it is missing, or was edited by hand to something else."""
    return part if isinstance(part := record.get(name), kind) else kind()
