"""One run of maintenance: memory fades and grows stronger, what is alike is merged, what was kept for long enough goes.

A run looks at a bounded number of rows, oldest first, and the next one goes on behind them. Each change is decided by
the store at the moment that it is made, each is one line of the journal, and each says who made it and why: a run that
is killed leaves every row either as it was or as it is to be, and the next one finds the rest to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from chatbot.memory.maintenance.alike import Compared, Words, groups
from chatbot.memory.maintenance.merging import Key, digest, kinship, may_be_merged, portions
from chatbot.memory.maintenance.policy import Policy, Rule, Sentence, aged, crowded, days_since, outlived
from chatbot.memory.maintenance.report import Deed, Kind, Report
from chatbot.memory.scope import Scope
from stores.access import SENSITIVITIES
from stores.analysis import terms
from stores.consolidation import Decay, consolidated
from stores.errors import UnknownObservation
from stores.events import Event
from stores.observation import Observation, Status
from stores.query import MOST_AT_ONCE, FactFilter, Filter
from stores.row_state import RowState

logger = logging.getLogger(__name__)

WHO = "maintenance"
_LEAST = 3
"""How many rows are worth a digest."""
_KEPT_WORDS = 20_000
_COMMITTED_AT_ONCE = 32
_ERASED_AT_ONCE = 2_000
_RESTING: tuple[Status, ...] = ("archived", "superseded", "compressed", "expired")
_DAYS_TO_GATHER = (7, 30)
"""Erasing rewrites the journal, so it waits for more: as long again as rows were kept, within these bounds."""


@dataclass(slots=True)
class Findings:
    """What one run leaves to the next to save it work; without it a run does the same."""

    words: dict[str, tuple[str, Words]] = field(default_factory=dict)
    """The words of rows, by id, with the hash of the text that they are of."""
    compared: dict[tuple[Key, float], Compared] = field(default_factory=dict)
    """What was compared, by kinship and similarity."""
    erased_at: datetime | None = None
    """When rows were erased last."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far the last run came: the last active row that it looked at. Of those that rest all are thought of."""

    active: str | None = None


class Run:
    """One run over what `scope` sees. `findings` are kept by the caller from run to run."""

    def __init__(
        self,
        scope: Scope,
        policy: Policy,
        *,
        dry_run: bool = False,
        eager: bool = False,
        findings: Findings | None = None,
    ) -> None:
        self._scope = replace(scope, across=True)
        self._view = self._scope.view(SENSITIVITIES)
        self._policy = policy
        self._dry_run = dry_run
        self._eager = eager
        self._findings = findings or Findings()
        self._deeds: list[Deed] = []
        self._begun = time.monotonic()
        self._looked_at = 0
        self._is_done = True

    async def go(self, place: Place) -> tuple[Report, Place]:
        """Do what is due from `place` on; what was done, and where the next run goes on."""
        active, next_active = await self._rows(self._active(), place.active)
        await self._take(active, self._consolidate, self._retire, self._compress, self._summarize)
        for rule in self._policy.rules:
            await self._delete_resting(rule)
        await self._erase()
        on_time = not self._is_late()
        report = Report(
            deeds=tuple(self._deeds),
            dry_run=self._dry_run,
            looked_at=len(active) + self._looked_at,
            finished=on_time and self._is_done and next_active is None,
            seconds=time.monotonic() - self._begun,
        )
        return report, Place(next_active) if on_time else place

    async def _take(self, rows: list[Observation], *steps: Step) -> None:
        """One step after the other, each with the rows that the one before has left."""
        for step in steps:
            if rows and not self._is_late():
                gone = await step(rows)
                rows = [row for row in rows if row.id not in gone]

    def _active(self) -> Filter:
        """The active rows that something may become of: where memory only fades, those that do."""
        policy = self._policy
        only_fades = policy == policy.only("consolidation")
        return Filter(fading=Decay(self._view.now, policy.decay_per_day)) if only_fades else Filter()

    async def _states(self, wanted: Filter) -> list[RowState]:
        """Where the rows stand that fit, oldest first, none of which is read for that."""
        found: list[RowState] = []
        after = None
        while not self._is_late():
            page = await self._scope.store.states(self._view, wanted, limit=MOST_AT_ONCE, after=after)
            found += page
            if len(page) < MOST_AT_ONCE:
                break
            after = page[-1].id
        return found

    async def _rows(self, wanted: Filter, after: str | None) -> tuple[list[Observation], str | None]:
        """The next rows, oldest first, and where to go on behind them; None at the end."""
        rows: list[Observation] = []
        while (room := self._policy.rows_per_run - len(rows)) > 0:
            try:
                page = await self._scope.store.find(
                    self._view, wanted, order="created", ascending=True, limit=room, after=after
                )
            except UnknownObservation:  # it was erased meanwhile
                if after is None:
                    raise
                after = None
                continue
            rows += page.rows
            after = page.after
            if after is None:
                break
        return rows, after

    async def _consolidate(self, rows: Sequence[Observation]) -> set[str]:
        rate = self._policy.decay_per_day
        now = self._view.now
        ids = [row.id for row in rows if consolidated(row, now, rate) is not None] if rate else []
        parts = [tuple(ids[begin : begin + MOST_AT_ONCE]) for begin in range(0, len(ids), MOST_AT_ONCE)]
        fading = {"decay_per_day": rate}
        await self._do(
            (
                Deed("consolidate", part, "time passed, or they were used"),
                Event(kind="consolidate", at=now, ids=part, fields=fading, who=WHO),
            )
            for part in parts
        )
        return set()

    async def _retire(self, rows: Sequence[Observation]) -> set[str]:
        gone = await self._age(rows)
        left = [row for row in rows if row.id not in gone]
        return gone | await self._carry_out(crowded(left, self._policy))

    async def _age(self, rows: Sequence[Observation]) -> set[str]:
        return await self._carry_out(aged(rows, self._policy, self._view.now))

    async def _delete_resting(self, rule: Rule) -> None:
        """Delete what is no longer active, and kept for long enough."""
        policy, days = self._policy, rule.delete_after_days
        types = policy.types_of(rule)
        if not days or not types:
            return
        wanted = Filter(statuses=_RESTING, types=types, agent_id=rule.agent, quiet_since=self._days_ago(days))
        rows = {row.id: row for row in await self._states(wanted) if rule.namespace in {None, row.namespace}}
        for other in policy.before(rule) if rows else ():
            theirs = await self._states(replace(wanted, types=other.covered_types(), agent_id=other.agent))
            for row in theirs:
                if other.namespace in {None, row.namespace}:
                    rows.pop(row.id, None)
        self._looked_at += len(rows)
        await self._carry_out(outlived(rows.values(), rule))

    async def _carry_out(self, sentences: Iterable[Sentence]) -> set[str]:
        return await self._do(
            (
                Deed(each.fate, each.ids, each.why),
                Event(kind=each.fate, at=self._view.now, ids=each.ids, who=WHO, why=each.why),
            )
            for each in sentences
        )

    async def _compress(self, rows: Sequence[Observation]) -> set[str]:
        policy = self._policy
        if not policy.similarity:
            return set()
        kin: defaultdict[Key, list[Observation]] = defaultdict(list)
        for row in rows:
            if may_be_merged(row) and self._days_old(row) >= policy.compression_min_age_days:
                kin[kinship(row)].append(row)
        compared = self._findings.compared
        for past in compared.keys() - {(each, policy.similarity) for each in kin}:
            del compared[past]
        gone: set[str] = set()
        for key, family in kin.items():
            if len(family) >= _LEAST:
                before = compared.get((key, policy.similarity), {})
                known = {words: [*near] for words, near in before.items()}  # a thread goes on where we are cancelled
                found = await asyncio.to_thread(self._alike, family, known)
                compared[key, policy.similarity] = known
                gone |= await self._merge("compress", found, "memories alike", "alike")
        return gone

    async def _summarize(self, rows: Sequence[Observation]) -> set[str]:
        days = self._policy.summarize_after_days
        if not days:
            return set()
        sessions: defaultdict[tuple[str, Key], list[Observation]] = defaultdict(list)
        for row in rows:
            if row.session_id is not None and may_be_merged(row) and self._days_old(row) >= days:
                sessions[row.session_id, kinship(row)].append(row)
        over = [
            group
            for (session, _), group in sessions.items()
            if len(group) >= _LEAST and await self._is_over(session, days)
        ]
        return await self._merge("summarize", over, "memories of a session", f"a session {days:g} days old")

    async def _is_over(self, session: str, days: float) -> bool:
        wanted = Filter(session_id=session)
        newest = (await self._scope.store.find(self._view, wanted, order="created", limit=1)).rows
        return all(self._days_old(row) >= days for row in newest)

    def _alike(self, rows: Sequence[Observation], known: Compared) -> list[list[Observation]]:
        texts = [self._words_of(row) for row in rows]
        found = groups(texts, self._policy.similarity, least=_LEAST, known=known)
        return [[rows[position] for position in group] for group in found]

    def _words_of(self, row: Observation) -> Words:
        words = self._findings.words
        known = words.get(row.id)
        if known is None or known[0] != row.hash:
            if len(words) >= _KEPT_WORDS:
                words.clear()
            known = words[row.id] = (row.hash, frozenset(terms(row.text())))
        return known[1]

    async def _merge(self, kind: Kind, found: Sequence[Sequence[Observation]], what: str, why: str) -> set[str]:
        """Put digests in the place of rows; those that facts were taken from stay, or the facts would go too."""
        told = await self._with_facts([row.id for rows in found for row in rows])
        free = ([row for row in rows if row.id not in told] for rows in found)
        parts = (part for rows in free for part in portions(rows, least=_LEAST))
        return await self._do(self._merging(kind, part, what, why) for part in parts)

    def _merging(self, kind: Kind, rows: Sequence[Observation], what: str, why: str) -> Change:
        new_id = str(self._scope.new_id())
        row = digest(rows, new_id=new_id, what=what, now=self._view.now)
        event = Event(kind="add", at=self._view.now, row=row, compresses=row.derived_from, who=WHO, why=why)
        return Deed(kind, row.derived_from, why, by=None if self._dry_run else new_id), event

    async def _with_facts(self, ids: Sequence[str]) -> set[str]:
        """Those that facts were taken from."""
        found: set[str] = set()
        left = frozenset(ids)
        while left:
            page = await self._scope.store.facts(self._view, FactFilter(sources=left), limit=MOST_AT_ONCE)
            sources = {fact.source for fact in page if fact.source is not None}
            found |= sources
            left = left - sources if len(page) == MOST_AT_ONCE else frozenset()
        return found

    async def _erase(self) -> None:
        """Erase for good what was deleted or has expired, once some of it has waited for others for long enough."""
        days = self._policy.erase_after_days
        if not days or self._is_late():
            return
        patience = 0 if self._eager else min(max(days, _DAYS_TO_GATHER[0]), _DAYS_TO_GATHER[1])
        wanted = Filter(statuses=("deleted", "expired"), quiet_since=self._days_ago(days + patience))
        erased_at = self._findings.erased_at
        if erased_at is not None and 0 <= days_since(erased_at, self._view.now) < patience:
            return
        if not await self._scope.store.states(self._view, wanted, limit=1):
            return
        rows = await self._states(replace(wanted, quiet_since=self._days_ago(days)))
        self._looked_at += len(rows)
        since = {row.id: days_since(_ended_at(row), self._view.now) for row in rows}
        merged_into = {row.id: row.superseded_by for row in rows if row.superseded_by}
        due = [each for each, past in since.items() if past >= days]
        needed = await self._sources_among(due, merged_into)
        ids = tuple(each for each in due if each not in needed)
        if not ids or max(map(since.__getitem__, ids)) < days + patience:
            return
        why = f"deleted or expired for {days:g} days"
        if not self._dry_run:
            self._is_done = len(ids) <= _ERASED_AT_ONCE
            self._findings.erased_at = self._view.now
            some = ids[:_ERASED_AT_ONCE]
            ids = tuple(await self._scope.store.purge(self._view, some, who=WHO, why=why, alone=True))
        self._deeds.append(Deed("erase", ids, why))

    async def _sources_among(self, ids: Sequence[str], merged_into: Mapping[str, str]) -> set[str]:
        """Those that something was made from which is still there, other than the summary that stands for them."""
        kept: tuple[Status, ...] = ("active", "superseded", "archived", "compressed")
        needed: set[str] = set()
        after = None
        while ids:
            page = await self._scope.store.find(
                self._view, Filter(derived_from=tuple(ids), statuses=kept), limit=MOST_AT_ONCE, after=after
            )
            needed.update(each for row in page.rows for each in row.derived_from if merged_into.get(each) != row.id)
            after = page.after
            if after is None:
                break
        return needed

    async def _do(self, changes: Iterable[Change]) -> set[str]:
        """Make the changes, or only tell of them; the rows of those that the store allows, for others change them.

        Many are committed together, for each commit waits for the disk; not all, for writers wait for it.
        """
        gone: set[str] = set()
        left = iter(changes)
        while not self._is_late() and (some := list(islice(left, _COMMITTED_AT_ONCE))):
            done = [deed for deed, _ in some] if self._dry_run else await self._commit(some)
            for deed in done:
                self._deeds.append(deed)
                gone.update(deed.ids)
        return gone

    async def _commit(self, changes: Sequence[Change]) -> list[Deed]:
        outcomes = await self._scope.store.commit(self._view.asking_all(), [event for _, event in changes])
        done = []
        for (deed, _), outcome in zip(changes, outcomes, strict=True):
            if outcome.kind == "skipped":
                logger.info("maintenance left out to %s %s: %s", deed.kind, ", ".join(deed.ids[:3]), outcome.reason)
            else:
                done.append(deed)
        return done

    def _days_old(self, row: Observation) -> float:
        """Days since it was written or changed."""
        return days_since(max(row.created_at, row.updated_at), self._view.now)

    def _days_ago(self, days: float) -> datetime:
        """When that was, to be sure: a moment later, or the first moment there is."""
        try:
            return self._view.now - timedelta(days=days) + timedelta(seconds=1)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    def _is_late(self) -> bool:
        return time.monotonic() - self._begun > self._policy.seconds_per_run


def _ended_at(row: RowState) -> datetime:
    """When the row was deleted, or its time was over."""
    return row.quiet_since if row.status == "deleted" else max(row.quiet_since, row.expires_at or row.quiet_since)


Change = tuple[Deed, Event]
Step = Callable[[list[Observation]], Awaitable[set[str]]]
"""Takes rows in hand, and tells which of them the next step need not look at."""
