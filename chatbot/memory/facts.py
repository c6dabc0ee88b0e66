"""Facts as triples of subject, predicate and object, each with a confidence and, where there is one, its source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from chatbot.memory.redaction import redact_all
from chatbot.memory.scope import PUBLIC, Scoped
from stores.access import SENSITIVITIES, Sensitivity, Visibility, default_visibility
from stores.errors import InvalidValue, UnknownObservation, did_you_mean
from stores.events import Event
from stores.observation import Triple
from stores.query import FactFilter

_FILTERED = frozenset(found.name for found in fields(FactFilter))


class Facts(Scoped):
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
        """State a fact, and return it. One with a source is as strict as that, and seen while that is current.

        Raises `InvalidValue`, `UnknownObservation` for the source, or `AccessDenied`.
        """
        scope = self._scope()
        said, _ = redact_all((subject, predicate, object))
        fact = Triple(
            id=str(scope.new_id()),
            subject=said[0],
            predicate=said[1],
            object=said[2],
            created_at=scope.clock(),
            confidence=confidence,
            source=source,
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            namespace=scope.namespace,
            visibility=visibility or default_visibility(scope.clearance),
            sensitivity=sensitivity,
        )
        await scope.commit(Event(kind="triple", at=fact.created_at, triple=fact, who=scope.agent_id))
        kept = await scope.store.facts(scope.view(SENSITIVITIES), FactFilter(source=source)) if source else [fact]
        return next((each for each in kept if each.id == fact.id), fact)

    async def query_facts(
        self, *, limit: int = 100, ask: Collection[Sensitivity] = PUBLIC, **wanted: Any
    ) -> list[Triple]:
        """Facts that fit, newest first; `wanted` are fields of `FactFilter`."""
        scope = self._scope()
        for name in wanted:
            if name not in _FILTERED:
                raise InvalidValue(f"facts cannot be filtered by {name!r}{did_you_mean(name, _FILTERED)}")
        return await scope.store.facts(scope.view(ask), FactFilter(**wanted), limit=limit)

    async def purge_fact(self, fact_id: str) -> None:
        """Erase a fact for good, from every file. Raises `UnknownObservation` where there is none of that id."""
        scope = self._scope()
        unknown = UnknownObservation(f"there is no fact {fact_id}")
        if await scope.store.history(scope.view(SENSITIVITIES), fact_id):
            raise unknown  # it is an observation
        try:
            gone = await scope.store.purge(scope.view(), [fact_id], alone=True)
        except UnknownObservation:
            raise unknown from None
        scope.changed("purge", gone)

    async def retract_fact(self, fact_id: str) -> None:
        """Take a fact back; the journal still tells of it. Raises `UnknownObservation` where there is no such fact."""
        scope = self._scope()
        await scope.commit(Event(kind="retract", at=scope.clock(), ids=(fact_id,), who=scope.agent_id))
