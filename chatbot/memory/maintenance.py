"""Maintenance: strength changes, similar rows are merged, rows past their retention are archived or deleted.

A run reads a bounded number of rows, oldest first, and the next run continues after them. The store decides each change
when it is made, as one line of the journal with author and reason: a killed run leaves every row unchanged or done. Its
progress is a small file, which may be lost; a lease lets one process run at a time.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from chatbot.config import MaintenanceSettings, RetentionSettings
from chatbot.memory.erasure import erase_alone
from chatbot.memory.memorability import content
from chatbot.memory.merging import Key, digest, digest_groups, groups, may_be_merged, merge_key
from chatbot.memory.scope import Scope
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.backend import Place
from chatbot.stores.errors import LaterFormat, UnknownObservation, unknown_choice
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import PROTECTED_TYPES, TYPES, Decay, Observation, RowState, Status, Type, cap_weight
from chatbot.stores.query import EVERY, MOST_AT_ONCE, FactFilter, Filter
from chatbot.stores.records import chunks
from chatbot.stores.row_events import MAINTENANCE, Event
from chatbot.stores.text.analysis import is_question

logger = logging.getLogger(__name__)

_LEAST = 3
"""Minimum number of rows for a digest."""
_LEAST_WORDS = 4
"""Different content words that a row needs to be compared with others: "Sure!" has too few."""
_COMMITTED_AT_ONCE = 32
_ERASED_AT_ONCE = 2_000
_LONG_UNMAINTAINED = timedelta(days=60)
"""Time after the last run from which the clock may have jumped ahead: ages then count until that run."""
_DAYS_TO_GATHER = (7, 30)
"""Bounds of the days that rows are collected before erasing, which rewrites the journal."""

Removal = Literal["archive", "delete"]
Part = Literal["", "consolidation", "compression"]
"""Part of maintenance: empty for all, only changes of strength, or only merging, retention and erasing."""


def _removals(rule: RetentionSettings) -> Iterator[tuple[Removal, float, tuple[Status, ...]]]:
    """Yield the removals that a rule asks for, each with the days before it and the statuses of its rows."""
    if rule.delete_after_days:
        yield "delete", rule.delete_after_days, ("active", "archived", "superseded", "compressed", "expired")
    if rule.archive_after_days:
        yield "archive", rule.archive_after_days, ("active",)


def _covered_types(rule: RetentionSettings) -> tuple[Type, ...]:
    return rule.types or tuple(each for each in TYPES if each not in PROTECTED_TYPES)


def _covers(rule: RetentionSettings, row: Observation) -> bool:
    is_theirs = rule.agent in {None, row.agent_id} and rule.namespace in {None, row.namespace}
    return is_theirs and row.type in _covered_types(rule)


def policy_of_part(policy: MaintenanceSettings, part: Part) -> MaintenanceSettings:
    """Return the policy with only one part of it."""
    if part == "consolidation":
        return replace(policy, similarity=0, summarize_after_days=0, max_per_session=0, erase_after_days=0, rules=())
    return replace(policy, decay_per_day=0) if part == "compression" else policy


Kind = Literal["consolidate", "archive", "delete", "compress", "summarize", "erase"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class RowChange(Struct, frozen=True):
    """Change to some rows, and its reason; `by` is the summary that now replaces them."""

    kind: Kind
    ids: tuple[str, ...]
    why: str
    by: str | None = None


PlannedChange = tuple[RowChange, Event]


def _over_caps(rows: Sequence[Observation], policy: MaintenanceSettings) -> list[RowChange]:
    """Return changes that archive the surplus of active rows, by caps of sessions and, per namespace, of rules."""
    crowds: defaultdict[tuple[int, str, object, str], list[Observation]] = defaultdict(list)
    for row in rows:
        rule = next((each for each in policy.rules if _covers(each, row)), None)
        if rule is not None and rule.max_rows:
            crowds[rule.max_rows, "under one rule", rule, row.namespace].append(row)
        if policy.max_per_session and row.session_id is not None and row.type != "session_summary":
            crowds[policy.max_per_session, "in one session", None, row.session_id].append(row)
    changes: list[RowChange] = []
    gone = set[str]()
    for (cap, what, *_), crowd in crowds.items():
        left = [row for row in crowd if row.id not in gone]
        left.sort(key=lambda row: cap_weight(row.type, row.current_strength, row.use_count + row.mention_count))
        if over := tuple(row.id for row in left[: max(0, len(left) - cap)]):
            changes.append(RowChange("archive", over, f"more than {cap:,} {what}"))
            gone.update(over)
    return changes


def _days_since(then: datetime, now: datetime) -> float:
    """Return the days between; below 0 if the clock was set back."""
    return (now - then).total_seconds() / 86_400


class MaintenanceReport(Struct, frozen=True, kw_only=True):
    """One run of maintenance."""

    dry_run: bool = False
    skipped: Literal["", "under way", "not due"] = ""
    """Why nothing was done: another process runs it, or ran it recently."""
    looked_at: int = 0
    finished: bool = True
    """True if nothing is left to do; else the next run continues where this one ended."""
    seconds: float = 0.0
    changes: tuple[RowChange, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of rows by kind of change."""
        return {kind: sum(len(each.ids) for each in self.changes if each.kind == kind) for kind in KINDS}

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        changes = [asdict(each) | {"ids": list(each.ids), "count": len(each.ids)} for each in self.changes]
        return asdict(self) | {"seconds": round(self.seconds, 4), "counts": self.counts(), "changes": changes}


class Run:
    """One run over the rows that `scope` sees. `do_round` does one round; for a `whole` run its caller repeats it.

    `erased_at` is when rows were last erased, as far as is known; `last`, the run before.
    """

    def __init__(
        self, scope: Scope, options: "MaintenanceOptions", last: "RunPosition", *, erased_at: datetime | None
    ) -> None:
        self._scope = scope.everywhere()
        self._view = self._scope.view(SENSITIVITIES)
        now = self._view.now
        self._aged_at = now if last.done_at is None or now - last.done_at < _LONG_UNMAINTAINED else last.done_at
        self._policy = policy_of_part(options.policy or MaintenanceSettings(), options.part)
        self._dry_run, self._is_whole = options.dry_run, options.whole
        self.erased_at = erased_at
        self.changes: list[RowChange] = []
        self._gone: set[str] = set()
        self._started = self._round_started = time.monotonic()
        self._looked_at = 0
        self._is_first, self._has_rest = True, False
        self.is_finished = False
        """True if the last round left nothing to do."""

    def report(self) -> MaintenanceReport:
        """Return what was done so far."""
        return MaintenanceReport(
            changes=tuple(self.changes),
            dry_run=self._dry_run,
            looked_at=self._looked_at,
            finished=self.is_finished,
            seconds=time.monotonic() - self._started,
        )

    async def do_round(self, after: str | None) -> str | None:
        """Do what is due in one round, reading rows after the row `after`; return the last row that was read.

        Changes of strength and erasing are bounded, retention is not; a dry run does these in its first round only.
        """
        self._round_started, self._has_rest = time.monotonic(), False
        if self._is_first or not self._dry_run:
            await self._consolidate()
            for rule in self._policy.rules:
                await self._retire(rule)
            await self._erase()
        rows, last = await self._rows(after)
        for step in (self._archive_surplus, self._compress, self._summarize):
            rows = [row for row in rows if row.id not in self._gone]
            if rows and not self._is_late():
                await step(rows)
        on_time = not self._is_late()
        self._is_first, self.is_finished = False, on_time and not self._has_rest and last is None
        return last if on_time else after

    async def _states(self, wanted: Filter, most: int = EVERY) -> list[RowState]:
        """Return the states of the rows that fit, oldest first, without reading the rows."""
        found: list[RowState] = []
        after = None
        while (room := min(MOST_AT_ONCE, most - len(found))) > 0 and not self._is_late():
            page = await self._scope.store.states(self._view, wanted, limit=room, after=after)
            found += page
            if len(page) < room:
                break
            after = page[-1].id
        self._looked_at += len(found)
        return found

    async def _rows(self, after: str | None) -> tuple[list[Observation], str | None]:
        """Return the next rows to read, oldest first, and the row to continue after; None at the end."""
        wanted, most = self._filter_to_read(), self._policy.rows_per_run
        if wanted is None:
            return [], None
        try:
            rows = await self._scope.rows(wanted, view=self._view, limit=most, ascending=True, after=after)
        except UnknownObservation:  # it was erased meanwhile
            if after is None:
                raise
            return await self._rows(None)
        self._looked_at += len(rows)
        return rows, rows[-1].id if len(rows) == most else None

    def _filter_to_read(self) -> Filter | None:
        """Return the filter of the rows whose texts or order matter, and must be read; None if none do."""
        policy = self._policy
        if policy.max_per_session or any(rule.max_rows for rule in policy.rules):
            return Filter()
        ages = [policy.compression_min_age_days] if policy.similarity else []
        if policy.summarize_after_days:
            ages.append(policy.summarize_after_days)
        return Filter(before=self._days_ago(min(ages)) + timedelta.resolution) if ages else None  # `before` excludes it

    async def _consolidate(self) -> None:
        if not (rate := self._policy.decay_per_day):
            return
        now = self._view.now
        most = EVERY if self._dry_run and self._is_whole else self._policy.rows_per_run
        ids = [row.id for row in await self._states(Filter(fading=Decay(now, rate)), most)]
        self._has_rest = len(ids) == most  # the next run finds it
        change = RowChange("consolidate", tuple(ids), "time passed, or they were used")
        await self._carry_out("consolidate", [change], decay_per_day=rate)

    async def _retire(self, rule: RetentionSettings) -> None:
        for removal, days, statuses in _removals(rule):
            due = defaultdict[str, list[str]](list)
            for row in await self._untouched_rows(days, rule, statuses):
                if row.id not in self._gone:
                    due[f"{row.type} untouched for {days:g} days"].append(row.id)
            await self._carry_out(removal, [RowChange(removal, tuple(ids), why) for why, ids in due.items()])

    async def _untouched_rows(
        self, days: float, rule: RetentionSettings, statuses: tuple[Status, ...]
    ) -> list[RowState]:
        """Return the rows that the rule applies to: of those that several rules cover, the first rule has all."""
        since, rows = self._days_ago(days), dict[str, RowState]()
        for each in (rule, *takewhile(lambda other: other is not rule, self._policy.rules)):
            wanted = Filter(statuses=statuses, types=_covered_types(each), agent_id=each.agent, quiet_since=since)
            covered = {row.id: row for row in await self._states(wanted) if each.namespace in {None, row.namespace}}
            rows = covered if each is rule else {name: row for name, row in rows.items() if name not in covered}
        return list(rows.values())

    async def _archive_surplus(self, rows: Sequence[Observation]) -> None:
        await self._carry_out("archive", _over_caps(rows, self._policy))

    async def _carry_out(
        self, kind: Removal | Literal["consolidate"], changes: Iterable[RowChange], **fields: float
    ) -> None:
        event = Event(kind=kind, at=self._view.now, fields=fields, who=MAINTENANCE)
        await self._do(
            (replace(change, ids=part), replace(event, ids=part, why=change.why))
            for change in changes
            for part in map(tuple, chunks(change.ids, MOST_AT_ONCE))
        )

    async def _compress(self, rows: Sequence[Observation]) -> None:
        policy = self._policy
        if not policy.similarity:
            return
        mergeable: defaultdict[Key, list[Observation]] = defaultdict(list)
        for row in rows:
            if may_be_merged(row) and self._days_old(row) >= policy.compression_min_age_days:
                mergeable[*merge_key(row), is_question(row.user_text or row.text())].append(row)
        for group in mergeable.values():
            if len(group) >= _LEAST:
                found = await asyncio.to_thread(self._alike, group)
                await self._merge("compress", found, "memories alike", "alike")

    async def _summarize(self, rows: Sequence[Observation]) -> None:
        if not (days := self._policy.summarize_after_days):
            return
        sessions: defaultdict[tuple[str, Key], list[Observation]] = defaultdict(list)
        for row in rows:
            if row.session_id is not None and may_be_merged(row) and self._days_old(row) >= days:
                sessions[row.session_id, merge_key(row)].append(row)
        ended = [
            group
            for (session, _), group in sessions.items()
            if len(group) >= _LEAST and await self._has_ended(session, days)
        ]
        await self._merge("summarize", ended, "memories of a session", f"a session {days:g} days old")

    async def _has_ended(self, session: str, days: float) -> bool:
        wanted = Filter(session_id=session)
        newest = (await self._scope.store.find(self._view, wanted, order="created", limit=1)).rows
        return all(self._days_old(row) >= days for row in newest)

    def _alike(self, rows: Sequence[Observation]) -> list[list[Observation]]:
        texts = [content(row.text()) for row in rows]
        texts = [words if len(words) >= _LEAST_WORDS else frozenset() for words in texts]
        found = groups(texts, self._policy.similarity, least=_LEAST)
        return [[rows[position] for position in group] for group in found]

    async def _merge(self, kind: Kind, found: Sequence[Sequence[Observation]], what: str, why: str) -> None:
        """Replace rows by digests; rows that are sources of facts stay, or the facts would go too."""
        wanted = FactFilter(sources=frozenset(row.id for rows in found for row in rows))
        facts = await self._scope.store.facts(self._view, wanted, limit=EVERY) if wanted.sources else ()
        sources = {fact.source for fact in facts}
        free = ([row for row in rows if row.id not in sources] for rows in found)
        parts = (part for rows in free for part in digest_groups(rows, least=_LEAST))
        await self._do(self._digest_change(kind, part, what, why) for part in parts)

    def _digest_change(self, kind: Kind, rows: Sequence[Observation], what: str, why: str) -> PlannedChange:
        row = digest(rows, new_id=self._scope.environment.new_id(), what=what, now=self._view.now)
        event = Event(kind="add", at=self._view.now, row=row, compresses=row.derived_from, who=MAINTENANCE, why=why)
        return RowChange(kind, row.derived_from, why, by=None if self._dry_run else row.id), event

    async def _erase(self) -> None:
        """Erase up to `_ERASED_AT_ONCE` deleted or expired rows together, once the oldest has waited long enough."""
        days = self._policy.erase_after_days
        if not days or self._is_late():
            return
        gathered_days = 0 if self._is_whole else min(max(days, _DAYS_TO_GATHER[0]), _DAYS_TO_GATHER[1])
        wanted = Filter(statuses=("deleted", "expired"), quiet_since=self._days_ago(days + gathered_days))
        if self.erased_at is not None and 0 <= _days_since(self.erased_at, self._view.now) < gathered_days:
            return
        if not await self._scope.store.states(self._view, wanted, limit=1):
            return
        rows = await self._states(replace(wanted, quiet_since=self._days_ago(days)))
        since = {row.id: _days_since(_ended_at(row), self._aged_at) for row in rows}
        merged_into = {row.id: row.superseded_by for row in rows if row.superseded_by}
        due = [each for each, past in since.items() if past >= days and each not in self._gone]
        needed = await self._sources_among(due, merged_into)
        ids = tuple(each for each in due if each not in needed)
        if not ids or max(map(since.__getitem__, ids)) < days + gathered_days:
            return
        why = f"deleted or expired for {days:g} days"
        if not self._dry_run:
            self._has_rest |= len(ids) > _ERASED_AT_ONCE
            self.erased_at = self._view.now
            some = ids[:_ERASED_AT_ONCE]
            ids = tuple(await erase_alone(self._scope, self._view, some, why))
        self.changes.append(RowChange("erase", ids, why))

    async def _sources_among(self, ids: Sequence[str], merged_into: Mapping[str, str]) -> set[str]:
        """Return the rows that are sources of existing rows, other than of the summary that replaces them."""
        wanted = Filter(derived_from=tuple(ids), statuses=("active", "superseded", "archived", "compressed"))
        rows = await self._scope.rows(wanted, view=self._view) if ids else ()
        return {each for row in rows for each in row.derived_from if merged_into.get(each) != row.id}

    async def _do(self, planned: Iterable[PlannedChange]) -> None:
        """Make the changes that the store allows, or only report them in a dry run."""
        for some in _batches(planned):
            if self._is_late():
                break
            done = [change for change, _ in some] if self._dry_run else await self._commit(some)
            self.changes += done
            self._gone.update(each for change in done if change.kind != "consolidate" for each in change.ids)

    async def _commit(self, planned: Sequence[PlannedChange]) -> list[RowChange]:
        outcomes = await self._scope.store.commit(self._view.asking_all(), [event for _, event in planned])
        done = []
        for (change, _), outcome in zip(planned, outcomes, strict=True):
            if outcome.kind == "skipped":
                logger.info("maintenance could not %s %s: %s", change.kind, ", ".join(change.ids[:3]), outcome.reason)
            else:
                done.append(change)
        return done

    def _days_old(self, row: Observation) -> float:
        return _days_since(max(row.created_at, row.updated_at), self._aged_at)

    def _days_ago(self, days: float) -> datetime:
        """Return the moment `days` ago, or the earliest possible moment."""
        try:
            return self._aged_at - timedelta(days=days)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    def _is_late(self) -> bool:
        return not self._is_whole and time.monotonic() - self._round_started > self._policy.seconds_per_run


def _batches(planned: Iterable[PlannedChange]) -> Iterator[list[PlannedChange]]:
    """Yield batches: each commit waits for the disk, and other writers wait for the commit."""
    batch: list[PlannedChange] = []
    rows = 0
    for change in planned:
        batch.append(change)
        rows += len(change[0].ids)
        if len(batch) == _COMMITTED_AT_ONCE or rows >= MOST_AT_ONCE:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _ended_at(row: RowState) -> datetime:
    return row.quiet_since if row.status == "deleted" else max(row.quiet_since, row.expires_at or row.quiet_since)


NAME = "maintenance.json"
_LEASE = "maintenance"


class MaintenanceOptions(Struct, frozen=True):
    """Options of `MemorySystem.maintain`."""

    policy: MaintenanceSettings | None
    part: Part = ""
    dry_run: bool = False
    unless_within: timedelta = timedelta(0)
    whole: bool = False

    def skipped(self, why: Literal["under way", "not due"]) -> MaintenanceReport:
        """Return the report of a run that does nothing."""
        return MaintenanceReport(dry_run=self.dry_run, skipped=why)


class RunPosition(Struct, frozen=True):
    """When a part of maintenance was done last, and the last row that was read."""

    done_at: datetime | None = None
    last_row: str | None = None

    def is_due(self, now: datetime, every: timedelta) -> bool:
        """Return whether the next run is due, also if the clock was set back before the last run."""
        return self.done_at is None or not timedelta(0) <= now - self.done_at < every


class _Format(Struct, frozen=True):
    v: int = 1


class _File(_Format, frozen=True):
    consolidation: RunPosition = RunPosition()
    compression: RunPosition = RunPosition()
    doubted_at: datetime | None = None
    """When expiries of sessions were doubted first."""


class Upkeep:
    """Runs the maintenance of one memory, in one process at a time."""

    def __init__(self, place: Place) -> None:
        self._document = place.document(NAME)
        self._place = place
        self._erased_at: datetime | None = None
        """When this process erased rows last."""

    async def run(self, scope: Scope, options: MaintenanceOptions) -> MaintenanceReport:
        """Run once, or as often as needed, unless another process runs it or ran it; see `MemorySystem.maintain`."""
        if not _is_due(await asyncio.to_thread(self._read, logging.DEBUG), scope, options):
            return options.skipped("not due")
        lease = self._place.lease(_LEASE)
        try:
            if not await to_its_end(asyncio.to_thread(lease.take)):
                return options.skipped("under way")
            known = await asyncio.to_thread(self._read)
            if not _is_due(known, scope, options):  # another process may just have run
                return options.skipped("not due")
            return await self._run_leased(known, scope, options)
        finally:
            await asyncio.to_thread(lease.release)

    async def doubt(self, expiry: datetime, now: datetime) -> datetime:
        """Return when expiries up to this one were doubted first: now, if they were not, or the clock was set back."""
        known = await asyncio.to_thread(self._read)
        if known.doubted_at is None or not expiry < known.doubted_at <= now:
            await asyncio.to_thread(self._change, doubted_at=now)
            return now
        return known.doubted_at

    def _change(self, *, durable: bool = True, **fields: Any) -> None:
        """Set fields in the file as it is now: `run` and `doubt` may write at the same time."""

        def changed(data: bytes | None) -> bytes:
            return msgspec.json.encode(replace(_parsed(lambda: data, logging.DEBUG), **fields))

        self._document.change(changed, durable=durable)

    def _read(self, level: int = logging.WARNING) -> _File:
        return _parsed(self._document.read, level)

    async def _run_leased(self, known: _File, scope: Scope, options: MaintenanceOptions) -> MaintenanceReport:
        known_run = _last_run(known, options.part)
        after = None if options.whole else known_run.last_row
        run = Run(scope, options, known_run, erased_at=self._erased_at)
        while True:
            before, last = len(run.changes), await run.do_round(after)
            self._erased_at = run.erased_at
            if not options.dry_run:
                await self._keep(options.part, RunPosition(scope.clock(), last))
            is_stuck = last == after and (options.dry_run or len(run.changes) == before)
            if run.is_finished or is_stuck or not options.whole:
                return run.report()
            after = last

    async def _keep(self, part: Part, position: RunPosition) -> None:
        """Record the position for the next run; a run of all parts counts for each part."""
        positions: dict[str, RunPosition] = dict.fromkeys(_parts(part), position)
        await asyncio.to_thread(self._change, durable=False, **positions)


def _parsed(read: Callable[[], bytes | None], level: int = logging.WARNING) -> _File:
    """Return the content of the file; one that is damaged is as none, and logged. Raises `LaterFormat`."""
    found, form = _File(), _Format()
    try:
        data = read() or b"{}"
        form = msgspec.json.decode(data, type=_Format)
        found = msgspec.json.decode(data, type=_File)
    except (OSError, ValueError, RecursionError) as error:
        logger.log(level, "%s cannot be read, so maintenance begins again at the oldest row: %s", NAME, error)
    if form.v > _Format().v:
        raise LaterFormat(f"{NAME} was written by a later release: upgrade chatbot to maintain this memory")
    return found


def _is_due(known: _File, scope: Scope, options: MaintenanceOptions) -> bool:
    return _last_run(known, options.part).is_due(scope.clock(), options.unless_within)


def _last_run(known: _File, part: Part) -> RunPosition:
    """Return the position of a part, or of all parts if they were run together."""
    found: list[RunPosition] = [getattr(known, each) for each in _parts(part)]
    return found[0] if found[0] == found[-1] else RunPosition()


def _parts(part: Part) -> tuple[Part, ...]:
    if part not in (known := get_args(Part)):
        raise unknown_choice("part", part, known)
    return (part,) if part else known[1:]
