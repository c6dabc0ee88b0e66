"""Which remembered facts new ones replace, by meaning alone: the same subject, and nearly the same said of it.

The threshold is high on purpose: from 0.85 on, two facts mean nearly the same, and the newer one is an update of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatbot.memory.remembering import Remembering
from chatbot.pipeline.by_model.facts import FACT_TYPES, Fact
from stores.access import Visibility
from stores.observation import Observation

ALIKE = 0.85
"""The least cosine."""
MOST_CANDIDATES = 10


async def outdated_by(
    facts: Sequence[Fact], memories: Remembering, *, agent_id: str, visibility: Visibility
) -> list[Observation | None]:
    """For each fact the current row that it should take the place of, if there is one; no row twice.

    Asked before the facts are added, so none can be found by itself, or by another of its batch. Rows without a
    vector are not found. That metadata must not conflict is checked by the store. One call of the embedder, none
    where no fact has a subject.
    """
    wanted: Mapping[str, Any] = {"types": FACT_TYPES, "agent_id": agent_id, "visibilities": (visibility,)}
    asked = {at: (fact.content, {**wanted, "subject": fact.subject}) for at, fact in enumerate(facts) if fact.subject}
    found = await memories.like(list(asked.values()), limit=MOST_CANDIDATES)
    outdated: list[Observation | None] = [None] * len(facts)
    taken: set[str] = set()
    for at, hits in zip(asked, found, strict=True):
        best = hits[0] if hits else None
        if best is not None and best.score >= ALIKE and best.observation.id not in taken:
            taken.add(best.observation.id)
            outdated[at] = best.observation
    return outdated
