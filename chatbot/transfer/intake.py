"""The writer of imported memories, and its comparison with the rows of earlier imports.

An imported row keeps its addresses in its metadata: the files that it is in, with its keys there, and a digest at each.
What has an id that is its own everywhere is in the file "". An item whose digest is known adds nothing, wherever it was
moved or copied. Any other item is an edit of the row that is at its address and at no other, or else a new row.

Memories are redacted, and are `public` in sensitivity unless they or the caller set a stricter one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chatbot.memory.episode import EXCHANGE
from chatbot.memory.memory import Memory
from chatbot.memory.origins import FROM, PLACES, Address, Mark, Tombstones, said_in
from chatbot.memory.writing import AddResult, Draft
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.errors import StoreError
from chatbot.stores.observation import STATUSES, Observation
from chatbot.transfer.items import ImportReport, MemoryItem

PURGED = "deleted permanently here; import it with --include-purged"
_EDITED = ("title", "subtitle", "narrative", "user_text", "assistant_text", "metadata")
_MOST_ADDRESSES = 100
"""A row that more items say is compared with the others again at each import."""


class KnownRows:
    """Rows of earlier imports, of one kind and namespace."""

    def __init__(self, memories: Memory, rows: Sequence[Observation]) -> None:
        self.memories = memories
        self.rows = {row.id: row for row in rows}
        self.said: dict[str, dict[Address, str]] = {row.id: {} for row in rows}
        """The digest at each address of a row, by the id of the row."""
        self.words: dict[tuple[str, str, str], str] = {}
        """Id of each row that a dry run would leave, by agent, visibility and hash."""
        self.at: defaultdict[Address, list[Observation]] = defaultdict(list)
        self._with: dict[str, Observation] = {}
        for row in rows:
            for address, digest in said_in(row).items():
                self.tie(row, address, digest)

    def find(self, address: Address, digest: str) -> Observation | None:
        """Return the row with this digest, or else the one that is at this address alone."""
        row = self._with.get(digest)
        if row and digest in self.said[row.id].values():
            return row
        at = self.at[address]
        return next((row for row in at if all(each == address or is_gone(each) for each in self.said[row.id])), None)

    def tie(self, row: Observation, address: Address, digest: str) -> None:
        """Add an address to a row."""
        self.said[row.id][address] = digest
        self.at[address].append(row)
        self._with[digest] = row


@dataclass(slots=True)
class Intake:
    """Writer of memories from sources of one kind. With `dry_run` it only counts."""

    kind: str
    report: ImportReport
    sensitivity: Sensitivity
    dry_run: bool
    tombstones: Tombstones | None = None
    became: dict[str, str] = field(default_factory=dict)
    """The id here for each imported id."""
    added: set[str] = field(default_factory=set)
    _known: dict[str, KnownRows] = field(default_factory=dict)

    async def remember(self, memories: Memory, items: Sequence[MemoryItem]) -> None:
        """Remember the items, each in its namespace, unless they exist."""
        for namespace in dict.fromkeys(each.namespace for each in items):
            own = memories.within(namespace=namespace) if namespace else memories
            known = await self.known(own, namespace)
            its = (each for each in items if each.namespace == namespace)
            if new := [each for each in its if await self._is_new(known, each)]:
                await self._add(own, known, new)

    async def known(self, memories: Memory, namespace: str = "") -> KnownRows:
        """Return the rows of earlier imports of this kind, in any status, without what users made of them."""
        if namespace not in self._known:
            rows = await memories.every(ask=SENSITIVITIES, statuses=STATUSES, metadata={FROM: self.kind})
            self._known[namespace] = KnownRows(memories, [row for row in rows if row.source == self._source])
        return self._known[namespace]

    @property
    def _source(self) -> str:
        return f"import:{self.kind}"

    def is_barred(self, marks: Collection[Mark]) -> bool:
        """Return True if an item with one of these marks was purged here and must stay out."""
        return self.tombstones is not None and self.tombstones.barred(marks)

    def no_less(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the stricter of a row's sensitivity and the one that the caller set."""
        return max(sensitivity, self.sensitivity, key=SENSITIVITIES.index)

    async def _is_new(self, known: KnownRows, item: MemoryItem) -> bool:
        """Return True if the item is to be added; if not, it is counted, and its row brought up to date."""
        digest = item.digest()
        row = known.find(item.address, digest)
        if item.draft.sensitivity == "unknown":
            self.report.skip(item.key, "its sensitivity is unknown")
        elif row is None:
            if not self.is_barred(self._marks(known.memories, item)):
                return True
            self.report.skip(item.key, PURGED)
        else:
            self.became[item.key] = row.id
            if row.status != "active" or digest in known.said[row.id].values():
                self.report.already += 1
                await self._tie(known, row, item)
            else:
                self.report.changed += 1
                known.said[row.id].clear()
                await self._tie(known, row, item, **{name: getattr(item.draft, name) for name in _EDITED})
        return False

    async def _tie(self, known: KnownRows, row: Observation, item: MemoryItem, **changes: Any) -> None:
        """Note that an active row is at the address of the item, too, and change it."""
        said, digest = known.said[row.id], item.digest()
        if row.status == "active" and said.get(item.address) != digest and len(said) < _MOST_ADDRESSES:
            known.tie(row, item.address, digest)
            if not self.dry_run:
                changes["metadata"] = {**(changes.get("metadata") or {}), **self._origin(said)}
                await known.memories.update(row.id, **changes)

    async def _add(self, memories: Memory, known: KnownRows, items: Sequence[MemoryItem]) -> None:
        drafts = [self._drafted(item) for item in items]
        if self.dry_run:
            results = await self._foresee(memories, known, drafts)
        else:
            results = await memories.remember_all(drafts, keep_going=True)
        for item, result in zip(items, results, strict=True):
            self.report.redacted.update(result.redacted)
            if result.outcome == "skipped":
                self.report.skip(item.key, result.reason)
                continue
            self.became[item.key] = result.id
            if result.outcome == "exact_dup":
                self.report.already += 1
                if row := known.rows.get(result.id):
                    await self._tie(known, row, item)
            else:
                self.added.add(item.key)
                self.report.exchanges += item.draft.type == EXCHANGE
                self.report.memories += item.draft.type != EXCHANGE

    async def _foresee(self, memories: Memory, known: KnownRows, drafts: Sequence[Draft]) -> list[AddResult]:
        """Return what `remember_all` would, without writing."""
        if not known.words:
            rows = await memories.every(ask=SENSITIVITIES)
            known.words = {(row.agent_id, row.visibility, row.hash): row.id for row in rows}
        results = []
        for draft in drafts:
            try:
                row, redacted = memories.drafted(draft)
            except StoreError as error:
                results.append(AddResult("skipped", "", str(error)))
            else:
                id_ = known.words.setdefault((row.agent_id, row.visibility, row.hash), row.id)
                results.append(AddResult("added" if id_ == row.id else "exact_dup", id_, redacted=redacted))
        return results

    def _marks(self, memories: Memory, item: MemoryItem) -> list[Mark]:
        """Return the marks that a purge of this item would have left (see `chatbot.memory.origins`)."""
        if self.tombstones is None or not self.tombstones.any():
            return []
        marks: list[Mark] = [("id", item.key), ("digest", item.digest())]
        try:
            row, _ = memories.drafted(item.draft)
        except StoreError:
            return marks  # `_add` reports the error
        if not item.place:
            marks.append(("from", self.kind, row.namespace, item.key))
        return [*marks, ("words", row.namespace, row.hash)]

    def _drafted(self, item: MemoryItem) -> Draft:
        """Return the draft with its origin in the metadata."""
        return replace(
            item.draft,
            source=self._source,
            sensitivity=self.no_less(item.draft.sensitivity),
            metadata={**(item.draft.metadata or {}), **self._origin({item.address: item.digest()})},
        )

    def _origin(self, said: Mapping[Address, str]) -> dict[str, Any]:
        """Return the metadata of a row at these addresses, without files that are gone."""
        places: dict[str, dict[str, str]] = {}
        for (place, key), digest in said.items():
            if not is_gone((place, key)):
                places.setdefault(place, {})[key] = digest
        return {FROM: self.kind, PLACES: places}


def is_gone(address: Address) -> bool:
    """Return True if the file of an address no longer exists."""
    return bool(address[0]) and not os.path.lexists(address[0])
