"""The hooks of time: changes of subject in a session, and scales of time for recall; see docs/hooks.md.

A row that is used often is promoted: one scale at 2 uses, two at 4, three at 8. A row from before the last boundary of
its session belongs to an earlier episode, and is of the scale `session` at least.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from chatbot.chat.dialogue import USER
from chatbot.chat.events import CHOOSE, TOOL_POST, TURN_END, ToolPost, TurnEnd
from chatbot.hooks.capture import ToolRun
from chatbot.hooks.hook import Hook, HookContext, PassiveHook, per_session
from chatbot.memory import SessionHandle
from chatbot.memory.episode import READ_AT_ONCE
from chatbot.memory.recall import RankedMemory
from chatbot.messages import without_blocks
from chatbot.stores.access import Sensitivity
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import OF_SESSION, Observation
from chatbot.stores.records import format_time, parse_time
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.redaction import redact_beginning

PREDICATE = "boundary_at"
_MOST_WORDS = 200
"""Maximum keywords of one interaction: the first ones."""
_READ_CHARACTERS = 40_000
_LONGEST_WORD = 40
_MOST_KEYWORDS = 5
"""Maximum keywords that describe a boundary."""
_WORD = re.compile(r"[\w'’]+(?:[-.][\w'’]+)*")


class Boundaries(Hook):
    """Detects changes of subject in a session, and keeps each as a fact: `memory.boundaries`."""

    topics = (TOOL_POST, TURN_END)
    priority = 90
    background = True

    def __init__(
        self,
        context: HookContext,
        *,
        window: Annotated[int, Meta(ge=1, le=20)] = 3,
        threshold: Annotated[float, Meta(ge=0, le=1)] = 0.06,
    ) -> None:
        super().__init__(context)
        self._window = per_session(lambda: TopicWindow(window, threshold))
        self._latest = per_session(list[datetime | None])
        context.capabilities["memory.boundaries"] = self.latest

    async def handle(self, event: ToolPost | TurnEnd) -> None:
        """Add a tool run or an exchange to the window, and keep the boundary that it reveals."""
        session = event.session
        if event.memory is None:
            return
        window = self._window(session.id)
        if isinstance(event, TurnEnd):
            texts = event.text, event.reply
            window.end_turn(event.turn, event.at)
        else:
            run = ToolRun.of(event.result)
            texts = run.tool, run.substance
        latest, before = Interaction.of(event.turn, event.at, *texts), window.interactions
        boundary = window.add(latest)
        if boundary is not None and (left := await _without_gone(session, before, event.turn)) != before:
            window.interactions = left
            boundary = window.add(latest)
        if boundary is not None:
            stated = f"{format_time(boundary.at)} {', '.join(boundary.about)}".strip()
            await session.memory.store_fact(f"{OF_SESSION}{session.id}", PREDICATE, stated)
            self._latest(session.id)[:] = [boundary.at]

    async def latest(self, session: SessionHandle) -> datetime | None:
        """Return when the current episode of the session began; None if it is the first."""
        known = self._latest(session.id)
        if not known:
            facts = await session.memory.query_facts(subject=f"{OF_SESSION}{session.id}", predicate=PREDICATE, limit=1)
            known.append(None)
            for fact in facts:
                with suppress(InvalidValue):  # one that was written by hand may have no time
                    known[0] = parse_time(fact.object.partition(" ")[0])
        return known[0]


async def _without_gone(
    session: SessionHandle, interactions: "Sequence[Interaction]", turn: str
) -> "list[Interaction]":
    """Return the interactions of `turn`, and those of turns that were not taken back, erased or made more private."""
    said = {each.at for each in interactions}
    if session.supports(TranscriptStore):
        said = {each.at for each in await session.transcript_read_last(READ_AT_ONCE) if each.role == USER}
    remembered = await session.remembered_since(min(said.union(each.at for each in interactions)))
    shown: tuple[Sensitivity, ...] = ("public", session.record.sensitivity)
    ids = [row_id for _, row_id in remembered]
    rows = await session.memory.get(ids, sensitivities=shown, count_use=False, current=False)
    there = {row.id for row in rows if row.status != "deleted"}
    is_there = {parse_time(at): row_id in there for at, row_id in remembered}  # of a message, its last row
    return [each for each in interactions if each.turn == turn or (each.at in said and is_there.get(each.at, True))]


class Interaction(Struct, frozen=True):
    """One exchange or tool run: its turn and time, and its keywords, as stems with the words that they came from."""

    turn: str
    at: datetime
    words: Mapping[str, str]

    @classmethod
    def of(cls, turn: str, at: datetime, *texts: str) -> "Interaction":
        """Make the interaction of those texts. Secrets are removed first: none is recognised in a single word."""
        words: dict[str, str] = {}
        clean = redact_beginning("\n".join(map(without_blocks, texts)), _READ_CHARACTERS)
        for word in _WORD.findall(clean):
            for term in terms(word) if len(words) < _MOST_WORDS else ():
                words.setdefault(term, word[:_LONGEST_WORD])
        return cls(turn, at, words)


class Boundary(Struct, frozen=True):
    """A new subject began at `at`; `about` are its most frequent keywords that did not occur before it."""

    at: datetime
    about: tuple[str, ...]


class TopicWindow:
    """The last interactions, oldest first."""

    def __init__(self, size: int, threshold: float) -> None:
        self.interactions: list[Interaction] = []
        self._size = size
        self._threshold = threshold

    def end_turn(self, turn: str, at: datetime) -> None:
        """Date the tool runs of the turn like its message, and drop another reply to the same message."""
        held = [each for each in self.interactions if each.turn == turn or each.at != at]
        self.interactions = [replace(each, at=at) if each.turn == turn else each for each in held]

    def add(self, interaction: Interaction) -> Boundary | None:
        """Add an interaction; return the boundary that it reveals, if any."""
        if not interaction.words:
            return None
        held = self.interactions = [*self.interactions, interaction][-2 * self._size :]
        before, after = held[: self._size], held[self._size :]
        known, new = ({word for each in part for word in each.words} for part in (before, after))
        if len(after) < self._size or len(known & new) / len(known | new) >= self._threshold:
            return None
        self.interactions = after
        return Boundary(after[0].at, _about(after, known))


def _about(interactions: Sequence[Interaction], known: set[str]) -> tuple[str, ...]:
    counted = Counter(word for each in interactions for word in each.words if word not in known)
    spelled = {term: word for each in reversed(interactions) for term, word in each.words.items()}
    return tuple(dict.fromkeys(spelled[term] for term, _ in counted.most_common(_MOST_KEYWORDS)))


Scale = Literal["immediate", "task", "session", "project"]
SCALES: tuple[Scale, ...] = get_args(Scale)
WINDOWS_S: Mapping[Scale, float] = {"immediate": 300.0, "task": 1_800.0, "session": 7_200.0}
"""Reach of each scale in seconds, in the order of `SCALES`; `project`, the last, has no end."""
PLACES: Mapping[Scale, int] = {"immediate": 1, "task": 2, "session": 1, "project": 1}
MARGIN = 0.02
"""Largest lead in score, from 0 to 1, at which a row still gives up its place."""


class Temporal(PassiveHook):
    """Gives each scale of time its places among injected rows, as a tie-break: `memory.temporal`."""

    priority = 110

    def __init__(
        self,
        context: HookContext,
        *,
        places: Annotated[tuple[int, ...], Meta(min_length=4, max_length=4)] = tuple(PLACES.values()),
        margin: Annotated[float, Meta(ge=0, le=1)] = MARGIN,
    ) -> None:
        super().__init__(context)
        self._places = dict(zip(SCALES, places, strict=True))
        self._margin = margin
        context.capabilities[CHOOSE] = self.choose

    async def choose(
        self, session: SessionHandle, hits: Sequence[RankedMemory], most: int, now: datetime
    ) -> Sequence[RankedMemory]:
        """Return at most `most` of the hits, which are given best first."""
        if len(hits) <= most:
            return hits
        boundaries = self.context.capabilities.get("memory.boundaries")
        episode = None if boundaries is None else await boundaries(session)

        def scale(row: Observation | None) -> Scale:
            own = row is not None and row.session_id == session.id
            return scale_of(row.created_at, now, uses=row.use_count, episode=episode, own=own) if row else "project"

        scored = [(hit.score, scale(hit.observation)) for hit in hits]
        return [hits[at] for at in allocate(scored, most, places=self._places, margin=self._margin)]


def scale_of(
    created_at: datetime, now: datetime, *, uses: int = 0, episode: datetime | None = None, own: bool = False
) -> Scale:
    """Return the scale of a row.

    `episode` is when the current episode began; it counts only for rows of the session itself, `own`. A row from the
    future, as after the clock was set back, is immediate.
    """
    age = (now - created_at).total_seconds()
    place = next((at for at, longest_s in enumerate(WINDOWS_S.values()) if age <= longest_s), len(WINDOWS_S))
    if own and episode is not None and created_at < episode:
        place = max(place, SCALES.index("session"))
    return SCALES[min(place + max(0, uses.bit_length() - 1), len(SCALES) - 1)]


def allocate(
    rows: Sequence[tuple[float, Scale]], most: int, *, places: Mapping[Scale, int] = PLACES, margin: float = MARGIN
) -> list[int]:
    """Return the positions of at most `most` rows, best first; `rows` are scores with scales, best first.

    The best are chosen. Then each further row whose scale has a free place replaces the weakest one of a scale with
    more rows than places, if that leads by no more than `margin`.
    """
    chosen = list(range(len(rows)))[:most]
    held = Counter(rows[at][1] for at in chosen)
    for rival in range(most, len(rows)):
        score, scale = rows[rival]
        surplus = [at for at in reversed(chosen) if held[rows[at][1]] > places.get(rows[at][1], 0)]
        weakest = min(surplus, key=lambda at: rows[at][0], default=None)
        if weakest is None or held[scale] >= places.get(scale, 0) or rows[weakest][0] - score > margin:
            continue
        chosen[chosen.index(weakest)] = rival
        held.update({scale: 1, rows[weakest][1]: -1})
    return sorted(chosen, key=lambda at: -rows[at][0])
