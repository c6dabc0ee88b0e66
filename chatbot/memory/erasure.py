"""Permanent erasure, and its preview: rows by id, session, person, text or source, with everything derived from them.

`tombstones.jsonl` keeps digests of the ids, origins and words that were purged, so that no import brings them back.
They reveal nothing without the key in `tombstones.key`.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from chatbot.memory.people import other_names
from chatbot.memory.scope import Scope, ScopedOperations
from chatbot.memory.writing import ANSWERS, PENDING, Draft, changes_of_topic
from chatbot.stores.access import SENSITIVITIES, View, fold
from chatbot.stores.backend import Mark, Place
from chatbot.stores.errors import ChangedMeanwhile, InvalidValue, StoreFailed, UnknownObservation
from chatbot.stores.fields import texts_in
from chatbot.stores.loops import in_thread
from chatbot.stores.observation import (
    IMPORTED,
    KIND,
    OF_SESSION,
    SEARCHED,
    STATUSES,
    Observation,
    Triple,
    content_hash,
    version_of,
)
from chatbot.stores.query import EVERY, FactFilter, Filter
from chatbot.stores.records import check_text, chunks, format_time, in_line
from chatbot.stores.row_events import MAINTENANCE
from chatbot.stores.text.analysis import fold_letters

logger = logging.getLogger(__name__)

_AT_ONCE = 200
_CHUNK = 5_000
_WRITTEN = (*SEARCHED, "metadata", "files_read", "files_modified")
"""Fields in which a text is searched for that is to be erased."""


class Target(Struct, frozen=True, kw_only=True):
    """Rows and facts to erase: by id, of sessions, of a project, about a person, with a text, from a source, or all.

    `person` is any name of a person: the rows that list them, and the facts about them. `text` is what a row or fact
    says, or said before it was changed, in any case and with or without accents. `source` is the field `source` of a
    row, such as `import:chatgpt`, or the key, file or folder of an import; a folder by its absolute path.
    """

    ids: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    person: str | None = None
    text: str | None = None
    source: str | None = None
    project: str | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        named = [name for name in ("person", "text", "source", "project") if getattr(self, name) is not None]
        if len(named) + bool(self.sessions) + bool(self.ids) + self.everything != 1:
            raise InvalidValue("select what to purge in one way: ids, a session, a person, a text or a source")
        for name, text in (*((name, getattr(self, name)) for name in named), *(("session", s) for s in self.sessions)):
            if not _plain(check_text(text, f"the {name}")):
                raise InvalidValue(f"the {name} to purge is empty")


class Erasure(Struct, frozen=True, kw_only=True):
    """Erased rows and facts that the caller may see, with everything derived from them."""

    observations: tuple[Observation, ...] = ()
    """Named or matching rows, then those derived from them, store by store."""
    derived: frozenset[str] = frozenset()
    facts: tuple[Triple, ...] = ()
    forks: tuple[str, ...] = ()
    """Forks of the deleted sessions, which keep their copy of the transcript."""
    sessions: tuple[str, ...] = ()
    """Deleted sessions; empty for a preview."""
    kept: bool = False
    """True if the memories of the deleted sessions stay."""
    erased: tuple[str, ...] = ()
    """Erased ids; empty for a preview."""

    @property
    def ids(self) -> list[str]:
        """The ids of all rows and facts to erase."""
        return [*(row.id for row in self.observations), *(fact.id for fact in self.facts)]


class Purges(ScopedOperations):
    """Operations that erase memories permanently."""

    async def purge(
        self,
        *ids: str,
        session: str | None = None,
        person: str | None = None,
        text: str | None = None,
        source: str | None = None,
    ) -> list[str]:
        """Erase observations and facts permanently, with everything derived from them; return the erased ids.

        Select them by id, or all of a session, a person, a text or a source: see `Target`. An import does not bring
        them back: see `Tombstones`. Raises `UnknownObservation` if none of the ids exists, `InvalidValue` unless
        exactly one way is used, and `MissingRight` without the right `erase`.

        Transcripts are not changed: they belong to their sessions. Texts of a purged exchange are removed from receipts
        and titles of the session and its forks, and its summaries are made again.
        """
        scope, sessions = self.scope, () if session is None else (session,)
        target = Target(ids=ids, sessions=sessions, person=person, text=text, source=source)
        return list((await erase(scope, target)).erased)

    async def preview_purge(
        self,
        *ids: str,
        session: str | None = None,
        person: str | None = None,
        text: str | None = None,
        source: str | None = None,
    ) -> Erasure:
        """Return what `purge` would erase and the caller may see. Raises `MissingRight` without `read` and `erase`."""
        self.scope.caller.check("erase")
        sessions = () if session is None else (session,)
        target = Target(ids=ids, sessions=sessions, person=person, text=text, source=source)
        return await preview(self.scope, target)

    async def purge_fact(self, fact_id: str) -> None:
        """Erase a fact permanently from every file, even if retracted. Raises `UnknownObservation` if there is none."""
        scope = self.scope
        scope.caller.check("erase")
        unknown = UnknownObservation.of([fact_id], "fact")
        if await scope.store.get(scope.write_view(SENSITIVITIES), [fact_id], current=False):
            raise unknown  # it is an observation
        try:
            await erase(scope, Target(ids=(fact_id,)))
        except UnknownObservation:
            raise unknown from None


def join_erasures(
    parts: Iterable[Erasure], *, forks: Iterable[str], sessions: Iterable[str] = (), kept: bool = False
) -> Erasure:
    """Return the erasures of several stores as one."""
    parts = list(parts)
    return Erasure(
        observations=tuple(row for each in parts for row in each.observations),
        derived=frozenset[str]().union(*(each.derived for each in parts)),
        facts=tuple(fact for each in parts for fact in each.facts),
        forks=tuple(forks),
        sessions=tuple(sessions),
        kept=kept,
        erased=tuple(gone for each in parts for gone in each.erased),
    )


async def preview(scope: Scope, target: Target) -> Erasure:
    """Return what erasing the target would delete and the caller may see. Raises `MissingRight` without `read`.

    Includes retracted facts and facts with outdated sources.
    """
    fresh_at = scope.fresh_at()  # others are looked at once
    return _without_hidden(await _find(replace(scope, erasing=True, fresh_at=lambda: fresh_at), target))


def _without_hidden(going: Erasure) -> Erasure:
    """Return an erasure without the rows and facts that no caller may see."""
    rows = tuple(row for row in going.observations if row.sensitivity != "unknown")
    facts = tuple(fact for fact in going.facts if fact.sensitivity != "unknown")
    return replace(going, observations=rows, derived=going.derived.intersection(row.id for row in rows), facts=facts)


async def _find(scope: Scope, target: Target) -> Erasure:
    """Return everything that is erased with the target. Needs a scope with `erasing`."""
    named = {row.id: row for row in await _rows_of_target(scope, target)}
    derived = await _derived_rows(scope, [*dict.fromkeys([*named, *target.ids])], named)
    rows = (*named.values(), *derived.values())
    facts = {fact.id: fact async for fact in _facts(scope, target, rows)}
    return Erasure(observations=rows, derived=frozenset(derived), facts=tuple(facts.values()))


async def erase(scope: Scope, target: Target) -> Erasure:
    """Erase the target permanently. Tombstones are written first, so that after a kill no import restores it.

    Rows go after what quotes them: after a kill in between, they can be erased again.
    Raises `UnknownObservation` if none of the named ids exists, and `MissingRight` without `erase`.
    """
    scope.caller.check("erase")
    # Finds rows also for a caller without the right `read`, and rows that are never shown.
    scope = replace(scope, caller=scope.caller.elevated("read"), erasing=True)
    going = await _find(scope, target)
    for row in going.observations:  # before tombstones are written; the store checks again
        if row.id in target.ids and scope.expects is not None and scope.expects.isdisjoint({version_of(row), "*"}):
            raise ChangedMeanwhile(f"{row.id} was changed since it was read: nothing was deleted; read it again")
    marks = [mark for row in going.observations for mark in marks_of(row)]
    marks += [mark for fact in going.facts for mark in marks_of_fact(fact)]
    marks += await _marks_of_derived(scope, [*target.ids, *(row.id for row in going.observations)])
    if (tombstones := scope.environment.tombstones) is not None:
        await tombstones.bar(marks, scope.clock())
    await scope.erase_quotes(going.observations, erased=going.ids)
    asked = dict.fromkeys([*target.ids, *(each for each in going.ids if each not in going.derived)])
    try:
        gone = await scope.store.purge(scope.view(), list(asked)) if asked else []
    except UnknownObservation:
        if target.ids:
            raise
        gone = []  # another process was faster
    if not target.everything:  # else an event could make a hook write, or fail with, the words of an erased user
        scope.changed("purge", gone)
    await scope.erase_quotes(going.observations, erased=gone)  # what turns have written meanwhile
    return replace(_without_hidden(going), erased=tuple(gone))


async def erase_alone(scope: Scope, view: View, ids: Sequence[str], why: str) -> list[str]:
    """Erase rows without what was derived from them, as maintenance does; a sync must know of their facts, which go."""
    wanted = FactFilter(sources=frozenset(ids))
    facts = await scope.store.facts(replace(view, erasing=True), wanted, limit=EVERY)
    if (tombstones := scope.environment.tombstones) is not None:
        await tombstones.bar([mark_of_deleted(each.id) for each in facts], scope.clock())
    return await scope.store.purge(view, ids, who=MAINTENANCE, why=why, alone=True)


async def _marks_of_derived(scope: Scope, ids: Collection[str]) -> "list[PurgeMark]":
    """Return the marks of all rows that are erased with these, visible or not: digests reveal nothing."""
    scope = replace(scope, caller=scope.caller.elevated("read", clearance="full"), across=True, erasing=True)
    derived = await _derived_rows(scope, list(ids), ())
    marks = [mark for row in derived.values() for mark in marks_of(row)]
    for some in chunks([*ids, *derived], _CHUNK):
        wanted = FactFilter(sources=frozenset(some))
        facts = await scope.store.facts(scope.view(SENSITIVITIES), wanted, limit=EVERY)
        marks += [mark for fact in facts for mark in marks_of_fact(fact)]
    return marks


async def _derived_rows(scope: Scope, ids: Iterable[str], besides: Collection[str]) -> dict[str, Observation]:
    """Return the visible rows derived, directly or not, from these, except those in `besides`."""
    waiting, found = list(ids), dict[str, Observation]()
    while waiting:
        some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        wanted = Filter(derived_from=tuple(some), statuses=STATUSES)
        made = await scope.rows(wanted, view=scope.view(SENSITIVITIES))
        new = [row for row in made if row.id not in besides and row.id not in found]
        found |= {row.id: row for row in new}
        waiting += [row.id for row in new]
    return found


async def _rows_of_target(scope: Scope, target: Target) -> list[Observation]:
    view = scope.view(SENSITIVITIES)
    rows = await scope.store.get(view, target.ids, current=False) if target.ids else []
    for wanted in await _filters(scope, target):
        rows += await scope.rows(wanted, view=view)
    if target.text is not None:
        return [row for row in rows if await _has_said(scope, row, _plain(target.text))]
    return [row for row in rows if target.source is None or is_from(row, target.source)]


async def _has_said(scope: Scope, row: Observation, plain: str) -> bool:
    """Return whether the row holds a text in any field that people write, or held it before it was changed."""
    if _says([_written(name, getattr(row, name)) for name in _WRITTEN], plain):
        return True
    versions = await scope.store.history(scope.view(SENSITIVITIES), row.id) if row.updated_at > row.created_at else ()
    steps = [changed for each in versions if each.observation.id == row.id for _, changed in each.steps]
    return any(_says([_written(name, old) for name, (old, _) in each.items()], plain) for each in steps)


def _written(field: str, value: object) -> object:
    """Return what people wrote of a field: of metadata neither the keys nor the product's own marks."""
    if isinstance(value, Mapping):
        return [each for key, each in value.items() if key not in _MARKS]
    return value if field in _WRITTEN else ()


def _plain(text: str) -> str:
    return fold_letters(fold(text))


def _says(written: Sequence[object], plain: str) -> bool:
    return any(plain in _plain(text) for text in texts_in(written))


async def _filters(scope: Scope, target: Target) -> list[Filter]:
    if target.sessions:
        of_them = [Filter(session_id=each, statuses=STATUSES) for each in target.sessions]
        about = Filter(types=("session_summary",), statuses=STATUSES)
        return [*of_them, *(replace(about, subject=each) for each in target.sessions)]
    if target.person is not None:
        return [Filter(people=await other_names(scope, [target.person], SENSITIVITIES), statuses=STATUSES)]
    return [] if target.ids else [Filter(project=target.project, statuses=STATUSES)]  # without a project, all rows


async def _facts(scope: Scope, target: Target, rows: Sequence[Observation]) -> AsyncIterator[Triple]:
    filters = [FactFilter(session_id=each) for each in target.sessions]
    filters += [FactFilter(subject=f"{OF_SESSION}{each}") for each in target.sessions]
    if target.project is not None or target.everything:
        filters = [FactFilter(project=target.project)]
    for name in await other_names(scope, [target.person], SENSITIVITIES) if target.person is not None else ():
        filters += [FactFilter(subject=name), FactFilter(object=name)]
    filters += [FactFilter(sources=frozenset(row.id for row in some)) for some in chunks(rows, _CHUNK)]
    for wanted in filters:
        for fact in await scope.store.facts(scope.view(SENSITIVITIES), wanted, limit=EVERY):
            yield fact
    if target.text is not None:
        for fact in await scope.store.facts(scope.view(SENSITIVITIES), FactFilter(), limit=EVERY):
            if _says((fact.subject, fact.predicate, fact.object), _plain(target.text)):
                yield fact
    for fact in await changes_of_topic(scope, rows):
        yield fact
    named = FactFilter(ids=frozenset(target.ids).difference(row.id for row in rows))
    for fact in await scope.store.facts(scope.view(SENSITIVITIES), named, limit=EVERY) if named.ids else ():
        yield fact


FROM, KEY, HASH = IMPORTED, "imported_key", "imported_hash"
"""Metadata keys of an imported row: the format, its key there, and a hash of what it says there and who may see it."""
_MARKS = frozenset({KIND, FROM, HASH, ANSWERS, *PENDING})
PurgeMark = tuple[str, ...]
"""Identity of something purged: a kind, and its values."""


def is_from(row: Observation, key: str) -> bool:
    """Return whether `key` names the origin of a row: its `source`, or an imported key, file or absolute folder."""
    key, imported = in_line(key), str(row.metadata.get(KEY, "")) if FROM in row.metadata else ""
    folder = key.rstrip("/")
    is_inside = folder.startswith("/") and imported.startswith(f"{folder}/")
    return bool(key) and (key in {row.source, imported} or is_inside)


def marks_of(row: Observation) -> Iterator[PurgeMark]:
    """Yield the marks by which an import recognizes the row: its id, its words, also as a note, and its origin."""
    title, text = row.as_note()
    yield "id", row.id
    yield "words", row.namespace, row.hash
    yield "words", row.namespace, content_hash(Draft(title=title, narrative=text))
    if FROM in row.metadata:
        kind, key, said = (str(row.metadata.get(name)) for name in (FROM, KEY, HASH))
        yield "words", row.namespace, said.partition(":")[0]
        if not key.startswith("/"):  # a file may have other content later
            yield "from", kind, row.namespace, key


def marks_of_fact(fact: Triple) -> Iterator[PurgeMark]:
    """Yield the marks by which an import recognizes the fact, and a sync that it was purged here."""
    yield mark_of_deleted(fact.id)
    yield "fact", fact.namespace, fold(fact.subject), fold(fact.predicate), fold(fact.object)


def marks_of_session(session_id: str, origin: str) -> Iterator[PurgeMark]:
    """Yield the marks by which an import recognizes a session: its id, and its origin."""
    yield "session", session_id
    if origin:
        yield "origin", origin
        kind, _, key = origin.partition(":")
        if kind == "bundle":  # its key ends in a digest of the content
            yield "session", key.partition(":")[0]


def mark_of_deleted(each: str) -> PurgeMark:
    """Return the mark by which a sync recognizes a fact or session, with its memories or without, that was deleted."""
    return "deleted", each


_IN_A_LINE = 1_000


class Tombstones:
    """Digests of what was purged from an identity."""

    def __init__(self, place: Place) -> None:
        self._lines = place.lines("tombstones")
        self._document = place.document("tombstones.key")
        self._key = b""
        self._digests: set[str] = set()
        self._read: Mark | None = None

    @in_thread
    def bar(self, marks: Collection[PurgeMark], at: datetime) -> None:
        """Keep rows with these marks out of imports. Durable on return; a full disk only warns: erasing makes room."""
        if not marks:
            return
        try:
            self._key = self._document.change(lambda key: key or secrets.token_bytes(32))
            lines = chunks(sorted(set(map(self._digest, marks))), _IN_A_LINE)
            self._lines.append([{"v": 1, "at": format_time(at), "digests": each} for each in lines])
        except StoreFailed as error:
            logger.warning("an import can bring back what is erased now: %s", error)

    def barred(self, marks: Iterable[PurgeMark]) -> bool:
        """Return whether one of these marks was purged. Makes none of them if nothing was."""
        self._refresh()
        return bool(self._digests) and not self._digests.isdisjoint(map(self._digest, marks))

    def _refresh(self) -> None:
        while True:
            reading = self._lines.since(self._read)
            if reading.starts_over:
                self._digests = set()
            self._read = reading.mark
            self._digests |= {str(each) for line in reading.records for each in line.get("digests", ())}
            if not reading.records:
                break
        self._key = self._document.read() or b""
        if not self._key:
            self._digests = set()  # they are useless without it
            self._read = None

    def _digest(self, mark: PurgeMark) -> str:
        said = "\0".join(mark).encode(errors="surrogatepass")
        return blake2b(said, key=self._key, digest_size=16).hexdigest()
