"""Parts of a transcript as exchanges: the end, what is before or after a position, and running turns."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.attachments import Link, split_links
from chatbot.chat.dialogue import ASSISTANT, ERROR, SO_FAR, STOPPED, TOOL, TOOL_CALL, USER, replies_of
from chatbot.chat.receipts import memory_line
from chatbot.memory import SessionHandle
from chatbot.memory.meaning import is_only_questions
from chatbot.messages import json_in
from chatbot.server.dependencies import entries_between
from chatbot.server.errors import problem_of
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.turns import RunningTurn, entries_since
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import UnsupportedOperation
from chatbot.stores.records import TranscriptEntry, format_time
from chatbot.transfer.untrusted import checked_receipt

_LONGEST_TOOL_TEXT = 4_000
_STATES = {"cancelled": "stopped", "length": "cut"}
"""States of replies, by how their receipts say that they ended."""


class AnswerEntry(Struct, frozen=True):
    """One entry after a message: `role` is assistant, tool_call, tool, error, or any other text."""

    role: str
    text: str
    names: str = ""


class Exchange(Struct):
    """A message and all entries up to the next one. `at` identifies it; `question` is None without a message."""

    at: str
    moment: datetime
    question: str | None
    answers: list[AnswerEntry] = []
    receipt: dict[str, Any] | None = None
    """The receipt of the turn; None if there is none."""
    files: tuple[Link, ...] = ()
    """Files and pictures of the message."""
    turn: str = ""
    """The name of the running turn that answers it; empty if none runs."""
    number: int = 1
    """Number of the reply that models see."""
    others: dict[int, list[AnswerEntry]] = {}
    """The other replies to the message, without empty ones, by number."""
    written: str = ""
    """Time of the last entry; it differs for another reply."""
    problem: str = ""
    """The error of the turn, where the transcript may lack it."""

    @property
    def numbers(self) -> list[int]:
        """The numbers of the replies to choose from."""
        return sorted([*self.others, self.number])

    @property
    def state(self) -> str:
        """`failed`, `stopped`, `cut` at the length limit, or empty for a complete reply."""
        if self.answers and self.answers[-1].role == ERROR:
            return "stopped" if self.answers[-1].text == STOPPED else "failed"
        return _STATES.get(str((self.receipt or {}).get("finish")), "")

    @property
    def reply(self) -> str:
        """The text of the reply, as Markdown."""
        return "\n\n".join(each.text for each in self.answers if each.role == ASSISTANT)

    @property
    def recalled(self) -> str:
        """The numbers of memories that the model saw, and that were withheld, as a text."""
        return memory_line((self.receipt or {}).get("memory") or {})

    @property
    def remembered(self) -> str:
        """A note of what is remembered: if the message only asks, only the reply."""
        if not (self.receipt or {}).get("remembered"):
            return ""
        return "remembered the reply" if is_only_questions(self.question or "") else "remembered this"

    @property
    def notices(self) -> Sequence[str]:
        """Notices of the turn that are not among its entries."""
        said = {each.text for each in self.answers}
        return [each for each in (self.receipt or {}).get("notices", ()) if each not in said]


def exchanges(entries: Iterable[TranscriptEntry]) -> list[Exchange]:
    """Group the entries into exchanges."""
    gathered: list[list[TranscriptEntry]] = []
    for entry in entries:
        if entry.role == USER or not gathered:
            gathered.append([])
        gathered[-1].append(entry)
    return [_exchange(each) for each in gathered]


def _exchange(entries: Sequence[TranscriptEntry]) -> Exchange:
    first, is_asked = entries[0], entries[0].role == USER
    asked, files = split_links(first.content) if is_asked else (None, ())
    replies, number = replies_of(entries[1:] if is_asked else entries)
    choices = [each for each, lines in replies.items() if each == number or any(role == ASSISTANT for role, _ in lines)]
    others = {each: [answer for line in replies[each] for answer in _answers(*line)] for each in choices}
    current, written = others.pop(number), format_time(entries[-1].at)
    return Exchange(
        format_time(first.at), first.at, asked, current, files=files, number=number, others=others, written=written
    )


def _answers(role: str, content: str) -> list[AnswerEntry]:
    """Return what is shown of an entry; the text that came before an error is shown as a reply."""
    if role == ERROR:
        problem, _, text = content.partition(SO_FAR)
        return [*([AnswerEntry(ASSISTANT, text)] if text else []), AnswerEntry(ERROR, problem)]
    if role == TOOL_CALL:
        return [_call(content)]
    if role == TOOL:
        result = json_in(content)
        text = str(result.get("content", "")) if isinstance(result, dict) else content
        return [AnswerEntry(TOOL, _shortened(text))]
    return [AnswerEntry(role, content)]


def _call(content: str) -> AnswerEntry:
    calls = json_in(content)
    named = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    names = ", ".join(str(call.get("name", "?")) for call in named)
    lines = "\n".join(f"{call.get('name', '?')} {call.get('arguments', '')}" for call in named)
    return AnswerEntry(TOOL_CALL, _shortened(lines or content), names or "a tool")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TOOL_TEXT else text[:_LONGEST_TOOL_TEXT] + "…"


AT_ONCE = 40
"""Entries shown first, and added with each step backwards or forwards."""
_BEFORE = 6
"""Entries shown before a requested message."""


class TalkSpan(Struct):
    """Entries `begin` to `end` of a transcript, as exchanges; `total` is the number of all entries."""

    exchanges: list[Exchange] = []
    begin: int = 0
    end: int = 0
    total: int = 0

    @property
    def is_end(self) -> bool:
        """True if nothing comes after it."""
        return self.end >= self.total


async def the_end(session: SessionHandle) -> TalkSpan:
    """Return the last entries, from a message on."""
    if not session.supports(TranscriptStore):
        return TalkSpan()
    return await _part(session, lambda total: (total - AT_ONCE, total))


async def before(session: SessionHandle, end: int) -> TalkSpan:
    """Return the last entries before position `end`."""
    return await _part(session, lambda total: (min(end, total) - AT_ONCE, end))


async def after(session: SessionHandle, begin: int) -> TalkSpan:
    """Return the next entries from position `begin`."""
    return await _part(session, lambda _: (begin, begin + AT_ONCE), is_forwards=True)


async def around(session: SessionHandle, moment: datetime) -> TalkSpan:
    """Return the first entry at or after that moment and those around it; the end if there is none."""
    entries = await session.transcript_read_all()
    at = next((number for number, entry in enumerate(entries) if entry.at >= moment), None)
    if at is None:
        return await the_end(session)
    return await _part(session, lambda _: (at - _BEFORE, at + AT_ONCE - _BEFORE))


async def exchanges_since(session: SessionHandle, moment: datetime, written: str) -> list[Exchange] | None:
    """Return the exchanges after the message of that moment; None if it is gone or got another reply."""
    entries = await entries_since(session, moment)
    found = exchanges(entries)
    if not found or found[0].moment != moment or found[0].written != written:
        return None
    asked = (n for n, each in enumerate(entries) if each.role == USER and each.at > moment)
    return await _exchanges_of(session, entries[next(asked, len(entries)) :])


ELSEWHERE = "elsewhere"
"""The name of a turn that another server runs."""


async def mark_running(access: IdentityAccess, session_id: str, shown: list[Exchange]) -> None:
    """Mark the exchange that is being answered, and add waiting messages, which the transcript does not have yet."""
    turns = await access.turns_under_way(session_id)
    for turn in turns:
        if turn is turns[0] and shown and _is_of(shown[-1], turn):
            shown[-1].turn = name_of(turn)
        else:
            shown.append(waiting_exchange(turn))
    is_open = bool(shown) and not turns and (shown[-1].receipt is None or not shown[-1].answers)
    if is_open and await access.is_answering_elsewhere(session_id):
        shown[-1].turn = ELSEWHERE


async def add_failed(access: IdentityAccess, session_id: str, shown: list[Exchange]) -> None:
    """Add the message of the last turn, with its error, if that failed before the transcript had it."""
    for turn in (await access.latest_turns(session_id))[-1:]:
        if turn.error and not turn.is_again and all(each.moment < turn.begun_at for each in shown):
            problem = problem_of(turn.error, access.caller).message
            shown.append(replace(waiting_exchange(turn), turn="", problem=problem))


def waiting_exchange(turn: RunningTurn) -> Exchange:
    """Return the exchange of a turn whose message is not in the transcript yet."""
    text, kept = split_links(turn.text)
    files = (*kept, *(Link(each.name, "") for each in turn.files))
    return Exchange("", turn.begun_at, text, files=files, turn=name_of(turn), written=name_of(turn))


def _is_of(exchange: Exchange, turn: RunningTurn) -> bool:
    """Return whether a stored exchange belongs to the turn; files are not compared."""
    return turn.is_again or (exchange.moment >= turn.begun_at and exchange.question == split_links(turn.text)[0])


def name_of(turn: RunningTurn) -> str:
    """Return the name of a running turn within its session."""
    return format_time(turn.begun_at)


def turn_named(turns: Iterable[RunningTurn], name: str) -> RunningTurn | None:
    """Return the turn of that name; None if there is none."""
    return next((each for each in turns if name_of(each) == name), None)


async def _part(
    session: SessionHandle, place: Callable[[int], tuple[int, int]], *, is_forwards: bool = False
) -> TalkSpan:
    """Read the part that `place` gives for the number of all entries, as whole exchanges."""
    entries, begin, total = await entries_between(session, place)
    end = begin + len(entries)
    if not is_forwards:
        whole = _from_a_message(entries) if begin else entries
        begin, entries = begin + len(entries) - len(whole), whole
    elif end < total:
        end, entries = _to_a_message(begin, entries)
    return TalkSpan(await _exchanges_of(session, entries), begin, end, total)


async def _exchanges_of(session: SessionHandle, entries: list[TranscriptEntry]) -> list[Exchange]:
    found = exchanges(entries)
    if found:
        try:
            receipts = await session.receipts_since(found[0].moment)
        except UnsupportedOperation:  # a session without receipts
            return found
        by_time = {str(each["at"]): each for each in receipts}
        for each in found:
            try:
                each.receipt = checked_receipt(by_time[each.at]) if each.at in by_time else None
            except ValueError as error:
                each.receipt = {"notices": [str(error)]}
    return found


def _from_a_message(entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
    """Drop the entries before the first message; drop none if there is no message."""
    first = next((number for number, entry in enumerate(entries) if entry.role == USER), 0)
    return entries[first:]


def _to_a_message(begin: int, entries: list[TranscriptEntry]) -> tuple[int, list[TranscriptEntry]]:
    """Drop the last of several exchanges: it may be incomplete; return the end and the rest."""
    last = max((number for number, entry in enumerate(entries) if entry.role == USER), default=0)
    kept = entries[:last] or entries
    return begin + len(kept), kept
