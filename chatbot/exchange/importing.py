"""The one writer of what comes from elsewhere: looks first whether it is here already, and says what became of it.

Importing twice adds nothing: a session knows its `origin`, a memory keeps in its metadata what it is from: see `known`.
A conversation that has grown is gone on with, a memory that has changed in its file is changed, and one that was
forgotten here stays forgotten.

What was said in a conversation is remembered like what is said here, before the session itself comes in: so one that is
here is remembered whole, whenever an import was killed, and what was erased of it since does not come back.

Nothing that a file says opens a gate. Sessions get the stores and, unless it is known here, the agent that the caller
names; no more is seen through them than the caller sees. Memories are redacted, are `public` in sensitivity unless the
file or the caller says more, and belong where the caller's own words would; `trust` lets a bundle's stand as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from chatbot.exchange.bundle import BundledSession
from chatbot.exchange.items import Conversation, Memory, Skipped, as_json
from chatbot.exchange.known import DIGEST, FROM, KEY, PENDING, PLACES, Known, Said, is_gone, said_in, without_places
from chatbot.exchange.memories import Remembered
from chatbot.exchange.memstore import KIND as MEMSTORE
from chatbot.exchange.sources import BUNDLE, Source
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.memory.comparison import is_same
from chatbot.memory.exchanges import EXCHANGE, exchange_draft, exchanges_in
from chatbot.memory.memorability import Memorability
from chatbot.memory.record import is_session_id
from chatbot.memory.remembering import Remembering
from chatbot.memory.writing import Draft
from stores.access import SENSITIVITIES, VISIBILITIES, Sensitivity, Visibility, default_visibility
from stores.base import TranscriptStore
from stores.errors import StoreError
from stores.observation import STATUSES, Observation
from stores.records import TranscriptEntry, format_time

_BATCH = 200
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Report:
    """What became of an import; on a dry run, what would."""

    kind: str
    path: str
    dry_run: bool
    sessions: list[dict[str, Any]] = field(default_factory=list)
    """The sessions that came in or grew: key, title, how many entries, and the id they have here."""
    memories: int = 0
    exchanges: int = 0
    """What was said in conversations and is remembered, so that it can be recalled into prompts."""
    facts: int = 0
    changed: int = 0
    """Memories that were here and say something else by now."""
    already: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """What is not taken over of the conversations, such as calls of tools."""
    redacted: Counter[str] = field(default_factory=Counter)

    def add(self, draft: Draft) -> None:
        """Count something that is remembered now."""
        if draft.type == EXCHANGE:
            self.exchanges += 1
        else:
            self.memories += 1

    def as_json(self) -> dict[str, Any]:
        """The report in values that JSON knows."""
        return {
            "kind": self.kind,
            "path": self.path,
            "dry_run": self.dry_run,
            "sessions": self.sessions,
            "memories": self.memories,
            "exchanges": self.exchanges,
            "facts": self.facts,
            "changed": self.changed,
            "already": self.already,
            "skipped": [{"what": each.what, "why": each.why} for each in self.skipped],
            "left_out": dict(self.left_out),
            "redacted": dict(self.redacted),
        }


class Importer:
    """Writes into one memory on behalf of one agent. With `dry_run` it only says what it would do.

    `gate` says which exchanges are worth remembering; without it none are.
    """

    def __init__(
        self,
        memory: MemorySystem,
        *,
        agent: str,
        agents: Mapping[str, Sequence[str]],
        sensitivity: Sensitivity = "public",
        trust: bool = False,
        remembers: bool = True,
        gate: Memorability | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._memory = memory
        self._agent = agent
        self._agents = agents
        self._sensitivity = sensitivity
        self._trust = trust
        self._remembers = remembers
        self._gate = gate if remembers else None
        self._dry_run = dry_run
        self._progress = progress or (lambda _done, _total: None)
        self._origins: dict[str, SessionRecord] = {}
        self._here: dict[str, SessionRecord] = {}
        self._waiting: list[Memory] = []
        self._known: dict[str, Known] = {}
        self._held: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """The keys and digests of what each file holds."""
        self._said: dict[str, set[tuple[str, str, str]]] = {}
        """What a dry run would leave in each namespace: of which agent, where it belongs, and a digest of it."""
        self._became: dict[str, str] = {}
        """The ids here of what has other ids in what is imported."""
        self._added: set[str] = set()

    async def run(self, source: Source) -> Report:
        """Import all that the source holds, read whole before anything is written: half a file adds nothing."""
        total = self._count(source)
        self._report = Report(source.kind, str(source.path), self._dry_run)
        records = await self._memory.list_sessions()
        self._here = {record.id: record for record in records}
        self._origins = {record.origin: record for record in records if record.origin}
        for done, item in enumerate(source.items(), 1):
            await self._take(item, source.kind)
            self._progress(done, total)
        await self._flush(source.kind)
        if self._report.sessions and not self._dry_run:
            await self._memory.reorder_sessions()
        return self._report

    def _count(self, source: Source) -> int:
        total = 0
        for total, item in enumerate(source.items(), 1):  # noqa: B007 -- the last one counts
            if isinstance(item, Memory) and item.place:
                self._held[item.place].add((item.key, item.digest()))
        return total

    async def _take(self, item: Conversation | Memory | Skipped | BundledSession | Remembered, kind: str) -> None:
        if isinstance(item, Skipped):
            self._report.skipped.append(item)
        elif isinstance(item, Memory):
            self._waiting.append(item)
            if len(self._waiting) >= _BATCH:
                await self._flush(kind)
        elif isinstance(item, Conversation):
            await self._take_conversation(item, kind)
        elif isinstance(item, Remembered):
            await self._take_remembered(item, "", None)
        else:
            await self._take_bundled(item)

    async def _take_conversation(self, item: Conversation, kind: str) -> None:
        origin = f"{kind}:{item.key}"
        if known := self._origins.get(origin):
            await self._go_on(known, item, kind)
            return
        record = self._record(self._agent, item.title, item.created_at, item.used_at, origin)
        self._report.left_out.update(item.left_out)
        record = await self._remember_said(record, item.entries, item.key, kind)
        await self._adopt(record, item.entries, as_json(item))

    async def _remember_said(
        self, record: SessionRecord, entries: Sequence[TranscriptEntry], key: str, kind: str, *, beyond: int = 0
    ) -> SessionRecord:
        """Remember the exchanges that end beyond that entry; the record, with the id that they may know already."""
        if self._gate is None:
            return record
        visibility = self._seen(default_visibility(record.clearance))
        items = [
            Memory(f"{key}#{each.number}", replace(draft, visibility=visibility))
            for each in exchanges_in(entries)
            if each.last > beyond
            if (draft := exchange_draft(each.at, each.text, each.reply, gate=self._gate)) is not None
        ]
        known = await self._keys(self._memory.memories(), kind, items) if items else Known(())
        begun = next((id_ for each in items if (id_ := getattr(known.at(each.address), "session_id", None))), None)
        if begun and record.id not in self._here and not await self._memory.is_taken(begun):
            record = replace(record, id=begun)  # an import that was killed got as far as this
        memories = self._memory.memories(record.agent_id, session_id=record.id)
        await self._remember_each(memories, items, kind)
        return record

    async def _go_on(self, known: SessionRecord, item: Conversation, kind: str) -> None:
        """Add what was said since the last import, unless the session went another way here."""
        session = await self._memory.load_session(known.id, any_agent=True)
        said = await session.transcript_read_all() if session.supports(TranscriptStore) else []
        new = item.entries[len(said) :]
        if not new or not all(map(is_same, said, item.entries)):
            self._report.already += 1
            return
        self._report.sessions.append(as_json(item) | {"id": known.id, "entries": len(new)})
        await self._remember_said(known, item.entries, item.key, kind, beyond=len(said))
        if not self._dry_run:
            await session.transcript_extend(new)

    async def _take_bundled(self, item: BundledSession) -> None:
        origin = f"{BUNDLE}:{item.record.id}:{_digest(item.entries)}"
        here = self._origins.get(origin) or await self._same_here(item)
        if here is not None:
            self._report.already += 1
        session_id = await self._adopt_bundled(item, origin) if here is None else here.id
        remembered = Remembered(item.observations, item.facts, item.broken)
        await self._take_remembered(remembered, item.record.id, session_id)

    async def _adopt_bundled(self, item: BundledSession, origin: str) -> str:
        """Under its own id, unless another session has that by now."""
        given = item.record
        agent = given.agent_id if given.agent_id in self._agents else self._agent
        record = self._record(agent, given.title, given.created_at, given.used_at, origin)
        parent = given.parent if given.parent is not None and is_session_id(given.parent) else None
        free = record.id if given.id in self._here or await self._memory.is_taken(given.id) else given.id
        record = replace(record, id=free, parent=parent, clearance=given.clearance, archived_at=given.archived_at)
        told = {
            "key": given.id,
            "title": record.title,
            "used_at": format_time(record.used_at),
            "entries": len(item.entries),
        }
        if not item.observations:
            record = await self._remember_said(record, item.entries, given.id, BUNDLE)
        receipts = [receipt | {"session": record.id} for receipt in item.receipts]
        return await self._adopt(record, item.entries, told, key_values=item.key_values, receipts=receipts)

    async def _same_here(self, item: BundledSession) -> SessionRecord | None:
        """The session of that id, if it holds all that the bundle does, and whatever was said since."""
        known = self._here.get(item.record.id)
        if known is None:
            return None
        session = await self._memory.load_session(known.id, any_agent=True)
        said = await session.transcript_read_all() if session.supports(TranscriptStore) else []
        is_contained = len(said) >= len(item.entries) and all(map(is_same, said, item.entries))
        return known if is_contained else None

    def _record(self, agent: str, title: str, created_at: datetime, used_at: datetime, origin: str) -> SessionRecord:
        return self._memory.new_record(
            tuple(self._agents[agent]), agent, title, created_at=created_at, used_at=used_at, origin=origin
        )

    async def _adopt(
        self, record: SessionRecord, entries: Sequence[TranscriptEntry], told: dict[str, Any], **parts: Any
    ) -> str:
        if not self._dry_run:
            await self._memory.adopt_session(record, entries, **parts)
        self._here[record.id] = self._origins[record.origin] = record
        self._report.sessions.append(told | {"id": None if self._dry_run else record.id})
        return record.id

    async def _take_remembered(self, item: Remembered, old: str, session_id: str | None) -> None:
        """What is remembered of a bundled session that was called `old`, or of all, each row once."""
        if item.broken:
            self._report.skipped.append(
                Skipped(f"{item.broken} lines" + (f" of {old}" if old else ""), "they are no rows of ours")
            )
        if not (item.observations or item.facts):
            return
        if not self._remembers:
            what = f"what {old} remembers" if old else "what is remembered"
            self._report.skipped.append(Skipped(what, "the agent keeps no memories"))
            return
        memories = self._memory.memories(self._agent, session_id=session_id)
        every = await memories.within(across=True).every(ask=SENSITIVITIES, statuses=STATUSES, session_id=session_id)
        here = {row.id for row in every}
        rows = [row for row in item.observations if row.id not in here]
        self._report.already += len(item.observations) - len(rows)
        drafts = [Memory(row.id, self._draft_of(row, old, session_id), row.namespace) for row in rows]
        await self._remember_each(memories, drafts, BUNDLE)
        self._became |= {each: each for each in here}
        for row in rows if not self._dry_run else ():
            sources = [self._became[each] for each in row.derived_from if each in self._became]
            if sources and row.id in self._added:
                await memories.within(namespace=row.namespace).update(self._became[row.id], derived_from=sources)
        await self._state(memories, item, session_id)

    async def _state(self, memories: Remembering, item: Remembered, session_id: str | None) -> None:
        known = {
            (fact.subject, fact.predicate, fact.object)
            for fact in await memories.query_facts(session_id=session_id, ask=SENSITIVITIES, limit=1_000)
        }
        elsewhere = {row.id for row in item.observations if row.namespace}
        for fact in item.facts:
            said = (fact.subject, fact.predicate, fact.object)
            if said in known or fact.sensitivity == "unknown":
                continue
            known.add(said)
            try:
                if not self._dry_run:
                    await memories.store_fact(
                        *said,
                        confidence=fact.confidence,
                        source=self._became.get(fact.source or "") if fact.source not in elsewhere else None,
                        visibility=self._seen(fact.visibility),
                        sensitivity=self._no_less(fact.sensitivity),
                    )
            except StoreError as error:
                self._report.skipped.append(Skipped(fact.id, str(error)))
            else:
                self._report.facts += 1

    def _draft_of(self, row: Observation, old: str, new: str | None) -> Draft:
        """A row of a bundle as something to be remembered here, no wider seen than what the caller says himself."""
        return Draft(
            title=row.title,
            subtitle=row.subtitle,
            narrative=row.narrative,
            facts=row.facts,
            type=row.type,
            tags=row.tags,
            concepts=row.concepts,
            people=row.people,
            subject=new if new and row.subject == old else row.subject,
            category=row.category,
            project=row.project,
            metadata=row.metadata,
            files_read=row.files_read,
            files_modified=row.files_modified,
            user_text=row.user_text,
            assistant_text=row.assistant_text,
            importance=row.importance,
            visibility=self._seen(row.visibility),
            sensitivity=row.sensitivity,
            min_clearance=row.min_clearance,
            expires_at=row.expires_at,
            created_at=row.created_at,
        )

    async def _flush(self, kind: str) -> None:
        """Remember what is waiting, namespace by namespace."""
        waiting, self._waiting = self._waiting, []
        if waiting and not self._remembers:
            self._report.skipped += [Skipped(each.key, "the agent keeps no memories") for each in waiting]
        elif waiting:
            await self._remember_each(self._memory.memories(self._agent), waiting, kind)

    async def _remember_each(self, memories: Remembering, items: Sequence[Memory], kind: str) -> None:
        for namespace in dict.fromkeys(each.namespace for each in items):
            own = memories.within(namespace=namespace) if namespace else memories
            await self._remember(own, [each for each in items if each.namespace == namespace], kind)

    async def _remember(self, memories: Remembering, items: Sequence[Memory], kind: str) -> None:
        known = await self._keys(memories, kind, items)
        new: list[tuple[Memory, Draft]] = []
        for item in items:
            row = known.at(item.address)
            if row is None and item.place:
                row = self._elsewhere(known, item, kind)
            if item.draft.sensitivity == "unknown":
                self._report.skipped.append(Skipped(item.key, "it says of itself that nobody knows who may see it"))
            elif row is None or not await self._was_here(memories, known, row, item, kind):
                new.append((item, self._marked(item, kind)))
                known.expect(item.address)
        if self._dry_run:
            await self._rehearse(memories, new)
        elif new:
            await self._add(memories, new)

    def _elsewhere(self, known: Known, item: Memory, kind: str) -> Observation | None:
        """What came from another file and says the same; or from the same file, when it was elsewhere."""
        before = self._before(known, item, kind)
        return known.saying(item.digest()) or next(filter(None, (known.at((each, item.key)) for each in before)), None)

    def _before(self, known: Known, item: Memory, kind: str) -> Collection[str]:
        return known.earlier(item.place, self._held[item.place], has_ids=kind == MEMSTORE) if item.place else ()

    async def _was_here(self, memories: Remembering, known: Known, row: Observation, item: Memory, kind: str) -> bool:
        """Bring a row up to date that came in before; whether it is the one that the item stands for."""
        if row is PENDING:
            self._report.already += 1
            return True
        self._became[item.key] = row.id
        said, digest = said_in(row), item.digest()
        if row.status != "active" or said.get(item.address) == digest:
            self._report.already += 1
            return True
        if item.address not in said and digest in said.values():
            self._report.already += 1
            await self._tie(memories, known, row, {**_still_there(said), item.address: digest})
            return True
        left = self._still_said(known, said, item, kind)
        if item.place and (twin := known.saying(digest)) and twin.status == "active":
            self._report.changed += 1
            await self._tie(memories, known, row, left)
            await self._tie(memories, known, twin, {**_still_there(said_in(twin)), item.address: digest})
        elif left:
            await self._tie(memories, known, row, left)
            return False
        else:
            await self._change(memories, row, item, kind)
            known.expect(item.address)
        return True

    def _still_said(self, known: Known, said: Said, item: Memory, kind: str) -> Said:
        """Where else that is said still: in files that are there, and are not the item's own when it was elsewhere."""
        before, held = self._before(known, item, kind), self._held[item.place]
        return {
            (place, key): digest
            for (place, key), digest in _still_there(said).items()
            if (place, key) != item.address and place not in before and (place != item.place or (key, digest) in held)
        }

    async def _tie(self, memories: Remembering, known: Known, row: Observation, said: Said) -> None:
        """Write down where a row is said by now; what is said nowhere any more is forgotten."""
        metadata = known.tie(row, said)
        if not self._dry_run:
            await memories.update(row.id, metadata=metadata)
            if not said:
                await memories.forget(row.id)

    async def _rehearse(self, memories: Remembering, new: Sequence[tuple[Memory, Draft]]) -> None:
        """Count what `_add` would, and write nothing."""
        namespace = next((item.namespace for item, _ in new), "")
        if new and namespace not in self._said:
            rows = await memories.every(ask=SENSITIVITIES)
            self._said[namespace] = {(row.agent_id, row.visibility, row.hash) for row in rows}
        for item, draft in new:
            try:
                row, redacted = memories.drafted(draft)
            except StoreError as error:
                self._report.skipped.append(Skipped(item.key, str(error)))
                continue
            self._report.redacted.update(redacted)
            words = (row.agent_id, row.visibility, row.hash)
            if words in self._said[namespace]:
                self._report.already += 1
            else:
                self._said[namespace].add(words)
                self._report.add(draft)

    async def _add(self, memories: Remembering, new: Sequence[tuple[Memory, Draft]]) -> None:
        for begin in range(0, len(new), _BATCH):
            batch = new[begin : begin + _BATCH]
            became = await memories.remember_all([draft for _, draft in batch], keep_going=True)
            for (item, draft), each in zip(batch, became, strict=True):
                self._report.redacted.update(each.redacted)
                if each.outcome == "skipped":
                    self._report.skipped.append(Skipped(item.key, each.reason))
                elif each.outcome == "exact_dup":
                    self._report.already += 1
                    await self._mark(memories, each.id, draft)
                else:
                    self._report.add(draft)
                    self._added.add(item.key)
                if each.outcome != "skipped":
                    self._became[item.key] = each.id

    async def _mark(self, memories: Remembering, id_: str, draft: Draft) -> None:
        """Write down where a row came from that was here already, besides where it came from before."""
        marks = dict(draft.metadata or {})
        for row in await memories.get([id_], ask=SENSITIVITIES, count_use=False) if PLACES in marks else ():
            for place, keys in row.metadata.get(PLACES, {}).items():
                marks[PLACES] |= {place: {**keys, **marks[PLACES].get(place, {})}}
        await memories.update(id_, metadata=marks)

    async def _change(self, memories: Remembering, row: Observation, item: Memory, kind: str) -> None:
        """Bring a memory up to date that says something else in the file by now."""
        self._report.changed += 1
        if not self._dry_run:
            draft = self._marked(item, kind)
            await memories.update(row.id, **{name: getattr(draft, name) for name in _SAID}, metadata=draft.metadata)

    async def _keys(self, memories: Remembering, kind: str, items: Iterable[Memory]) -> Known:
        """What came from there before, whatever became of it."""
        namespace = next((each.namespace for each in items), "")
        place = f"{kind}/{namespace}"
        if place not in self._known:
            rows = await memories.every(ask=SENSITIVITIES, statuses=STATUSES, metadata={FROM: kind})
            self._known[place] = Known(rows)
        return self._known[place]

    def _marked(self, item: Memory, kind: str) -> Draft:
        """What is to be remembered, with where it comes from."""
        digest = item.digest()
        where = {PLACES: {item.place: {item.key: digest}}} if item.place else {DIGEST: digest}
        marks = {FROM: kind, KEY: item.key, **where}
        return replace(
            item.draft,
            source=f"import:{kind}",
            sensitivity=self._no_less(item.draft.sensitivity),
            metadata={**without_places(item.draft.metadata or {}), **marks},
        )

    def _seen(self, visibility: Visibility) -> Visibility:
        """Where a row belongs that says of itself where: no wider than the caller's own words, unless it is trusted."""
        own = default_visibility(self._memory.clearance)
        return visibility if self._trust else min(visibility, own, key=VISIBILITIES.index)

    def _no_less(self, sensitivity: Sensitivity) -> Sensitivity:
        return max(sensitivity, self._sensitivity, key=SENSITIVITIES.index)


_SAID = ("title", "subtitle", "narrative", "user_text", "assistant_text")


def _still_there(said: Said) -> Said:
    return {address: digest for address, digest in said.items() if not is_gone(address[0])}


def _digest(entries: Iterable[TranscriptEntry]) -> str:
    said = [[entry.role, entry.content, format_time(entry.at)] for entry in entries]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]
