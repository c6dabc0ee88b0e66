"""The writer of imports. Every item is compared with what is already here before it is written.

Importing twice adds nothing: a session keeps its `origin`, a row the key of its item with a hash of the item's text. An
item whose hash is known adds nothing, even under another key. Any other is an edit of the row with its key; if no row
has that key, or another item still has that row's text, it is a new row. A conversation that has grown is extended, and
a memory that was hidden here stays hidden.

The exchanges of a conversation are remembered before its session is created. A session that exists is therefore fully
remembered even if an import was killed, and memories that were erased later do not come back.

A file cannot widen access: docs/sessions.md has the rules.
"""

import hashlib
import json
import logging
from asyncio import CancelledError, to_thread
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct, field, structs

from chatbot.embedder import Judgement
from chatbot.errors import SessionError
from chatbot.memory import AddResult, Draft, Memory, MemorySystem, SessionRecord
from chatbot.memory.episode import EXCHANGE, Exchange, exchange_draft, exchanges_in
from chatbot.memory.erasure import FROM, HASH, KEY, PurgeMark, marks_of, marks_of_fact
from chatbot.memory.handle import shared_value
from chatbot.memory.memorability import Memorability
from chatbot.memory.scope import utc_now
from chatbot.memory.session_catalog import NOT_KEPT, RECEIPTS
from chatbot.memory.turn_order import TurnOrder
from chatbot.memory.writing import ANSWERS
from chatbot.messages import without_blocks
from chatbot.stores.access import SENSITIVITIES, VISIBILITIES, Sensitivity, Visibility, default_visibility
from chatbot.stores.backend import suffix_of
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import ConflictingChange, MissingFolder, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.loops import run_apart
from chatbot.stores.observation import CONTENT, STATUSES, Observation, content_hash
from chatbot.stores.query import EVERY, Progress
from chatbot.stores.records import ID, TranscriptEntry, chunks, format_time
from chatbot.transfer.exports import MemoryExport, SessionExport, render_note
from chatbot.transfer.formats import EDITED, MARKDOWN, Conversation, Item, MemoryItem, Skip, read_markdown
from chatbot.transfer.sources import BUNDLE, Source

logger = logging.getLogger(__name__)

DELETED = "deleted here together with its memories; import it with --include-purged"
PURGED = "deleted permanently here; import it with --include-purged"
_AT_ONCE = 500


class ImportReport(Struct):
    """The counts of an import; for a dry run, those that an import would have."""

    kind: str
    path: str
    dry_run: bool
    sessions: list[dict[str, Any]] = []
    """The sessions added or extended: key, title, number of entries, and their id here."""
    memories: int = 0
    exchanges: int = 0
    """Exchanges of imported conversations that were remembered."""
    facts: int = 0
    changed: int = 0
    """Existing memories whose text was updated."""
    already: int = 0
    skipped: list[Skip] = []
    left_out: Counter[str] = field(default_factory=Counter)
    """Parts of conversations that are not imported, such as tool calls."""
    redacted: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """Return the counts of added items in words; empty for none."""
        added = {"session": len(self.sessions), "memory": self.memories, "exchange": self.exchanges, "fact": self.facts}
        return ", ".join(how_many(count, what) for what, count in added.items() if count)


class KnownRows:
    """Rows of earlier imports of one kind, the newest first."""

    def __init__(self, memories: Memory, rows: Sequence[Observation]) -> None:
        self.memories = memories
        self.by_key = {str(row.metadata.get(KEY)): row for row in reversed(rows)}
        self.by_hash = {str(row.metadata.get(HASH)): row.id for row in reversed(rows)}
        self.repeated: set[str] = set()
        """Hashes of known rows that the import repeats."""
        self.by_content: dict[tuple[str, str, str], str] = {}
        """In a dry run: ids of all rows that would exist after the import, by agent, visibility and hash."""


@dataclass
class Importer:
    """Writer of imports into one memory for one agent. With `dry_run` it only reports what it would do.

    `measure` decides which exchanges are remembered; without it none are. Items that were purged here are skipped
    without `include_purged`. `trust` accepts the visibility of memories, and the model and persona that a session of a
    bundle chose. All memories belong to the caller, whatever owner they name.
    """

    memory: MemorySystem
    _: KW_ONLY
    agent: str
    agents: Mapping[str, Sequence[str]]
    sensitivity: Sensitivity = "public"
    trust: bool = False
    remembers: bool = True
    measure: Memorability | None = None
    dry_run: bool = False
    include_purged: bool = False
    progress: Progress | None = None

    async def run(self, source: Source) -> ImportReport:
        """Import every item of the source, read completely before anything is written; one run at a time."""
        self._report = ImportReport(source.kind, str(source.path), self.dry_run)
        self._source = f"import:{source.kind}"
        self._now = utc_now()  # times after it are set to it: a row from the future would win over later ones
        self._foreseen: dict[str, Sequence[TranscriptEntry]] = {}  # transcripts that a dry run would leave
        self._known: KnownRows | None = None
        self._ids_here: dict[str, str] = {}  # the id here for each imported id
        self._added: set[str] = set()
        self._bundled: list[str] = []
        items: list[Item | SessionExport | MemoryExport] = await run_apart(list, source.items)
        self._given = {each.record.id: each.entries for each in items if isinstance(each, SessionExport)}
        async with nullcontext() if self.dry_run else TurnOrder(self.memory.backend.lease("import"), work="importing"):
            await self._take_all(items)
        return self._report

    async def _take_all(self, items: Sequence[Item | SessionExport | MemoryExport]) -> None:
        notes = [each for each in items if isinstance(each, MemoryItem)]
        work = [*(each for each in items if not isinstance(each, MemoryItem)), *chunks(notes, _AT_ONCE)]
        records = await self.memory.list_sessions()
        self._here = {record.id: record for record in records}
        self._origins = {record.origin: record for record in records if record.origin}
        try:
            for done, item in enumerate(work, 1):
                await self._take(item)
                if self.progress:
                    self.progress(done, len(work))
        except (SessionError, StoreError, CancelledError) as error:
            if not self.dry_run and (counts := self._report.summary()):
                so_far = f"{counts} had been imported: import it again to continue"
                if isinstance(error, CancelledError):
                    logger.warning("%s", so_far)
                error.args = (f"{error}. {so_far}",)
            raise
        if self._report.sessions and not self.dry_run:
            await self.memory.reorder_sessions()
        for session_id in self._bundled:
            with suppress(MissingFolder):  # it was deleted meanwhile
                await to_thread(self._name_rows, session_id)

    def _name_rows(self, session_id: str) -> None:
        """Name rows in the receipts of a bundled session by their ids here: a purge erases the quotes of those ids."""
        receipts = self.memory.backend.place_of(self.memory.backend.sessions.ref(session_id)).lines(RECEIPTS)
        named = partial(ID.sub, lambda found: self._ids_here.get(found[0]) or found[0])
        receipts.rewrite(lambda receipt: json.loads(named(json.dumps(receipt))))

    async def _take(self, item: Conversation | Sequence[MemoryItem] | Skip | SessionExport | MemoryExport) -> None:
        match item:
            case Skip():
                self._report.skipped.append(item)
            case Sequence() if self.remembers:
                await self._remember(self.memory.memory(self.agent), item)
            case Sequence():
                self._report.skipped += [Skip(each.key, "the agent keeps no memories") for each in item]
            case Conversation():
                await self._take_conversation(item)
            case MemoryExport():
                await self._take_remembered(item, "", None)
            case SessionExport():
                await self._take_bundled(item)

    async def _take_conversation(self, item: Conversation) -> None:
        """Add a session, or the new entries of one that is here, unless that has diverged."""
        origin = f"{self._report.kind}:{item.key}"
        known = self._origins.get(origin)
        said = await self._transcript_of(known) if known else ()
        if known and not all(map(_is_same, said, item.entries)):
            self._report.skipped.append(Skip(item.key, "its session continued differently here"))
        elif known and len(said) >= len(item.entries):
            self._report.already += 1
        elif not known and self._is_barred([("origin", origin)]):
            self._report.skipped.append(Skip(item.key, DELETED))
        else:
            record = known or self._record(self.agent, item.title, item.created_at, item.used_at, origin)
            new = [each for each in exchanges_in(item.entries) if each.last > len(said)]
            record = await self._remember_said(record, new, item.key)
            await self._write(record, item.entries, item.key, item.left_out, beyond=len(said))

    async def _remember_said(self, record: SessionRecord, exchanges: Sequence[Exchange], key: str) -> SessionRecord:
        """Remember the exchanges; return the record, with the id that a killed import gave it."""
        measure = self.measure
        if measure is None or not self.remembers:
            return record
        visibility = self._allowed_visibility(default_visibility(record.clearance))
        meaning = self.memory.memory(self.agent).scope.meaning
        texts = [without_blocks(each.text) for each in exchanges]
        judgements: Sequence[Judgement | None] = (
            await meaning.judge(texts, sentences=True) if meaning else [None] * len(texts)
        )
        items, kept = list[MemoryItem](), set[datetime | None]()
        for one, judged in zip(exchanges, judgements, strict=True):
            draft = exchange_draft(
                one.at,
                one.text,
                one.reply,
                measure=measure,
                judged=judged,
                before=one.before,
                answers=one.before_at if one.before_at in kept else None,
            )
            if draft is not None:
                kept.add(one.at)
                draft = replace(draft, visibility=visibility, sensitivity=record.sensitivity)
                items.append(MemoryItem(f"{key}#{one.number}", draft))
        known = await self._known_rows()
        begun = dict.fromkeys(known.by_key[each.key].session_id for each in items if each.key in known.by_key)
        for session_id in filter(None, begun if record.id not in self._here else ()):
            if not await self.memory.is_taken(session_id):
                record = structs.replace(record, id=session_id)  # a killed import has remembered them under this id
                break
        memory = self.memory.cleared_for(project=record.project)
        await self._remember(memory.memory(record.agent_id, session_id=record.id), items)
        return record

    async def _take_bundled(self, item: SessionExport) -> None:
        entries = [[entry.role, entry.content, format_time(entry.at)] for entry in item.entries]
        digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:32]
        origin = f"{BUNDLE}:{item.record.id}:{digest}"
        here = self._origins.get(origin)
        if here is None and (known := self._here.get(item.record.id)) is not None:
            said = await self._transcript_of(known)
            is_contained = len(said) >= len(item.entries) and all(map(_is_same, said, item.entries))
            here = known if is_contained else None
        if here is None and self._is_barred([("origin", origin), ("session", item.record.id)]):
            self._report.skipped.append(Skip(item.record.id, DELETED))
            return
        self._report.already += here is not None
        session_id = await self._adopt_bundled(item, origin) if here is None else here.id
        await self._take_remembered(item.remembered, item.record.id, session_id)
        if not self.dry_run and (here is None or here.origin == origin):
            self._bundled.append(session_id)

    async def _adopt_bundled(self, item: SessionExport, origin: str) -> str:
        """Create the session under its own id, or a new one if that is taken."""
        given = item.record
        agent = given.agent_id if given.agent_id in self.agents else self.agent
        new = self._record(agent, given.title, given.created_at, given.used_at, origin)
        free = new.id if given.id in self._here or await self.memory.is_taken(given.id) else given.id
        kept = {name: getattr(given, name) for name in ("parent", "clearance", "archived_at", "pinned_at")}
        sensitivity = max(new.sensitivity, given.sensitivity, key=SENSITIVITIES.index)
        record = structs.replace(new, id=free, project=given.project or new.project, sensitivity=sensitivity, **kept)
        if not item.remembered.observations:
            shared = await self._entries_of_original(item)
            unkept = {each["at"] for each in item.receipts if each.get("kind") == NOT_KEPT}
            said = [each for each in exchanges_in(item.entries, unkept) if each.last > shared]
            record = await self._remember_said(record, said, given.id)
        receipts = [{**receipt, "session": record.id} for receipt in item.receipts]
        past = tuple(structs.replace(each, at=min(each.at, self._now)) for each in item.key_values)
        without = tuple(structs.replace(each, value=shared_value(each.key, each.value)) for each in past)
        values = past if self.trust else without  # model and persona
        if values != past:
            self._report.skipped.append(Skip(f"model and persona of {given.id}", "accept them with --trust"))
        attachments = [(data, suffix_of(name)) for name, data in item.attachments]
        parts: dict[str, Any] = {"key_values": values, "receipts": receipts, "attachments": attachments}
        return await self._write(record, item.entries, given.id, {}, **parts)

    async def _entries_of_original(self, item: SessionExport) -> int:
        """Return how many entries a fork shares with its original, if that is here or in the bundle."""
        parent = item.record.parent or ""
        here = await self._transcript_of(self._here[parent]) if parent in self._here else ()
        original = self._given.get(parent, here)
        return sum(1 for _ in takewhile(lambda both: _is_same(*both), zip(item.entries, original, strict=False)))

    async def _transcript_of(self, record: SessionRecord) -> Sequence[TranscriptEntry]:
        """Return the transcript of a session, in a dry run as an import would leave it."""
        if record.id in self._foreseen:
            return self._foreseen[record.id]
        session = await self.memory.load_session(record.id, any_agent=True)
        return await session.transcript_read_all() if session.supports(TranscriptStore) else ()

    def _record(self, agent: str, title: str, created_at: datetime, used_at: datetime, origin: str) -> SessionRecord:
        stores = tuple(self.agents[agent])
        record = self.memory.new_record(stores, agent, title, created_at=created_at, used_at=used_at, origin=origin)
        return structs.replace(record, sensitivity=self._stricter(record.sensitivity))

    async def _write(
        self,
        record: SessionRecord,
        entries: Sequence[TranscriptEntry],
        key: str,
        left_out: Mapping[str, int],
        *,
        beyond: int = 0,
        **parts: Any,
    ) -> str:
        """Create a session, or append the entries beyond those that it has, and report it; return its id."""
        is_new = record.id not in self._here
        entries = [structs.replace(each, at=min(each.at, self._now)) for each in entries]
        if self.dry_run:
            self._foreseen[record.id] = entries
        elif is_new:
            await self.memory.adopt_session(record, entries, **parts)
        else:
            await (await self.memory.load_session(record.id, any_agent=True)).transcript_extend(entries[beyond:])
        self._report.left_out.update(left_out if is_new else {})
        given: dict[str, Any] = {"key": key, "title": record.title, "used_at": format_time(record.used_at)}
        given |= {"entries": len(entries) - beyond, "left_out": dict(left_out)}
        self._report.sessions.append(given | {"id": None if self.dry_run else record.id})
        self._here[record.id] = self._origins[record.origin] = record
        return record.id

    async def _take_remembered(self, item: MemoryExport, old: str, session_id: str | None) -> None:
        """Import the memories of the bundled session `old`, or of a memory export; each row once."""
        self._report.skipped += item.broken
        if not (item.observations or item.facts):
            return
        if not self.remembers:
            what = f"memories of {old}" if old else "memories"
            self._report.skipped.append(Skip(what, "the agent keeps no memories"))
            return
        memories = self.memory.memory(self.agent, session_id=session_id)
        every = await memories.everywhere().every(sensitivities=SENSITIVITIES, statuses=STATUSES, session_id=session_id)
        here = {row.id for row in every}
        rows = [row for row in item.observations if row.id not in here]
        self._report.already += len(item.observations) - len(rows)
        await self._remember(memories, [MemoryItem(row.id, self._draft_of(row, old, session_id)) for row in rows])
        self._ids_here |= {each: each for each in here}
        for row in rows if not self.dry_run else ():
            own = self._ids_here.get(row.id, "")
            sources = [new for each in row.derived_from if (new := self._ids_here.get(each, own)) != own]
            asked = self._ids_here.get(str(row.metadata.get(ANSWERS)))
            named: dict[str, Any] = {"derived_from": sources} if sources else {}
            named |= {"metadata": {ANSWERS: asked}} if asked else {}
            if named and row.id in self._added:
                with suppress(ConflictingChange):  # a file may hold a cycle
                    await memories.update(own, **named)
        await self._add_facts(memories, item, session_id)

    async def _add_facts(self, memories: Memory, item: MemoryExport, session_id: str | None) -> None:
        known = {
            (fact.subject, fact.predicate, fact.object)
            for fact in await memories.query_facts(session_id=session_id, sensitivities=SENSITIVITIES, limit=EVERY)
        }
        for fact in item.facts:
            said = (fact.subject, fact.predicate, fact.object)
            if said in known:
                continue
            known.add(said)
            why = "its sensitivity is unknown" if fact.sensitivity == "unknown" else ""
            here = replace(fact, namespace=self.memory.caller.namespace)
            if self._is_barred([*marks_of_fact(fact), *marks_of_fact(here)]):
                why = PURGED
            try:
                if not why and not self.dry_run:
                    await memories.store_fact(
                        *said,
                        confidence=fact.confidence,
                        project=fact.project or None,
                        source=self._ids_here.get(fact.source or ""),
                        visibility=self._allowed_visibility(fact.visibility),
                        sensitivity=self._stricter(fact.sensitivity),
                        at=min(fact.created_at, self._now),
                    )
            except StoreError as error:
                why = str(error)
            if why:
                self._report.skipped.append(Skip(fact.id, why))
            self._report.facts += not why

    def _draft_of(self, row: Observation, old: str, new: str | None) -> Draft:
        """Return the row as a draft, visible to no one who could not see the caller's own rows."""
        own = {"source", "derived_from", "token_count"}  # it is from the import, ids differ, tokens are counted again
        content = {name: getattr(row, name) for name in CONTENT if name not in own}
        return Draft(
            **content | {"subject": new if new and row.subject == old else row.subject},
            visibility=self._allowed_visibility(row.visibility),
            sensitivity=row.sensitivity,
            min_clearance=row.min_clearance,
            created_at=row.created_at,
        )

    async def _known_rows(self) -> KnownRows:
        """Return the rows of earlier imports of this kind, of all projects, without those made by users."""
        if self._known is None:
            memories = self.memory.memory(self.agent)
            rows = await memories.every(
                sensitivities=SENSITIVITIES, statuses=STATUSES, metadata={FROM: self._report.kind}
            )
            self._known = known = KnownRows(memories, [row for row in rows if row.source == self._source])
            if self._report.kind == MARKDOWN:  # it may hold what was exported here
                for row in await memories.everywhere().every(sensitivities=SENSITIVITIES, statuses=STATUSES):
                    for each in read_markdown(render_note(row), PurePosixPath()):
                        known.by_hash.setdefault(each.hash, row.id)
            for row in await memories.every(sensitivities=SENSITIVITIES) if self.dry_run else ():
                known.by_content[row.agent_id, row.visibility, row.hash] = row.id
        return self._known

    def _is_barred(self, marks: Iterable[PurgeMark]) -> bool:
        """Return True if an item with one of these marks was purged here and must stay out."""
        return not self.include_purged and self.memory.tombstones.barred(marks)

    def _stricter(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the stricter of a row's sensitivity and the one that the caller set."""
        return max(sensitivity, self.sensitivity, key=SENSITIVITIES.index)

    async def _is_new(self, known: KnownRows, item: MemoryItem) -> bool:
        """Return True if the item is to be added; if not, it is counted, and its row brought up to date."""
        digest, row = item.hash, known.by_key.get(item.key)
        if item.draft.sensitivity == "unknown":
            self._report.skipped.append(Skip(item.key, "its sensitivity is unknown"))
        elif digest in known.by_hash or (row is not None and row.status != "active"):
            known.repeated.add(digest)
            # not in `by_hash`: if the row of this key is hidden, an edited text may still be new under another key
            self._ids_here[item.key] = known.by_hash.get(digest) or (row.id if row is not None else "")
            self._report.already += 1
        elif row is not None and (former := str(row.metadata.get(HASH))) not in known.repeated:
            known.by_hash.pop(former, None)
            known.by_hash[digest] = self._ids_here[item.key] = row.id
            self._report.changed += 1
            draft = self._with_origin(item)
            if self.dry_run:
                known.by_content.pop((row.agent_id, row.visibility, row.hash), None)
                known.by_content[row.agent_id, row.visibility, content_hash(draft)] = row.id
            else:
                await known.memories.update(row.id, **{name: getattr(draft, name) for name in EDITED})
        elif self._is_barred(self._marks(known.memories, item)):
            self._report.skipped.append(Skip(item.key, PURGED))
        else:
            return True
        return False

    async def _remember(self, memories: Memory, items: Sequence[MemoryItem]) -> None:
        """Remember the items unless they exist, some at a time, so that the report of a failure counts the others."""
        known = await self._known_rows()
        for some in chunks(items, _AT_ONCE):
            new = [each for each in some if await self._is_new(known, each)]
            drafts = [self._with_origin(item) for item in new]
            if self.dry_run:
                results = [self._foreseen_of(memories, known, draft) for draft in drafts]
            else:
                results = await memories.remember_all(drafts, keep_going=True)
            for item, result in zip(new, results, strict=True):
                self._report.redacted.update(result.redacted)
                if result.outcome == "skipped":
                    self._report.skipped.append(Skip(item.key, result.reason))
                    continue
                self._ids_here[item.key] = known.by_hash[item.hash] = result.id
                if result.outcome == "exact_dup":
                    self._report.already += 1
                else:
                    self._added.add(item.key)
                    self._report.exchanges += item.draft.type == EXCHANGE
                    self._report.memories += item.draft.type != EXCHANGE

    @staticmethod
    def _foreseen_of(memories: Memory, known: KnownRows, draft: Draft) -> AddResult:
        """Return the result that adding the draft would have, without writing."""
        try:
            row, redacted = memories.prepare(draft)
        except StoreError as error:
            return AddResult("skipped", "", str(error))
        id_ = known.by_content.setdefault((row.agent_id, row.visibility, row.hash), row.id)
        return AddResult("added" if id_ == row.id else "exact_dup", id_, redacted=redacted)

    def _marks(self, memories: Memory, item: MemoryItem) -> Iterator[PurgeMark]:
        """Yield the marks that a purge of this item would have left (see `chatbot.memory.erasure`)."""
        yield "id", item.key
        with suppress(StoreError):  # `_remember` reports it
            yield from marks_of(memories.prepare(self._with_origin(item))[0])

    def _with_origin(self, item: MemoryItem) -> Draft:
        origin = {FROM: self._report.kind, KEY: item.key, HASH: item.hash}
        return replace(
            item.draft,
            source=self._source,
            created_at=item.draft.created_at and min(item.draft.created_at, self._now),
            sensitivity=self._stricter(item.draft.sensitivity),
            metadata={**(item.draft.metadata or {}), **origin},
        )

    def _allowed_visibility(self, visibility: Visibility) -> Visibility:
        """Return the visibility of an imported row: at most that of the caller's own rows, unless `trust` is set."""
        own = default_visibility(self.memory.caller.clearance)
        return visibility if self.trust else min(visibility, own, key=VISIBILITIES.index)


def _is_same(left: TranscriptEntry, right: TranscriptEntry) -> bool:
    """Return whether both entries have the same role and text, at any time."""
    return (left.role, left.content) == (right.role, right.content)
