"""The one way in for memories from elsewhere: each looks first whether it is here already, and where it came from.

They are redacted, are `public` in sensitivity unless they or the caller say more, and say in their metadata what they
are from: see `known`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from chatbot.exchange.items import Memory, Skipped
from chatbot.exchange.known import DIGEST, FROM, KEY, PENDING, PLACES, Known, Said, is_gone, said_in, without_places
from chatbot.exchange.memstore import KIND as MEMSTORE
from chatbot.exchange.report import Report
from chatbot.memory.remembering import Remembering
from chatbot.memory.writing import Draft
from stores.access import SENSITIVITIES, Sensitivity
from stores.errors import StoreError
from stores.observation import STATUSES, Observation

_BATCH = 200
_SAID = ("title", "subtitle", "narrative", "user_text", "assistant_text")


class Intake:
    """Remembers what a source of one kind remembers. With `dry_run` it only counts."""

    def __init__(self, kind: str, report: Report, *, sensitivity: Sensitivity, dry_run: bool) -> None:
        self._kind = kind
        self._report = report
        self._sensitivity = sensitivity
        self._dry_run = dry_run
        self._known: dict[str, Known] = {}
        self._held: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """The keys and digests of what each file holds."""
        self._said: dict[str, set[tuple[str, str, str]]] = {}
        """What a dry run would leave in each namespace: of which agent, where it belongs, and a digest of it."""
        self.became: dict[str, str] = {}
        """The ids here of what has other ids in what is imported."""
        self.added: set[str] = set()

    def expect(self, item: Memory) -> None:
        """Know that a file holds this, before anything of it is remembered."""
        if item.place:
            self._held[item.place].add((item.key, item.digest()))

    async def remember(self, memories: Remembering, items: Sequence[Memory]) -> None:
        """Remember them, each in its namespace, unless they are here."""
        for namespace in dict.fromkeys(each.namespace for each in items):
            own = memories.within(namespace=namespace) if namespace else memories
            await self._remember(own, [each for each in items if each.namespace == namespace])

    async def _remember(self, memories: Remembering, items: Sequence[Memory]) -> None:
        known = await self.known(memories, items[0].namespace)
        new: list[tuple[Memory, Draft]] = []
        for item in items:
            row = known.at(item.address)
            if row is None and item.place:
                row = self._elsewhere(known, item)
            if item.draft.sensitivity == "unknown":
                self._report.skipped.append(Skipped(item.key, "it says of itself that nobody knows who may see it"))
            elif row is None or not await self._was_here(memories, known, row, item):
                new.append((item, self._marked(item)))
                known.expect(item.address)
        if self._dry_run:
            await self._rehearse(memories, new)
        elif new:
            await self._add(memories, new)

    def _elsewhere(self, known: Known, item: Memory) -> Observation | None:
        """What came from another file and says the same; or from the same file, when it was elsewhere."""
        before = self._before(known, item)
        return known.saying(item.digest()) or next(filter(None, (known.at((each, item.key)) for each in before)), None)

    def _before(self, known: Known, item: Memory) -> Collection[str]:
        return known.earlier(item.place, self._held[item.place], has_ids=self._kind == MEMSTORE) if item.place else ()

    async def _was_here(self, memories: Remembering, known: Known, row: Observation, item: Memory) -> bool:
        """Bring a row up to date that came in before; whether it is the one that the item stands for."""
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
        left = self._still_said(known, said, item)
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

    def _still_said(self, known: Known, said: Said, item: Memory) -> Said:
        """Where else that is said still: in files that are there, and are not the item's own when it was elsewhere."""
        before, held = self._before(known, item), self._held[item.place]
        return {
            (place, key): digest
            for (place, key), digest in _still_there(said).items()
            if (place, key) != item.address and place not in before and (place != item.place or (key, digest) in held)
        }

    async def _tie(self, memories: Remembering, known: Known, row: Observation, said: Said) -> None:
        """Write down where a row is said by now; what we brought, and is said nowhere any more, is forgotten."""
        metadata = known.tie(row, said)
        if not self._dry_run:
            await memories.update(row.id, metadata=metadata)
            if not said and self._brought(row):
                await memories.forget(row.id)

    def _brought(self, row: Observation) -> bool:
        """Whether it came in with an import like this one; else somebody has said the same, and means it."""
        return row.source == f"import:{self._kind}"

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
                    self.added.add(item.key)
                if each.outcome != "skipped":
                    self.became[item.key] = each.id

    async def _mark(self, memories: Remembering, id_: str, draft: Draft) -> None:
        """Write down where a row came from that was here already, besides where it came from before."""
        marks = dict(draft.metadata or {})
        for row in await memories.get([id_], ask=SENSITIVITIES, count_use=False) if PLACES in marks else ():
            for place, keys in row.metadata.get(PLACES, {}).items():
                marks[PLACES] |= {place: {**keys, **marks[PLACES].get(place, {})}}
        await memories.update(id_, metadata=marks)

    async def _change(self, memories: Remembering, row: Observation, item: Memory) -> None:
        """Bring a memory up to date that says something else in the file by now."""
        self._report.changed += 1
        if not self._dry_run:
            draft = self._marked(item)
            await memories.update(row.id, **{name: getattr(draft, name) for name in _SAID}, metadata=draft.metadata)

    async def known(self, memories: Remembering, namespace: str = "") -> Known:
        """What came from there before, whatever became of it."""
        if namespace not in self._known:
            rows = await memories.every(ask=SENSITIVITIES, statuses=STATUSES, metadata={FROM: self._kind})
            self._known[namespace] = Known(rows)
        return self._known[namespace]

    def _marked(self, item: Memory) -> Draft:
        """What is to be remembered, with where it comes from."""
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
        """How delicate a row is at least."""
        return max(sensitivity, self._sensitivity, key=SENSITIVITIES.index)


def _still_there(said: Said) -> Said:
    return {address: digest for address, digest in said.items() if not is_gone(address[0])}
