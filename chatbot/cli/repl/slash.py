"""Context and result of slash commands. The commands are in `commands`, `remembering`, `taking` and `command_line`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatbot.cli.screen import Screen
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle
from chatbot.runtime import Runtime
from chatbot.stores.errors import InvalidValue

if TYPE_CHECKING:
    from chatbot.chat import Chat


@dataclass(slots=True)
class Next:
    """Next step of the chat after a command: take a turn, offer a draft for editing, change the identity, or leave."""

    say: str | None = None
    draft: str = ""
    replaces: bool = False
    """True if the next message replaces the last exchange, which stays until then."""
    again: bool = False
    """True if the last message is answered again."""
    identity: str | None = None
    leave: bool = False


class Slash:
    """Commands act on the conversation in `session`, and may put another in its place.

    Each is a method `do_<name>` that is given what stands behind the name. The first line of its docstring describes
    it; `/help NAME` shows all of it.
    """

    def __init__(self, runtime: Runtime, screen: Screen) -> None:
        self.session: SessionHandle | None = None
        self._chat: Chat | None = None
        self._runtime = runtime
        self._screen = screen

    @property
    def chat(self) -> Chat:
        """The conversation, made at its first use: the first prompt is drawn without it."""
        if self._chat is None:
            self._chat = self._runtime.chat(self.session)
        return self._chat

    def _session(self) -> SessionHandle:
        if self.session is None:
            raise SessionNotFound("this agent keeps no sessions: give it stores in [agents] memory")
        return self.session


def numbered(text: str, listed: list[str]) -> str:
    """The id that a number stands for in the list that was shown last; any other text stays as it is."""
    return listed[int(text) - 1] if text.isdecimal() and 0 < int(text) <= len(listed) else text


def needed(text: str, usage: str) -> str:
    """The text, where there is any. Raises `InvalidValue`, saying what belongs there."""
    if not text:
        raise InvalidValue(f"usage: {usage}")
    return text
