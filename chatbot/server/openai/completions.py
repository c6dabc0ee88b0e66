"""`/v1/chat/completions`: a reply in a session, or to just these messages; whole, or as a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from starlette.responses import JSONResponse

from chatbot.errors import ChatbotError
from chatbot.memory.record import new_id
from chatbot.messages import TextDelta, ToolCallDelta, Usage
from chatbot.server import sse
from chatbot.server.callers import Caller
from chatbot.server.dependencies import CallerHere, HouseHere
from chatbot.server.errors import Refused, problem_of, unexpected
from chatbot.server.house import House
from chatbot.server.openai import wire
from chatbot.server.openai.models import unknown_model, unsupported
from chatbot.server.openai.replies import Piece, answered, said
from chatbot.server.responses import OF_IDENTITY, OF_MODELS
from chatbot.server.turns import KeptTurn, RunningTurn
from chatbot.server.visit import Visit
from chatbot.server.writing import Made, Writing, WritingHere
from stores.errors import StoreError

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
DEFAULT = "default"
NEW = "new"


@router.post(
    "",
    summary="Ask for a reply",
    response_model=wire.Completion,
    responses={200: {"content": _STREAM, "description": "The reply, or a stream of its pieces."}},
)
async def complete(
    asked: Annotated[wire.Asked, Body()], house: HouseHere, caller: CallerHere, writing: WritingHere
) -> Response:
    """Compatible with OpenAI's.

    With `session_id` the last message is said in that session: what is remembered is recalled, the exchange is kept,
    and the session's own tools run here. Without it the messages are sent as they are, after the identity's persona
    unless they hold a system message; nothing is recalled or kept, and tool calls come back for you to run.
    """
    visit = await _visit(asked, house, caller)
    reply = _Reply(visit.identity, writing.before or await _new(asked, visit))
    pieces = await _pieces(asked, visit, reply, writing)
    if not asked.stream:
        return JSONResponse((await reply.whole(pieces)).model_dump(exclude_none=False), headers=reply.headers)
    first = await anext(pieces, None)  # what goes wrong before anything came is an error with a status of its own
    events = reply.events(
        first, pieces, caller, with_usage=bool(asked.stream_options and asked.stream_options.include_usage)
    )
    return sse.EventStream(events, headers=reply.headers)


class _Reply:
    """What all pieces of a reply have in common."""

    def __init__(self, identity: str, made: Made) -> None:
        self.made = made
        self.session_id = made.get("session")
        self.headers = {} if self.session_id is None else {"x-session-id": self.session_id}
        self._head = {"id": made["id"], "created": int(made["created"]), "model": identity}

    async def whole(self, pieces: AsyncGenerator[Piece, None]) -> wire.Completion:
        """The reply when all of it has come."""
        text, calls, end = "", dict[int, list[str]](), None
        async for piece in pieces:
            if isinstance(piece, TextDelta):
                text += piece.text
            elif isinstance(piece, ToolCallDelta):
                call = calls.setdefault(piece.index, ["", "", ""])
                call[:] = [piece.id or call[0], piece.name or call[1], call[2] + piece.arguments]
            else:
                end = piece
        if end is None:
            raise RuntimeError("a reply ended without its end")
        message = wire.Reply(content=text or (None if calls else ""), tool_calls=_calls(calls))
        return wire.Completion(
            **self._head,
            choices=[wire.Choice(message=message, finish_reason=end.reason)],
            usage=_usage(end.usage),
            session_id=self.session_id,
        )

    async def events(
        self, first: Piece | None, pieces: AsyncGenerator[Piece, None], caller: Caller, *, with_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """The reply as server-sent events; a failure on the way is the last but one of them."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async for event in self._rest(first, pieces, with_usage=with_usage):
                yield event
        except (ChatbotError, StoreError) as error:
            yield sse.event(problem_of(error, caller).as_json())
        except Exception as error:  # noqa: BLE001 - a model may be a stranger's; the client shall know
            yield sse.event(unexpected(error).as_json())
        yield sse.event("[DONE]")

    async def _rest(
        self, first: Piece | None, pieces: AsyncGenerator[Piece, None], *, with_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        async for piece in _again(first, pieces):
            if isinstance(piece, TextDelta):
                yield self._chunk({"content": piece.text})
            elif isinstance(piece, ToolCallDelta):
                yield self._chunk({"tool_calls": [_call_delta(piece)]})
            else:
                yield self._chunk({}, piece.reason)
                if with_usage:
                    yield sse.event(self._frame([], _usage(piece.usage)))

    def _chunk(self, delta: dict[str, Any], reason: wire.Reason | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return sse.event(self._frame([choice], None))

    def _frame(self, choices: list[dict[str, Any]], usage: wire.Usage | None) -> dict[str, Any]:
        frame = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        if self.session_id is not None:
            frame["session_id"] = self.session_id
        return frame if usage is None else frame | {"usage": usage.model_dump()}


async def _visit(asked: wire.Asked, house: House, caller: Caller) -> Visit:
    """Who is asked: `identity`, else `model`, which is the name of an identity too."""
    if asked.identity is not None:
        return await house.visit(caller, asked.identity)
    known = house.identities(caller)
    if asked.model == DEFAULT and DEFAULT not in known:
        return await house.visit(caller)
    if asked.model not in known:
        raise Refused(unknown_model(asked.model))
    return await house.visit(caller, asked.model)


async def _session(asked: wire.Asked, visit: Visit) -> str | None:
    if asked.session_id is None:
        return None
    known = None if asked.session_id == NEW else (await visit.session(asked.session_id)).id
    if asked.tools:
        raise unsupported("tools", "a session has tools of its own: leave tools or session_id out")
    if asked.messages[-1].role != "user":
        raise unsupported("messages", "the last message must be the user's where there is a session_id")
    return known or (await visit.new_session()).id


async def _new(asked: wire.Asked, visit: Visit) -> Made:
    """What names a new reply."""
    session_id = await _session(asked, visit)
    made = {"id": f"chatcmpl-{new_id().hex}", "created": str(int(time.time()))}
    return made if session_id is None else {**made, "session": session_id}


async def _pieces(asked: wire.Asked, visit: Visit, reply: _Reply, writing: Writing) -> AsyncGenerator[Piece, None]:
    if reply.session_id is None:
        return answered(visit, asked)
    turn: RunningTurn | KeptTurn
    if writing.before:
        turn = await visit.kept_turn(reply.session_id, writing.before["turn"])
    else:
        text = asked.messages[-1].text()
        turn = await visit.begin_turn(reply.session_id, text, max_output_tokens=asked.most_tokens)
    return said(turn, partial(writing.note, **reply.made))


async def _again(first: Piece | None, rest: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
    try:
        if first is not None:
            yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


def _calls(calls: dict[int, list[str]]) -> list[wire.Call] | None:
    listed = [
        wire.Call(id=call_id or f"call_{index}", function=wire.Function(name=name, arguments=arguments))
        for index, (call_id, name, arguments) in sorted(calls.items())
    ]
    return listed or None


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
