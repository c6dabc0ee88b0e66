"""Facts, and the people whom observations name: an index that is folded from what is remembered.

A fact is a triple of subject, predicate and object, with a confidence and, where there is one, its source.

That two names are one person is a fact like any other, with the predicate `also known as`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from chatbot.memory.inputs import takes
from chatbot.memory.scope import PUBLIC, Scope, ScopedOperations, Sensitivities
from chatbot.redaction import redact_all
from chatbot.stores.access import SENSITIVITIES, Sensitivity, Visibility, default_visibility
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.fields import fold
from chatbot.stores.observation import Triple
from chatbot.stores.query import EVERY, Facet, FactFilter, check_limit
from chatbot.stores.records import format_time
from chatbot.stores.row_events import Event

_FILTERED = tuple(each.name for each in fields(FactFilter))


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery(FactFilter):
    """Filter of facts, and their largest number."""

    limit: int = 100
    ask: Sensitivities = PUBLIC
    as_of: datetime | None = None
    """Facts that were stated by then; one that was taken back is never among them."""
    known_at: datetime | None = None
    """The same."""


class Facts(ScopedOperations):
    """Stating, asking for and taking back facts."""

    __slots__ = ()

    async def store_fact(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 - the third part of a triple is called that
        *,
        confidence: float = 1.0,
        source: str | None = None,
        visibility: Visibility | None = None,
        sensitivity: Sensitivity = "public",
    ) -> Triple:
        """State a fact, and return it; the same again is counted. One with a source is as strict and current as that.

        Raises `InvalidValue`, `UnknownObservation` for the source, or `AccessDenied`.
        """
        scope = self.scope
        said, _ = redact_all((subject, predicate, object))
        fact = Triple(
            id=str(scope.environment.new_id()),
            subject=said[0],
            predicate=said[1],
            object=said[2],
            created_at=scope.clock(),
            confidence=confidence,
            source=source,
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            namespace=scope.caller.namespace,
            principal=scope.caller.principal,
            visibility=visibility or default_visibility(scope.caller.clearance),
            sensitivity=scope.caller.at_least(sensitivity),
        )
        wanted = FactFilter(source=source, subject=fact.subject, predicate=fact.predicate, object=fact.object)
        for each in await scope.store.facts(scope.acting(SENSITIVITIES), wanted, limit=EVERY):
            if _is_of(each) == _is_of(fact):
                fact = replace(each, count=each.count + 1, confidence=max(each.confidence, confidence))
                break
        await scope.commit(Event(kind="triple", at=scope.clock(), triple=fact, who=scope.agent_id))
        kept = await scope.store.facts(scope.acting(SENSITIVITIES), wanted, limit=EVERY) if source else [fact]
        return next((each for each in kept if each.id == fact.id), fact)

    @takes(FactQuery, "facts cannot be filtered by")
    async def query_facts(self, asked: FactQuery) -> list[Triple]:
        """Facts that fit, newest first; the parameters are those of `FactQuery` and of `FactFilter`."""
        scope = self.scope
        wanted = FactFilter(**{name: getattr(asked, name) for name in _FILTERED})
        from chatbot.memory.recall import moment

        at = moment(asked.as_of, asked.known_at, scope.clock())
        limit = check_limit(asked.limit)
        found = await scope.store.facts(scope.view(asked.ask), wanted, limit=limit if at is None else EVERY)
        return found if at is None else [fact for fact in found if fact.created_at <= at][:limit]

    async def purge_fact(self, fact_id: str) -> None:
        """Erase a fact permanently, from every file, also one that was taken back.

        Raises `UnknownObservation` if there is none of that id.
        """
        from chatbot.memory.erasure import Target, erase

        scope = self.scope
        scope.caller.check("erase")
        unknown = UnknownObservation(f"no fact has the id {fact_id}")
        if await scope.store.get(scope.acting(SENSITIVITIES), [fact_id], current=False):
            raise unknown  # it is an observation
        try:
            await erase(scope, Target(ids=(fact_id,)))
        except UnknownObservation:
            raise unknown from None

    async def retract_fact(self, fact_id: str) -> None:
        """Take a fact back; the journal holds it until it is erased. Raises `UnknownObservation` for no such fact."""
        scope = self.scope
        await scope.commit(Event(kind="retract", at=scope.clock(), ids=(fact_id,), who=scope.agent_id))


ALIAS = "also known as"


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who is mentioned, by the name used most; how often, when last, and what is stated about them."""

    name: str
    aliases: tuple[str, ...]
    mention_count: int
    last_mentioned: datetime
    facts: tuple[Triple, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values, times as text."""
        return {
            "name": self.name,
            "aliases": list(self.aliases),
            "mention_count": self.mention_count,
            "last_mentioned": format_time(self.last_mentioned),
            "facts": [fact.as_json() for fact in self.facts],
        }


def _is_of(fact: Triple) -> tuple[object, ...]:
    """Return what two facts in the same words must share to be one: each is erased and shown with all of that."""
    guard = () if fact.source else (fact.visibility, fact.sensitivity)
    return fact.source, fact.session_id, fact.agent_id, fact.principal, fact.namespace, guard


class People(Facts):
    """Operations on the people who are mentioned."""

    __slots__ = ()

    async def people(self, query: str = "", *, ask: Sensitivities = PUBLIC) -> list[Person]:
        """Return the people with a name or other name that holds `query`, the most mentioned first."""
        scope = self.scope
        view = scope.view(ask)
        facets = await scope.store.facets(view, "people", limit=EVERY)
        groups = _groups(await _alias_facts(scope, ask))
        by_group: defaultdict[str, list[Facet]] = defaultdict(list)
        for facet in facets:
            names = groups.get(fold(facet.value), {fold(facet.value): facet.value})
            by_group[min(names)].append(facet)
        wanted = fold(query)
        found = []
        for group, named in by_group.items():
            names = {fold(facet.value): facet.value for facet in named}
            others = {key: name for key, name in groups.get(group, {}).items() if key not in names}
            if not any(wanted in key for key in names | others):
                continue
            first, *rest = names.values()
            stated = [
                fact
                for name in (*names.values(), *others.values())
                for fact in await scope.store.facts(view, FactFilter(subject=name), limit=EVERY)
                if fold(fact.predicate) != ALIAS
            ]
            found.append(
                Person(
                    first,
                    (*rest, *others.values()),
                    sum(facet.count for facet in named),
                    max(facet.last_at for facet in named),
                    tuple(stated),
                )
            )
        return sorted(found, key=lambda person: (-person.mention_count, fold(person.name)))

    async def add_alias(self, name: str, alias: str) -> str:
        """State that two names are one person; the id of that fact."""
        fact = await self.store_fact(name, ALIAS, alias)
        return fact.id


async def other_names(scope: Scope, names: Iterable[str] | str) -> tuple[str, ...]:
    """The names, with all others that are known for the same people."""
    names = (names,) if isinstance(names, str) else tuple(names)
    groups = _groups(await _alias_facts(scope, PUBLIC))
    found = {fold(name): name for name in names}
    for name in names:
        found |= {key: other for key, other in groups.get(fold(name), {}).items() if key not in found}
    return tuple(found.values())


async def _alias_facts(scope: Scope, ask: Sensitivities) -> list[Triple]:
    return await scope.store.facts(scope.view(ask), FactFilter(predicate=ALIAS), limit=EVERY)


def _groups(facts: Iterable[Triple]) -> dict[str, dict[str, str]]:
    """Map each folded name that has another to all names of that person, folded and as they were written."""
    groups: dict[str, dict[str, str]] = {}
    for fact in facts:
        pair = {fold(fact.subject): fact.subject, fold(fact.object): fact.object}
        merged: dict[str, str] = {}
        for key in pair:
            merged |= groups.get(key, {})
        merged |= pair
        for key in merged:
            groups[key] = merged
    return groups
