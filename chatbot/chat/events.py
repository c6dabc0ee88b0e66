"""Events that a turn emits to its caller, and those that a `Publisher` passes to hooks, which may answer."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from chatbot.memory import SessionHandle
from chatbot.memory.memorability import Memorability
from chatbot.messages import ReasoningDelta, TextDelta, ToolCall
from chatbot.tools import ToolResult

if TYPE_CHECKING:
    from chatbot.chat.conversation_memory import ConversationMemory, PromptMemory
else:
    ConversationMemory = PromptMemory = Any  # `help` evaluates the annotations of a struct

SESSION_START = "session:start"
PROMPT_SUBMIT = "prompt:submit"
TOOL_POST = "tool:post"
TURN_END = "turn:end"
SESSION_END = "session:end"
TOPICS = frozenset({SESSION_START, PROMPT_SUBMIT, TOOL_POST, TURN_END, SESSION_END})

INJECT = "inject"
"""The hook in whose place a turn recalls, at `prompt:submit`."""
EXCHANGE = "exchange"
"""The hook in whose place it keeps the exchange, at `turn:end`."""
KEEPS_MESSAGES = "memory.exchange"
"""The capability with which a turn keeps the message when it begins."""
CHOOSE = "memory.temporal"
"""The capability that picks among recalled rows."""
MEMORABILITY = "memory.memorability"
"""The capability that decides what is worth remembering."""


class Phase(Struct, frozen=True):
    """The work that the turn now waits for, in a few words."""

    text: str


class Notice(Struct, frozen=True):
    """Something that the user should know, and that did not stop the turn."""

    text: str


class ToolStarted(Struct, frozen=True):
    """The model asked for a tool, which now runs."""

    call: ToolCall


class ToolFinished(Struct, frozen=True):
    """The answer of a tool."""

    result: ToolResult


class ClientCall(Struct, frozen=True):
    """The model asked for a tool that the client runs: the turn ends, and the client's next request continues it."""

    call: ToolCall


TurnEvent = TextDelta | ReasoningDelta | Phase | ToolStarted | ToolFinished | ClientCall | Notice
Emit = Callable[[TurnEvent], None]


class SessionStart(Struct, frozen=True, kw_only=True):
    """The first turn of a session in this process: its message, dated `at`, and a title by rule are written."""

    topic: ClassVar[str] = SESSION_START
    session: SessionHandle
    at: datetime


class PromptSubmit(Struct, frozen=True, kw_only=True):
    """A turn is about to build its first prompt. A listener may answer with `PromptMemory`: the first one is shown."""

    topic: ClassVar[str] = PROMPT_SUBMIT
    session: SessionHandle
    turn: str
    at: datetime
    said: tuple[str, ...]
    """The user's last messages; the one to be answered is the last."""
    since: datetime | None
    """Time of the first entry that the window shows."""
    most_tokens: int
    """Maximum tokens of the memory block: a share of the model's window."""
    dry_run: bool
    """True if only the prompt is wanted: nothing may be written."""
    memory: "ConversationMemory | None"
    """The memory of the conversation; None if nothing is remembered."""
    notice: Callable[[str], None]
    """Reports something to the user and in the receipt."""


class ToolPost(Struct, frozen=True, kw_only=True):
    """A tool has answered, and the answer is in the transcript."""

    topic: ClassVar[str] = TOOL_POST
    session: SessionHandle
    turn: str
    at: datetime
    result: ToolResult
    """The call with its arguments, as the model wrote them, and the answer."""
    memory: "ConversationMemory | None"
    """The memory of the conversation; None if nothing of the turn may be remembered."""


class KeptExchange(Struct, frozen=True):
    """The answer of a listener that remembered the exchange: the id of its observation."""

    id: str


class TurnEnd(Struct, frozen=True, kw_only=True):
    """The transcript has the reply; a title by a model and the receipt follow. Not published for a failed turn.

    A listener may answer with `KeptExchange`: the first one goes into the receipt.
    """

    topic: ClassVar[str] = TURN_END
    session: SessionHandle
    turn: str
    at: datetime
    """Time of the user's entry."""
    text: str
    reply: str
    tools: tuple[ToolResult, ...]
    recalled: "PromptMemory"
    memory: "ConversationMemory | None"
    notice: Callable[[str], None]
    answers: tuple[object, ...] = ()
    """The answers of the listeners that were waited for; only listeners in the background see them."""

    @property
    def kept(self) -> str | None:
        """The id of the observation that keeps the exchange, as far as is known."""
        return next((answer.id for answer in self.answers if isinstance(answer, KeptExchange)), None)


class SessionEnd(Struct, frozen=True, kw_only=True):
    """This process stops using a session; another process may still use it."""

    topic: ClassVar[str] = SESSION_END
    session: SessionHandle
    began: datetime
    """Time of the first message in this process."""
    at: datetime


class OwnHook(Struct, frozen=True):
    """Work that the turn does itself at an event, in the place of the hook of that name."""

    name: str
    run: Callable[[], Awaitable[object]]


class Publisher:
    """The receiver of a conversation's events. This one has no listeners: turns recall and remember."""

    async def begin_session(self, session: SessionHandle, at: datetime) -> None:
        """Note that the session begins with the message of that time, unless it has begun; called before `find`."""

    async def publish(self, event: Any, own: OwnHook | None = None) -> Sequence[object]:  # noqa: ARG002
        """Call the listeners and the own hook, and return their answers in order. Raises what that raises."""
        answer = None if own is None else await own.run()
        return [] if answer is None else [answer]

    def find(self, capability: str) -> Any | None:
        """Return the capability of that name, or None if it is off."""
        return {MEMORABILITY: Memorability(), KEEPS_MESSAGES: True}.get(capability)

    async def wait_idle(self, session_id: str | None = None) -> None:
        """Wait for everything that events of the session, or all events, have started."""

    def is_idle(self, session_id: str | None = None) -> bool:  # noqa: ARG002
        """Return whether all work that events have started is done."""
        return True
