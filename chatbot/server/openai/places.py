"""Place of a request: the session in which it is answered, if any.

A request finds its session by what it names (a header, `session_id` or `conversation`, `previous_response_id`), or else
by the history that it sends: a session keeps a digest of each message of the user, and of the reply. A client that
sends a part of the history, or changes the words of replies, is recognized by the run of the user's own messages if
exactly one session has it. Assistant messages that a client sends are never stored. `IdentityAccess` decides who may
open a session: that of another user is treated as missing.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chatbot.chat.dialogue import ASSISTANT, USER, messages_of, tool_result_line, unanswered
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.messages import Message
from chatbot.server.callers import REMEMBERS, Remembers
from chatbot.server.errors import Problem, invalid
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai.asked import NEW, Ask, kept_text, text_of
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import MissingRight
from chatbot.stores.records import TranscriptEntry, parse_time

SESSION_HEADER = "x-chatbot-session"
MEMORY_HEADER = "x-chatbot-memory"
_RESPONSE = "resp_"
_ID_LENGTH = 32
_LONGEST_RUN = 64
"""Number of the user's last messages by which a session is recognized."""
_MOST_COMPARED = 8


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
    """Find or begin the session of a request. Raises `Problem`, or whatever opening it raises."""
    named = await _named(ask, access)
    if ask.memory == "off":
        return ReplyPlace(before=None if named is None else await _said_in(named, ask, access))
    if named is not None:
        return await _at(named, ask, access)
    remembers = (ask.memory or access.caller.memory) == "on"
    can_be_kept = access.runtime.store_types and ask.new and not _is_side_call(ask.said)
    if ask.session is None and not (remembers and can_be_kept):
        return ReplyPlace()
    if ask.session is None and ask.history:
        session = await _session_of(ask.history, access.placed)
        if session is not None:
            return ReplyPlace(session, ask.before, is_whole=True)
    before = ask.before if ask.session is None else None
    return ReplyPlace(
        await access.new_session(), before, is_whole=before is not None or not ask.history, is_new=before is not None
    )


def named_in_headers(headers: Mapping[str, str]) -> tuple[str | None, Remembers | None]:
    """Return the session that the headers name, and whether they ask for memory. Raises `Problem`."""
    wanted = headers.get(MEMORY_HEADER)
    if wanted is not None and wanted not in REMEMBERS:
        raise invalid("it should be on or off", "X-Chatbot-Memory")
    return headers.get(SESSION_HEADER), "on" if wanted == "on" else "off" if wanted == "off" else None


def one_of(**named: str | None) -> str | None:
    """Return the one session that several fields name. Raises `Problem` if they name different ones."""
    sessions = {name: session for name, session in named.items() if session is not None}
    if len(set(sessions.values())) > 1:
        raise invalid(f"{' and '.join(sessions)} name different sessions: name one", list(sessions)[-1])
    return next(iter(sessions.values()), None)


def response_id(session: SessionHandle | None, turn: str) -> str:
    """Return the id of a response, which a later request can continue."""
    where = "0" * _ID_LENGTH if session is None else uuid.UUID(session.id).hex
    return f"{_RESPONSE}{where}{uuid.UUID(turn).hex}"


def place_in(response: str) -> tuple[str, str]:
    """Return the session and the turn of a response. Raises `Problem` for an invalid id."""
    ids = response.removeprefix(_RESPONSE)
    try:
        session, turn = uuid.UUID(ids[:_ID_LENGTH]), uuid.UUID(ids[_ID_LENGTH:])
    except ValueError:
        raise unknown_response(response) from None
    if not response.startswith(_RESPONSE) or not session.int:
        raise unknown_response(response)
    return str(session), str(turn)


def unknown_response(response: str) -> Problem:
    """Return the error for a response that is not stored, or that the caller may not know."""
    why = f"no response {response!r:.100} is kept: send store: true, or use a token that remembers"
    return Problem(404, "previous_response_not_found", why, "previous_response_id")


@dataclass(frozen=True, slots=True)
class _Continuation:
    session: SessionHandle
    entries: int | None = None
    """Number of entries to continue after; None: all."""


async def _named(ask: Ask, access: IdentityAccess) -> _Continuation | None:
    if ask.previous is not None:
        if ask.session is not None:
            raise invalid("it cannot be sent together with a session", "previous_response_id")
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
    """Return the named session, or a fork of it if it has continued since."""
    named.session.check("chat")
    session = await _continued(named, access)
    return ReplyPlace(session, is_whole=await _is_history_of(session, ask))


async def _continued(place: _Continuation, access: IdentityAccess) -> SessionHandle:
    if place.entries is None:
        return place.session
    return await access.fork(place.session.id, at=place.entries)


async def _is_history_of(session: SessionHandle, ask: Ask) -> bool:
    """Return whether the client sent the whole conversation; False for a caller who may not read it."""
    (noted, known), run = _noted(session.record), _run(ask.history)
    if not (run and known and session.supports(TranscriptStore)):
        return False
    try:
        return _end_of(run, known) == len(known) and noted == await session.transcript_count()
    except MissingRight:
        return False


async def _said_in(named: _Continuation, ask: Ask, access: IdentityAccess) -> tuple[Message, ...]:
    """Return the messages of a session, with the answers of tools, for a reply that is not kept in it."""
    named.session.check("chat")
    entries = await _shown(named, access.runtime.setup.agent_settings.window_entries)
    waiting = {call.id for call in unanswered(entries)}
    if not waiting.issuperset(str(each.tool_call_id) for each in ask.answers):
        raise invalid("no pending tool call matches these answers", "messages")
    answers = [tool_result_line(str(each.tool_call_id), each.content) for each in ask.answers]
    return tuple(messages_of([*((entry.role, entry.content) for entry in entries), *answers]))


async def _shown(named: _Continuation, most: int) -> list[TranscriptEntry]:
    """Return the last entries up to the named place."""
    if named.entries is None:
        return await named.session.transcript_read_last(most)
    return (await named.session.transcript_read_all())[: named.entries][-most:]


async def note_history(session: SessionHandle, ask: Ask, reply: Message) -> None:
    """Store digests of the conversation in the session, to find it by them."""
    messages = (*ask.said, reply)
    entries, run, known = await session.transcript_count(), _run(messages), _noted(session.record)[1]
    shown = len(_run(ask.history))
    before = [_Exchange(each.user) for each in run[:shown]]  # without replies, which the client may have changed
    if shown and known and _end_of(before, known) == len(known):
        before = known  # the client may hold only the end of it
    run = [*before, *run[shown:]]
    await session.note_history(f"{entries}:{'.'.join(map(''.join, run[-_LONGEST_RUN:]))}")


async def _session_of(history: Sequence[Message], access: IdentityAccess) -> SessionHandle | None:
    """Return the one session of this caller that holds this history at its end, or a fork of one that holds it within.

    If several fit equally, it is a fork of one of them, or None. None also if there is none, and for a caller who may
    not read.
    """
    try:
        runs = await _with_run(access, history)
        found = await _by_run(access, runs, history) if runs else None
        return await _continued(found, access) if found is not None else None
    except MissingRight:
        return None  # a new session will do


async def _with_run(access: IdentityAccess, history: Sequence[Message]) -> list[SessionRecord]:
    """Return the sessions that contain the user's messages of the history as one run; last used first.

    If one of them also has these replies, those with known other replies are left out.
    """
    run, own = _run(history), access.memory.caller.principal
    if not run:
        return []
    found = await access.memory.list_sessions(
        access.runtime.agent,
        wanted=lambda record: (
            run[-1].user in record.history  # a quick check that excludes most sessions
            and record.principal == own
            and _end_of(run, _noted(record)[1]) > 0
        ),
    )
    possible = [record for record in found if _replies_fit(run, _noted(record)[1]) is not False]
    return possible if any(_replies_fit(run, _noted(record)[1]) for record in possible) else found


async def _by_run(
    access: IdentityAccess, records: Sequence[SessionRecord], history: Sequence[Message]
) -> _Continuation | None:
    """Return the one session that holds the run, at its end or within it.

    If several do, return one with the last reply up to the end of the run, to be forked.
    """
    run, [*_, (_, answered)] = _run(history), _sent(history)
    for record in records[:_MOST_COMPARED]:
        session = await access.session(record.id)
        noted, known = _noted(record)
        entries, end = await session.transcript_read_all(), _end_of(run, known)
        is_whole = end == len(known) and noted == len(entries) and not access.is_answered(session.id)
        if len(records) == 1 and is_whole:
            return _Continuation(session)
        kept = list(_kept(entries[:noted]))  # it may have continued elsewhere
        kept = kept[: max(0, end - len(known) + len(kept))]  # the session lacks those from before it began
        if not kept or _digest_of(kept[-1][1]) != run[-1].user:
            continue
        reply = kept[-1][2]
        if len(records) == 1 or (answered and reply and (answered in reply or reply in answered)):
            return _Continuation(session, sum(size for size, *_ in kept))
    return None


def _kept(entries: Sequence[TranscriptEntry]) -> Iterator[tuple[int, str, str]]:
    """Yield the exchanges of a transcript: the number of entries, the user's text, and the reply."""
    begins = [at for at, entry in enumerate(entries) if entry.role == USER]
    if begins and begins[0]:
        return
    for begin, end in zip(begins, [*begins[1:], len(entries)], strict=True):
        said = [entry.content for entry in entries[begin:end] if entry.role == ASSISTANT]
        yield end - begin, kept_text(entries[begin].content).strip(), "\n\n".join(said).strip()


def _sent(history: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield the exchanges of a client's history in the same form."""
    asked: list[str] = []
    answered: list[str] = []
    for message in history:
        if message.role == "user":
            if answered:
                yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()
                asked, answered = [], []
            asked.append(text_of(message))
        elif message.role == "assistant" and message.content:
            answered.append(message.content)
    if asked or answered:
        yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()


class _Exchange(NamedTuple):
    """Digests of the user's text, and of the reply, if that is known to be ours."""

    user: str
    reply: str = ""


def _run(messages: Sequence[Message]) -> list[_Exchange]:
    """Return the last exchanges of a conversation."""
    said = [_Exchange(_digest_of(asked), _digest_of(reply)) for asked, reply in _sent(messages) if asked]
    return said[-_LONGEST_RUN:]


def _digest_of(said: str) -> str:
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _end_of(run: Sequence[_Exchange], known: Sequence[_Exchange]) -> int:
    """Return where the last occurrence of the run's user texts ends; 0 without one."""
    users, wanted = [each.user for each in known], [each.user for each in run]
    ends = range(len(users), len(wanted) - 1, -1)
    return next((end for end in ends if users[end - len(wanted) : end] == wanted), 0)


def _replies_fit(run: Sequence[_Exchange], known: Sequence[_Exchange]) -> bool | None:
    """Return whether the replies are those of the run; None if none differs but some are unknown."""
    end = _end_of(run, known)
    pairs = [(one.reply, other.reply) for one, other in zip(run, known[end - len(run) : end], strict=True)]
    if any(other not in {"", one} for one, other in pairs):
        return False
    return True if all(other for _, other in pairs) else None


def _noted(record: SessionRecord) -> tuple[int, list[_Exchange]]:
    """Return the number of entries at the end of the conversation that a session holds, and the exchanges in it."""
    entries, _, run = record.history.partition(":")
    if not entries.isdecimal():  # none, or edited by hand: the next reply notes it anew
        return 0, []
    return int(entries), [_Exchange(each[:8], each[8:]) for each in run.split(".") if each]


_SIDE_CALLS = tuple(
    re.compile(rf"\A\s*{begin}", re.DOTALL)
    for begin in (
        # Open WebUI: titles, tags, follow-ups, queries, image prompts and completions of what is typed
        r"### Task:\s*\S.*<chat_history>.*</chat_history>",
        r"Your task is to reflect the speaker's likely facial expression through a fitting",
        r"You have been provided with a set of responses from various models to the latest",
        # LibreChat: titles, by agents, by completions and in older versions
        r"Analyze this conversation and provide:\s*1\. The detected language of the conversation\s*2\. A concise title",
        r"(?:Provide|Please generate) a concise, 5-word-or-less title for the conversation,.*title case",
        r"Write a concise title for this conversation in the detected language\. Title in 5 Words or Less\.",
    )
)


def _is_side_call(messages: Sequence[Message]) -> bool:
    """Return whether this is a front end's own call, for a chat's title, tags, follow-up questions or a search query.

    Such calls quote a conversation that is remembered already, so they are answered and not remembered. The only user
    message of such a call must begin like the front end's published prompt and have its other marks: a user's own
    request for a title is remembered.
    """
    said = [each for each in messages if each.content]
    return len(said) == 1 and any(shape.match(said[0].content) for shape in _SIDE_CALLS)
