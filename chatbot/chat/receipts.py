"""The receipt: what one turn did, kept as one line of `receipts.jsonl`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from chatbot.chat.ledger import Call
from chatbot.memory.recall import SEEN
from chatbot.stores.fields import how_many
from chatbot.stores.records import TranscriptEntry, format_time
from chatbot.stores.text.redaction import redact
from chatbot.tools import ToolResult

if TYPE_CHECKING:
    from chatbot.chat.conversation_memory import PromptMemory
    from chatbot.chat.prompt import PromptBundle

VERSION = 1
_LONGEST_ARGUMENTS = 500
"""Maximum characters of a confirmed call's arguments."""

Finish = Literal["stop", "length", "content_filter", "tool_calls", "tool_limit", "empty", "cancelled", "error"]
"""How a turn ended: the model's own reasons, then ours."""
NO_ROOM = "no room in the prompt"
SENT, EXCERPT, QUOTED = "sent", "sent as an excerpt", "sent as a quotation"
LISTED, LINE, STANDING = "sent by its title", "sent as a profile line", "sent for a pinned question"
BEFORE, IN_WINDOW = "sent with the previous message", "in the conversation already"
IN_PROMPT = frozenset({SENT, EXCERPT, QUOTED, LISTED, LINE, STANDING, BEFORE, IN_WINDOW})
"""Outcomes of memories that the model saw."""
_PARTS = {
    "profile": LINE,
    "injected": SENT,
    "excerpts": EXCERPT,
    "standing": STANDING,
    "quoted": QUOTED,
    "listed": LISTED,
}
"""Fields of a `MemoryBlock` that a receipt repeats, with the outcome of their memories; of several the last applies."""


class Receipt(Struct, repr_omit_defaults=True):
    """The record of a turn while it is written; times are aware UTC, `seconds` wall-clock."""

    turn: str
    """UUIDv7."""
    session: str | None
    agent: str
    model: str
    at: datetime
    """Time of the user's entry, by which its receipt is found."""
    resumed_at: datetime | None = None
    """Time at which a message was answered again, or tool results continued a turn that had ended with their calls."""
    reply_number: int = 1
    """The number of the reply among those to the same message."""
    finish: Finish = "stop"
    reply: str = ""
    """The reply; the transcript holds it, so the line on the disk leaves it out."""
    seconds: float = 0.0
    first_text_seconds: float | None = None
    calls: list[Call] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    """The files of the user's message: names, kinds, sizes, and the blobs that keep them."""
    window: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    """The rows that were considered, with scores, those injected, and why the others were not."""
    remembered: str | None = None
    """The observation that keeps this exchange."""
    title: str = ""
    notices: list[str] = field(default_factory=list)
    error: str | None = None
    lost: bool = False
    """True if something of this turn could not be stored."""

    def note_prompt(
        self,
        prompt: "PromptBundle",
        entries: list[TranscriptEntry],
        since: datetime | None,
        recalled: "PromptMemory",
        earlier: "PromptMemory",
    ) -> None:
        """Record the prompt as it was sent; if a turn sends several, the last one counts.

        `earlier` is the memory block of the previous message. `since` is when the conversation in the prompt begins;
        recalled rows that it shows are `in_window`.
        """
        self.tokens = {**prompt.parts, "reply_reserve": prompt.reply_tokens}
        self.window = {
            "entries": len(entries),
            "messages": len(prompt.messages) - 1,
            "parts_left_out": list(prompt.dropped),
            "messages_left_out": prompt.left_out,
            **({"cut": [asdict(each) for each in prompt.cut]} if prompt.cut else {}),
            "from": format_time(entries[0].at) if entries else None,
            "to": format_time(entries[-1].at) if entries else None,
        }
        memory = dict(recalled.record)
        if "memory" in prompt.dropped and recalled.shown:
            memory = as_unsent(memory, recalled.shown, NO_ROOM)
        seen = {each["id"] for each in memory.get("considered", ()) if each["verdict"] == SEEN}
        shown = [each for each, at in recalled.in_window.items() if each in seen and (since is None or at >= since)]
        if shown:
            memory["in_window"] = shown
        if earlier.shown and prompt.earlier_block:
            memory["before"] = list(earlier.shown)
        self.memory = memory

    def note_tool(self, result: ToolResult, reads_like: str | None) -> None:
        """Record a tool call, its arguments, the user's answer if asked, and which order its result `reads_like`."""
        record: dict[str, Any] = {"name": result.call.name, "error": result.is_error}
        if result.asked is not None:
            arguments = redact(result.call.arguments)[0]
            shown = arguments if len(arguments) <= _LONGEST_ARGUMENTS else f"{arguments[:_LONGEST_ARGUMENTS]}…"
            record |= {"arguments": shown, "allowed": result.asked}
        self.tools.append(record | ({"reads_like": reads_like} if reads_like else {}))

    def as_json(self) -> dict[str, Any]:
        """Return the receipt as one record, without what the transcript holds or this turn did not have."""
        unset = {name for name in ("attachments", "title", "resumed_at") if not getattr(self, name)}
        unset |= {"reply_number"} if self.reply_number == 1 else set()
        record = {name: getattr(self, name) for name in self.__struct_fields__ if name not in {"reply", "lost", *unset}}
        return record | {
            "version": VERSION,
            "at": format_time(self.at),
            **({"resumed_at": format_time(self.resumed_at)} if self.resumed_at else {}),
            "seconds": round(self.seconds, 3),
            "first_text_seconds": self.first_text_seconds and round(self.first_text_seconds, 3),
            "calls": [call.as_json() for call in self.calls],
        }


def as_unsent(memory: Mapping[str, Any], ids: Collection[str], why: str) -> dict[str, Any]:
    """Return the record of a block that is not sent after all; `ids` are its memories, `why` is the reason."""
    kept = {name: value for name, value in memory.items() if name not in _PARTS}
    out = [{"id": each, "why": why} for each in ids]
    return kept | {"injected": [], "left_out": [*kept.get("left_out", ()), *out]}


def outcomes(memory: Mapping[str, Any]) -> dict[str, str]:
    """Return the outcome of each memory of a receipt, by id: sent or why not, the highest score first."""
    sent: dict[str, str] = {}
    for name, outcome in _PARTS.items():
        sent |= dict.fromkeys(map(str, memory.get(name, ())), outcome)
    for name, outcome in (("before", BEFORE), ("in_window", IN_WINDOW)):
        sent |= {str(each): outcome for each in memory.get(name, ()) if each not in sent}
    others = {str(each["id"]): str(each["verdict"]) for each in memory.get("considered", ())}
    others |= {str(each["id"]): str(each["why"]) for each in memory.get("left_out", ())}
    found = sent | {each: why for each, why in others.items() if each not in sent}
    scores = dict.fromkeys(sent, inf) | {str(each["id"]): each["score"] for each in memory.get("considered", ())}
    return dict(sorted(found.items(), key=lambda each: -scores.get(each[0], -inf)))


def ending(receipt: Mapping[str, Any]) -> str:
    """Return how a turn ended; empty if its reply is complete."""
    finish = str(receipt.get("finish", "stop"))
    return {"stop": "", "cancelled": "stopped"}.get(finish, finish.replace("_", " "))


def with_calls(receipt: dict[str, Any], receipts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a receipt with its turn's calls, which only the first receipt of a reply has, as they are billed once."""
    if receipt.get("calls"):
        return receipt
    same = (each for each in receipts if each.get("turn") == receipt.get("turn") and each.get("calls"))
    return next(({**receipt, "calls": each["calls"]} for each in same), receipt)


def memory_line(memory: Mapping[str, Any]) -> str:
    """Return how many memories the prompt held, and how many a provider was not sent; empty if neither."""
    found = Counter(outcomes(memory).values())
    sent = found[SENT] + found[EXCERPT] + found[QUOTED] + found[LISTED] + found[STANDING]
    already = found[BEFORE] + found[IN_WINDOW]
    withheld = memory.get("withheld", {})
    parts = [
        f"{how_many(sent, 'memory')} sent" if sent else "",
        f"{how_many(found[LINE], 'profile line')} sent" if found[LINE] else "",
        f"{already if sent else how_many(already, 'memory')} already in the conversation" if already else "",
        f"{n} withheld from {withheld['provider']}" if (n := len(withheld.get("rows", ()))) else "",
    ]
    return ", ".join(filter(None, parts))


def nothing_considered(memory: Mapping[str, Any]) -> str:
    """Return why no memory was considered."""
    if not memory:
        return "memory was not searched"
    if not memory.get("judged", {}).get("needs_memory", True):
        return "memory was not searched: this message seems to need nothing that was said before"
    return "no memory matches"
