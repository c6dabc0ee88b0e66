"""Policy of maintenance: how fast memories fade, which are merged, and how long rows are kept. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from chatbot.stores.caps import surplus, weigh
from chatbot.stores.observation import PROTECTED_TYPES, TYPES, Observation, RowState, Status, Type

if TYPE_CHECKING:
    from chatbot.config import MaintenanceSettings

Fate = Literal["archive", "delete"]
RESTING: tuple[Status, ...] = ("archived", "superseded", "compressed", "expired")
Part = Literal["", "consolidation", "compression"]
"""All of maintenance, changes of strength alone, or merging, retention and erasing alone."""


class RetentionRule(Struct, frozen=True, kw_only=True):
    """Limits on the age and number of rows. Days count since a row was last written or used; 0: without limit.

    Without `types` it covers all types that are not protected; None as `agent` or `namespace` covers all of them.
    """

    types: tuple[str, ...] = ()
    agent: str | None = None
    namespace: str | None = None
    archive_after_days: float = 0
    delete_after_days: float = 0
    max_rows: int = 0
    """Number of active rows; the least important others are archived."""

    def covered_types(self) -> tuple[Type, ...]:
        """Return the types of rows that it covers."""
        return tuple(filter(self._is_about, TYPES))

    @property
    def is_whole(self) -> bool:
        """Return whether the rule covers all rows of its types."""
        return self.agent is None is self.namespace

    def fates(self) -> Iterator[tuple[Fate, float, tuple[Status, ...]]]:
        """Yield each fate of the rule's rows, after how many days it comes, and the statuses to which it applies."""
        if self.delete_after_days:
            yield "delete", self.delete_after_days, ("active", *RESTING)
        if self.archive_after_days:
            yield "archive", self.archive_after_days, ("active",)

    def covers(self, row: Observation) -> bool:
        """Return whether the rule covers the row."""
        return (
            self._is_about(row.type) and self.agent in {None, row.agent_id} and self.namespace in {None, row.namespace}
        )

    def _is_about(self, type_: Type) -> bool:
        return type_ in self.types if self.types else type_ not in PROTECTED_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of maintenance; the first rule that covers a row applies. 0 turns a step off."""

    decay_per_day: float = 0.05
    compression_min_age_days: float = 7
    similarity: float = 0.5
    """Share of common words from which rows are merged; 0 merges none."""
    summarize_after_days: float = 0
    """Days after its last row at which a session's remaining rows become one digest."""
    max_per_session: int = 0
    """Number of rows of a session that stay active."""
    erase_after_days: float = 0
    """Days after which deleted and expired rows are deleted permanently."""
    rules: tuple[RetentionRule, ...] = ()
    rows_per_run: int = 2_000
    """Rows read and rows decayed in one run; the next run continues after them."""
    seconds_per_run: float = 2.0
    """Time after which a run starts nothing more; the next run continues."""

    def only(self, part: Part) -> Policy:
        """Return the policy with one part alone."""
        if part == "consolidation":
            return replace(self, similarity=0, summarize_after_days=0, max_per_session=0, erase_after_days=0, rules=())
        return replace(self, decay_per_day=0) if part == "compression" else self

    def rule_for(self, row: Observation) -> RetentionRule | None:
        """The rule that holds for the row."""
        return next((rule for rule in self.rules if rule.covers(row)), None)

    def types_of(self, rule: RetentionRule) -> tuple[Type, ...]:
        """Return the types that the rule covers and no earlier rule covers whole."""
        whole = (other for other in self._before(rule) if other.is_whole)
        taken = {each for other in whole for each in other.covered_types()}
        return tuple(each for each in rule.covered_types() if each not in taken)

    def exceptions(self, rule: RetentionRule) -> list[RetentionRule]:
        """Return the earlier rules that cover some rows of these types."""
        types = set(self.types_of(rule))
        return [
            other for other in self._before(rule) if not (other.is_whole or types.isdisjoint(other.covered_types()))
        ]

    def _before(self, rule: RetentionRule) -> Iterable[RetentionRule]:
        return takewhile(lambda other: other is not rule, self.rules)


class RowDecision(Struct, frozen=True):
    """Decision about rows: their fate, and the reason."""

    fate: Fate
    ids: tuple[str, ...]
    why: str


def configured(settings: MaintenanceSettings) -> Policy:
    """The policy that the configuration asks for."""
    given = asdict(settings)
    del given["consolidate_every_hours"], given["compress_every_hours"]
    return Policy(**given | {"rules": tuple(RetentionRule(**asdict(rule)) for rule in settings.rules)})


def outlived(rows: Iterable[RowState], fate: Fate, days: float) -> list[RowDecision]:
    """Return the decisions about rows that were untouched for so many days."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[f"{row.type} untouched for {days:g} days"].append(row.id)
    return [RowDecision(fate, tuple(ids), why) for why, ids in found.items()]


def crowded(rows: Sequence[Observation], policy: Policy) -> list[RowDecision]:
    """Return which active rows to archive, in their order, to keep the caps of rules and sessions.

    A rule's cap applies to each namespace by itself: one user's rows displace none of another.
    """
    sentences = []
    for rule in policy.rules:
        if rule.max_rows:
            covered: defaultdict[str, list[Observation]] = defaultdict(list)
            for row in rows:
                if policy.rule_for(row) == rule:
                    covered[row.namespace].append(row)
            for of_one in covered.values():
                sentences += _over(of_one, rule.max_rows, "by the rule of their type")
    if policy.max_per_session:
        sessions: defaultdict[str, list[Observation]] = defaultdict(list)
        for row in rows:
            if row.session_id is not None and row.type != "session_summary":
                sessions[row.session_id].append(row)
        for of_one in sessions.values():
            sentences += _over(of_one, policy.max_per_session, "in one session")
    return sentences


def days_since(then: datetime, now: datetime) -> float:
    """Return the days between; below 0 if the clock was set back."""
    return (now - then).total_seconds() / 86_400


def _over(rows: Sequence[Observation], cap: int, what: str) -> list[RowDecision]:
    ids = surplus((weigh(row, number) for number, row in enumerate(rows)), cap)
    return [RowDecision("archive", tuple(ids), f"more than {cap:,} {what}")] if ids else []


Kind = Literal["consolidate", "archive", "delete", "compress", "summarize", "erase"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Deed(Struct, frozen=True):
    """Change to some rows, and its reason; `by` is the summary that now replaces them."""

    kind: Kind
    ids: tuple[str, ...]
    why: str
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """One run of maintenance."""

    deeds: tuple[Deed, ...] = ()
    dry_run: bool = False
    looked_at: int = 0
    finished: bool = True
    """True if nothing is left to do; else the next run continues where this one ended."""
    seconds: float = 0.0
    skipped: Literal["", "under way", "not due"] = ""
    """Why nothing was done: another process runs it, or ran it recently."""

    def counts(self) -> Mapping[str, int]:
        """Number of rows for each kind of deed."""
        found = Counter[str]()
        for deed in self.deeds:
            found[deed.kind] += len(deed.ids)
        return {kind: found[kind] for kind in KINDS}

    def as_json(self) -> dict[str, Any]:
        """The report, for programs."""
        return {
            "dry_run": self.dry_run,
            "skipped": self.skipped,
            "looked_at": self.looked_at,
            "finished": self.finished,
            "seconds": round(self.seconds, 4),
            "counts": dict(self.counts()),
            "deeds": [
                {"kind": deed.kind, "count": len(deed.ids), "why": deed.why, "by": deed.by, "ids": list(deed.ids)}
                for deed in self.deeds
            ],
        }


def together(reports: Sequence[MaintenanceReport]) -> MaintenanceReport:
    """Return the report of several runs as one."""
    return MaintenanceReport(
        deeds=tuple(deed for report in reports for deed in report.deeds),
        dry_run=reports[-1].dry_run,
        looked_at=sum(report.looked_at for report in reports),
        finished=reports[-1].finished,
        seconds=sum(report.seconds for report in reports),
    )
