"""Request of a client of the server for one turn, beside the user's words: its own history, tools and options.

Only the user and the model write to the transcript: history that a client sends is shown to the model for one turn, and
not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.ledger import Payer
from chatbot.messages import CallOptions, Message, ToolCall, ToolSpec


class ClientRequest(Struct, frozen=True, kw_only=True):
    """Options of a client for one turn. Defaults have no effect."""

    turn: str = ""
    """The turn's id, a UUIDv7, if the client must know it before the turn begins."""
    persona: str = ""
    """Instructions in place of the persona; empty: the persona."""
    history: tuple[Message, ...] | None = None
    """The conversation so far, in place of the transcript's window; None: the window."""
    asked: Message | None = None
    """The user's message with its images, which the transcript cannot hold."""
    answers: tuple[Message, ...] = ()
    """Answers of the client's tools: the turn goes on from where the model called them."""
    sent: tuple[Message, ...] = ()
    """The client's copy of the whole turn, with answers, for a session without the beginning of the turn."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the client runs; of two with the same name the client's is offered."""
    options: CallOptions | None = None
    recalls: bool = True
    """True if the model is shown what memory holds."""
    keeps: bool = True
    """True if the exchange is remembered; its transcript is written either way."""
    again: bool = False
    """True if the last message is answered again; its replies so far stay in the transcript, unseen by models."""
    payers: tuple[Payer, ...] = ()
    """Payers of the calls of the turn, beside the identity."""

    @property
    def is_forced(self) -> bool:
        """Return whether the reply has a required form, to which nothing may be added."""
        return self.options is not None and self.options.is_forced

    def own(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that the client runs."""
        names = {tool.name for tool in self.tools}
        return [call for call in calls if call.name in names]

    def dialogue(self, said: Sequence[Message]) -> list[Message]:
        """Return the messages for the model: the client's history, then these, with the last message's images."""
        messages = [*(self.history or ()), *said]
        if self.asked is not None and self.asked.parts:
            at = max((at for at, message in enumerate(messages) if message.role == "user"), default=None)
            if at is not None:
                messages[at] = replace(messages[at], parts=self.asked.parts)
        return messages


NO_CLIENT = ClientRequest()
