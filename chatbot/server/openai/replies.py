"""The reply to one request, in a session or without one, as a stream of deltas."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs
from starlette.datastructures import Headers

from chatbot.chat.attached import with_file_texts
from chatbot.chat.calls import Reply
from chatbot.chat.dialogue import ClientRequest
from chatbot.chat.events import ClientCall, ToolFinished, TurnEvent
from chatbot.chat.ledger import bill_of, calls_in
from chatbot.memory import SessionHandle
from chatbot.memory.scope import new_id
from chatbot.messages import Delta, Finished, FinishReason, Message, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from chatbot.server import sse
from chatbot.server.callers import ServerCaller
from chatbot.server.errors import UNSUPPORTED, Problem, invalid, problem_of
from chatbot.server.idempotency import IdempotentWrite
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai import places
from chatbot.server.openai.models import access_of
from chatbot.server.openai.places import ParsedRequest, ReplyPlace
from chatbot.server.openai.wire import ReplyRequest
from chatbot.server.turns import KeptTurn, RunningTurn


@dataclass(slots=True)
class PendingReply:
    """A reply that is being made. Its `deltas` are read once."""

    access: IdentityAccess
    turn: str
    """The turn's id; without a session a new id."""
    created: int
    """In seconds since 1970."""
    session: SessionHandle | None
    deltas: AsyncGenerator[Delta, None]

    @property
    def session_id(self) -> str | None:
        """The session that it belongs to."""
        return None if self.session is None else self.session.id

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response that name its session."""
        return {} if self.session is None else {places.SESSION_HEADER: self.session.id}

    async def whole(self) -> tuple[Reply, Finished]:
        """Return the whole reply, and how it ended."""
        reply = Reply()
        async for delta in self.deltas:
            reply.take(delta)
        if reply.finished is None:
            raise RuntimeError("the reply ended early")
        return reply, reply.finished

    async def stream(
        self,
        encode: Callable[[AsyncGenerator[Delta, None]], AsyncGenerator[bytes, None]],
        encode_error: Callable[[Problem], bytes],
    ) -> sse.EventStream:
        """Return the reply as events: `encode` makes them from its deltas, `encode_error` from an error midway.

        An error before the first delta is raised, to be answered with its HTTP status.
        """
        first = await anext(self.deltas, None)

        async def deltas() -> AsyncGenerator[Delta, None]:
            if first is not None:
                yield first
            async for delta in self.deltas:
                yield delta

        async def events() -> AsyncGenerator[bytes, None]:
            try:
                async for event in encode(deltas()):
                    yield event
            except Exception as error:  # noqa: BLE001 - a plug-in's model may raise anything; the client must get an error
                yield encode_error(problem_of(error, self.access.caller))
            finally:
                await self.deltas.aclose()

        return sse.EventStream(events(), headers=self.headers)


async def answer_to(
    asked: ReplyRequest,
    headers: Headers,
    identities: Identities,
    caller: ServerCaller,
    writing: IdempotentWrite,
    *,
    remembers: bool = False,
) -> PendingReply:
    """Begin to answer, or repeat an earlier answer.

    With `remembers` the exchange is remembered unless the request says otherwise.
    """
    session, memory = places.session_in_headers(headers)
    access = await access_of(identities, caller, asked)
    request = asked.parsed(session, memory)
    if remembers and request.memory is None:
        request = replace(request, memory="on")
    if writing.before:
        return await answered_before(access, writing.before, writing)
    access.check_chat()
    await _check_options(access, request)
    if not request.new and (request.session is not None or request.previous is not None):
        raise invalid("the last message must be the user's, or a tool's answer, in a session", "messages", UNSUPPORTED)
    place = await places.find_place(request, access)
    turn, created = str(new_id()), int(time.time())
    if place.session is None:
        return PendingReply(access, turn, created, None, await _answer(access, request, place))
    writing.may_be_erased = True
    note = partial(writing.note, session=place.session.id, created=str(created))
    begin = partial(_begin, access, request, place, place.session, turn)
    return PendingReply(access, turn, created, place.session, _begin_or_forget(access, place, begin, note))


async def answered_before(access: IdentityAccess, made: Mapping[str, str], writing: IdempotentWrite) -> PendingReply:
    """Return the stored reply of the turn in `made`. Raises `SessionError` or `TurnGone` if there is none."""
    session = await access.session(made["session"])
    turn = await access.kept_turn(session.id, made["turn"])
    created = int(made.get("created") or turn.begun_at.timestamp())
    return PendingReply(access, made["turn"], created, session, _deltas_of(turn, partial(writing.note, **made)))


async def _begin_or_forget(
    access: IdentityAccess, place: ReplyPlace, begin: Callable[[], Awaitable[RunningTurn]], note: Callable[..., None]
) -> AsyncGenerator[Delta, None]:
    """Begin a turn and yield its reply; if it fails, delete a new session: the client will ask again."""
    try:
        async for delta in _deltas_of(await begin(), note):
            yield delta
    except Exception:
        if place.is_new and place.session is not None:
            await access.forget_new(place.session)
        raise


async def _check_options(access: IdentityAccess, request: ParsedRequest) -> None:
    """Refuse tools, and options that change the meaning of a reply, that the identity's model does not support."""
    model = access.runtime.model
    if request.tools and not model.supports_tools:
        raise invalid(f"the model of {access.identity} supports no tools", "tools", UNSUPPORTED)
    if unknown := await model.unknown_options(request.options):
        raise invalid(f"the model of {access.identity} does not support it", unknown[0], UNSUPPORTED)


async def _answer(access: IdentityAccess, request: ParsedRequest, place: ReplyPlace) -> AsyncGenerator[Delta, None]:
    """Return the reply to just these messages; those of the place, if any, replace all before the new ones.

    Closing the generator stops the model.
    """
    messages = request.messages
    if place.before is not None:
        said = () if request.answers else request.new
        messages = (*(each for each in request.messages if each.role == "system"), *place.before, *said)
    return access.runtime.answer(
        await with_file_texts(messages),
        tools=request.tools,
        max_output_tokens=request.most_tokens,
        options=request.options,
        payers=await access.payers(),
    )


async def _begin(
    access: IdentityAccess, request: ParsedRequest, place: ReplyPlace, session: SessionHandle, turn: str
) -> RunningTurn:
    """Start the turn in its session. If that was found by its history, store the conversation's digests at the end."""
    client = ClientRequest(
        turn=turn,
        persona=request.persona,
        history=place.before,
        asked=request.asked.without_files(),
        answers=request.answers,
        sent=request.turn if request.answers else (),
        tools=request.tools,
        options=request.options,
        recalls=request.recalls_always or not request.options.is_forced,
    )
    text = request.typed
    if request.answers:
        text = request.asked.content or await (await access.chat(session.id)).last_message() or ""
        if not text:
            raise invalid("no pending tool call matches these answers: send the whole conversation", "messages")
    return await access.begin_turn(
        session.id,
        text,
        attachments=request.attachments,
        max_output_tokens=request.most_tokens,
        client=client,
        then=None if place.before is None else partial(_note, session, request),
    )


async def _note(session: SessionHandle, request: ParsedRequest, events: Sequence[TurnEvent]) -> None:
    """Store digests of the conversation as the client has it after these events."""
    deltas = map(_ClientDeltas().take, events)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    await places.note_history(session, request, Message("assistant", text))


class _ClientDeltas:
    """The deltas of a turn's events for the client: text, reasoning, and calls of the client's own tools."""

    def __init__(self) -> None:
        self._has_run_tools = self._has_said = False
        self._calls = 0

    def take(self, event: TurnEvent) -> Delta | None:
        """Return the client's delta for an event; texts before and after our own tools become paragraphs."""
        if isinstance(event, ToolFinished):
            self._has_run_tools = self._has_said  # before the first text no paragraph ends
        elif isinstance(event, TextDelta):
            begins = self._has_run_tools
            self._has_run_tools, self._has_said = False, True
            return structs.replace(event, text=f"\n\n{event.text}") if begins else event
        elif isinstance(event, ReasoningDelta):
            return event
        elif isinstance(event, ClientCall):
            self._calls += 1
            call = event.call
            return ToolCallDelta(self._calls - 1, call.id, call.name, call.arguments)
        return None


async def _deltas_of(turn: RunningTurn | KeptTurn, note: Callable[..., None]) -> AsyncGenerator[Delta, None]:
    """Yield the reply of a turn, and note its id. Closing the generator does not stop the turn."""
    shown = _ClientDeltas()
    async for event in turn.events():
        if (delta := shown.take(event)) is not None:
            yield delta
    ended = await turn.ended()
    note(turn=str(ended.receipt["turn"]))
    finish = ended.receipt["finish"]
    reason: FinishReason = finish if finish in {"length", "content_filter", "tool_calls"} else "stop"
    bill = bill_of(calls_in([ended.receipt]))
    usage = Usage(bill.input_tokens, bill.output_tokens, bill.cached_tokens)
    yield Finished(reason, usage, str(ended.receipt["model"]), tuple(ended.receipt["notices"]))
