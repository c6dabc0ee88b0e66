"""Find where a session turns to another subject: keyword Jaccard over a sliding window.

The last interactions are compared with as many before them. Where the two share too few keywords, the boundary is
before the later ones; so it is found a little after it was passed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from chatbot.chat.events import SESSION_END, TOOL_POST, TURN_END, SessionEnd, ToolPost, TurnEnd
from chatbot.hooks.capture import can_write
from chatbot.hooks.hook import Hook, HookContext, PerSession
from chatbot.hooks.tool_run import ToolRun
from chatbot.memory import SessionHandle
from chatbot.messages import without_blocks
from chatbot.redaction import redact
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import format_time, parse_time
from chatbot.stores.text.analysis import terms

PREDICATE = "boundary_at"
_MOST_WORDS = 200
"""Keywords of one interaction: the first ones."""
_READ_CHARACTERS = 20_000
_LONGEST_WORD = 40
_MOST_KEYWORDS = 5
"""Keywords that describe a boundary."""
_WORD = re.compile(r"[\w'’]+(?:[-.][\w'’]+)*")


class Boundaries(Hook):
    """Detects where a session turns to something else, and keeps it as a fact: `memory.boundaries`."""

    topics = (TOOL_POST, TURN_END, SESSION_END)
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
        self._windows: PerSession[TopicWindow] = PerSession(lambda: TopicWindow(window, threshold))
        self._latest: PerSession[list[datetime | None]] = PerSession(list)
        context.capabilities.provide("memory.boundaries", self.latest)

    async def handle(self, event: ToolPost | TurnEnd | SessionEnd) -> None:
        """Add a tool run or an exchange to the window, and keep the boundary that it reveals."""
        session = event.session
        if isinstance(event, SessionEnd):
            self._windows.pop(session.id)
            return
        if not (session.supports(ObservationStore) and can_write(session)):
            return
        self._windows[session.id], boundary = self._windows[session.id].extended(_interaction(event))
        if boundary is not None:
            moment = format_time(boundary.at)
            await session.memory.store_fact(
                f"session:{session.id}", PREDICATE, f"{moment} {', '.join(boundary.about)}".strip()
            )
            self._latest[session.id] = [boundary.at]

    async def latest(self, session: SessionHandle) -> datetime | None:
        """Return when the present episode of the session began; None where it has had only one.

        Reads the store once per session.
        """
        known = self._latest[session.id]
        if not known:
            facts = await session.memory.query_facts(subject=f"session:{session.id}", predicate=PREDICATE, limit=1)
            known.append(_moment(facts[0].object) if facts else None)
        return known[0]


@dataclass(frozen=True, slots=True)
class Interaction:
    """One exchange or tool run: its time, and its keywords, as stems with the words that they came from."""

    at: datetime
    words: Mapping[str, str]

    @classmethod
    def of(cls, at: datetime, *texts: str) -> Interaction:
        """Make the interaction of those texts.

        Secrets are taken out of the whole text first: the detector does not recognise one in a word by itself.
        """
        words: dict[str, str] = {}
        clean, _ = redact("\n".join(without_blocks(text)[:_READ_CHARACTERS] for text in texts))
        for word in _WORD.findall(clean):
            for term in terms(word) if len(words) < _MOST_WORDS else ():
                words.setdefault(term, word[:_LONGEST_WORD])
        return cls(at, words)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A new subject began at `at`; `about` are its most frequent keywords that did not occur before it."""

    at: datetime
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicWindow:
    """The last interactions, oldest first."""

    size: int = 3
    threshold: float = 0.06
    interactions: tuple[Interaction, ...] = ()

    def extended(self, interaction: Interaction) -> tuple[TopicWindow, Boundary | None]:
        """Return the window after one more interaction, and the boundary that it reveals, if any."""
        if not interaction.words:
            return self, None
        held = (*self.interactions, interaction)[-2 * self.size :]
        window = TopicWindow(self.size, self.threshold, held)
        if len(held) < 2 * self.size:
            return window, None
        before, after = held[: self.size], held[self.size :]
        known = {word for each in before for word in each.words}
        if jaccard(known, {word for each in after for word in each.words}) >= self.threshold:
            return window, None
        return TopicWindow(self.size, self.threshold, after), Boundary(after[0].at, _about(after, known))


def jaccard(some: Collection[str], others: Collection[str]) -> float:
    """Return the size of the intersection divided by that of the union; 1 for two empty sets."""
    some, others = set(some), set(others)
    return len(some & others) / len(some | others) if some or others else 1.0


def _about(interactions: Sequence[Interaction], known: set[str]) -> tuple[str, ...]:
    counted = Counter(word for each in interactions for word in each.words if word not in known)
    spelled = {term: word for each in reversed(interactions) for term, word in each.words.items()}
    return tuple(dict.fromkeys(spelled[term] for term, _ in counted.most_common(_MOST_KEYWORDS)))


def _interaction(event: ToolPost | TurnEnd) -> Interaction:
    if isinstance(event, TurnEnd):
        return Interaction.of(event.at, event.text, event.reply)
    run = ToolRun.of(event.result)
    return Interaction.of(event.at, run.tool, run.substance)


def _moment(text: str) -> datetime | None:
    """Read the time at the beginning of a fact; None for a fact that was written by hand and has none."""
    try:
        return parse_time(text.partition(" ")[0])
    except InvalidValue:
        return None
