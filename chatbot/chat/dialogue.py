"""Lines of a transcript from and as messages for a model; the transcript and the client's request of one turn.

A model is shown `user`, `assistant`, `tool_call` and `tool` entries. Any other role, such as `error`, is for people and
never shown to it, so no entry can speak as the system. The earlier replies to a message that was answered again stay
before the current one, under roles such as `reply-1-assistant`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count, takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from chatbot.attachments import Link, with_links
from chatbot.chat.ledger import UNBILLED, Payer
from chatbot.memory import SessionHandle
from chatbot.memory.handle import WriteResult
from chatbot.messages import CallOptions, Message, ToolCall, ToolSpec, json_in
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import StoreError, UnknownOutcome
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.row_events import Event

ASSISTANT = "assistant"
ERROR = "error"
TOOL = "tool"
TOOL_CALL = "tool_call"
USER = "user"
STOPPED = "stopped before the reply was complete"
"""The `error` entry of a reply that the user stopped."""
SO_FAR = "\n\ntext so far:\n\n"
"""Text between an error and the reply so far, in an `error` entry."""
UNMATCHED_ANSWERS = "no pending tool call matches these answers: send the whole conversation"

_ENTRIES_AT_FIRST = 32
_WITHHELD = '{"withheld": "this answer is not sent to this provider"}'

_OTHER_REPLY = re.compile(r"reply-([1-9]\d{0,5})-(.+)")

DialogueLine = tuple[str, str]


def tool_call_line(calls: Iterable[ToolCall]) -> DialogueLine:
    """Return the entry that records the tool calls of a model."""
    listed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    return TOOL_CALL, json.dumps(listed, ensure_ascii=False, indent=2)


def tool_result_line(call_id: str, content: str) -> DialogueLine:
    """Return the entry that records the answer of a tool."""
    return TOOL, json.dumps({"id": call_id, "content": content}, ensure_ascii=False, indent=2)


def messages_of(said: Sequence[DialogueLine]) -> list[Message]:
    """Return the messages for a model: from the first user entry on, tool calls only with their results."""
    messages: list[Message] = []
    for role, text in said:
        if text and (role == USER or (role == ASSISTANT and messages)):
            messages.append(Message("user" if role == USER else "assistant", text))
        elif role == TOOL_CALL and messages and (calls := _read_calls(text)):
            is_same_reply = messages[-1].role == "assistant" and not messages[-1].tool_calls
            messages.append(Message("assistant", messages.pop().content if is_same_reply else "", tool_calls=calls))
        elif role == TOOL and messages:
            messages.extend(_read_result(text))
    return _paired(messages)


async def last_exchange(session: SessionHandle | None) -> list[TranscriptEntry]:
    """Return the user's last entry and all after it; empty if there is none, or no transcript."""
    if session is None or not session.supports(TranscriptStore):
        return []
    entries = await entries_with_question(session)
    asked = _last_asked(entries)
    return [] if asked is None else entries[asked:]


async def entries_with_question(
    session: SessionHandle, read: Callable[[TranscriptEntry], TranscriptEntry] = lambda entry: entry
) -> list[TranscriptEntry]:
    """Return the last entries, each changed by `read`, with at least the user's last one if there is any."""

    def has_question(entries: Sequence[TranscriptEntry]) -> bool:
        return any(read(each).role == USER for each in reversed(entries))

    return [*map(read, await read_back(session, has_question))]


async def read_back(
    session: SessionHandle, is_enough: Callable[[Sequence[TranscriptEntry]], bool], n: int = _ENTRIES_AT_FIRST
) -> list[TranscriptEntry]:
    """Return the last `n` entries, or four times as many again and again, until they are enough or all."""
    while True:
        entries = await session.transcript_read_last(n)
        if len(entries) < n or is_enough(entries):
            return entries
        n *= 4


def replies_of(entries: Iterable[TranscriptEntry]) -> tuple[dict[int, list[DialogueLine]], int]:
    """Return every reply among the entries after a message, by its number from 1, and the number of the current one."""
    found: dict[int, list[DialogueLine]] = {}
    current: list[DialogueLine] = []
    for entry in entries:
        if other := _OTHER_REPLY.fullmatch(entry.role):
            found.setdefault(int(other[1]), []).append((other[2], entry.content))
        else:
            current.append((entry.role, entry.content))
    number = next(number for number in count(1) if number not in found)
    return dict(sorted((found | {number: current}).items())), number


def reply_lines(replies: Mapping[int, Sequence[DialogueLine]], current: int) -> list[DialogueLine]:
    """Return the entries that hold these replies, of which `current` is the current one."""
    others = [(number, line) for number, lines in replies.items() if number != current for line in lines]
    return [
        *((f"reply-{number}-{role}"[:32], content) for number, (role, content) in others),  # no role may be longer
        *replies.get(current, ()),
    ]


def unanswered_calls(entries: Sequence[TranscriptEntry]) -> list[ToolCall]:
    """Return the tool calls in these entries that have no answer."""
    answered = {each.tool_call_id for entry in entries if entry.role == TOOL for each in _read_result(entry.content)}
    calls = [call for entry in entries if entry.role == TOOL_CALL for call in _read_calls(entry.content)]
    return [call for call in calls if call.id not in answered]


def awaited_results(entries: Sequence[TranscriptEntry], results: Iterable[Message]) -> list[DialogueLine]:
    """Return the entries that record these results of tools; none for a result that no call in `entries` waits for."""
    waiting = {call.id for call in unanswered_calls(entries)}
    return [tool_result_line(each.tool_call_id, each.content) for each in results if each.tool_call_id in waiting]


def with_results_withheld(messages: Sequence[Message], tools: Collection[str]) -> list[Message]:
    """Replace the answers of these tools, which the model of an earlier turn was allowed to call."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [
        replace(message, content=_WITHHELD) if names.get(str(message.tool_call_id)) in tools else message
        for message in messages
    ]


def _paired(messages: list[Message]) -> list[Message]:
    """Drop calls without an answer and answers without a call: providers refuse both."""
    paired: list[Message] = []
    for at, message in enumerate(messages):
        following = takewhile(lambda each: each.role == "tool", messages[at + 1 :])
        results = {str(each.tool_call_id): each for each in following}
        calls = tuple(call for call in message.tool_calls if call.id in results)
        if message.role != "tool" and (message.content or calls):
            paired += [replace(message, tool_calls=calls), *(results[call.id] for call in calls)]
    return paired


def _read_calls(content: str) -> tuple[ToolCall, ...]:
    try:
        return msgspec.json.decode(content, type=tuple[ToolCall, ...])
    except (ValueError, RecursionError):
        return ()


def _read_result(content: str) -> list[Message]:
    result = json_in(content)
    if not isinstance(result, dict) or not isinstance(result.get("id"), str):
        return []
    return [Message("tool", str(result.get("content", "")), tool_call_id=result["id"])]


class Window:
    """The last entries that the model is shown: at most `limit`, and what a turn adds. One per conversation.

    A window that moved at every turn would defeat prompt caches. So it grows to its limit, then restarts with its later
    half.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.since: datetime | None = None
        """Time of the first entry shown; older ones were left out."""

    def cut(self, entries: Sequence[TranscriptEntry], own: int) -> list[TranscriptEntry]:
        """Return the window, moved if full; `entries` are the last `limit + own`, and `own` of them are this turn's."""
        if not entries:
            self.since = None
            return []
        since = self.since or entries[0].at
        first = next((at for at, entry in enumerate(entries) if entry.at >= since), None)
        if first is None or (entries[0].at > since and len(entries) >= self.limit + own):
            first = (len(entries) - own) // 2  # all are older than the window if the clock was set back
        asked = [at for at, entry in enumerate(entries) if entry.role == USER]
        first = next((at for at in asked if at >= first), asked[-1] if asked else first)
        self.since = entries[first].at
        return list(entries[first:])


class TurnTranscript:
    """The transcript of a session during one turn: the entries that the model is shown, and those that the turn adds.

    Entries that cannot be saved are kept for this turn only; `notice` gets each failure. Without a session, or a store
    for transcripts, nothing is read or saved. `shows_window` is false if a client sends the whole conversation: then
    only this turn is read.
    """

    def __init__(
        self,
        session: SessionHandle | None,
        window: Window,
        clock: Callable[[], datetime],
        notice: Callable[[str], None],
        *,
        asked: str,
        shows_window: bool,
    ) -> None:
        self._session = session
        self._window = window
        self._clock = clock
        self._notice = notice
        self.bills: list[Callable[[], object]] = []
        """Writes of bill lines, made with the next entries."""
        self.is_kept = session is not None and session.supports(TranscriptStore)
        self._shows_window = shows_window
        self.asked = asked
        """The user's entry, with the links of attachments."""
        self.asked_at = clock()
        self.reply_number = 1
        self._own: list[TranscriptEntry] = []
        """The entries of this turn: a store may keep fewer."""
        self._unsaved: list[DialogueLine] = []
        self.has_gap = False
        """True once an entry could not be saved: later ones would follow a gap."""
        self._shown: list[TranscriptEntry] | None = None
        """The window; None once something was written."""
        self._reply_before: str | None = None

    def resume(self, entries: Sequence[TranscriptEntry]) -> None:
        """Continue the turn that wrote these entries."""
        self.asked, self.asked_at, self._own = entries[0].content, entries[0].at, list(entries)
        self.reply_number = replies_of(entries[1:])[1]

    async def write_asked(self, links: Iterable[Link] = ()) -> None:
        """Write the user's entry, with the links of its attachments."""
        self.asked = with_links(self.asked, links)
        await self.write((USER, self.asked))

    def show_asked(self) -> None:
        """Show the user's entry to the model without writing it: for a dry run."""
        self._unsaved.append((USER, self.asked))

    async def entries(self) -> list[TranscriptEntry]:
        """Return the window, read again after a write."""
        if self._shown is None:
            self._shown = await self._read_window()
        return self._shown

    async def lines(self) -> list[DialogueLine]:
        """Return the lines of the window, then those that could not be saved."""
        return [*((each.role, each.content) for each in await self.entries()), *self._unsaved]

    async def reply_before(self) -> str | None:
        """Return the bot's last reply before this turn, as far as the window shows it; None if it is not known."""
        if self._reply_before is None:
            self._reply_before = reply_before(await self.entries(), self.asked_at)
        return self._reply_before

    async def begin_window(self, exchanges: int) -> bool:
        """Begin the window with the user's last `exchanges` messages; return whether that moved it."""
        entries = await self.entries()
        unsaved = [self.asked_at for role, _ in self._unsaved if role == USER]
        asked = [*(each.at for each in entries if each.role == USER), *unsaved][-exchanges:]
        if not self._shows_window or not (entries and asked) or asked[0] <= entries[0].at:
            return False
        self._window.since = asked[0]
        self._shown = [each for each in entries if each.at >= asked[0]]
        return True

    async def _read_window(self) -> list[TranscriptEntry]:
        """Return the last entries, and all of this turn however many tools it ran."""
        if self._session is None or not self.is_kept:
            return []
        earlier, own = self._window.limit - 1 if self._shows_window else 0, self._own
        try:
            entries = await self._session.transcript_read_last(earlier + len(own))
            entries = max(entries, own, key=len)  # a store may keep fewer than this turn has
        except StoreError as error:
            self._notice(f"earlier messages cannot be read, so this turn continues without them: {error}")
            return list(own)
        if not self._shows_window:
            self._window.since = self._session.record.created_at  # the client shows the whole session
            return list(entries)
        return self._window.cut(entries, max(len(own) - 1, 0))

    async def write(
        self, *said: DialogueLine, events: Sequence[Event] = (), receipt: dict[str, Any] | None = None
    ) -> WriteResult:
        """Write entries, events of memory, a receipt and the bills so far. Entries that fail are kept for this turn."""
        self._shown = None
        if self._session is None or not self.is_kept or self.has_gap:
            self._unsaved.extend(said)
            said = ()
        entries = [TranscriptEntry(role, text, self._clock() if self._own else self.asked_at) for role, text in said]
        bills, self.bills[:] = [*self.bills], []
        parts = {"bills": bills, "entries": entries, "events": events, "receipt": receipt}
        if self._session is None or not any(parts.values()):
            return WriteResult()
        try:
            result = await self._session.write_turn(bills=bills, entries=entries, events=events, receipt=receipt)
        except StoreError as error:
            result = WriteResult({name: error for name, part in parts.items() if part})
        if "bills" in result.failed:
            self._notice(f"{UNBILLED}: {result.failed['bills']}")
        if (lost := result.failed.get("entries")) is not None:
            self.has_gap = True
            self._unsaved.extend(said)
            says = "may" if isinstance(lost, UnknownOutcome) else "could not be saved, and will"
            self._notice(f"this {says} be lost: {lost}")
        else:
            self._own += entries
        return result


def unanswered(entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the user's messages at the end, which nothing else follows, newest first."""
    return list(takewhile(lambda each: each.role == USER, reversed(entries)))


def reply_before(entries: Sequence[TranscriptEntry], asked_at: datetime) -> str | None:
    """Return the text of the entry just before that moment if the bot said it, else empty; None if there is none."""
    said = [each for each in entries if each.at < asked_at]
    if not said:
        return None
    return said[-1].content if said[-1].role == ASSISTANT else ""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a client for one turn. Defaults have no effect."""

    turn: str = ""
    """The turn's id, a UUIDv7, if the client must know it before the turn begins."""
    persona: str = ""
    """Instructions in place of the persona; empty: the persona."""
    history: tuple[Message, ...] | None = None
    """The conversation so far, in place of the transcript's window, and not stored; None: the window."""
    asked: Message | None = None
    """The user's message with its images, which the transcript cannot hold."""
    tool_results: tuple[Message, ...] = ()
    """Results of the client's tools: the turn continues where the model called them."""
    earlier_tool_results: tuple[Message, ...] = ()
    """Results of the client's tools, sent with the next message: the turn before ends with them."""
    sent: tuple[Message, ...] = ()
    """The client's copy of the whole turn, with answers, for a session without the beginning of the turn."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the client runs; of two with the same name the client's is offered."""
    options: CallOptions | None = None
    recalls: bool = True
    """True if memories are recalled for the model."""
    keeps: bool = True
    """True if the exchange is remembered; its transcript is written either way."""
    again: bool = False
    """True if the last message is answered again; its replies so far stay in the transcript, unseen by models."""
    payers: tuple[Payer, ...] = ()
    """Payers of the calls of the turn, besides the identity."""

    def tools_beside(self, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return those of these tools that are offered besides the client's."""
        names = {tool.name for tool in self.tools}
        is_forced = self.options is not None and self.options.is_forced  # then ours would break the form of the reply
        return () if is_forced else tuple(each for each in specs if each.name not in names)

    def dialogue(self, said: Sequence[Message]) -> list[Message]:
        """Return the messages for the model: the client's history, then these, with the last message's images.

        If the transcript lacks the turn that is continued, the client's copy takes the place of the last message.
        """
        messages = list(said)
        if self.sent:
            begin = _last_asked(messages) or 0
            messages[begin : begin + 1] = self.sent
        messages = [*(self.history or ()), *messages]
        if self.asked is not None and self.asked.parts and (at := _last_asked(messages)) is not None:
            messages[at] = replace(messages[at], parts=self.asked.parts)
        return messages


def _last_asked(said: Sequence[Message | TranscriptEntry]) -> int | None:
    return max((at for at, each in enumerate(said) if each.role == USER), default=None)


NO_CLIENT = ClientRequest()
