"""The writer of imported memories. Each is compared with earlier imports before it is added.

Memories are redacted, are `public` in sensitivity unless they or the caller set a stricter one, and keep their source
in their metadata (see `earlier_imports`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from chatbot.memory.memory import Memory
from chatbot.memory.origins import DIGEST, FROM, KEY, PLACES, Mark, Said, said_in
from chatbot.memory.tombstones import Tombstones
from chatbot.memory.writing import Draft
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.errors import StoreError
from chatbot.stores.observation import STATUSES, Observation, is_line
from chatbot.transfer.earlier_imports import PENDING, EarlierImports, is_gone, without_places
from chatbot.transfer.items import ImportReport, MemoryItem, Skip
from chatbot.transfer.memstore import KIND as MEMSTORE

PURGED = "deleted permanently here; import it with --include-purged"
_BATCH = 200
_SAID = ("title", "subtitle", "narrative", "user_text", "assistant_text")


class Intake:
    """Writer of memories from sources of one kind. With `dry_run` it only counts."""

    def __init__(
        self,
        kind: str,
        report: ImportReport,
        *,
        sensitivity: Sensitivity,
        dry_run: bool,
        tombstones: Tombstones | None = None,
    ) -> None:
        self._tombstones = tombstones
        self._kind = kind
        self._report = report
        self._sensitivity = sensitivity
        self._dry_run = dry_run
        self._known: dict[str, EarlierImports] = {}
        self._held: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Keys and digests of the items of each file."""
        self._said: dict[str, set[tuple[str, str, str]]] = {}
        """Agent, visibility and hash of each row that a dry run would leave, by namespace."""
        self.became: dict[str, str] = {}
        """The id here for each imported id."""
        self.added: set[str] = set()

    def expect(self, item: MemoryItem) -> None:
        """Register an item of a file. Every item of a file is registered before any is remembered."""
        if item.place:
            self._held[item.place].add((item.key, item.digest()))

    async def remember(self, memories: Memory, items: Sequence[MemoryItem]) -> None:
        """Remember the items, each in its namespace, unless they exist."""
        for namespace in dict.fromkeys(each.namespace for each in items):
            own = memories.within(namespace=namespace) if namespace else memories
            await self._remember(own, [each for each in items if each.namespace == namespace])

    async def _remember(self, memories: Memory, items: Sequence[MemoryItem]) -> None:
        known = await self.known(memories, items[0].namespace)
        new: list[tuple[MemoryItem, Draft]] = []
        for item in items:
            row = known.at(item.address)
            if row is None and item.place:
                row = self._same_content(known, item)
            if item.draft.sensitivity == "unknown":
                self._report.skipped.append(Skip(item.key, "its sensitivity is unknown"))
            elif row is None and self.is_barred(self._marks(memories, item)):
                self._report.skipped.append(Skip(item.key, PURGED))
            elif row is None or not await self._update_earlier(memories, known, row, item):
                new.append((item, self._marked(item)))
                known.expect(item.address)
        if self._dry_run:
            await self._count_only(memories, new)
        elif new:
            await self._add(memories, new)

    def is_barred(self, marks: Collection[Mark]) -> bool:
        """Return True if an item with one of these marks was purged here and must stay out."""
        return self._tombstones is not None and self._tombstones.barred(marks)

    def _marks(self, memories: Memory, item: MemoryItem) -> list[Mark]:
        """Return the marks that a purge of this item would have left (see `chatbot.memory.origins`)."""
        if self._tombstones is None or not self._tombstones.any():
            return []
        marks: list[Mark] = [("id", item.key), ("digest", item.digest())]
        try:
            row, _ = memories.drafted(item.draft)
        except StoreError:
            return marks  # `_add` reports the error
        if not item.place:
            marks.append(("from", self._kind, row.namespace, item.key))
        return [*marks, ("words", row.namespace, row.hash)]

    def _same_content(self, known: EarlierImports, item: MemoryItem) -> Observation | None:
        """Return a row with the same content from another file, or from this file at an earlier path."""
        before = self._before(known, item)
        return known.saying(item.digest()) or next(filter(None, (known.at((each, item.key)) for each in before)), None)

    def _before(self, known: EarlierImports, item: MemoryItem) -> Collection[str]:
        return known.earlier(item.place, self._held[item.place], has_ids=self._kind == MEMSTORE) if item.place else ()

    async def _update_earlier(
        self, memories: Memory, known: EarlierImports, row: Observation, item: MemoryItem
    ) -> bool:
        """Update a row of an earlier import. Return False if the item is a new row."""
        if row is PENDING:
            self._report.already += 1
            return True
        self.became[item.key] = row.id
        said, digest = said_in(row), item.digest()
        if row.status != "active" or said.get(item.address) == digest:
            self._report.already += 1
            return True
        if item.address not in said and digest in said.values():
            self._report.already += 1
            await self._tie(memories, known, row, {**_still_there(said), item.address: digest})
            return True
        left = self._other_places(known, said, item)
        if item.place and (twin := known.saying(digest)) and twin.status == "active":
            self._report.changed += 1
            await self._tie(memories, known, row, left)
            await self._tie(memories, known, twin, {**_still_there(said_in(twin)), item.address: digest})
        elif left or (item.place and not self._brought(row)):
            await self._tie(memories, known, row, left)
            return False
        else:
            await self._change(memories, row, item)
            known.expect(item.address)
        return True

    def _other_places(self, known: EarlierImports, said: Said, item: MemoryItem) -> Said:
        """Return the other existing files that contain the row, without earlier paths of the item's own file."""
        before, held = self._before(known, item), self._held[item.place]
        return {
            (place, key): digest
            for (place, key), digest in _still_there(said).items()
            if (place, key) != item.address and place not in before and (place != item.place or (key, digest) in held)
        }

    async def _tie(self, memories: Memory, known: EarlierImports, row: Observation, said: Said) -> None:
        """Record the files that contain a row. A row that an import added and no file contains any more is hidden."""
        metadata = known.tie(row, said)
        if not self._dry_run:
            await memories.update(row.id, metadata=metadata)
            if not said and self._brought(row):
                await memories.forget(row.id)

    def _brought(self, row: Observation) -> bool:
        """Return True if an import of this kind added the row; else a user stated the same independently."""
        return row.source == f"import:{self._kind}"

    async def _count_only(self, memories: Memory, new: Sequence[tuple[MemoryItem, Draft]]) -> None:
        """Count what `_add` would do, without writing."""
        namespace = next((item.namespace for item, _ in new), "")
        if new and namespace not in self._said:
            rows = await memories.every(ask=SENSITIVITIES)
            self._said[namespace] = {(row.agent_id, row.visibility, row.hash) for row in rows}
        for item, draft in new:
            try:
                row, redacted = memories.drafted(draft)
            except StoreError as error:
                self._report.skipped.append(Skip(item.key, str(error)))
                continue
            self._report.redacted.update(redacted)
            words = (row.agent_id, row.visibility, row.hash)
            if words in self._said[namespace]:
                self._report.already += 1
            else:
                self._said[namespace].add(words)
                self._report.add(draft)

    async def _add(self, memories: Memory, new: Sequence[tuple[MemoryItem, Draft]]) -> None:
        for begin in range(0, len(new), _BATCH):
            batch = new[begin : begin + _BATCH]
            became = await memories.remember_all([draft for _, draft in batch], keep_going=True)
            for (item, draft), each in zip(batch, became, strict=True):
                self._report.redacted.update(each.redacted)
                if each.outcome == "skipped":
                    self._report.skipped.append(Skip(item.key, each.reason))
                elif each.outcome == "exact_dup":
                    self._report.already += 1
                    await self._mark(memories, each.id, draft)
                else:
                    self._report.add(draft)
                    self.added.add(item.key)
                if each.outcome != "skipped":
                    self.became[item.key] = each.id

    async def _mark(self, memories: Memory, id_: str, draft: Draft) -> None:
        """Record an additional source of an existing row, unless it is a line of a profile, which no file changes."""
        marks = {key: value for key, value in (draft.metadata or {}).items() if key in (FROM, KEY, DIGEST, PLACES)}
        for row in await memories.get([id_], ask=SENSITIVITIES, count_use=False):
            for place, keys in row.metadata.get(PLACES, {}).items() if PLACES in marks else ():
                marks[PLACES] |= {place: {**keys, **marks[PLACES].get(place, {})}}
            if not is_line(row):
                await memories.update(id_, metadata=marks)

    async def _change(self, memories: Memory, row: Observation, item: MemoryItem) -> None:
        """Update a memory whose text was edited in the file."""
        self._report.changed += 1
        if not self._dry_run:
            draft = self._marked(item)
            await memories.update(row.id, **{name: getattr(draft, name) for name in _SAID}, metadata=draft.metadata)

    async def known(self, memories: Memory, namespace: str = "") -> EarlierImports:
        """Return the rows of earlier imports of this kind, in any status."""
        if namespace not in self._known:
            rows = await memories.every(ask=SENSITIVITIES, statuses=STATUSES, metadata={FROM: self._kind})
            self._known[namespace] = EarlierImports(rows)
        return self._known[namespace]

    def _marked(self, item: MemoryItem) -> Draft:
        """Return the draft with its source in the metadata."""
        digest = item.digest()
        where = {PLACES: {item.place: {item.key: digest}}} if item.place else {DIGEST: digest}
        marks = {FROM: self._kind, KEY: item.key, **where}
        return replace(
            item.draft,
            source=f"import:{self._kind}",
            sensitivity=self.no_less(item.draft.sensitivity),
            metadata={**without_places(item.draft.metadata or {}), **marks},
        )

    def no_less(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the stricter of a row's sensitivity and the one that the caller set."""
        return max(sensitivity, self._sensitivity, key=SENSITIVITIES.index)


def _still_there(said: Said) -> Said:
    return {address: digest for address, digest in said.items() if not is_gone(address[0])}
