"""`/v1/chat/completions`: a reply in a session, or to just these messages; whole, or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from starlette.responses import JSONResponse

from chatbot.messages import Delta, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from chatbot.server import sse
from chatbot.server.dependencies import CallerHere, IdentitiesHere
from chatbot.server.errors import OF_IDENTITY, OF_MODELS, Problem
from chatbot.server.idempotency import WritingHere
from chatbot.server.openai.replies import PendingReply, answer_to
from chatbot.server.openai.wire import Lenient, ReplyRequest

router = APIRouter(prefix="/v1/chat/completions", tags=["openai"], responses={**OF_IDENTITY, **OF_MODELS})
_END = sse.event("[DONE]")


class Completion(Lenient):
    """A reply, as OpenAI documents it; with `session_id` if it belongs to a session."""

    id: str
    """The reply's id."""
    model: str
    """The identity that answered."""
    choices: list[dict[str, Any]]
    """One choice, with the `message`."""
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
    answer = await answer_to(asked, request.headers, identities, caller, writing)
    completion = _Completion(asked, answer)
    if asked.stream:
        return await answer.stream(completion.encode, completion.encode_error)
    return JSONResponse(await completion.whole(), headers=answer.headers)


class _Completion:
    """A reply in OpenAI's form, whole or in chunks."""

    def __init__(self, asked: ReplyRequest, answer: PendingReply) -> None:
        self._answer = answer
        self._head = {
            "id": f"chatcmpl-{answer.turn}",
            "created": answer.created,
            "model": answer.access.identity,
            "session_id": answer.session_id,
        }
        self._with_usage = bool(asked.stream_options and asked.stream_options.include_usage)

    async def whole(self) -> dict[str, Any]:
        """Return the complete reply."""
        reply, end = await self._answer.whole()
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
