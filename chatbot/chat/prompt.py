"""The prompt, in an order that suits prompt caches: the parts that change least come first.

persona and tools · the summary of what the window left out · the window · the message to be answered, with its notes

The window is cut at user entries, so a reply is never shown without its question nor a tool's answer without its call.
The block of the turn before stays in its place for one more turn, so that a follow-up question finds its subject.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from chatbot.chat.fit import Cut, fit
from chatbot.chat.tool_names import is_own_memory_tool
from chatbot.errors import ContextTooLong
from chatbot.messages import Message, ToolSpec
from chatbot.models.model import Model

_LARGEST_REPLY_SHARE = 2
_TOOLS_NAMED = 8
"""Tools that a notice names."""
_KEPT_AFTER_A_CUT = 0.75
"""A window that has become too long is cut to this share of its room, so that the next turns need not cut again."""


@dataclass(frozen=True, slots=True)
class PromptExtras:
    """Texts of the prompt beside the conversation. Empty ones are left out."""

    summary: str = ""
    block: str = ""
    """The memory block for the message to be answered."""
    earlier_block: str = ""
    """The block of the message before."""


@dataclass(frozen=True, slots=True)
class PromptBundle:
    """The messages, and what each part takes in tokens; `left_out` counts messages."""

    messages: tuple[Message, ...]
    parts: Mapping[str, int] = field(default_factory=dict)
    """Tokens of persona, tools, summary, window, memory and, where there are any, the texts of attachments."""
    reply_tokens: int = 0
    """Tokens kept free for the reply."""
    context_window: int = 0
    left_out: int = 0
    dropped: tuple[str, ...] = ()
    """Parts that were left out because the window is full."""
    earlier_block: bool = False
    """True if the block of the message before is in its place."""
    cut: tuple[Cut, ...] = ()
    """Documents, answers of tools and long messages that were cut to fit."""

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return sum(self.parts.values())

    def sha256(self) -> str:
        """Return a digest of the messages."""
        sent = json.dumps([message.as_openai() for message in self.messages], sort_keys=True)
        return hashlib.sha256(sent.encode()).hexdigest()


async def build_prompt(
    model: Model,
    persona: str,
    dialogue: Sequence[Message],
    *,
    tools: Sequence[ToolSpec],
    reply_tokens: int,
    extras: PromptExtras | None = None,
) -> PromptBundle:
    """Build the prompt for the next reply; `dialogue` ends with the message to be answered.

    What is long is cut to its best passages, then whole exchanges are left out, oldest first, until prompt and reply
    fit the model's window; the summary and then the memory go where the last exchange needs their room. Raises
    `ContextTooLong` if the last exchange alone does not fit, cut as it is.
    """
    extras = extras or PromptExtras()
    window = await model.context_window()
    reply = min(reply_tokens, window // _LARGEST_REPLY_SHARE)
    system = Message("system", persona)
    persona_tokens = await model.count_tokens([system], tools)
    tool_tokens = persona_tokens - await model.count_tokens([system]) if tools else 0
    exchanges = _exchanges(dialogue)
    costs = [await model.count_tokens(exchange) for exchange in exchanges]
    texts = {
        "summary": [Message("user", extras.summary)] if extras.summary else [],
        "earlier memory": [Message("user", extras.earlier_block)]
        if extras.earlier_block and len(exchanges) > 1
        else [],
        "memory": [Message("user", extras.block)] if extras.block else [],
    }
    beside = {name: await model.count_tokens(messages) if messages else 0 for name, messages in texts.items()}
    room = window - reply - persona_tokens
    dropped = []
    for name in texts:
        if beside[name] and costs and costs[-1] + sum(beside.values()) > room:
            beside[name], texts[name] = 0, []
            dropped.append(name)
    room -= sum(beside.values())
    fitted = await fit(exchanges, costs, room, model)
    exchanges, costs = fitted.exchanges, fitted.costs
    first = _first_shown(costs, room)
    if first >= len(exchanges):
        raise ContextTooLong(
            f"{model.name} has a window of {window} tokens, too small for the persona ({persona_tokens}), "
            f"the message ({costs[-1] if costs else 0}) and a reply ({reply}): shorten the message, "
            "or lower max_output_tokens in [model]"
        )
    shown = exchanges[first:]
    files = sum([await _attached_tokens(model, each) for exchange in shown for each in exchange])
    last, earlier = _with_block(shown[-1], extras.block if texts["memory"] else ""), shown[:-1]
    if earlier:
        earlier[-1] = _with_block(earlier[-1], extras.earlier_block if texts["earlier memory"] else "")
    else:
        beside["earlier memory"] = 0
    window_messages = [message for exchange in earlier for message in exchange]
    return PromptBundle(
        messages=(system, *texts["summary"], *window_messages, *last),
        parts={
            "persona": persona_tokens - tool_tokens,
            "tools": tool_tokens,
            "summary": beside["summary"],
            "window": sum(costs[first:]) - files,
            "memory": beside["memory"] + beside["earlier memory"],
            **({"attachments": files} if files else {}),
        },
        reply_tokens=reply,
        context_window=window,
        left_out=len(dialogue) - sum(map(len, exchanges[first:])),
        earlier_block=bool(earlier and texts["earlier memory"]),
        dropped=tuple(dropped),
        cut=fitted.cuts,
    )


async def _attached_tokens(model: Model, message: Message) -> int:
    """Return what the text of a file, or the pictures of a message, take."""
    if message.source:
        return await model.count_tokens([message])
    if not message.images:
        return 0
    return await model.count_tokens([message]) - await model.count_tokens([replace(message, parts=())])


def _with_block(exchange: list[Message], block: str) -> list[Message]:
    """Put a memory block at the head of the question, so that a model takes it for notes and not for what is asked."""
    at = next((at for at, message in enumerate(exchange) if message.role == "user" and not message.source), None)
    if at is None or not block:
        return exchange
    question = exchange[at]
    parts = (f"{block}\n\n", *question.parts) if question.parts else ()
    noted = replace(question, content=f"{block}\n\n{question.content}", parts=parts)
    return [*exchange[:at], noted, *exchange[at + 1 :]]


def _first_shown(costs: Sequence[int], room: int) -> int:
    """Return the first exchange to show; a window that must be cut is cut by more than it must."""
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
        follows_its_file = exchanges and exchanges[-1][-1].source
        if (message.role == "user" and not follows_its_file) or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges


def fitting_tools(specs: Sequence[ToolSpec], sizes: Mapping[str, int], room: int) -> tuple[ToolSpec, ...]:
    """Return the tools that fit into `room` tokens, in their order; `sizes` are the tokens of each, by name.

    The largest tools of others are left out first, for a server may have any number of them; then the tools of memory,
    the last first, for they are in the order of their use: searching and reading come before all else.
    """
    own = [spec for spec in specs if is_own_memory_tool(spec.name)]
    others = sorted((spec for spec in specs if spec not in own), key=lambda spec: sizes[spec.name])
    kept = [*own, *others]
    while kept and sum(sizes[spec.name] for spec in kept) > room:
        kept.pop()
    return tuple(spec for spec in specs if spec in kept)


def tools_left_out(specs: Sequence[ToolSpec], kept: Sequence[ToolSpec], window: int) -> str:
    """Return the notice for the user."""
    names = [spec.name for spec in specs if spec not in kept]
    more = f" and {len(names) - _TOOLS_NAMED} more" if len(names) > _TOOLS_NAMED else ""
    return (
        f"the tools do not all fit a window of {window} tokens, so the model goes without {len(names)} of "
        f"{len(specs)}: {', '.join(names[:_TOOLS_NAMED])}{more}"
    )
