"""From facts to what is remembered: known already, compared, added, and what they take the place of.

Two steps. `plan` asks models and changes nothing; `apply` asks nobody and changes everything at once. What became stale
in between is left alone, and its fact is added. A model decides neither who sees a row nor how delicate it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from chatbot.memory.remembering import Remembering
from chatbot.memory.writing import Draft, Remembered
from chatbot.pipeline.by_model.errands import Errand
from chatbot.pipeline.by_model.facts import Fact
from chatbot.pipeline.by_model.reconciliation import candidates_for, reconcile
from chatbot.pipeline.by_model.superseding import outdated_by
from stores.access import CLEARANCES, Clearance, Guard
from stores.observation import PROTECTED_TYPES, Observation, fold

SOURCE = "extraction"
_SAME_SUBJECT = 50
"""How many facts on a subject are looked through for one that says the same."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What facts were taken from: who remembers them, as strict as what, from which rows, said when."""

    agent_id: str
    guard: Guard
    derived_from: tuple[str, ...] = ()
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with a fact: `target` is taken the place of, or forgotten, or says the same already."""

    fact: Fact
    action: str = "add"
    target: Observation | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of a fact: its observation, if there is one now, and the one that it changed."""

    fact: Fact
    outcome: str
    id: str = ""
    changed: str = ""
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it stands in a receipt."""
        told = {"outcome": self.outcome, "id": self.id, "changed": self.changed, "reason": self.reason}
        return {name: value for name, value in told.items() if value}


async def plan(facts: Sequence[Fact], memories: Remembering, errand: Errand, origin: Origin) -> list[Step]:
    """What to do with each fact, in their order. Raises what asking a model raises, and `StoreError`."""
    settings = errand.clerk.settings
    place: dict[str, Any] = {"agent_id": origin.agent_id, "visibility": origin.guard.visibility}
    steps = [Step(fact, "known" if await _is_known(fact, memories, origin) else "add") for fact in facts]
    if settings.reconcile:
        fresh = _waiting(steps)
        candidates = await candidates_for([steps[at].fact for at in fresh], memories, **place)
        decisions = await reconcile(errand, [steps[at].fact for at in fresh], candidates)
        for at, decision in zip(fresh, decisions, strict=True):
            if decision.memory is not None:
                steps[at] = replace(steps[at], action=decision.action.lower(), target=candidates.rows[decision.memory])
    if settings.supersede:
        fresh = _waiting(steps)
        taken = {step.target.id for step in steps if step.target}
        for at, old in zip(fresh, await outdated_by([steps[at].fact for at in fresh], memories, **place), strict=True):
            if old is not None and old.id not in taken:
                steps[at] = replace(steps[at], action="update", target=old)
    return steps


async def apply(steps: Sequence[Step], memories: Remembering, origin: Origin) -> list[Learned]:
    """Do what is planned; what became of each fact, in their order. Asks no model."""
    targets = [step.target.id for step in steps if step.target]
    now = {row.id: row.hash for row in await memories.get(targets, count_use=False)} if targets else {}
    steps = [
        step if step.target is None or now.get(step.target.id) == step.target.hash else _added(step) for step in steps
    ]
    kept = iter(await memories.remember_all(map(_draft_of(origin), _kept(steps)), keep_going=True))
    return [await _finish(step, None if step.action == "none" else next(kept), memories, origin) for step in steps]


async def _finish(step: Step, kept: Remembered | None, memories: Remembering, origin: Origin) -> Learned:
    """What became of one step, after all drafts were committed together."""
    changed = step.target.id if step.target else ""
    if kept is None:
        return Learned(step.fact, "known", changed)
    if kept.outcome == "skipped" and step.target:  # the store allows no such change: then it is an addition
        [kept] = await memories.remember_all([_draft_of(origin)(_added(step))], keep_going=True)
        return Learned(step.fact, kept.outcome, kept.id, reason=kept.reason)
    if kept.outcome == "skipped":
        return Learned(step.fact, kept.outcome, reason=kept.reason)
    return Learned(step.fact, kept.outcome, kept.id, changed if changed != kept.id else "", kept.reason)


def _draft_of(origin: Origin) -> Any:
    def draft(step: Step) -> Draft:
        fact, guard = step.fact, origin.guard
        target = step.target.id if step.target else None
        needed = [guard.min_clearance, *([step.target.min_clearance] if step.target else [])]
        return Draft(
            title=fact.content,
            subject=fact.subject,
            category=fact.category,
            type=fact.type,
            importance=0.6 if fact.type in PROTECTED_TYPES else 0.5,
            source=SOURCE,
            visibility=guard.visibility,
            sensitivity=guard.sensitivity,
            min_clearance=_highest(needed),
            created_at=origin.said_at,
            derived_from=origin.derived_from,
            supersedes=target if step.action == "update" else None,
            forgets=target if step.action == "delete" else None,
        )

    return draft


async def _is_known(fact: Fact, memories: Remembering, origin: Origin) -> bool:
    """Whether one on the same subject says just that: then no model needs to look at it."""
    if not fact.subject:
        return False
    page = await memories.list_observations(
        subject=fact.subject,
        agent_id=origin.agent_id,
        visibilities=(origin.guard.visibility,),
        limit=_SAME_SUBJECT,
    )
    return any(fold(row.title) == fold(fact.content) for row in page.rows)


def _waiting(steps: Sequence[Step]) -> list[int]:
    return [at for at, step in enumerate(steps) if step.action == "add"]


def _kept(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.action != "none"]


def _added(step: Step) -> Step:
    return Step(step.fact)


def _highest(clearances: Sequence[Clearance]) -> Clearance:
    return min(clearances, key=CLEARANCES.index)
