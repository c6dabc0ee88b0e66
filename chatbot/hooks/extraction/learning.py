"""Remember the facts of an exchange: extract them, compare them with known facts, add new and replace outdated ones.

`plan` asks models and changes nothing; `apply` makes all changes at once without a model. A target that changed in
between is left alone, and its fact is added. A model decides neither who sees a row nor how sensitive it is. Facts of
an exchange that was taken back, forgotten or hidden meanwhile are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from msgspec import structs

from chatbot.chat.calls import Calls
from chatbot.config import ExtractionSettings
from chatbot.hooks.extraction.facts import FACT_TYPES, ExtractedFact, FactList, candidates_for, extract, reconcile
from chatbot.memory import SessionHandle
from chatbot.memory.memory import Memory
from chatbot.memory.profile_lines import is_proposable
from chatbot.memory.writing import AddResult, Draft
from chatbot.stores.access import CLEARANCES, Guard, Sensitivity, Visibility, fold
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import PROTECTED_TYPES, Observation
from chatbot.stores.query import Filter
from chatbot.stores.text.analysis import terms

SOURCE = "extraction"
FROM_REPLY = "extraction:reply"
"""Source of a fact with words of the bot that the person did not use: it replaces no other."""
_SAME_SUBJECT = 50
"""Maximum facts on a subject that are compared with a new one."""
_SAID_AT_ONCE = 5
"""Maximum rows with the time of one message."""
_ALIKE = 0.85
"""Minimum cosine at which a fact replaces another: two such facts mean nearly the same, and the newer one updates."""
_NEAREST = 10
"""Rows that are compared with a fact by their cosines."""


@dataclass(frozen=True, slots=True)
class TurnText:
    """The texts of a turn that began at time `at`, and the rows in its prompt."""

    at: datetime
    text: str
    reply: str
    recalled: Sequence[Observation] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of facts: who remembers them, how strict they are, the rows they come from, when they were said."""

    agent_id: str
    guard: Guard
    derived_from: tuple[str, ...] = ()
    said_at: datetime | None = None
    own: str = ""
    """The words of the person."""
    reply: str = ""
    """The words of the bot, which may repeat a tool or a page."""

    def is_of_bot(self, fact: ExtractedFact) -> bool:
        """Return whether a fact uses words of the bot that the person did not use."""
        words = set(terms(f"{fact.content} {fact.subject}"))
        return not words.isdisjoint(set(terms(self.reply)) - set(terms(self.own)))


@dataclass(frozen=True, slots=True)
class FactStep:
    """A planned change for a fact: `target` is the row that it replaces, denies or repeats."""

    fact: ExtractedFact
    action: str = "add"
    """An `Action` of a model in lower case; or `known`: the fact is added again, which counts as a mention."""
    target: Observation | None = None


@dataclass(frozen=True, slots=True)
class FactOutcome:
    """The outcome for a fact: the id of its observation, if any, and of the one it changed."""

    fact: ExtractedFact
    outcome: str
    id: str = ""
    changed: str = ""
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON for a receipt."""
        fields = {"outcome": self.outcome, "id": self.id, "changed": self.changed, "reason": self.reason}
        return {name: value for name, value in fields.items() if value}


async def learn_from(
    turn: TurnText, session: SessionHandle, calls: Calls, settings: ExtractionSettings
) -> tuple[FactList, Sequence[FactOutcome]]:
    """Extract the facts of an exchange and remember them; return the facts, and the outcomes of those remembered.

    Facts are as strict as the observation that keeps the exchange. Without one it was small talk, and no model is
    asked. Raises a `ModelError`, `BudgetExceeded` or `StoreError`; then nothing is kept.
    """
    sensitivities = calls.model.disclosure.sent
    source = await _source(turn, session, sensitivities)
    if source is None:
        return FactList(), ()
    extracted = await extract(calls, [("person said", turn.text), ("bot replied", turn.reply)], at=turn.at)
    extracted = extracted.without_recalled(turn.text, turn.recalled)
    if not extracted.facts:
        return extracted, ()
    origin = Origin(session.agent_id, Guard.of(source), (source.id,), turn.at, turn.text, turn.reply)
    steps = await plan(extracted.facts, session.memory, calls, origin, settings)
    async with session.hold_turn():  # the exchange cannot be undone while its facts are written
        if await _source(turn, session, sensitivities) is None:
            return extracted, ()
        outcomes = await to_its_end(apply(steps, session.memory, origin))
        stated = [(fact.key, fact.value) for fact in extracted.facts if fact.key and fact.value]
        await session.memory.profile_learn(stated, source.id, turn.at)
        return extracted, outcomes


async def plan(
    facts: Sequence[ExtractedFact], memories: Memory, calls: Calls, origin: Origin, settings: ExtractionSettings
) -> list[FactStep]:
    """Plan a step for each fact, in their order. Raises the errors of a model call, and `StoreError`.

    A fact in the bot's words changes no other: it is added.
    """
    place: dict[str, Any] = {"agent_id": origin.agent_id, "visibility": origin.guard.visibility}
    steps = [FactStep(fact, "known" if await _is_known(fact, memories, origin) else "add") for fact in facts]
    if settings.reconcile:
        fresh = _comparable(steps, origin)
        candidates = await candidates_for([steps[at].fact for at in fresh], memories, **place)
        if not calls.discloses(candidates.rows):
            candidates = replace(candidates, rows=())
        decisions = await reconcile(calls, [steps[at].fact for at in fresh], candidates)
        for at, decision in zip(fresh, decisions, strict=True):
            if decision.memory is not None:
                steps[at] = replace(steps[at], action=decision.action.lower(), target=candidates.rows[decision.memory])
    if settings.supersede:
        fresh = _comparable(steps, origin)
        taken = {step.target.id for step in steps if step.target}
        for at, old in zip(fresh, await _outdated_by([steps[at].fact for at in fresh], memories, **place), strict=True):
            if old is not None and old.id not in taken:
                steps[at] = replace(steps[at], action="update", target=old)
    return steps


async def apply(steps: Sequence[FactStep], memories: Memory, origin: Origin) -> list[FactOutcome]:
    """Make the planned changes; return the outcome for each fact, in order. Asks no model."""
    targets = [step.target.id for step in steps if step.target]
    hashes = {row.id: row.hash for row in await memories.get(targets, count_use=False)} if targets else {}
    steps = [
        step if step.target is None or hashes.get(step.target.id) == step.target.hash else FactStep(step.fact)
        for step in steps
    ]
    kept = iter(
        await memories.remember_all((_draft(step, origin) for step in steps if step.action != "none"), keep_going=True)
    )
    return [await _finish(step, None if step.action == "none" else next(kept), memories, origin) for step in steps]


async def _finish(step: FactStep, kept: AddResult | None, memories: Memory, origin: Origin) -> FactOutcome:
    """Return the outcome of one step, after all drafts were committed together."""
    changed = step.target.id if step.target else ""
    if kept is None:
        return FactOutcome(step.fact, "known", id=changed)
    if kept.outcome == "skipped":
        changed = ""
        if step.target:  # the store refused the change: add the fact
            [kept] = await memories.remember_all([_draft(FactStep(step.fact), origin)], keep_going=True)
    return FactOutcome(step.fact, kept.outcome, kept.id, changed if changed != kept.id else "", kept.reason)


def _draft(step: FactStep, origin: Origin) -> Draft:
    fact, guard = step.fact, origin.guard
    target = step.target.id if step.target else None
    needed = [guard.min_clearance, *([step.target.min_clearance] if step.target else [])]
    return Draft(
        title=fact.content,
        subject=fact.subject,
        category=fact.category,
        type=fact.type,
        importance=0.6 if fact.type in PROTECTED_TYPES else 0.5,
        source=FROM_REPLY if origin.is_of_bot(fact) else SOURCE,
        visibility=guard.visibility,
        sensitivity=guard.sensitivity,
        min_clearance=min(needed, key=CLEARANCES.index),
        created_at=origin.said_at,
        derived_from=origin.derived_from,
        supersedes=target if step.action == "update" else None,
        forgets=target if step.action == "delete" else None,
    )


async def _is_known(fact: ExtractedFact, memories: Memory, origin: Origin) -> bool:
    """Return whether a row on the same subject has the same text: then no model is asked."""
    if not fact.subject:
        return False
    page = await memories.list_observations(
        subject=fact.subject, agent_id=origin.agent_id, visibilities=(origin.guard.visibility,), limit=_SAME_SUBJECT
    )
    return any(fold(row.title) == fold(fact.content) for row in page.rows)


def _comparable(steps: Sequence[FactStep], origin: Origin) -> list[int]:
    """Return the positions of the steps whose facts are new and may change others."""
    return [at for at, step in enumerate(steps) if step.action == "add" and not origin.is_of_bot(step.fact)]


async def _outdated_by(
    facts: Sequence[ExtractedFact], memories: Memory, *, agent_id: str, visibility: Visibility
) -> list[Observation | None]:
    """Return for each fact the current row that it should replace, if there is one; no row twice.

    Called before the facts are added, so that no fact finds itself, or another of its batch. Rows without a
    vector are not found. The store checks that metadata does not conflict. One call of the embedder, none if
    no fact has a subject.
    """
    wanted = Filter(types=FACT_TYPES, agent_id=agent_id, visibilities=(visibility,))
    about = {at: fact for at, fact in enumerate(facts) if fact.subject}
    asked = [(fact.content, structs.replace(wanted, subject=fact.subject)) for fact in about.values()]
    found = await memories.nearest(asked, limit=_NEAREST)
    outdated: list[Observation | None] = [None] * len(facts)
    taken: set[str] = set()
    for at, hits in zip(about, found, strict=True):
        best = next((hit for hit in hits if not is_proposable(hit.observation)), None)
        if best is not None and best.score >= _ALIKE and best.observation.id not in taken:
            taken.add(best.observation.id)
            outdated[at] = best.observation
    return outdated


async def _source(turn: TurnText, session: SessionHandle, sensitivities: Sequence[Sensitivity]) -> Observation | None:
    """Return the observation of the exchange, if there is one that may be sent to the model."""
    page = await session.memory.list_observations(
        types=("exchange",),
        session_id=session.id,
        agent_id=session.agent_id,
        after=turn.at,
        order="created",
        ascending=True,
        limit=_SAID_AT_ONCE,
        sensitivities=sensitivities,
    )
    return next((row for row in page.rows if row.created_at == turn.at), None)
