"""Tools over observations: search, then the surroundings, then the whole; and writing, replacing, forgetting."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, WithJsonSchema

from chatbot.chat.memory_tools.answers import (
    Answer,
    Id,
    Ids,
    Line,
    Lines,
    Moment,
    Text,
    Title,
    brief,
    in_full,
    listed,
    reachable,
    told,
)
from chatbot.memory.remembering import Remembering
from chatbot.memory.writing import DEFAULT_TYPE
from chatbot.tools.function import Within
from stores.access import Visibility
from stores.observation import TYPES, Observation, Type
from stores.query import Order, Version
from stores.records import format_time

Few = Annotated[int, Within(0, 20)]
Noted = Literal[
    "bugfix",
    "feature",
    "refactor",
    "change",
    "discovery",
    "decision",
    "preference",
    "identity",
    "note",
    "event",
    "technical",
]
"""What a model may write; the other types come into being in other ways."""


def _writable(kind: str) -> str:
    if kind in set(TYPES) - set(get_args(Noted)):
        raise ValueError(f"a {kind} is not written like that: {', '.join(get_args(Noted))} are")
    return kind


Kind = Annotated[Line, AfterValidator(_writable), WithJsonSchema({"type": "string", "enum": list(get_args(Noted))})]
"""A type; one that nobody knows becomes a note, with a warning, as everywhere."""
Types = Annotated[list[Type], WithJsonSchema({"type": "array", "items": {"type": "string"}})]


class ObservationTools:
    """What a model may do with observations, on behalf of one session or agent."""

    def __init__(self, memories: Remembering) -> None:
        self._memories = memories

    async def memory_search(
        self,
        query: Line = "",
        *,
        visibilities: list[Visibility] | None = None,
        types: Types | None = None,
        people: Lines | None = None,
        tags: Lines | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        limit: Annotated[int, Within(0, 50)] = 10,
        max_tokens: Annotated[int, Within(1, 100_000)] | None = None,
    ) -> Answer:
        """Search memory: ids and titles, best first. Read the few that matter with memory_get.

        Args:
            query: keywords; empty lists the newest
            types: those of memory_write, task, exchange or session_summary
            after: noted at or after
            before: noted before
            max_tokens: of all hits in full
        """
        hits = await self._memories.search(
            query,
            limit=limit,
            max_tokens=max_tokens,
            visibilities=visibilities or (),
            types=types or (),
            people=people or (),
            tags=tags or (),
            after=after,
            before=before,
        )
        return listed("hits", (hit.index() for hit in hits))

    async def memory_list(
        self,
        *,
        types: Types | None = None,
        people: Lines | None = None,
        tags: Lines | None = None,
        project: Line | None = None,
        order: Order = "updated",
        limit: Annotated[int, Within(1, 50)] = 20,
        cursor: Id | None = None,
    ) -> Answer:
        """List memory by time, newest first: ids and titles.

        Args:
            types: as for memory_search
            order: by which of their times
            cursor: next_cursor of the answer before
        """
        page = await self._memories.list_observations(
            types=types or (),
            people=people or (),
            tags=tags or (),
            project=project,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        return listed("memories", map(brief, page.rows), **({"next_cursor": page.after} if page.after else {}))

    async def memory_timeline(self, anchor: Id, *, before: Few = 5, after: Few = 5) -> Answer:
        """What was noted just before and after a search hit, oldest first.

        Args:
            anchor: its id
        """
        rows = await self._memories.timeline(anchor, before=before, after=after)
        return listed("timeline", map(brief, rows))

    async def memory_get(self, ids: Ids) -> Answer:
        """Read memories in full, by the ids that memory_search or memory_timeline gave."""
        rows = await self._memories.get(ids)
        found = {row.id for row in rows}
        missing = [each for each in ids if each not in found]
        return listed("observations", map(in_full, rows), **({"missing": missing} if missing else {}))

    async def memory_write(
        self,
        title: Title,
        *,
        visibility: Visibility | None = None,
        type: Kind = DEFAULT_TYPE,  # noqa: A002 - the field is called that
        narrative: Text = "",
        facts: Lines | None = None,
        tags: Lines | None = None,
        related_files: Lines | None = None,
        related_people: Lines | None = None,
        expires_at: Moment | None = None,
        sensitivity: Literal["public", "private", "secret"] = "public",
    ) -> Answer:
        """Remember what will matter in later conversations. Search first; supersede what has changed.

        Args:
            title: the point, in one sentence that stands by itself
            visibility: only where the user asks for another audience
            facts: each complete in itself
            expires_at: when it stops being true
            sensitivity: you cannot read private or secret again
        """
        remembered = await self._memories.remember(
            title,
            visibility=visibility,
            type=type,
            narrative=narrative,
            facts=facts or (),
            tags=tags or (),
            files_read=related_files or (),
            people=related_people or (),
            expires_at=expires_at,
            sensitivity=sensitivity,
            source="agent",
        )
        said = {"outcome": remembered.outcome, "id": remembered.id}
        optional = {"reason": remembered.reason, "redacted": remembered.redacted, "warning": remembered.warning}
        return told(**said, **{name: value for name, value in optional.items() if value})

    async def memory_history(self, observation_id: Id) -> Answer:
        """What a memory replaced and what replaced it, oldest first."""
        versions = await self._memories.history(observation_id)
        seen = {version.observation.id for version in versions}
        return listed("versions", (_version(version, seen) for version in versions))

    async def memory_forget(self, ids: Ids) -> Answer:
        """Forget memories, all or none, because the user asks for it. Supersede what has merely changed."""
        rows = await reachable(self._memories, ids)
        await self._memories.forget(*(row.id for row in rows))
        return told(forgotten=[_named(row) for row in rows])

    async def memory_confirm(self, ids: Ids) -> Answer:
        """Vouch for memories that proved true: they weigh more from now on."""
        rows = await reachable(self._memories, ids)
        await self._memories.confirm(*(row.id for row in rows))
        return told(confirmed=[_named(row) for row in rows])

    async def memory_supersede(self, old: Id, new: Id) -> Answer:
        """Let a memory take the place of one that is no longer true, which stays in the history.

        Args:
            old: id of what is no longer true
            new: id of what is, from memory_write
        """
        replaced, current = await reachable(self._memories, [old, new])
        await self._memories.supersede(replaced.id, current.id)
        return told(superseded=_named(replaced), by=_named(current))


def _named(row: Observation) -> Answer:
    return {"id": row.id, "title": brief(row)["title"]}


def _version(version: Version, seen: Collection[str]) -> Answer:
    """A version; what took its place is named only where it may be seen."""
    row = version.observation
    events = [
        {
            "kind": event.kind,
            "at": format_time(event.at),
            "who": event.who,
            "why": event.why,
            "times": event.times if event.times > 1 else None,
            "changed": sorted(event.fields),
        }
        for event in version.events
        if event.kind != "use"
    ]
    return {
        **brief(row),
        "status": row.status,
        "superseded_by": row.superseded_by if row.superseded_by in seen else None,
        "events": [{name: value for name, value in event.items() if value} for event in events],
    }
