"""`Memory`: every operation on memories, as one caller sees them, and the summaries of sessions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from chatbot.memory.erasure import Purges
from chatbot.memory.people import People, Tasks
from chatbot.memory.profile import Profiles
from chatbot.memory.reading import MemoryReads
from chatbot.memory.scope import PUBLIC, Sensitivities
from chatbot.memory.writing import AddResult, MemoryWrites
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import AccessDenied, InvalidValue
from chatbot.stores.observation import OWN_KEY, STATUSES, Observation
from chatbot.stores.query import EVERY, MOST_AT_ONCE, FactFilter, Filter, check_limit
from chatbot.stores.records import chunks
from chatbot.stores.row_events import Event
from chatbot.stores.text.redaction import redact_all


class Memory(MemoryReads, Profiles, Tasks, MemoryWrites, People, Purges):
    """Observations, profile, people, tasks, facts and summaries, in the scope of one caller."""

    def within(
        self, *, namespace: str | None = None, project: str | None = None, across: bool | None = None
    ) -> "Memory":
        """Return the same memory in another namespace, across all of them, or in a project.

        Raises `AccessDenied`: only the owner may leave a namespace, and nobody may leave a project.
        """
        scope, own = self.scope, self.scope.caller
        caller = own.narrowed(namespace=namespace, project=project, principal=own.principal)
        if across and not caller.may_cross:
            raise AccessDenied("only the owner may look across all namespaces")
        return Memory(structs.replace(scope, caller=caller, across=scope.across if across is None else across))

    def everywhere(self) -> "Memory":
        """Return the same memory across all namespaces if the caller may look there; if not, unchanged."""
        return Memory(self.scope.everywhere())

    def expecting(self, versions: frozenset[str] | None, new_versions: dict[str, str] | None = None) -> "Memory":
        """Return the same memory, whose changes raise `ChangedMeanwhile` for a row in another version than these.

        None checks nothing. `new_versions` is filled with the new version of each changed row by id.
        """
        return Memory(structs.replace(self.scope, expects=versions, new_versions=new_versions))

    async def move(self, to: str, *, session_id: str | None = None, project: str | None = None) -> int:
        """Move memories and facts of a session or project to the project `to`, or to none if empty; return how many.

        Facts with a source follow it, and are not counted.
        """
        scope = self.scope
        view = scope.write_view(SENSITIVITIES)
        rows = await scope.rows(Filter(session_id=session_id, project=project, statuses=STATUSES), view=view)
        facts = await scope.store.facts(view, FactFilter(session_id=session_id, project=project), limit=EVERY)
        at, who = scope.clock(), scope.agent_id
        changes = [
            Event(kind="update", at=at, ids=(row.id,), fields={"project": to}, who=who)
            for row in rows
            if row.project != to
        ]
        changes += [
            Event(kind="triple", at=at, triple=replace(fact, project=to), who=who)
            for fact in facts
            if fact.source is None and fact.project != to
        ]
        for some in chunks(changes, MOST_AT_ONCE):
            await scope.commit(*some)
        return len(changes)

    async def summarize_session(
        self,
        request: str,
        outcome: str = "",
        *,
        decisions: Sequence[str] = (),
        open_items: Sequence[str] = (),
        session_id: str | None = None,
    ) -> AddResult:
        """Keep a session's request, outcome, decisions and open items as its summary.

        It replaces an earlier summary. It is derived from the memories of the session, for a fork also from those of
        its ancestors until the fork. The session is by default the scope's own.
        """
        scope = self.scope
        session = session_id or scope.session_id
        if session is None:
            raise InvalidValue("a summary needs the id of the session that it is about")
        (request, outcome, decisions, open_items), redacted = redact_all(
            (request, outcome, tuple(decisions), tuple(open_items))
        )  # before texts are cut, which could leave half a secret
        ancestors = await scope.ancestors() if scope.ancestors and not session_id else ()
        filters = [Filter(session_id=session), *(Filter(session_id=each, before=until) for each, until in ancestors)]
        rows = [row for wanted in filters for row in await scope.rows(wanted, view=scope.view(SENSITIVITIES))]
        sources = [row.id for row in rows if row.type != "session_summary"]
        fields: dict[str, Any] = {
            "title": f"Session: {request}"[:200],
            "narrative": "\n\n".join(filter(None, (request, outcome))),
            "facts": [*(f"Decided: {each}" for each in decisions), *(f"Open: {each}" for each in open_items)],
            "metadata": {
                OWN_KEY: f"summary of {session}",  # sessions with the same request and outcome have one each
                "request": request,
                "outcome": outcome,
                "decisions": list(decisions),
                "open_items": list(open_items),
                "observation_count": len(sources),
            },
            "derived_from": sources,
        }
        async with scope.environment.key_lock:  # so that two processes make one
            found = await self.session_summaries(session_id=session, limit=EVERY, sensitivities=SENSITIVITIES)
            earlier = [row for row in found if row.principal == scope.caller.principal]
            if earlier:
                fields["derived_from"] = list(dict.fromkeys((*earlier[0].derived_from, *sources)))
                kept = await self.update(earlier[0].id, **fields)
            else:
                kept = await self.remember(type="session_summary", subject=session, importance=0.6, **fields)
        return structs.replace(kept, redacted=redacted)

    async def session_summaries(
        self, *, session_id: str | None = None, limit: int = 20, sensitivities: Sensitivities = PUBLIC
    ) -> list[Observation]:
        """Return the summaries of one session, or of all, newest first."""
        scope = self.scope
        wanted = Filter(types=("session_summary",), subject=session_id)
        return await scope.rows(wanted, view=scope.view(sensitivities), limit=check_limit(limit))
