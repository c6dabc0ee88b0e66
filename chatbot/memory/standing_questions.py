"""Standing questions: answers from memory to the questions in the configuration; see docs/profile.md.

Answers are not stored, so they are current, pass the gate each time and contain nothing forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain, zip_longest
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.memory.profile import Profiles
from chatbot.memory.profile_lines import ProfileLine
from chatbot.memory.reading import Recall
from chatbot.memory.scope import PUBLIC, Sensitivities
from chatbot.memory.scoring import MANY, thresholds
from chatbot.stores.observation import SUMMARIES, TYPES, Observation, is_own
from chatbot.stores.query import Filter
from chatbot.stores.records import format_time

if TYPE_CHECKING:
    from chatbot.memory.recall import RankedMemory

_MOST_ROWS = 8
_NEED = 0.6
"""`Recall.need` of a standing question."""
_TYPES = tuple(each for each in TYPES if each not in SUMMARIES)


class StandingAnswer(Struct, frozen=True):
    """A question with the rows that answer it, newest first."""

    question: str
    pinned: bool
    rows: Sequence[Observation]
    closest: Mapping[str, str] = MappingProxyType({})
    """Sentences that answer the question, by ids of rows with long words."""

    def text_of(self, row: Observation) -> str:
        """Return what is shown of a row."""
        return self.closest.get(row.id, row.headline)

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        rows = [
            {"id": row.id, "said_at": format_time(row.last_said_at), "text": self.text_of(row), "source": row.source}
            for row in self.rows
        ]
        return {"question": self.question, "pinned": self.pinned, "rows": rows}


class Profile(Struct, frozen=True):
    """The lines of a person's profile, the answers to the standing questions, and the proposed values."""

    lines: Sequence[ProfileLine]
    standing: Sequence[StandingAnswer] = ()
    proposals: Sequence[Observation] = ()
    """Values that tools proposed, newest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        answers = [each.as_json() for each in self.standing]
        proposals = [row.brief() for row in self.proposals]
        return {"profile": [line.as_json() for line in self.lines], "standing": answers, "proposals": proposals}


class StandingQuestions(Profiles):
    """Answers to the standing questions; a part of `Memory`."""

    async def standing(
        self,
        *,
        pinned: bool = False,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        sensitivities: Sensitivities = PUBLIC,
    ) -> list[StandingAnswer]:
        """Return the answers to all standing questions, or the rows of the `pinned` ones: now, or as of a time.

        Uses only rows that the caller said, wrote or imported. Does not count as use.
        """
        from chatbot.memory.recall import recollect

        fresh_at = self.scope.fresh_at()  # others are looked at once for all questions, which are public
        scope = replace(self.scope, caller=replace(self.caller, sensitivity="public"), fresh_at=lambda: fresh_at)
        need = None if scope.meaning is None else _NEED
        asked = [each for each in scope.environment.options.questions() if each.pinned or not pinned]
        found = []
        for each in asked:
            wanted = Recall(
                each.question,
                limit=2 * _MOST_ROWS,
                need=need,
                statements=True,
                as_of=as_of,
                known_at=known_at,
                sensitivities=sensitivities,
            )
            found.append((await recollect(scope, wanted, Filter(types=_TYPES), self._is_said)).hits)
        sure = zip(asked, self._sure(found, all_asked=not pinned), strict=True)
        answers = [StandingAnswer(each.question, each.pinned, rows) for each, rows in sure]
        unpinned = [row for each in answers if not each.pinned for row in each.rows]
        stated = await self._statement_ids(unpinned) if unpinned else ()
        answers = [replace(each, rows=_best(each, stated)) for each in answers]
        if pinned or (meaning := scope.meaning) is None:
            return answers
        return [replace(each, closest=await meaning.closest_sentences({each.question: each.rows})) for each in answers]

    async def _statement_ids(self, rows: Sequence[Observation]) -> set[str]:
        """Return the ids of the rows that are judged to state something, or of all without a judge."""
        meaning = self.scope.meaning
        judged = await meaning.judge([row.headline for row in rows], sentences=True) if meaning is not None else ()
        return {row.id for row, found in zip_longest(rows, judged) if found is None or found.states_something}

    def _sure(self, found: Sequence[Sequence[RankedMemory]], *, all_asked: bool) -> list[list[Observation]]:
        """Return the rows of each question. If none has enough evidence for a large memory, only the best fits stay.

        In a small memory less is enough to recall a row; but of these questions many have no answer. The best fit of a
        row is the question for which it has the most evidence; without `all_asked`, no row has one.
        """
        meaning, most = self.scope.meaning, dict[str, float]()
        for hit in chain.from_iterable(found) if all_asked else ():
            most[hit.id] = max(hit.row.evidence, most.get(hit.id, 0.0))
        least = thresholds(1.0, _NEED, MANY)[0] if meaning is not None and meaning.is_calibrated else 0.0
        answers = []
        for hits in found:
            is_clear = any(hit.row.evidence >= least for hit in hits)
            fits = [hit.row.evidence for hit in hits if hit.row.evidence == most.get(hit.id) and not hit.later]
            best = max(fits, default=inf)  # what answers better stays beside it, wherever it fits best
            fitting = [hit for hit in hits if is_clear or hit.row.evidence in fits or hit.row.evidence > best]
            answers.append([hit.observation for hit in fitting if hit.observation])
        return answers

    def _is_said(self, row: Observation) -> bool:
        return row.principal == self.caller.principal and (is_own(row) or row.source.startswith("import"))


def _best(answer: StandingAnswer, stated: Collection[str]) -> list[Observation]:
    """Return the best rows of an answer, newest first; if it is not pinned, only those that are `stated`."""
    best = [row for row in answer.rows if answer.pinned or row.id in stated][:_MOST_ROWS]
    return sorted(best, key=lambda row: (row.last_said_at, row.id), reverse=True)
