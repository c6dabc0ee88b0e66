"""What a conversation tells of itself while it goes on, and whom it tells.

A conversation knows one `Publisher`. Whoever runs hooks is one; a conversation by itself has `Alone`, which recalls and
keeps exchanges, and nothing else. An event is told about sessions only: a chat without stores has nothing to tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from chatbot.chat.remembrance import Choose, Recalled, Remembrance
from chatbot.memory import SessionHandle
from chatbot.memory.memorability import Memorability
from chatbot.tools import ToolResult
from stores.errors import StoreError

SESSION_START = "session:start"
PROMPT_SUBMIT = "prompt:submit"
TOOL_POST = "tool:post"
TURN_END = "turn:end"
SESSION_END = "session:end"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """The first turn of a session in this process is about to begin."""

    topic: ClassVar[str] = SESSION_START
    session: SessionHandle
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSubmit:
    """A prompt is about to be built. A listener may answer with `Recalled`: the first one goes into the prompt."""

    topic: ClassVar[str] = PROMPT_SUBMIT
    session: SessionHandle
    turn: str
    at: datetime
    said: tuple[str, ...]
    """What the user said last, the message to be answered at the end."""
    since: datetime | None
    """When the first entry was written that the model is shown anyway."""
    most_tokens: int
    """What the model's window leaves for memory."""
    dry_run: bool
    """Nothing may be written: somebody only looks at what the prompt would be."""
    remembrance: Remembrance | None
    """The memory of the conversation; None where nothing is remembered."""
    notice: Callable[[str], None]
    """Tells the user something, and the receipt."""

    async def recall(self, choose: Choose | None = None) -> Recalled | None:
        """What memory holds on it; None where it fails, which is told. `choose` picks among what is worth showing."""
        if self.remembrance is None:
            return None
        try:
            return await self.remembrance.recall(
                self.said, since=self.since, most_tokens=self.most_tokens, choose=choose
            )
        except StoreError as error:
            self.notice(f"memory cannot be searched, so this turn goes without it: {error}")
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPost:
    """A tool has answered, and the answer stands in the transcript."""

    topic: ClassVar[str] = TOOL_POST
    session: SessionHandle
    turn: str
    at: datetime
    result: ToolResult
    """The call with its arguments, as the model wrote them, and the answer."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a listener answers who remembered the exchange: the observation that keeps it."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """A turn is over and written. Not told of a turn that failed or was stopped.

    A listener may answer with `Kept`: the first one stands in the receipt.
    """

    topic: ClassVar[str] = TURN_END
    session: SessionHandle
    turn: str
    at: datetime
    """When the user's entry was written."""
    text: str
    reply: str
    tools: tuple[ToolResult, ...]
    recalled: Recalled
    """What the prompt held from memory."""
    remembrance: Remembrance | None
    notice: Callable[[str], None]
    answers: tuple[object, ...] = ()
    """What those answered who were waited for; only who runs in the background hears it."""

    @property
    def kept(self) -> str | None:
        """The observation that keeps the exchange, as far as is known."""
        return next((answer.id for answer in self.answers if isinstance(answer, Kept)), None)

    async def keep(self, memorability: Memorability | None = None) -> Kept | None:
        """Remember the exchange; None where it is not worth it, or where that fails, which is told."""
        if self.remembrance is None:
            return None
        try:
            kept = await self.remembrance.keep(self.at, self.text, self.reply, self.recalled, memorability=memorability)
        except StoreError as error:
            self.notice(f"this exchange could not be remembered: {error}")
            return None
        return None if kept is None else Kept(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """A session that was used in this process is left; another process may still use it."""

    topic: ClassVar[str] = SESSION_END
    session: SessionHandle
    began: datetime
    """When its first turn in this process began."""
    at: datetime


class Publisher(ABC):
    """Whom a conversation tells."""

    @abstractmethod
    async def begin(self, session: SessionHandle) -> None:
        """Hear that a turn of the session begins."""

    @abstractmethod
    async def publish(self, event: Any) -> Sequence[object]:
        """Tell of an event, and return what was answered, in the order of the listeners. Raises nothing."""

    @abstractmethod
    async def settle(self, session: SessionHandle) -> None:
        """Wait until everything is done that events of the session set going."""

    @abstractmethod
    def is_settled(self, session: SessionHandle) -> bool:
        """Whether nothing of that is under way."""


class Alone(Publisher):
    """A conversation without hooks: it recalls, and keeps exchanges."""

    async def begin(self, session: SessionHandle) -> None:
        """Nothing: nobody listens."""

    async def publish(self, event: Any) -> Sequence[object]:
        """Recall for a prompt, and keep a turn that is over."""
        if isinstance(event, PromptSubmit):
            answer: object = await event.recall()
        else:
            answer = await event.keep() if isinstance(event, TurnEnd) else None
        return [] if answer is None else [answer]

    async def settle(self, session: SessionHandle) -> None:
        """Nothing: everything is done at once."""

    def is_settled(self, session: SessionHandle) -> bool:  # noqa: ARG002
        """Always."""
        return True
