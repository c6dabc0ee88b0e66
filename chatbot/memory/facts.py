"""Facts as triples of subject, predicate and object, each with a confidence and, where there is one, its source."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime

from chatbot.memory.inputs import takes
from chatbot.memory.scope import PUBLIC, ScopedOperations, Sensitivities
from chatbot.redaction import redact_all
from chatbot.stores.access import SENSITIVITIES, Sensitivity, Visibility, default_visibility
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import Triple
from chatbot.stores.query import EVERY, FactFilter, check_limit
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
            principal=scope.principal,
            visibility=visibility or default_visibility(scope.clearance),
            sensitivity=sensitivity,
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
        scope = self._scope()
        wanted = FactFilter(**{name: getattr(asked, name) for name in _FILTERED})
        from chatbot.memory.past import moment

        at = moment(asked.as_of, asked.known_at, scope.clock())
        limit = check_limit(asked.limit)
        found = await scope.store.facts(scope.view(asked.ask), wanted, limit=limit if at is None else EVERY)
        return found if at is None else [fact for fact in found if fact.created_at <= at][:limit]

    async def purge_fact(self, fact_id: str) -> None:
        """Erase a fact permanently, from every file, also one that was taken back.

        Raises `UnknownObservation` if there is none of that id.
        """
        from chatbot.memory.erasure import Target, erase

        scope = self._scope()
        scope.check("erase")
        unknown = UnknownObservation(f"no fact has the id {fact_id}")
        if await scope.store.history(scope.acting(SENSITIVITIES), fact_id):
            raise unknown  # it is an observation
        try:
            await erase(scope, Target(ids=(fact_id,)))
        except UnknownObservation:
            raise unknown from None

    async def retract_fact(self, fact_id: str) -> None:
        """Take a fact back; the journal holds it until it is erased. Raises `UnknownObservation` for no such fact."""
        scope = self._scope()
        await scope.commit(Event(kind="retract", at=scope.clock(), ids=(fact_id,), who=scope.agent_id))


def _is_of(fact: Triple) -> tuple[object, ...]:
    """Return what two facts in the same words must share to be one: each is erased and shown with all of that."""
    guard = () if fact.source else (fact.visibility, fact.sensitivity)
    return fact.source, fact.session_id, fact.agent_id, fact.principal, fact.namespace, guard
