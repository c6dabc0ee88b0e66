"""Requests of OpenAI clients, on any route, and their places: the sessions in which they are answered, if any.

A request names its session (a header, `session_id` or `conversation`, `previous_response_id`), or is matched by the
history that it sends: a session keeps a digest of each message of the user, and of the reply. A client may send a part
of the history, and change the words of replies: what counts is the run of the user's own messages. Assistant messages
that a client sends are never stored. `IdentityAccess` opens sessions, and finds none of another user.
"""

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple, get_args

from msgspec import Struct, field

from chatbot.attachments import SUFFIXES, is_image, link_name, split_links
from chatbot.attachments.read import Upload, upload_of
from chatbot.chat.dialogue import ASSISTANT, ERROR, USER, awaited_results, messages_of, unanswered_calls
from chatbot.config import Remembers
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.memory.scope import utc_now
from chatbot.messages import CallOptions, Image, Message, ToolSpec, json_in
from chatbot.server.errors import Problem, invalid
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.turns import begun_at, entries_since
from chatbot.stores.errors import MissingRight
from chatbot.stores.records import TranscriptEntry

SESSION_HEADER = "x-chatbot-session"
MEMORY_HEADER = "x-chatbot-memory"
_REMEMBERS: tuple[Remembers, ...] = get_args(Remembers)
_LONGEST_RUN = 64
"""Number of the user's last messages by which a session is recognised."""
_MOST_COMPARED = 8
NEW = "new"
"""Value that begins a new session."""


class ParsedRequest(Struct, frozen=True, kw_only=True, dict=True):
    """A request for a reply with at least one message, and the values of its headers."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = field(default_factory=CallOptions)
    most_tokens: int | None = None
    session: str | None = None
    """The session of the reply, or `new`."""
    previous: str | None = None
    memory: Remembers | None = None
    """`on` to remember the exchange; None leaves it to the caller's token."""
    recalls_always: bool = False
    """True to recall even if the reply has a required form."""

    @cached_property
    def persona(self) -> str:
        """Text of the system messages; empty if none."""
        return "\n\n".join(each.content for each in self.messages if each.role == "system" and each.content)

    @cached_property
    def said(self) -> tuple[Message, ...]:
        """The conversation without instructions."""
        return tuple(each for each in self.messages if each.role != "system")

    @cached_property
    def new(self) -> tuple[Message, ...]:
        """Messages to answer: the last run of user messages, or of tool results."""
        last = self.said[-1].role if self.said else "system"
        at = len(self.said)
        while last in {"user", "tool"} and at and self.said[at - 1].role == last:
            at -= 1
        return self.said[at:]

    @cached_property
    def before_new(self) -> tuple[Message, ...]:
        """Messages before the new ones."""
        return self.said[: len(self.said) - len(self.new)]

    @cached_property
    def earlier_tool_results(self) -> tuple[Message, ...]:
        """Tool results directly before the user's new messages."""
        before = self.before_new
        at = next((at for at in range(len(before), 0, -1) if before[at - 1].role != "tool"), 0)
        return before[at:]

    @cached_property
    def turn(self) -> tuple[Message, ...]:
        """The new messages; if they are tool results, also those before them from the user's last message on."""
        at = max((at for at, each in enumerate(self.said) if each.role == "user"), default=len(self.said))
        return self.said[at:] if self.tool_results else self.new

    @cached_property
    def tool_results(self) -> tuple[Message, ...]:
        """Tool results among the new messages."""
        return tuple(each for each in self.new if each.role == "tool")

    @cached_property
    def asked(self) -> Message:
        """User's text as one message, with its images noted in the text; with tool results, the text before them."""
        users = [each for each in (self.said if self.tool_results else self.new) if each.role == "user"]
        users = users[-1:] if self.tool_results else users
        parts = tuple(part for each in users for part in (each.parts or (each.content,)))
        has_more = any(not isinstance(part, str) for part in parts)
        return Message("user", "\n\n".join(map(text_with_notes, users)), parts=parts if has_more else ())

    @cached_property
    def attachments(self) -> tuple[Upload, ...]:
        """The pictures and files of the new user messages. Raises `InvalidValue` for other data."""
        parts = () if self.tool_results else self.asked.parts
        pictures = [part for part in parts if isinstance(part, Image)]
        return (
            *(_picture_of(number, each.url) for number, each in enumerate(pictures, 1)),
            *(upload_of(each.name, each.url) for each in self.asked.files if not self.tool_results),
        )

    @property
    def typed(self) -> str:
        """The text of the user's new messages, without notes of images and files."""
        return "\n\n".join(each.content for each in self.new if each.role == "user" and each.content)

    @property
    def is_side_call(self) -> bool:
        """True if a front end asks for its own use, such as a title, and quotes the whole conversation.

        It has a heading, and the quotation in `<chat_history>`. Such a request is answered and not remembered:
        the conversation is remembered already.
        """
        said = [each.content for each in self.said if each.content]
        if len(said) != 1 or not said[0].lstrip().startswith("#"):
            return False
        return 0 <= said[0].find("<chat_history>") < said[0].rfind("</chat_history>")


def text_with_notes(message: Message) -> str:
    """Return the text of a message, with a note for each image and file."""
    notes = [f"[{image.url.partition(':')[2].partition(';')[0]}]" for image in message.images]
    notes += [f"[{link_name(file.name)}]" for file in message.files]
    return "\n".join([text for text in [message.content, *notes] if text])


def kept_text(content: str) -> str:
    """Return `text_with_notes` of a transcript entry, in which links name images and files."""
    text, links = split_links(content)
    notes = [f"[{link.media}]" if is_image(link.media) else f"[{link.name}]" for link in links]
    return "\n".join([part for part in [text, *notes] if part])


class ReplyPlace(Struct, frozen=True):
    """Place in which a request is answered."""

    session: SessionHandle | None = None
    """None if nothing is kept."""
    history: tuple[Message, ...] | None = None
    """Earlier messages: those that the client sent or, where nothing is stored, the session's, with the results of
    tools. None: the session's own transcript continues."""
    is_new: bool = False


async def find_place(request: ParsedRequest, access: IdentityAccess) -> ReplyPlace:
    """Find or begin the session of a request. Raises `Problem`, or whatever opening it raises."""
    named = await _continuation(request, access)
    if request.memory == "off":
        return ReplyPlace(history=None if named is None else await _said_in(named, request, access))
    if named is not None:
        session, end = named
        fork = None if end is None else await access.memory.fork_session(session.id, at=end)
        return ReplyPlace(fork or session, is_new=fork is not None)
    if request.session == NEW:
        return ReplyPlace(await access.new_session())
    remembers = (request.memory or access.caller.memory) == "on"
    if not (remembers and access.runtime.store_types and request.new) or request.is_side_call:
        return ReplyPlace()
    place = access.in_project
    session = await _left_session(request, place) or await _session_of(request, place) or await access.new_session()
    return ReplyPlace(session, request.said[: -len(request.turn)], is_new=not session.record.history)


def session_in_headers(headers: Mapping[str, str]) -> tuple[str | None, Remembers | None]:
    """Return the session that the headers name, and whether they ask for memory. Raises `Problem`."""
    wanted = headers.get(MEMORY_HEADER)
    if wanted is not None and wanted not in _REMEMBERS:
        raise invalid("it must be on or off", "X-Chatbot-Memory")
    return headers.get(SESSION_HEADER), wanted


def one_of(**named: str | None) -> str | None:
    """Return the one session that several fields name. Raises `Problem` if they name different ones."""
    sessions = {name: session for name, session in named.items() if session is not None}
    if len(set(sessions.values())) > 1:
        raise invalid(f"{' and '.join(sessions)} name different sessions: name one", list(sessions)[-1])
    return next(iter(sessions.values()), None)


def response_id(session: SessionHandle | None, turn: str) -> str:
    """Return the id of a response, which a later request can continue."""
    where = "0" * 32 if session is None else uuid.UUID(session.id).hex
    return f"resp_{where}{uuid.UUID(turn).hex}"


def parse_response_id(response: str) -> tuple[str, str]:
    """Return the session and the turn of a response, or of an item of one. Raises `Problem` for an invalid id."""
    ids = response.partition("_")[2]
    try:
        session, turn = uuid.UUID(ids[:32]), uuid.UUID(ids[32:64])
    except ValueError:
        raise unknown_response(response) from None
    if not session.int:
        raise unknown_response(response)
    return str(session), str(turn)


def unknown_response(response: str) -> Problem:
    """Return the error for a response that is not stored, or that the caller may not know."""
    why = f"no response {response!r:.100} is stored: send store: true or its items, or use a token that remembers"
    return Problem(404, "previous_response_not_found", why, "previous_response_id")


_Continuation = tuple[SessionHandle, int | None]
"""A session, and the number of entries to continue after; None: all."""


async def _continuation(request: ParsedRequest, access: IdentityAccess) -> _Continuation | None:
    """Return where the session goes on that the request names, and claim it if it goes on after a response."""
    if request.previous is None:
        return None if request.session in {None, NEW} else (await _open(str(request.session), access), None)
    if request.session is not None:
        raise invalid("it cannot be sent together with a session", "previous_response_id")
    session_id, turn = parse_response_id(request.previous)
    try:
        session = await _open(session_id, access)
    except SessionNotFound:
        raise unknown_response(request.previous) from None
    key = access.identity, session.id
    running = access.turns.under_way(key)  # they write their receipts at the end
    receipts = await session.receipts()
    found = [at for at, each in enumerate(receipts) if each["turn"] == turn and not each.get("taken_back")]
    if not found:
        raise unknown_response(request.previous)
    at = found[-1]  # a reply that was chosen again has two receipts
    entries = await entries_since(session, begun_at(receipts[at]))
    begun = [*map(begun_at, receipts[at:]), *(one.begun_at for one in running + access.turns.under_way(key))]
    later = min((each for each in begun if each > begun[0]), default=None)
    after = [entry for entry in entries if later is not None and entry.at >= later]
    is_end = not after or is_failed_try(after, request) or _waits_for(after, request)
    if is_end and (request.memory == "off" or access.claim(session.id)):
        return session, None
    later = later or utc_now()  # who has claimed the session has not begun
    return session, sum(entry.at < later for entry in await session.transcript_read_all())


async def _open(session_id: str, access: IdentityAccess) -> SessionHandle:
    session = await access.session(session_id)
    session.check("chat")
    return session


async def _said_in(named: _Continuation, request: ParsedRequest, access: IdentityAccess) -> tuple[Message, ...]:
    """Return the messages of a session, with the results of tools, for a reply that is not kept in it."""
    session, end = named
    most = access.runtime.setup.agent_settings.window_entries
    read = session.transcript_read_last(most) if end is None else session.transcript_read_all()
    entries = (await read)[:end][-most:]
    results = awaited_results(entries, request.tool_results or request.earlier_tool_results)
    if len(results) < len(request.tool_results):
        raise invalid("no pending tool call matches these answers", "messages")
    return tuple(messages_of([*((entry.role, entry.content) for entry in entries), *results]))


def is_failed_try(entries: Sequence[TranscriptEntry], request: ParsedRequest) -> bool:
    """Return whether the entries are the message of the request, with an error in place of the reply."""
    begins = [each.content for each in entries if each.role == USER]
    return begins == [request.typed] and entries[-1].role == ERROR and not (request.tool_results or request.attachments)


async def note_history(session: SessionHandle, request: ParsedRequest, reply: Message) -> None:
    """Store digests of the conversation in the session, by which later requests find it."""
    messages = (*request.said, reply)
    entries, run, known = await session.transcript_count(), _exchanges_in(messages), _history_in(session.record)[1]
    shown = len(_exchanges_in(request.before_new))
    before = [_Exchange(each.user) for each in run[:shown]]  # without replies, which the client may have changed
    if shown and known and _end_of(before, known) == len(known):
        before = known  # the client may hold only the end of it
    if shown and request.tool_results:  # the reply that they continue is known only now
        shown, before = shown - 1, before[:-1]
    run = [*before, *run[shown:]]
    await session.note_history(f"{entries}:{'.'.join(map(''.join, run[-_LONGEST_RUN:]))}")


async def _left_session(request: ParsedRequest, access: IdentityAccess) -> SessionHandle | None:
    """Stop a turn whose client left: it asks again, edits its message, or goes on from a part of the reply.

    Return the session in which it goes on.
    """
    run, own = _exchanges_in(request.before_new), access.memory.caller.principal
    at = max((at for at, each in enumerate(request.before_new, 1) if each.role in {"user", "tool"}), default=0)
    part = "".join("".join(each.content for each in request.before_new[at:]).split())
    for session_id, turn in reversed(access.turns.left(access.identity)):
        with suppress(SessionNotFound, MissingRight):
            record = (await access.session(session_id)).record
            before, asked = _history_in(record)[1], _exchanges_in(turn.asked)
            goes_back = asked == _exchanges_in([request.asked]) and not before
            goes_on = False
            if run:
                goes_back = 0 < _end_of(run, before) == len(before) and _may_have_replies(run, before)
                is_part = "".join(turn.text_so_far.split()).startswith(part)
                goes_on = is_part and _end_of(run, known := [*before, *asked]) == len(known)
            if record.principal == own and (goes_back or goes_on):
                await access.stop(session_id)
                if goes_on:
                    return await _session_or_fork(session_id, None, request, access)
    return None


async def _session_of(request: ParsedRequest, access: IdentityAccess) -> SessionHandle | None:
    """Return the caller's session that ends with the request's history, or a fork of one that has continued since.

    If several fit equally, return a fork of one with the last reply. None if none fits, or the caller may not read.
    """
    run, own = _exchanges_in(request.before_new), access.memory.caller.principal
    if not run:
        return None
    with suppress(MissingRight):  # a new session will do
        found = await access.memory.list_sessions(
            access.runtime.agent,
            wanted=lambda record: (
                run[-1].user in record.history  # a quick check that excludes most sessions
                and record.principal == own
                and _end_of(run, _history_in(record)[1]) > 0
            ),
        )
        alike = [record for record in found if _may_have_replies(run, _history_in(record)[1])]
        for records, tried in ((alike, []), (found, alike)):
            answered = None if len(records) == 1 else list(_sent_exchanges(request.before_new))[-1][1]
            for record in [each for each in records[:_MOST_COMPARED] if each not in tried]:
                if (session := await _session_or_fork(record.id, answered, request, access)) is not None:
                    return session
    return None


async def _session_or_fork(
    session_id: str, answered: str | None, request: ParsedRequest, access: IdentityAccess
) -> SessionHandle | None:
    """Return the session if it ends with the run, or a fork up to the end of the run; None if neither can be.

    If several sessions have the run, `answered` is the last reply as the client sent it, perhaps cut or continued: then
    the session that waits for the request's tool results is returned, or a fork, only of one with that reply.
    """
    session = await access.session(session_id)
    run, (count, known) = _exchanges_in(request.before_new), _history_in(session.record)
    entries, end = await session.transcript_read_all(), _end_of(run, known)
    begins = [at for at, each in enumerate(entries) if each.role == USER] or [0]
    own = next((at for at in begins if at >= count), len(entries))  # messages from there on were added by others
    is_whole = end == len(known) and count <= len(entries) == own
    if is_failed_try(entries[begins[-1] :], request):  # its message is noted only if it was stopped
        is_whole |= (end, count) in {(len(known), begins[-1]), (len(known) - 1, len(entries))}
    is_over = bool(request.tool_results) and not unanswered_calls(entries)  # what it answers was answered before
    if is_whole and not is_over and (answered is None or _waits_for(entries, request)) and access.claim(session.id):
        return session
    stored = list(_stored_exchanges(entries[:own]))
    missing = len(known) - len(stored)  # exchanges from before the session began
    kept = stored[: max(0, end - missing)]
    if not kept:
        return None
    size, asked, reply = kept[-1]
    if _digest_of(asked) != run[-1].user or (answered is not None and not _is_same_reply(answered, reply)):
        return None
    at = sum(size for size, *_ in kept)
    if request.tool_results:  # they follow the calls, or else the client's copy of the exchange takes its place
        begin = at - size
        at = next((end for end in range(at, begin, -1) if _waits_for(entries[begin:end], request)), begin)
    return await access.memory.fork_session(session.id, at=at) if at else None


def _waits_for(entries: Sequence[TranscriptEntry], request: ParsedRequest) -> bool:
    """Return whether the request answers calls of the entries as they were made: some models number theirs from 0."""
    pending, sent = (
        {call.id: (call.name, json_in(call.arguments) or {}) for call in calls}  # a client writes {} for nothing
        for calls in (unanswered_calls(entries), [call for each in request.turn for call in each.tool_calls])
    )
    answered = {str(each.tool_call_id) for each in request.tool_results}
    return bool(answered) and all(each in pending and pending[each] == sent.get(each) for each in answered)


def _is_same_reply(sent: str, stored: str) -> bool:
    """Return whether two texts are one reply: a client may have cut off its beginning, or added lines to it."""
    is_continued = f"{sent}\n".startswith(f"{stored}\n")  # "Yes" is not the beginning of "Yesterday"
    return bool(sent and stored) and (is_continued or sent.endswith(stored) or stored.endswith(sent))


def _stored_exchanges(entries: Sequence[TranscriptEntry]) -> Iterator[tuple[int, str, str]]:
    """Yield the exchanges of a transcript: the number of entries, the user's text, and the reply."""
    begins = [at for at, entry in enumerate(entries) if entry.role == USER]
    if begins and begins[0]:
        return
    for begin, end in zip(begins, [*begins[1:], len(entries)], strict=True):
        said = [entry.content for entry in entries[begin:end] if entry.role == ASSISTANT]
        yield end - begin, kept_text(entries[begin].content).strip(), "\n\n".join(said).strip()


def _sent_exchanges(history: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield the exchanges of a client's history: the user's text, and the reply."""
    asked: list[str] = []
    answered: list[str] = []
    for message in history:
        if message.role == "user":
            if answered:
                yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()
                asked, answered = [], []
            asked.append(text_with_notes(message))
        elif message.role == "assistant" and message.content:
            answered.append(message.content)
    if asked or answered:
        yield "\n\n".join(asked).strip(), "\n\n".join(answered).strip()


class _Exchange(NamedTuple):
    """Digests of the user's text, and of the reply, if that is known to be ours."""

    user: str
    reply: str = ""


def _exchanges_in(messages: Sequence[Message]) -> list[_Exchange]:
    exchanges = [_Exchange(_digest_of(asked), _digest_of(reply)) for asked, reply in _sent_exchanges(messages) if asked]
    return exchanges[-_LONGEST_RUN:]


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _end_of(run: Sequence[_Exchange], known: Sequence[_Exchange]) -> int:
    """Return where the last occurrence of the run's user texts ends; 0 without one."""
    users, wanted = [each.user for each in known], [each.user for each in run]
    ends = range(len(users), len(wanted) - 1, -1)
    return next((end for end in ends if users[end - len(wanted) : end] == wanted), 0)


def _may_have_replies(run: Sequence[_Exchange], known: Sequence[_Exchange]) -> bool:
    """Return whether no known reply differs from that of the run."""
    end = _end_of(run, known)
    return all(other.reply in {"", one.reply} for one, other in zip(run, known[end - len(run) : end], strict=True))


def _history_in(record: SessionRecord) -> tuple[int, list[_Exchange]]:
    """Return the conversation that `note_history` stored: the number of entries, and the exchanges."""
    entries, _, run = record.history.partition(":")
    if not entries.isdecimal():  # none, or edited by hand: the next reply rewrites it
        return 0, []
    return int(entries), [_Exchange(each[:8], each[8:]) for each in run.split(".") if each]


def _picture_of(number: int, url: str) -> Upload:
    """Return the picture in a `data:` URL under a name of its own."""
    media = url[5:].partition(";")[0].lower()
    return upload_of(f"picture-{number}{SUFFIXES.get(media, '')}", url)
