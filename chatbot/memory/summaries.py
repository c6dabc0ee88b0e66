"""What a session was about, kept as an observation that is as strict as the strictest thing remembered in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatbot.memory.redaction import redact_all
from chatbot.memory.scope import PUBLIC, Scope
from chatbot.memory.writing import Remembered, Writing
from stores.access import SENSITIVITIES, Sensitivity
from stores.errors import InvalidValue
from stores.observation import Observation
from stores.query import Filter

_MOST = 1_000


class Summaries(Writing):
    """Writing and reading the summaries of sessions."""

    __slots__ = ()

    async def summarize_session(
        self,
        request: str,
        outcome: str = "",
        *,
        decisions: Sequence[str] = (),
        open_items: Sequence[str] = (),
        session_id: str | None = None,
        besides: Sequence[tuple[str, datetime]] = (),
    ) -> Remembered:
        """Keep what was asked for in a session, what came of it, what was decided, and what is still open.

        The session is the scope's own, unless another is named; an earlier summary of it is brought up to date. It is
        made from what was remembered in the session, and in others `besides`, of each until a time.
        """
        scope = self._scope()
        session = session_id or scope.session_id
        if session is None:
            raise InvalidValue("a summary needs the id of the session that it is about")
        (request, outcome, decisions, open_items), redacted = redact_all(
            (request, outcome, tuple(decisions), tuple(open_items))
        )  # before anything is cut, and half a secret with it
        said_in = [Filter(session_id=session), *(Filter(session_id=each, before=until) for each, until in besides)]
        sources = [each for wanted in said_in for each in await _said_in(scope, wanted)]
        said: dict[str, Any] = {
            "title": f"Session: {request}"[:200],
            "narrative": "\n\n".join(filter(None, (request, outcome))),
            "facts": [*(f"Decided: {each}" for each in decisions), *(f"Open: {each}" for each in open_items)],
            "metadata": {
                "request": request,
                "outcome": outcome,
                "decisions": list(decisions),
                "open_items": list(open_items),
                "observation_count": len(sources),
            },
            "derived_from": sources,
        }
        earlier = await self.session_summaries(session_id=session, limit=1, ask=SENSITIVITIES)
        if earlier:
            said["derived_from"] = list(dict.fromkeys((*earlier[0].derived_from, *sources)))
            kept = await self.update(earlier[0].id, **said)
        else:
            kept = await self.remember(type="session_summary", subject=session, importance=0.6, **said)
            await self._keep_first(session)
        return replace(kept, redacted=redacted)

    async def session_summaries(
        self, *, session_id: str | None = None, limit: int = 20, ask: Collection[Sensitivity] = PUBLIC
    ) -> list[Observation]:
        """Summaries, newest first; of one session, or of all."""
        scope = self._scope()
        wanted = Filter(types=("session_summary",), subject=session_id)
        return list((await scope.store.find(scope.view(ask), wanted, order="created", limit=limit)).rows)

    async def _keep_first(self, session: str) -> None:
        """Where two processes have summed a session up for the first time at once, the summary made first stands."""
        found = await self.session_summaries(session_id=session, ask=SENSITIVITIES)
        if later := sorted(row.id for row in found)[1:]:
            await self.forget(*later)


async def _said_in(scope: Scope, wanted: Filter) -> list[str]:
    """The ids of what was remembered there, as far as the caller may see it."""
    view = scope.view(SENSITIVITIES)
    found: list[str] = []
    after = None
    while True:
        page = await scope.store.find(view, wanted, order="created", limit=_MOST, after=after)
        found += [row.id for row in page.rows if row.type != "session_summary"]
        after = page.after
        if after is None:
            return found
