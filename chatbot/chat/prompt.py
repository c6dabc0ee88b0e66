"""What a model is sent: persona first and unchanging, then the end of the conversation, as much as fits.

The window is cut at user entries, so a reply is never shown without its question nor a tool's answer without its call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from chatbot.errors import ContextTooLong
from chatbot.messages import Message, ToolSpec
from chatbot.models.base import Model

_LARGEST_REPLY_SHARE = 2


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages, and how they were chosen. All figures are tokens, but for `left_out`, which counts messages."""

    messages: tuple[Message, ...]
    persona_tokens: int
    window_tokens: int
    reply_tokens: int
    """What is kept free for the reply."""
    left_out: int

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return self.persona_tokens + self.window_tokens

    def sha256(self) -> str:
        """A digest of exactly what was sent."""
        sent = json.dumps([message.as_openai() for message in self.messages], sort_keys=True)
        return hashlib.sha256(sent.encode()).hexdigest()


async def build_prompt(
    model: Model, persona: str, dialogue: Sequence[Message], *, tools: Sequence[ToolSpec], reply_tokens: int
) -> Prompt:
    """The prompt for the next reply; `dialogue` ends with what is to be answered.

    Whole exchanges are left out, oldest first, until prompt and reply fit the model's window. Raises `ContextTooLong`
    if the last exchange alone does not fit.
    """
    window = await model.context_window()
    reply = min(reply_tokens, window // _LARGEST_REPLY_SHARE)
    system = Message("system", persona)
    persona_tokens = await model.count_tokens([system], tools)
    exchanges = _exchanges(dialogue)
    costs = [await model.count_tokens(exchange) for exchange in exchanges]
    first = 0
    while persona_tokens + sum(costs[first:]) + reply > window:
        first += 1
        if first >= len(exchanges):
            raise ContextTooLong(
                f"{model.name} has a window of {window} tokens, too small for the persona ({persona_tokens}), "
                f"the message ({costs[-1] if costs else 0}) and a reply ({reply}): shorten the message, "
                "or lower max_output_tokens in [model]"
            )
    shown = [message for exchange in exchanges[first:] for message in exchange]
    return Prompt(
        messages=(system, *shown),
        persona_tokens=persona_tokens,
        window_tokens=sum(costs[first:]),
        reply_tokens=reply,
        left_out=len(dialogue) - len(shown),
    )


def _exchanges(dialogue: Sequence[Message]) -> list[list[Message]]:
    exchanges: list[list[Message]] = []
    for message in dialogue:
        if message.role == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges
