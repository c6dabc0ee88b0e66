"""`/v1/chat/completions`: a reply in a session, or to just these messages, as deltas that `responses` sends on too."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from msgspec import Struct, structs
from starlette.datastructures import Headers
from starlette.types import Receive

from chatbot.chat.attached import with_file_texts
from chatbot.chat.calls import Reply
from chatbot.chat.dialogue import UNMATCHED_ANSWERS, ClientRequest, last_exchange
from chatbot.chat.events import ClientCall, ToolFinished, TurnEvent
from chatbot.chat.ledger import bill_of, calls_in
from chatbot.memory import SessionHandle
from chatbot.memory.scope import new_id
from chatbot.messages import Delta, Finished, FinishReason, Message, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from chatbot.server import sse
from chatbot.server.callers import ServerCaller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import OF_IDENTITY, OF_MODELS, UNSUPPORTED, Problem, invalid, problem_of
from chatbot.server.idempotency import IdempotentWrite, WritingHere
from chatbot.server.identities import Identities
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai import places
from chatbot.server.openai.models import access_of
from chatbot.server.openai.places import ParsedRequest, ReplyPlace
from chatbot.server.openai.wire import Lenient, ReplyRequest
from chatbot.server.turns import KeptTurn, RunningTurn
from chatbot.stores.loops import to_its_end

router = APIRouter(prefix="/v1/chat/completions", tags=["openai"], responses={**OF_IDENTITY, **OF_MODELS})
_END = sse.event("[DONE]")


class Completion(Lenient):
    """A reply, as OpenAI documents it; with `session_id` if it belongs to a session."""

    id: str
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    session_id: str | None = None
    notices: tuple[str, ...] = ()
    """Notices about the turn, such as that it could not be stored."""


@router.post(
    "",
    summary="Ask for a reply",
    response_model=Completion,
    responses={
        200: sse.describe_stream("The reply, or a stream of OpenAI's chunks, with `session_id`; its end is `[DONE]`.")
    },
)
async def complete(
    asked: Annotated[ReplyRequest, Body()],
    request: Request,
    identities: IdentitiesHere,
    caller: CallerHere,
    writing: WritingHere,
) -> Response:
    """Compatible with OpenAI's API.

    In a session, memories are recalled, the exchange is kept, and the session's own tools run here; calls of your
    `tools` are returned for you to run. The session is the one that you name or, if your token remembers, the one whose
    whole history you send. Otherwise the messages are sent as they are, and nothing is recalled or kept.

    `user` or `safety_identifier` names the end user: each has their own sessions and memory.
    """
    pending = await reply_to(asked, request.headers, identities, caller, writing)
    encoder = _Encoder(asked, pending)
    if asked.stream:
        return await pending.stream(encoder.encode, encoder.encode_error, request.receive)
    return await pending.answer(encoder.whole(), request.receive)


class _Encoder:
    """A reply in OpenAI's form, whole or in chunks."""

    def __init__(self, asked: ReplyRequest, pending: "PendingReply") -> None:
        self._pending = pending
        self._head = {
            "id": f"chatcmpl-{pending.turn}",
            "created": pending.created,
            "model": pending.access.identity,
            "session_id": pending.session_id,
        }
        self._with_usage = bool(asked.stream_options and asked.stream_options.include_usage)

    async def whole(self) -> dict[str, Any]:
        """Return the complete reply."""
        reply = Reply()
        async for delta in self._pending.deltas:
            reply.take(delta)
        if (end := reply.finished) is None:
            raise RuntimeError("the reply ended early")
        self._head["notices"] = end.notices
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls()
        ]
        message = {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
            "tool_calls": calls or None,
            "reasoning_content": reply.reasoning or None,
            "refusal": None,
        }
        choice = {"index": 0, "message": message, "finish_reason": end.reason, "logprobs": _logprobs(reply.logprobs)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(end.usage)}

    async def encode(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[bytes, None]:
        """Yield the reply as OpenAI's chunks."""
        yield self._chunk({"role": "assistant", "content": ""})
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                yield self._chunk({"content": delta.text}, logprobs=_logprobs(delta.logprobs))
            elif isinstance(delta, ReasoningDelta):
                yield self._chunk({"reasoning_content": delta.text})
            elif isinstance(delta, ToolCallDelta):
                yield self._chunk({"tool_calls": [_call(delta)]})
            else:
                self._head["notices"] = delta.notices
                yield self._chunk({}, reason=delta.reason)
                if self._with_usage:
                    yield self._frame([], usage=_usage(delta.usage))
        yield _END

    def encode_error(self, problem: Problem) -> bytes:
        """Return the last events of a reply that fails midway."""
        return sse.event(problem.as_json()) + _END

    def _chunk(
        self, delta: dict[str, Any], reason: FinishReason | None = None, logprobs: dict[str, Any] | None = None
    ) -> bytes:
        return self._frame([{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": logprobs}])

    def _frame(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return sse.event({**self._head, "object": "chat.completion.chunk", "choices": choices, **more})


def _call(delta: ToolCallDelta) -> dict[str, Any]:
    """Return a piece of a call; the first has id, type and name."""
    begins = {"id": delta.id, "type": "function"} if delta.id else {}
    name = {} if delta.name is None else {"name": delta.name}
    return {"index": delta.index, **begins, "function": {**name, "arguments": delta.arguments}}


def _logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return {"content": list(tokens), "refusal": None} if tokens else None


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class PendingReply(Struct):
    """A reply to read, once, from `deltas`: its turn or its model call begins with the first of them."""

    access: IdentityAccess
    turn: str  # its id; without a session a new one
    created: int  # in seconds since 1970
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

    async def answer(self, whole: Awaitable[Any], receive: Receive) -> Response:
        """Answer with the whole reply. If the client leaves, only a turn in a session goes on."""
        body = sse.encoded(await sse.while_wanted(whole, sse.until_left(receive)))
        return Response(body, media_type="application/json", headers=self.headers)

    async def stream(
        self,
        encode: Callable[[AsyncGenerator[Delta, None]], AsyncGenerator[bytes, None]],
        encode_error: Callable[[Problem], bytes],
        receive: Receive,
    ) -> sse.EventStream:
        """Return the reply as events: `encode` makes them from its deltas, `encode_error` from an error midway.

        An error before the first delta is raised, to be answered with its HTTP status.
        """
        first = await sse.while_wanted(anext(self.deltas, None), sse.until_left(receive))

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

        return sse.EventStream(events(), encode_error, headers=self.headers)


async def reply_to(
    asked: ReplyRequest,
    headers: Headers,
    identities: Identities,
    caller: ServerCaller,
    writing: IdempotentWrite,
    *,
    remembers: bool = False,
) -> PendingReply:
    """Return the reply to a request, or the one that was made before to the same request.

    With `remembers` the exchange is remembered unless the request says otherwise.
    """
    named = places.session_in_headers(headers)
    access = await access_of(identities, caller, asked)
    request = asked.parsed(*named)
    if remembers and request.memory is None:
        request = structs.replace(request, memory="on")
    if writing.before:
        return await earlier_reply(access, writing.before, writing)
    access.memory.caller.check("chat")
    await _check_options(access, request)
    if not request.new and (request.session is not None or request.previous is not None):
        raise invalid("the last message must be the user's, or a tool's answer, in a session", "messages", UNSUPPORTED)
    place = await places.find_place(request, access)
    turn, created = new_id(), int(time.time())
    if (session := place.session) is None:
        return PendingReply(access, turn, created, None, await _reply_without_session(access, request, place))
    writing.may_be_erased = True
    note = partial(writing.note, session=session.id, created=str(created))
    deltas = _reply_in_session(access, request, place, session, turn=turn, note=note)
    return PendingReply(access, turn, created, session, deltas)


async def earlier_reply(access: IdentityAccess, made: Mapping[str, str], writing: IdempotentWrite) -> PendingReply:
    """Return the stored reply of the turn in `made`. Raises `SessionError` or `TurnGone` if there is none."""
    session = await access.session(made["session"])
    turn = await access.kept_turn(session.id, made["turn"])
    created = int(made.get("created") or turn.begun_at.timestamp())
    return PendingReply(access, made["turn"], created, session, _deltas_of(turn, partial(writing.note, **made)))


async def _check_options(access: IdentityAccess, request: ParsedRequest) -> None:
    """Refuse tools, and options that change the meaning of a reply, that the identity's model does not support."""
    model = access.runtime.model
    if request.tools and not model.supports_tools:
        raise invalid(f"the model of {access.identity} supports no tools", "tools", UNSUPPORTED)
    if unknown := await model.unknown_options(request.options):
        raise invalid(f"the model of {access.identity} does not support it", unknown[0], UNSUPPORTED)


async def _reply_without_session(
    access: IdentityAccess, request: ParsedRequest, place: ReplyPlace
) -> AsyncGenerator[Delta, None]:
    """Return the reply to just these messages; those of the place, if any, replace all before the new ones."""
    messages = request.messages
    if place.history is not None:
        said = () if request.tool_results else request.new
        messages = (*(each for each in request.messages if each.role == "system"), *place.history, *said)
    return await access.answer(
        await with_file_texts(messages),
        tools=request.tools,
        max_output_tokens=request.most_tokens,
        options=request.options,
    )


async def _reply_in_session(
    access: IdentityAccess,
    request: ParsedRequest,
    place: ReplyPlace,
    session: SessionHandle,
    *,
    turn: str,
    note: Callable[..., None],
) -> AsyncGenerator[Delta, None]:
    """Run the turn with that id in the session, and yield its reply; then store digests of a history that was sent.

    If the turn fails, delete a new session: the client will ask again. In another, its message is not written twice.
    """
    try:
        running = await to_its_end(_begin_turn(access, request, place, session, turn))
        async for delta in _deltas_of(running, note):
            yield delta
    except Exception:
        if place.is_new:
            await access.forget_new(session)
        raise


async def _begin_turn(
    access: IdentityAccess, request: ParsedRequest, place: ReplyPlace, session: SessionHandle, turn: str
) -> RunningTurn:
    """Begin the turn with that id, for which the session may have been claimed."""
    try:
        client = ClientRequest(
            turn=turn,
            persona=request.persona,
            history=place.history,
            asked=request.asked.without_files(),
            tool_results=request.tool_results,
            earlier_tool_results=request.earlier_tool_results,
            sent=request.turn if request.tool_results else (),
            tools=request.tools,
            options=request.options,
            recalls=request.recalls_always or not request.options.is_forced,
            again=not access.is_answering(session.id)
            and places.is_failed_try(await last_exchange(session.for_turns()), request),
        )
        text = request.typed
        if request.tool_results:
            text = request.asked.content or await (await access.chat(session.id)).last_message() or ""
            if not text:
                raise invalid(UNMATCHED_ANSWERS, "messages")
        return await access.begin_turn(
            session.id,
            text,
            attachments=request.attachments,
            max_output_tokens=request.most_tokens,
            client=client,
            then=None if place.history is None else partial(_note_history, session, request),
        )
    finally:
        access.turns.claimed.discard((access.identity, session.id))


async def _note_history(session: SessionHandle, request: ParsedRequest, events: Sequence[TurnEvent]) -> None:
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
