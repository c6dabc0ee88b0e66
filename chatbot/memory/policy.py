"""Policy of maintenance, `[maintenance]`: which rows are kept for how long; and the report of a run. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from chatbot.config import MaintenanceSettings, RetentionSettings
from chatbot.stores.observation import PROTECTED_TYPES, TYPES, Observation, RowState, Status, Type, cap_weight

Fate = Literal["archive", "delete"]
RESTING: tuple[Status, ...] = ("archived", "superseded", "compressed", "expired")
Part = Literal["", "consolidation", "compression"]
"""Part of maintenance: empty for all, only changes of strength, or only merging, retention and erasing."""


def fates(rule: RetentionSettings) -> Iterator[tuple[Fate, float, tuple[Status, ...]]]:
    """Yield each fate of the rule's rows, the days until then, and the statuses to which it applies."""
    if rule.delete_after_days:
        yield "delete", rule.delete_after_days, ("active", *RESTING)
    if rule.archive_after_days:
        yield "archive", rule.archive_after_days, ("active",)


def covered_types(rule: RetentionSettings) -> tuple[Type, ...]:
    """Return the types of rows that a rule covers."""
    return rule.types or tuple(each for each in TYPES if each not in PROTECTED_TYPES)


def _is_whole(rule: RetentionSettings) -> bool:
    """Return whether the rule covers all rows of its types."""
    return rule.agent is None is rule.namespace


def _covers(rule: RetentionSettings, row: Observation) -> bool:
    is_of_whom = rule.agent in {None, row.agent_id} and rule.namespace in {None, row.namespace}
    return is_of_whom and row.type in covered_types(rule)


def only(policy: MaintenanceSettings, part: Part) -> MaintenanceSettings:
    """Return the policy with only one part of it."""
    if part == "consolidation":
        return replace(policy, similarity=0, summarize_after_days=0, max_per_session=0, erase_after_days=0, rules=())
    return replace(policy, decay_per_day=0) if part == "compression" else policy


def types_of(policy: MaintenanceSettings, rule: RetentionSettings) -> tuple[Type, ...]:
    """Return the types that a rule can apply to: those that no earlier rule covers completely."""
    whole = filter(_is_whole, _before(policy, rule))
    taken = {each for other in whole for each in covered_types(other)}
    return tuple(each for each in covered_types(rule) if each not in taken)


def exceptions(policy: MaintenanceSettings, rule: RetentionSettings) -> list[RetentionSettings]:
    """Return the earlier rules that cover some of the rows of a rule's types."""
    types = set(types_of(policy, rule))
    return [
        other for other in _before(policy, rule) if not (_is_whole(other) or types.isdisjoint(covered_types(other)))
    ]


def _before(policy: MaintenanceSettings, rule: RetentionSettings) -> Iterable[RetentionSettings]:
    return takewhile(lambda other: other is not rule, policy.rules)


Kind = Literal["consolidate", "archive", "delete", "compress", "summarize", "erase"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Deed(Struct, frozen=True):
    """Change to some rows, and its reason; `by` is the summary that now replaces them."""

    kind: Kind
    ids: tuple[str, ...]
    why: str
    by: str | None = None


def outlived(rows: Iterable[RowState], fate: Fate, days: float) -> list[Deed]:
    """Return the changes that are due for rows that were untouched for `days`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[f"{row.type} untouched for {days:g} days"].append(row.id)
    return [Deed(fate, tuple(ids), why) for why, ids in found.items()]


def crowded(rows: Sequence[Observation], policy: MaintenanceSettings) -> list[Deed]:
    """Return which active rows to archive, in their order, so that the caps of rules and sessions hold.

    A rule's cap applies to each namespace separately: one user's rows never displace another's.
    """
    crowds: defaultdict[tuple[int, str, object, str], list[Observation]] = defaultdict(list)
    for row in rows:
        rule = next((each for each in policy.rules if _covers(each, row)), None)
        if rule is not None and rule.max_rows:
            crowds[rule.max_rows, "by the rule of their type", rule, row.namespace].append(row)
        if policy.max_per_session and row.session_id is not None and row.type != "session_summary":
            crowds[policy.max_per_session, "in one session", None, row.session_id].append(row)
    return [deed for (cap, what, *_), crowd in crowds.items() for deed in _over(crowd, cap, what)]


def days_since(then: datetime, now: datetime) -> float:
    """Return the days between; below 0 if the clock was set back."""
    return (now - then).total_seconds() / 86_400


def _over(rows: Sequence[Observation], cap: int, what: str) -> list[Deed]:
    by_weight = sorted(rows, key=lambda row: cap_weight(row.type, row.standing, row.use_count + row.mention_count))
    ids = tuple(row.id for row in by_weight[: max(0, len(rows) - cap)])
    return [Deed("archive", ids, f"more than {cap:,} {what}")] if ids else []


class MaintenanceReport(Struct, frozen=True, kw_only=True):
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
        """Number of rows by kind of change."""
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
