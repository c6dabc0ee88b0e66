"""Tools over the people that are mentioned, and the facts that are stated about anything."""

from __future__ import annotations

from typing import Annotated

from chatbot.chat.memory_tools.answers import Answer, Line, listed
from chatbot.memory.remembering import Remembering
from chatbot.tools.function import Within
from stores.observation import Triple
from stores.records import format_time

_MOST_PEOPLE = 20


class PeopleTools:
    """What a model may ask about people and facts, on behalf of one session or agent."""

    def __init__(self, memories: Remembering) -> None:
        self._memories = memories

    async def memory_people(self, query: Line = "") -> Answer:
        """People in memory, with their other names and facts.

        Args:
            query: a part of a name
        """
        found = await self._memories.people(query)
        rows = [
            {
                "name": person.name,
                "aliases": list(person.aliases),
                "mention_count": person.mention_count,
                "last_mentioned": format_time(person.last_mentioned),
                "facts": [f"{fact.subject} {fact.predicate} {fact.object}" for fact in person.facts[:_MOST_PEOPLE]],
            }
            for person in found[:_MOST_PEOPLE]
        ]
        return listed("people", rows, total=len(found))

    async def memory_facts(
        self,
        subject: Line | None = None,
        predicate: Line | None = None,
        object: Line | None = None,  # noqa: A002 - the third part of a triple is called that
        *,
        limit: Annotated[int, Within(1, 100)] = 20,
    ) -> Answer:
        """Facts that have exactly the parts given, newest first."""
        found = await self._memories.query_facts(subject=subject, predicate=predicate, object=object, limit=limit)
        return listed("facts", map(_fact, found))


def _fact(fact: Triple) -> Answer:
    return {
        "subject": fact.subject,
        "predicate": fact.predicate,
        "object": fact.object,
        "confidence": fact.confidence,
        "created_at": format_time(fact.created_at),
    }
