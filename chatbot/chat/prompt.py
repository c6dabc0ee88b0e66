"""What a model is sent, in an order that prompt caches like: what changes least stands first.

persona and tools · what the window left out, in short · the window · the memory block · the message to be answered

The window is cut at user entries, so a reply is never shown without its question nor a tool's answer without its call.
The block of the turn before stays where it was for one more turn, so that a follow-up finds what it is about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chatbot.errors import ContextTooLong
from chatbot.messages import Message, ToolSpec
from chatbot.models.base import Model

_LARGEST_REPLY_SHARE = 2
_KEPT_AFTER_A_CUT = 0.75
"""A window that has become too long is cut to this share of its room, so that the next turns need not cut again."""


@dataclass(frozen=True, slots=True)
class Aside:
    """What is said to the model beside the conversation. Empty texts are left out."""

    summary: str = ""
    block: str = ""
    """What memory holds on the message that is to be answered."""
    earlier_block: str = ""
    """What it held on the one before."""


@dataclass(frozen=True, slots=True)
class PromptBundle:
    """The messages, and what each part takes in tokens; `left_out` counts messages."""

    messages: tuple[Message, ...]
    parts: Mapping[str, int] = field(default_factory=dict)
    """Tokens of persona, tools, summary, window and memory."""
    reply_tokens: int = 0
    """What is kept free for the reply."""
    context_window: int = 0
    left_out: int = 0
    dropped: tuple[str, ...] = ()
    """Parts that were left out for want of room."""

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return sum(self.parts.values())

    def sha256(self) -> str:
        """A digest of exactly what was sent."""
        sent = json.dumps([message.as_openai() for message in self.messages], sort_keys=True)
        return hashlib.sha256(sent.encode()).hexdigest()


async def build_prompt(
    model: Model,
    persona: str,
    dialogue: Sequence[Message],
    *,
    tools: Sequence[ToolSpec],
    reply_tokens: int,
    aside: Aside | None = None,
) -> PromptBundle:
    """The prompt for the next reply; `dialogue` ends with what is to be answered.

    Whole exchanges are left out, oldest first, until prompt and reply fit the model's window; if that is not enough,
    the summary and then the memory go. Raises `ContextTooLong` if the last exchange alone does not fit.
    """
    aside = aside or Aside()
    window = await model.context_window()
    reply = min(reply_tokens, window // _LARGEST_REPLY_SHARE)
    system = Message("system", persona)
    persona_tokens = await model.count_tokens([system], tools)
    tool_tokens = persona_tokens - await model.count_tokens([system]) if tools else 0
    exchanges = _exchanges(dialogue)
    costs = [await model.count_tokens(exchange) for exchange in exchanges]
    asides = {
        "summary": [Message("user", aside.summary)] if aside.summary else [],
        "earlier memory": [Message("user", aside.earlier_block)] if aside.earlier_block and len(exchanges) > 1 else [],
        "memory": [Message("user", aside.block)] if aside.block else [],
    }
    beside = {name: await model.count_tokens(messages) if messages else 0 for name, messages in asides.items()}
    room = window - reply - persona_tokens
    dropped = []
    for name in asides:
        if beside[name] and costs and costs[-1] + sum(beside.values()) > room:
            beside[name], asides[name] = 0, []
            dropped.append(name)
    first = _first_shown(costs, room - sum(beside.values()))
    if first >= len(exchanges):
        raise ContextTooLong(
            f"{model.name} has a window of {window} tokens, too small for the persona ({persona_tokens}), "
            f"the message ({costs[-1] if costs else 0}) and a reply ({reply}): shorten the message, "
            "or lower max_output_tokens in [model]"
        )
    shown = exchanges[first:]
    last, earlier = shown[-1], shown[:-1]
    if earlier:
        earlier[-1] = asides["earlier memory"] + earlier[-1]
    else:
        beside["earlier memory"] = 0
    window_messages = [message for exchange in earlier for message in exchange]
    return PromptBundle(
        messages=(system, *asides["summary"], *window_messages, *asides["memory"], *last),
        parts={
            "persona": persona_tokens - tool_tokens,
            "tools": tool_tokens,
            "summary": beside["summary"],
            "window": sum(costs[first:]),
            "memory": beside["memory"] + beside["earlier memory"],
        },
        reply_tokens=reply,
        context_window=window,
        left_out=len(dialogue) - sum(map(len, exchanges[first:])),
        dropped=tuple(dropped),
    )


def _first_shown(costs: Sequence[int], room: int) -> int:
    """From which exchange on the window is shown; once it has to be cut, it is cut by more than it must."""
    total = sum(costs)
    if total <= room:
        return 0
    first = 0
    while first < len(costs) and total > (room * _KEPT_AFTER_A_CUT if first < len(costs) - 1 else room):
        total -= costs[first]
        first += 1
    return first


def _exchanges(dialogue: Sequence[Message]) -> list[list[Message]]:
    exchanges: list[list[Message]] = []
    for message in dialogue:
        if message.role == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges
