"""Place of a request: the session in which it is answered, if any.

A request finds its session by what it names (a header, `session_id` or `conversation`, `previous_response_id`), or else
by the whole history that it sends. Who may open it is decided by `IdentityAccess`: a session of another user does not
exist, whatever is named.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatbot.chat.dialogue import messages_of, tool_result_line, unanswered
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle
from chatbot.messages import Message
from chatbot.server.callers import REMEMBERS, Remembers
from chatbot.server.errors import UNKNOWN, Problem, ProblemError, invalid
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai import histories
from chatbot.server.openai.asked import NEW, Ask
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import MissingRight
from chatbot.stores.records import TranscriptEntry, parse_time

SESSION_HEADER = "x-chatbot-session"
MEMORY_HEADER = "x-chatbot-memory"
_RESPONSE = "resp_"
_ID_LENGTH = 32


@dataclass(frozen=True, slots=True)
class ReplyPlace:
    """Place in which a request is answered."""

    session: SessionHandle | None = None
    """None if nothing is kept."""
    before: tuple[Message, ...] | None = None
    """Earlier messages, as the client sent them or, where nothing is stored, as the session holds them, with the
    answers of tools; None: the session's own transcript continues."""
    is_whole: bool = False
    """True if the client holds the whole conversation and may send it again to find the session."""
    is_new: bool = False
    """True if the session was created for this request, unasked."""


async def place_of(ask: Ask, access: IdentityAccess) -> ReplyPlace:
    """Find or begin the session of a request. Raises `ProblemError`, or whatever opening it raises."""
    named = await _named(ask, access)
    if ask.memory == "off":
        return ReplyPlace(before=None if named is None else await _said_in(named, ask, access))
    if named is not None:
        return await _at(named, ask, access)
    remembers = (ask.memory or access.caller.memory) == "on"
    if ask.session is None and (not remembers or not _can_be_kept(ask, access) or is_side_call(ask.said)):
        return ReplyPlace()
    if ask.session is None and ask.history:
        found = await histories.find(access, ask.history)
        if found is not None and (session := await _taken_up(found, access)) is not None:
            return ReplyPlace(session, ask.before, is_whole=True)
    before = ask.before if ask.session is None else None
    return ReplyPlace(
        await access.new_session(), before, is_whole=before is not None or not ask.history, is_new=before is not None
    )


def named_in_headers(headers: Mapping[str, str]) -> tuple[str | None, Remembers | None]:
    """The session that the headers name, and whether they want memory. Raises `ProblemError`."""
    wanted = headers.get(MEMORY_HEADER)
    if wanted is not None and wanted not in REMEMBERS:
        raise ProblemError(invalid("it should be on or off", "X-Chatbot-Memory"))
    return headers.get(SESSION_HEADER), "on" if wanted == "on" else "off" if wanted == "off" else None


def one_of(**named: str | None) -> str | None:
    """The one session that several fields name. Raises `ProblemError` where they name different ones."""
    sessions = {name: session for name, session in named.items() if session is not None}
    if len(set(sessions.values())) > 1:
        raise ProblemError(invalid(f"{' and '.join(sessions)} name different sessions: name one", list(sessions)[-1]))
    return next(iter(sessions.values()), None)


def response_id(session: SessionHandle | None, turn: str) -> str:
    """The id of a response, by which a later request can follow it."""
    where = "0" * _ID_LENGTH if session is None else uuid.UUID(session.id).hex
    return f"{_RESPONSE}{where}{uuid.UUID(turn).hex}"


def place_in(response: str) -> tuple[str, str]:
    """The session and the turn of a response. Raises `ProblemError` for what is no id of one that is kept."""
    ids = response.removeprefix(_RESPONSE)
    try:
        session, turn = uuid.UUID(ids[:_ID_LENGTH]), uuid.UUID(ids[_ID_LENGTH:])
    except ValueError:
        raise unknown_response(response) from None
    if not response.startswith(_RESPONSE) or not session.int:
        raise unknown_response(response)
    return str(session), str(turn)


def unknown_response(response: str) -> ProblemError:
    """The refusal of a response that is not kept, or that the caller may not know."""
    why = f"no response {response!r:.100} is kept: send store: true, or use a token that remembers"
    return ProblemError(Problem(404, UNKNOWN, "previous_response_not_found", why, "previous_response_id"))


@dataclass(frozen=True, slots=True)
class _Continuation:
    session: SessionHandle
    entries: int | None = None
    """Number of entries to continue after; None: all."""


async def _named(ask: Ask, access: IdentityAccess) -> _Continuation | None:
    if ask.previous is not None:
        if ask.session is not None:
            raise ProblemError(invalid("it cannot be sent together with a session", "previous_response_id"))
        return await _followed(ask.previous, access)
    if ask.session in {None, NEW}:
        return None
    return _Continuation(await access.session(str(ask.session)))


async def _followed(response: str, access: IdentityAccess) -> _Continuation:
    session_id, turn = place_in(response)
    try:
        session = await access.session(session_id)
    except SessionNotFound:
        raise unknown_response(response) from None
    receipts = await session.receipts()
    at = next((at for at, each in enumerate(receipts) if each["turn"] == turn and not each.get("taken_back")), None)
    if at is None:
        raise unknown_response(response)
    return _Continuation(session, await _entries_until(session, receipts[at + 1 :]))


async def _entries_until(session: SessionHandle, later: list[dict[str, Any]]) -> int | None:
    """Return the number of entries before those later turns; None if there are none."""
    if not later:
        return None
    begin = parse_time(later[0].get("resumed_at") or later[0]["at"])
    return sum(entry.at < begin for entry in await session.transcript_read_all())


async def _at(named: _Continuation, ask: Ask, access: IdentityAccess) -> ReplyPlace:
    """The session that was named, or a fork of it where it has gone on since."""
    session = named.session
    session.check("chat")
    if named.entries is not None:
        session = await access.fork(session.id, at=named.entries)
    return ReplyPlace(session, is_whole=bool(ask.history) and await _is_history_of(session, ask))


async def _is_history_of(session: SessionHandle, ask: Ask) -> bool:
    """Return whether the client sent the whole conversation; it cannot be told to a caller who may not read it."""
    if not session.record.history or not session.supports(TranscriptStore):
        return False
    try:
        return session.record.history == histories.mark(ask.history, await session.transcript_count())
    except MissingRight:
        return False


async def _taken_up(found: histories.HistoryMatch, access: IdentityAccess) -> SessionHandle | None:
    if found.entries is None:
        return await access.session(found.session_id)
    try:
        return await access.fork(found.session_id, at=found.entries)
    except MissingRight:
        return None  # a session of its own is as good


async def _said_in(named: _Continuation, ask: Ask, access: IdentityAccess) -> tuple[Message, ...]:
    """Return the messages of a session, with the answers of tools, for a reply that is not kept in it."""
    named.session.check("chat")
    entries = await _shown(named, access.runtime.setup.agent_settings.window_entries)
    waiting = {call.id for call in unanswered(entries)}
    if not waiting.issuperset(str(each.tool_call_id) for each in ask.answers):
        raise ProblemError(invalid("no pending tool call matches these answers", "messages"))
    answers = [tool_result_line(str(each.tool_call_id), each.content) for each in ask.answers]
    return tuple(messages_of([*((entry.role, entry.content) for entry in entries), *answers]))


async def _shown(named: _Continuation, most: int) -> list[TranscriptEntry]:
    """Return the last entries up to the place that was named."""
    if named.entries is None:
        return await named.session.transcript_read_last(most)
    return (await named.session.transcript_read_all())[: named.entries][-most:]


def _can_be_kept(ask: Ask, access: IdentityAccess) -> bool:
    """Return whether the agent keeps conversations, and the request has something to keep."""
    return bool(access.runtime.store_types) and bool(ask.new)


_OPEN_WEBUI = re.compile(r"\A\s*### Task:\s*\S.*<chat_history>.*</chat_history>", re.DOTALL)
"""Titles, tags, follow-ups, queries, image prompts and completions of what is typed."""
_OPEN_WEBUI_EMOJI = re.compile(r"\A\s*Your task is to reflect the speaker's likely facial expression through a fitting")
_OPEN_WEBUI_MERGE = re.compile(r"\A\s*You have been provided with a set of responses from various models to the latest")
_LIBRECHAT = re.compile(
    r"\A\s*Analyze this conversation and provide:\s*1\. The detected language of the conversation\s*2\. A concise title"
)
_LIBRECHAT_COMPLETION = re.compile(
    r"\A\s*(?:Provide|Please generate) a concise, 5-word-or-less title for the conversation,.*title case", re.DOTALL
)
_LIBRECHAT_OLDER = re.compile(
    r"\A\s*Write a concise title for this conversation in the detected language\. Title in 5 Words or Less\."
)
_SHAPES = (
    *(_OPEN_WEBUI, _OPEN_WEBUI_EMOJI, _OPEN_WEBUI_MERGE),
    *(_LIBRECHAT, _LIBRECHAT_COMPLETION, _LIBRECHAT_OLDER),
)


def is_side_call(messages: Sequence[Message]) -> bool:
    """Return whether a front end asks this for itself: a title for a chat, tags, questions to go on with, a query.

    Such calls quote a conversation that is remembered already, so they are answered and not remembered. A call is one
    only if it begins as the front end's published prompt does and has its other marks, in its one message of a user:
    someone who merely asks for a title is remembered like anybody.
    """
    said = [each for each in messages if each.content]
    return len(said) == 1 and any(shape.match(said[0].content) for shape in _SHAPES)
