"""`/v1/chat/completions`: a reply in a session, or to just these messages; whole, or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from starlette.responses import JSONResponse

from chatbot.errors import ChatbotError
from chatbot.messages import ReasoningDelta, TextDelta, ToolCallDelta, Usage
from chatbot.server import sse
from chatbot.server.callers import Caller
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.error_responses import OF_IDENTITY, OF_MODELS
from chatbot.server.errors import problem_of, unexpected
from chatbot.server.idempotency import WritingHere
from chatbot.server.openai import wire
from chatbot.server.openai.models import access_of
from chatbot.server.openai.pending_reply import PendingReply, answer_to
from chatbot.server.openai.places import named_in_headers
from chatbot.server.openai.replies import Piece
from chatbot.server.request_values import named_in
from chatbot.stores.errors import StoreError

router = APIRouter(prefix="/v1/chat/completions", tags=["openai"], responses={**OF_IDENTITY, **OF_MODELS})

_CHUNK = {
    **sse.data(
        id={"type": "string"},
        object={"const": "chat.completion.chunk"},
        created={"type": "integer"},
        model={"type": "string"},
        choices={
            "type": "array",
            "items": {"type": "object"},
            "description": "One piece, in `delta`; none at the end.",
        },
    ),
    "description": "As OpenAI's; with `session_id` where there is one.",
}
_STREAM = {
    sse.EventStream.media_type: {
        "itemSchema": sse.data(
            data={
                "anyOf": [
                    {"const": "[DONE]", "description": "The end."},
                    sse.in_json({"anyOf": [_CHUNK, {"$ref": "#/components/schemas/Error"}]}),
                ]
            }
        )
    }
}


@router.post(
    "",
    summary="Ask for a reply",
    response_model=wire.Completion,
    responses={200: {"content": _STREAM, "description": "The reply, or a stream of its pieces."}},
)
async def complete(
    asked: Annotated[wire.ReplyRequest, Body()],
    request: Request,
    identities: IdentitiesHere,
    caller: CallerHere,
    writing: WritingHere,
) -> Response:
    """Compatible with OpenAI's.

    In a session what is remembered is recalled, the exchange is kept, and the session's own tools run here; `tools` of
    yours come back for you to run. The session is the one that you name, or the one whose whole history you send, where
    your token remembers. Otherwise the messages are sent as they are, and nothing is recalled or kept.

    `user` or `safety_identifier` names the end user: each has sessions and a memory of their own.
    """
    caller = named_in(caller, user=asked.user, safety_identifier=asked.safety_identifier)
    session, memory = named_in_headers(request.headers)
    access = await access_of(identities, caller, asked.model, asked.identity)
    answer = await answer_to(access, asked.as_ask(session, memory), writing)
    reply = _Reply(access.identity, answer)
    if not asked.stream:
        return JSONResponse((await reply.whole()).model_dump(exclude_none=False), headers=answer.headers)
    first = await answer.first()  # what goes wrong before anything came is an error with a status of its own
    with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
    return sse.EventStream(reply.events(first, caller, with_usage=with_usage), headers=answer.headers)


class _Reply:
    """Common fields of all pieces of a reply."""

    def __init__(self, identity: str, answer: PendingReply) -> None:
        self._answer = answer
        self._head = {"id": f"chatcmpl-{answer.id}", "created": answer.created, "model": identity}

    async def whole(self) -> wire.Completion:
        """The reply when all of it has come."""
        reply = await self._answer.whole()
        end = reply.ended()
        calls = [
            wire.ReplyToolCall(id=call.id, function=wire.Function(name=call.name, arguments=call.arguments))
            for call in reply.calls
        ]
        message = wire.ReplyMessage(
            content=reply.text or (None if calls else ""),
            tool_calls=calls or None,
            reasoning_content=reply.reasoning or None,
        )
        logprobs = {"content": reply.logprobs, "refusal": None} if reply.logprobs else None
        return wire.Completion(
            **self._head,
            choices=[wire.ReplyChoice(message=message, finish_reason=end.reason, logprobs=logprobs)],
            usage=_usage(end.usage),
            session_id=self._answer.session_id,
        )

    async def events(self, first: Piece | None, caller: Caller, *, with_usage: bool) -> AsyncGenerator[bytes, None]:
        """The reply as server-sent events; a failure on the way is the last but one of them."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async for event in self._rest(first, with_usage=with_usage):
                yield event
        except (ChatbotError, StoreError) as error:
            yield sse.event(problem_of(error, caller).as_json())
        except Exception as error:  # noqa: BLE001 - a model may be a plug-in's; the client must be told
            yield sse.event(unexpected(error).as_json())
        yield sse.event("[DONE]")

    async def _rest(self, first: Piece | None, *, with_usage: bool) -> AsyncGenerator[bytes, None]:
        async for piece in self._answer.rest(first):
            if isinstance(piece, TextDelta):
                yield self._chunk({"content": piece.text}, logprobs=piece.logprobs)
            elif isinstance(piece, ReasoningDelta):
                yield self._chunk({"reasoning_content": piece.text})
            elif isinstance(piece, ToolCallDelta):
                yield self._chunk({"tool_calls": [_call_delta(piece)]})
            else:
                yield self._chunk({}, piece.reason)
                if with_usage:
                    yield sse.event(self._frame([], _usage(piece.usage)))

    def _chunk(
        self, delta: dict[str, Any], reason: wire.Reason | None = None, logprobs: tuple[dict[str, Any], ...] = ()
    ) -> bytes:
        told = {"content": list(logprobs), "refusal": None} if logprobs else None
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": told}
        return sse.event(self._frame([choice], None))

    def _frame(self, choices: list[dict[str, Any]], usage: wire.Usage | None) -> dict[str, Any]:
        frame = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        if self._answer.session_id is not None:
            frame["session_id"] = self._answer.session_id
        return frame if usage is None else frame | {"usage": usage.model_dump()}


def _call_delta(piece: ToolCallDelta) -> dict[str, Any]:
    function = {"name": piece.name, "arguments": piece.arguments}
    delta = {"index": piece.index, "id": piece.id, "type": "function" if piece.id else None}
    return {name: value for name, value in delta.items() if value is not None} | {
        "function": {name: value for name, value in function.items() if value is not None}
    }


def _usage(usage: Usage) -> wire.Usage:
    return wire.Usage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details={"cached_tokens": usage.cached_tokens},
    )
