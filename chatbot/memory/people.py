"""People, as far as observations name them: an index that is folded from what is remembered, never written by itself.

That two names are one person is a fact like any other, with the predicate `also known as`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chatbot.memory.facts import Facts
from chatbot.memory.scope import PUBLIC, Scope, Sensitivities
from chatbot.stores.fields import fold
from chatbot.stores.observation import Triple
from chatbot.stores.query import EVERY, Facet, FactFilter
from chatbot.stores.records import format_time

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
