"""`/v1/responses`: the same replies as chat completions make, in the form of OpenAI's newer route."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse

from chatbot.errors import ChatbotError, SessionError
from chatbot.messages import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from chatbot.server import sse
from chatbot.server.callers import Caller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.error_responses import OF_IDENTITY, OF_MODELS
from chatbot.server.errors import Problem, TurnGone, problem_of, unexpected
from chatbot.server.idempotency import WritingHere
from chatbot.server.openai.models import access_of
from chatbot.server.openai.pending_reply import PendingReply, answer_to
from chatbot.server.openai.places import named_in_headers, place_in, response_id, unknown_response
from chatbot.server.openai.replies import Piece, Whole, said
from chatbot.server.openai.responses_wire import AskedResponse, usage
from chatbot.server.request_values import named_in
from chatbot.stores.errors import StoreError

router = APIRouter(prefix="/v1/responses", tags=["openai"], responses=OF_IDENTITY)


class ResponseObject(BaseModel):
    """A response, as OpenAI documents it; with `session_id` where it is kept."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    id: str
    """Id that a later request may send as `previous_response_id`."""
    status: str
    """`completed`, or `incomplete` where a limit ended it."""
    output: list[dict[str, Any]]
    """Messages and calls of your tools."""
    session_id: str | None = None
    """The session that it was said in."""


@router.post(
    "",
    summary="Ask for a response",
    response_model=ResponseObject,
    responses={
        **OF_MODELS,
        200: {
            "content": {sse.EventStream.media_type: {"itemSchema": {"type": "object"}}},
            "description": "The response, or a stream of OpenAI's events.",
        },
    },
)
async def respond(
    asked: Annotated[AskedResponse, Body()],
    request: Request,
    identities: IdentitiesHere,
    caller: CallerHere,
    writing: WritingHere,
) -> Response:
    """Compatible with OpenAI's; sessions and memory are as in chat completions.

    A response is kept where it is said in a session: where your token remembers, where you name a session, or with
    `store: true`. `previous_response_id` goes on from it, and forks the session where that has gone on since.
    """
    caller = named_in(caller, user=asked.user, safety_identifier=asked.safety_identifier)
    session, memory = named_in_headers(request.headers)
    access = await access_of(identities, caller, asked.model, asked.identity)
    answer = await answer_to(access, asked.as_ask(session, memory), writing)
    response = _Response(access.identity, asked, answer)
    if not asked.stream:
        return JSONResponse(response.told(await answer.whole()), headers=answer.headers)
    first = await answer.first()  # what goes wrong before anything came is an error with a status of its own
    return sse.EventStream(response.events(first, caller), headers=answer.headers)


@router.get("/{response}", summary="A response that is kept", response_model=ResponseObject)
async def read_response(
    response: Annotated[str, Path(description="A response's id.", max_length=100)],
    identities: IdentitiesHere,
    caller: CallerHere,
) -> Response:
    """Return a stored response. The identity that answered need not be named."""
    session_id, turn = place_in(response)
    for name in identities.names_for(caller):
        access = await identities.access(caller, name)
        try:
            session = await access.session(session_id)
            kept = await access.kept_turn(session_id, turn)
        except (SessionError, TurnGone):
            continue
        whole = Whole()
        async for piece in said(kept, lambda **_: None):
            whole.take(piece)
        answer = PendingReply(response, turn, int(kept.begun_at.timestamp()), session, _nothing())
        asked = AskedResponse(model=name, input="-")
        return JSONResponse(_Response(name, asked, answer).told(whole), headers=answer.headers)
    raise unknown_response(response)


async def _nothing() -> AsyncGenerator[Piece, None]:
    pieces: tuple[Piece, ...] = ()
    for piece in pieces:
        yield piece


class _Response:
    """One response: its head, its items, and the events that tell of them."""

    def __init__(self, identity: str, asked: AskedResponse, answer: PendingReply) -> None:
        self._answer = answer
        self.id = response_id(answer.session, answer.turn) if answer.session else f"resp_{'0' * 32}{answer.id}"
        self._head = {
            "id": self.id,
            "object": "response",
            "created_at": answer.created,
            "model": identity,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
            "store": answer.session is not None,
            "temperature": asked.temperature,
            "text": {"format": {"type": "text"}} if asked.text is None else _told(asked.text),
            "tool_choice": "auto" if asked.tool_choice is None else _told(asked.tool_choice),
            "tools": [_told(tool) for tool in asked.tools or ()],
            "top_p": asked.top_p,
            "truncation": "disabled",
            "conversation": {"id": answer.session_id} if asked.conversation else None,
            "session_id": answer.session_id,
        }

    def told(self, whole: Whole) -> dict[str, Any]:
        """The response when all of it has come."""
        end = whole.ended()
        is_cut = end.reason in {"length", "content_filter"}
        reason = "max_output_tokens" if end.reason == "length" else "content_filter"
        items = [_Item(self.id, at, kind).told(value) for at, (kind, value) in enumerate(_parts(whole))]
        return self._head | {
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": reason} if is_cut else None,
            "output": items,
            "usage": usage(end.usage),
        }

    async def events(self, first: Piece | None, caller: Caller) -> AsyncGenerator[bytes, None]:
        """The response as OpenAI's events; a failure on the way is the last of them."""
        telling = _Telling(self.id)
        whole = Whole()
        begun = self._head | {"status": "in_progress", "output": [], "usage": None}
        yield telling.event("response.created", response=begun)
        yield telling.event("response.in_progress", response=begun)
        try:
            async for piece in self._answer.rest(first):
                whole.take(piece)
                for event in telling.take(piece):
                    yield event
            for event in telling.close():
                yield event
            told = self.told(whole)
            yield telling.event(f"response.{told['status']}", response=told)
        except (ChatbotError, StoreError) as error:
            yield telling.event("response.failed", response=self._failed(problem_of(error, caller)))
        except Exception as error:  # noqa: BLE001 - a model may be a plug-in's; the client must be told
            yield telling.event("response.failed", response=self._failed(unexpected(error)))

    def _failed(self, problem: Problem) -> dict[str, Any]:
        error = {"code": problem.code, "message": problem.message}
        return self._head | {"status": "failed", "error": error, "output": [], "usage": None}


class _Item:
    """One item of a response's output: a message, a call of a tool, or what the model thought."""

    def __init__(self, response: str, index: int, kind: str) -> None:
        self.kind = kind
        self.index = index
        prefix = {"message": "msg", "function_call": "fc", "reasoning": "rs"}[kind]
        self.id = f"{prefix}_{response.removeprefix('resp_')}{index}"

    def told(self, value: Any, status: str = "completed") -> dict[str, Any]:
        """The item, as far as it has come."""
        item = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "message":
            return item | {"role": "assistant", "content": [] if value is None else [value]}
        if self.kind == "reasoning":
            return item | {"summary": [] if value is None else [value]}
        return item | {"call_id": value.id, "name": value.name, "arguments": value.arguments}


class _Telling:
    """The events of a response, numbered."""

    def __init__(self, response: str) -> None:
        self._response = response
        self._number = 0
        self._items = 0
        self._open: _Item | None = None
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []
        self._call = ToolCall("", "", "")
        self._call_index = -1

    def event(self, name: str, /, **data: Any) -> bytes:
        """One event."""
        self._number += 1
        return sse.event({"type": name, "sequence_number": self._number - 1, **data}, name)

    def take(self, piece: Piece) -> Iterator[bytes]:
        """The events of a piece."""
        if isinstance(piece, TextDelta):
            yield from self._begin("message")
            self._text += piece.text
            self._logprobs += piece.logprobs
            place = {**self._place(), "content_index": 0}
            yield self.event("response.output_text.delta", **place, delta=piece.text, logprobs=list(piece.logprobs))
        elif isinstance(piece, ReasoningDelta):
            yield from self._begin("reasoning")
            self._text += piece.text
            yield self.event(
                "response.reasoning_summary_text.delta", **self._place(), summary_index=0, delta=piece.text
            )
        elif isinstance(piece, ToolCallDelta):
            yield from self._take_call(piece)

    def close(self) -> Iterator[bytes]:
        """The events that end the item under way."""
        item, self._open = self._open, None
        if item is None:
            return
        place = {"item_id": item.id, "output_index": item.index}
        if item.kind == "message":
            part = _text_part(self._text, self._logprobs)
            place["content_index"] = 0
            yield self.event("response.output_text.done", **place, text=self._text, logprobs=self._logprobs)
            yield self.event("response.content_part.done", **place, part=part)
            told = item.told(part)
        elif item.kind == "reasoning":
            part = {"type": "summary_text", "text": self._text}
            yield self.event("response.reasoning_summary_text.done", **place, summary_index=0, text=self._text)
            yield self.event("response.reasoning_summary_part.done", **place, summary_index=0, part=part)
            told = item.told(part)
        else:
            call = self._call
            yield self.event("response.function_call_arguments.done", **place, name=call.name, arguments=call.arguments)
            told = item.told(call)
        yield self.event("response.output_item.done", output_index=item.index, item=told)

    def _take_call(self, piece: ToolCallDelta) -> Iterator[bytes]:
        if piece.index != self._call_index:
            yield from self.close()
            self._call_index = piece.index
            self._call = ToolCall(piece.id or f"call_{piece.index}", piece.name or "", "")
            yield from self._begin("function_call")
        self._call = ToolCall(self._call.id, self._call.name, self._call.arguments + piece.arguments)
        if piece.arguments:
            yield self.event("response.function_call_arguments.delta", **self._place(), delta=piece.arguments)

    def _begin(self, kind: str) -> Iterator[bytes]:
        if self._open is not None and self._open.kind == kind:
            return
        yield from self.close()
        self._open = item = _Item(self._response, self._items, kind)
        self._items += 1
        self._text, self._logprobs = "", []
        begun = item.told(self._call if kind == "function_call" else None, "in_progress")
        yield self.event("response.output_item.added", output_index=item.index, item=begun)
        if kind == "message":
            place = {**self._place(), "content_index": 0}
            yield self.event("response.content_part.added", **place, part=_text_part("", []))
        elif kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            yield self.event("response.reasoning_summary_part.added", **self._place(), summary_index=0, part=part)

    def _place(self) -> dict[str, Any]:
        return {} if self._open is None else {"item_id": self._open.id, "output_index": self._open.index}


def _parts(whole: Whole) -> Iterator[tuple[str, Any]]:
    """The items of a whole response, in the order in which a stream tells them."""
    if whole.reasoning:
        yield "reasoning", {"type": "summary_text", "text": whole.reasoning}
    if whole.text or not whole.calls:
        yield "message", _text_part(whole.text, whole.logprobs)
    for call in whole.calls:
        yield "function_call", call


def _text_part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _told(value: Any) -> Any:
    """A part of the request, as the response repeats it."""
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value
