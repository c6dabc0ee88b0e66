"""`/v1/responses`: OpenAI's newer route, as a translation to chat completions and back."""

from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse

from chatbot.errors import SessionError
from chatbot.messages import Delta, Finished, ReasoningDelta, TextDelta, ToolCallDelta
from chatbot.server import sse
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import OF_IDENTITY, OF_MODELS, Problem, TurnGone
from chatbot.server.idempotency import IdempotentWrite, WritingHere
from chatbot.server.openai import places, wire
from chatbot.server.openai.completions import PendingReply, earlier_reply, reply_to
from chatbot.server.openai.places import parse_response_id, response_id, unknown_response
from chatbot.server.request_values import Flag, Tokens, only, only_types

router = APIRouter(prefix="/v1/responses", tags=["openai"], responses=OF_IDENTITY)


class ResponseRequest(wire.ReplyFields):
    """A request for a response, with fields that OpenAI documents."""

    input: Annotated[
        str | list[dict[str, Any]],
        Field(min_length=1),
        only_types(
            *("message", "function_call", "function_call_output", "reasoning", "item_reference"),
            of="items",
            default="message",
        ),
    ]
    """Input to answer, with or without the conversation before it: text, or messages, calls and their outputs."""
    instructions: str | None = None
    """Replaces the persona."""
    tools: Annotated[list[dict[str, Any]] | None, only_types("function", of="tools")] = None
    """Functions that the model may call and that you run."""
    tool_choice: str | dict[str, Any] | None = None
    """Tool choice: none, auto, required, one of `tools`, or a subset of them."""
    text: dict[str, Any] | None = None
    """Settings for the text of the reply: its `format` and `verbosity`."""
    max_output_tokens: Tokens | None = None
    """Longest reply in tokens; the identity's settings may allow less."""
    reasoning: dict[str, Any] | None = None
    """Reasoning of the model: its `effort`."""
    include: list[str] | None = None
    """Additional output; supported: `message.output_text.logprobs`."""
    metadata: dict[str, Any] | None = None
    """Returned as sent."""
    background: Annotated[Flag | None, only(False, otherwise="a response is not made in the background")] = None  # noqa: FBT003
    """Always false."""
    prompt: wire.Unsupported = None

    @property
    def last_reference(self) -> str | None:
        """Id of the last stored item that the input refers to: its session has all items before, too."""
        items = self.input if isinstance(self.input, list) else []
        return next((str(each.get("id")) for each in reversed(items) if each.get("type") == "item_reference"), None)

    def as_completion(self) -> wire.ReplyRequest:
        """Return the request for `/v1/chat/completions`. Raises `RequestValidationError`."""
        messages = _messages(self.instructions, self.input)
        fields = {
            **{name: getattr(self, name) for name in wire.ReplyFields.model_fields},
            "messages": messages,
            "tools": self.tools and list(map(_translated, self.tools)),
            "tool_choice": _translated(self.tool_choice),
            "response_format": _translated((self.text or {}).get("format")),
            "verbosity": (self.text or {}).get("verbosity"),
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": (self.reasoning or {}).get("effort"),
            "logprobs": bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ()),
        }
        try:
            return wire.ReplyRequest.model_validate(fields)
        except ValidationError as error:
            wrong = [{**each, "loc": ("body", *_where(each["loc"], messages))} for each in error.errors()]
            raise RequestValidationError(wrong, body=self.model_dump()) from None


def _messages(instructions: str | None, given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an input's messages, each with its `item` index; calls join the assistant message before them."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for at, item in enumerate([{"role": "user", "content": given}] if isinstance(given, str) else given):
        match item.get("type"):
            case "reasoning" | "item_reference":
                continue
            case "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "item": at})
                calls = messages[-1].setdefault("tool_calls", [])
                calls.append({"id": item.get("call_id"), "function": item, "item": at})
            case "function_call_output":
                content, call_id = _translated(item.get("output")), item.get("call_id")
                messages.append({"role": "tool", "content": content, "tool_call_id": call_id, "item": at})
            case _:
                messages.append({"role": item.get("role"), "content": _translated(item.get("content")), "item": at})
    return messages


def _translated(given: Any) -> Any:
    """Return the content of a message, a tool, a choice of one or a format in the form of chat completions."""
    match given:
        case [*parts]:
            return list(map(_translated, parts))
        case {"type": "input_text" | "output_text"}:
            return {**given, "type": "text"}
        case {"type": "input_image"}:
            return {"type": "image_url", "image_url": {"url": given.get("image_url"), "detail": given.get("detail")}}
        case {"type": "input_file" | "function" | "json_schema" as kind}:
            name = kind.removeprefix("input_")
            return {"type": name, name: given}
    return given


def _where(loc: tuple[int | str, ...], messages: list[dict[str, Any]]) -> tuple[Any, ...]:
    """Map the location of an error in the completion request to one in this request."""
    match loc:
        case ("messages", int(at), "tool_calls", int(number), *rest):
            return "input", messages[at]["tool_calls"][number]["item"], *rest
        case ("messages", int(at), *rest):
            return "input", messages[at].get("item", at), *rest
        case ("messages", *rest):
            return "input", *rest
        case ("response_format", *rest):
            return "text", "format", *rest
        case ("verbosity" | "reasoning_effort" as name,):
            return "reasoning" if name == "reasoning_effort" else "text", name.removeprefix("reasoning_")
    return loc


class ResponseObject(wire.Lenient):
    """A response, as OpenAI documents it; `session_id` if it is stored."""

    id: str
    """Id that a later request may send as `previous_response_id`."""
    status: str
    """`completed`, or `incomplete` if cut or filtered."""
    output: list[dict[str, Any]]
    session_id: str | None = None
    notices: tuple[str, ...] = ()


@router.post(
    "",
    summary="Ask for a response",
    response_model=ResponseObject,
    responses={**OF_MODELS, 200: sse.describe_stream("The response, or a stream of OpenAI's events.")},
)
async def respond(
    asked: Annotated[ResponseRequest, Body()],
    request: Request,
    identities: IdentitiesHere,
    caller: CallerHere,
    writing: WritingHere,
) -> Response:
    """Compatible with OpenAI's API; sessions and memory are as in chat completions.

    A response is kept if it belongs to a session: if your token remembers, if you name a session, or with
    `store: true`. `previous_response_id` continues from it, and forks the session if it has continued since.
    """
    completion = asked.as_completion()
    if not (asked.session_id or asked.conversation or places.SESSION_HEADER in request.headers):
        completion.previous_response_id = asked.previous_response_id or asked.last_reference
    pending = await reply_to(completion, request.headers, identities, caller, writing, remembers=bool(asked.store))
    response = _Encoder(asked, pending)
    if asked.stream:
        return await pending.stream(response.encode, response.encode_error, request.receive)
    return await pending.answer(response.whole(), request.receive)


@router.get("/{response}", summary="Get a stored response", response_model=ResponseObject)
async def read_response(
    response: Annotated[str, Path(description="A response's id.", max_length=100)],
    identities: IdentitiesHere,
    caller: CallerHere,
) -> Response:
    """Return a stored response. The identity that answered need not be named."""
    session, turn = parse_response_id(response)
    for name in identities.names_for(caller):
        access = await identities.access(caller, name)
        try:
            pending = await earlier_reply(access, {"session": session, "turn": turn}, IdempotentWrite())
        except (SessionError, TurnGone):
            continue
        whole = await _Encoder(ResponseRequest(model=name, input="-"), pending).whole()  # no response shows its input
        return JSONResponse(whole, headers=pending.headers)
    raise unknown_response(response)


_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}
"""Fields of a request that its response repeats, with their defaults."""
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_EVENTS = {"message": "output_text", "reasoning": "reasoning_summary_text", "function_call": "function_call_arguments"}
"""Text events of each type of item."""
_PARTS = {"message": ("content", "content_part"), "reasoning": ("summary", "reasoning_summary_part")}
"""For types with text in a part: the field of that part, and its events."""


class _Encoder:
    """A response built from the deltas of a reply, as items and numbered events."""

    def __init__(self, asked: ResponseRequest, pending: PendingReply) -> None:
        self._pending = pending
        self._number = -1
        self._items: list[dict[str, Any]] = []
        self._open: object = None
        self._response = {
            **_REPEATED,
            **{name: value for name, value in asked if name in _REPEATED and value is not None},
            "id": response_id(pending.session, pending.turn),
            "object": "response",
            "created_at": pending.created,
            "model": pending.access.identity,
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "store": pending.session is not None,
            "truncation": "disabled",
            "conversation": {"id": pending.session_id} if asked.conversation else None,
            "session_id": pending.session_id,
            "output": [],
            "usage": None,
        }

    async def whole(self) -> dict[str, Any]:
        """Return the complete response, as in its last event."""
        async for delta in self._pending.deltas:
            list(self._take(delta))
        return self._response

    async def encode(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[bytes, None]:
        """Yield the response as OpenAI's events."""
        yield self._event("created", response=self._response)
        yield self._event("in_progress", response=self._response)
        async for delta in deltas:
            for event in self._take(delta):
                yield event

    def encode_error(self, problem: Problem) -> bytes:
        """Return the last event of a response that fails midway."""
        error = {"code": problem.code, "message": problem.message}
        return self._event("failed", response={**self._response, "status": "failed", "error": error})

    def _event(self, name: str, /, **data: Any) -> bytes:
        self._number += 1
        return sse.event({"type": f"response.{name}", "sequence_number": self._number, **data}, f"response.{name}")

    def _take(self, delta: Delta) -> Iterator[bytes]:
        if isinstance(delta, TextDelta):
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._begin("message", part, role="assistant")
            self._part["logprobs"] += delta.logprobs
            yield self._more("text", delta.text, logprobs=delta.logprobs)
        elif isinstance(delta, ReasoningDelta):
            yield from self._begin("reasoning", {"type": "summary_text", "text": ""})
            yield self._more("text", delta.text)
        elif isinstance(delta, ToolCallDelta):
            call = {"call_id": delta.id or f"call_{delta.index}", "name": delta.name or "", "arguments": ""}
            yield from self._begin("function_call", None, delta.index, **call)
            if delta.arguments:
                yield self._more("arguments", delta.arguments)
        else:
            if all(item["type"] == "reasoning" for item in self._items):
                yield from self._take(TextDelta(""))
            yield from self._end()
            yield self._finish(delta)

    @property
    def _part(self) -> dict[str, Any]:
        """The part of the last item that has its text, or the item itself."""
        item = self._items[-1]
        part: dict[str, Any] = item[_PARTS[item["type"]][0]][0] if item["type"] in _PARTS else item
        return part

    @property
    def _place(self) -> dict[str, Any]:
        """Position of the last item and its part."""
        item = self._items[-1]
        place = {"item_id": item["id"], "output_index": len(self._items) - 1}
        return place | ({f"{_PARTS[item['type']][0]}_index": 0} if item["type"] in _PARTS else {})

    def _begin(self, kind: str, part: dict[str, Any] | None, call: int = 0, **fields: str) -> Iterator[bytes]:
        if self._open == (kind, call):
            return
        yield from self._end()
        self._open = kind, call
        item_id = f"{_PREFIXES[kind]}_{self._response['id'].removeprefix('resp_')}{len(self._items)}"
        item: dict[str, Any] = {"id": item_id, "type": kind, "status": "in_progress", **fields}
        self._items.append(item)
        field, events = _PARTS.get(kind, ("", ""))
        if part is not None:
            item[field] = []
        yield self._event("output_item.added", output_index=len(self._items) - 1, item=item)
        if part is not None:
            item[field].append(part)
            yield self._event(f"{events}.added", **self._place, part=part)

    def _more(self, field: str, text: str, **more: Any) -> bytes:
        self._part[field] += text
        return self._event(f"{_EVENTS[self._items[-1]['type']]}.delta", **self._place, delta=text, **more)

    def _end(self) -> Iterator[bytes]:
        if self._open is None:
            return
        self._open = None
        item, part = self._items[-1], self._part
        item["status"] = "completed"
        done = {name: part[name] for name in ("text", "logprobs", "name", "arguments") if name in part}
        yield self._event(f"{_EVENTS[item['type']]}.done", **self._place, **done)
        if item["type"] in _PARTS:
            yield self._event(f"{_PARTS[item['type']][1]}.done", **self._place, part=part)
        yield self._event("output_item.done", output_index=len(self._items) - 1, item=item)

    def _finish(self, end: Finished) -> bytes:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(end.reason)
        status = "incomplete" if reason else "completed"
        self._response |= {
            "status": status,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": self._items,
            "notices": end.notices,
            "usage": {
                "input_tokens": end.usage.input_tokens,
                "input_tokens_details": {"cached_tokens": end.usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": end.usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": end.usage.input_tokens + end.usage.output_tokens,
            },
        }
        return self._event(status, response=self._response)
