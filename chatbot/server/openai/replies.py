"""Replies, from a session or without one, as the same few pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from chatbot.chat import ClientCall, ClientRequest, Event, ToolFinished
from chatbot.chat.attached import inlined
from chatbot.chat.usage import calls_in
from chatbot.memory import SessionHandle
from chatbot.messages import Finished, Message, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.openai import histories
from chatbot.server.openai.asked import Ask
from chatbot.server.openai.models import unsupported
from chatbot.server.openai.places import ReplyPlace
from chatbot.server.openai.wire import Reason
from chatbot.server.turns import KeptTurn, RunningTurn


@dataclass(frozen=True, slots=True)
class End:
    """End of a reply, and its usage."""

    reason: Reason
    usage: Usage


Piece = TextDelta | ReasoningDelta | ToolCallDelta | End


class Whole:
    """A reply put together from its pieces."""

    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self.logprobs: list[dict[str, object]] = []
        self.end: End | None = None
        self._calls: dict[int, ToolCall] = {}

    def take(self, piece: Piece) -> None:
        """Add what arrived."""
        if isinstance(piece, TextDelta):
            self.text += piece.text
            self.logprobs += piece.logprobs
        elif isinstance(piece, ReasoningDelta):
            self.reasoning += piece.text
        elif isinstance(piece, ToolCallDelta):
            known = self._calls.get(piece.index, ToolCall("", "", ""))
            self._calls[piece.index] = ToolCall(
                piece.id or known.id, piece.name or known.name, known.arguments + piece.arguments
            )
        else:
            self.end = piece

    @property
    def calls(self) -> list[ToolCall]:
        """The tools that the client is to run."""
        return [replace(call, id=call.id or f"call_{index}") for index, call in sorted(self._calls.items())]

    def ended(self) -> End:
        """Reason for its end."""
        if self.end is None:
            raise RuntimeError("the reply ended early")
        return self.end


class ClientPieces:
    """Part of a turn's events for the client: text, thoughts, and calls of its own tools."""

    def __init__(self) -> None:
        self._has_run_tools = self._has_said = False
        self._calls = 0

    def take(self, event: Event) -> Piece | None:
        """The piece that an event is to the client; texts before and after our own tools are paragraphs apart."""
        if isinstance(event, ToolFinished):
            self._has_run_tools = self._has_said
        elif isinstance(event, TextDelta):
            begins = self._has_run_tools
            self._has_run_tools, self._has_said = False, True
            return replace(event, text=f"\n\n{event.text}") if begins else event
        elif isinstance(event, ReasoningDelta):
            return event
        elif isinstance(event, ClientCall):
            self._calls += 1
            call = event.call
            return ToolCallDelta(self._calls - 1, call.id, call.name, call.arguments)
        return None


async def check_options(access: IdentityAccess, ask: Ask) -> None:
    """Refuse what the identity's model cannot do, and what would change the meaning of its reply."""
    model = access.runtime.model
    if ask.tools and not model.supports_tools:
        raise unsupported("tools", f"the model of {access.identity} takes none")
    if unknown := await model.unknown_options(ask.options):
        raise unsupported(unknown[0], f"the model of {access.identity} cannot do that")


def answered(access: IdentityAccess, ask: Ask, before: Sequence[Message] | None) -> AsyncGenerator[Piece, None]:
    """Prepare the reply to just these messages; `before`, where given, replaces all but what the user says last."""
    messages = ask.messages
    if before is not None:
        said = () if ask.answers else ask.new
        messages = (*(each for each in ask.messages if each.role == "system"), *before, *said)
    return _answered(access, ask, messages)


async def _answered(access: IdentityAccess, ask: Ask, messages: Sequence[Message]) -> AsyncGenerator[Piece, None]:
    """Leaving the iterator stops the model."""
    messages = await inlined(messages)
    stream = access.runtime.answer(
        messages, tools=ask.tools, max_output_tokens=ask.most_tokens, options=ask.options, payers=access.payers
    )
    async with aclosing(stream) as deltas:
        async for delta in deltas:
            yield End(delta.reason, delta.usage) if isinstance(delta, Finished) else delta


async def begin(access: IdentityAccess, ask: Ask, place: ReplyPlace, session: SessionHandle, turn: str) -> RunningTurn:
    """Start the turn in the session of its place; afterwards the whole conversation identifies the session."""
    client = ClientRequest(
        turn=turn,
        persona=ask.persona,
        history=place.before,
        asked=ask.asked.without_files(),
        answers=ask.answers,
        sent=ask.turn if ask.answers else (),
        tools=ask.tools,
        options=ask.options,
        recalls=ask.recalls_always or not ask.options.is_forced,
    )
    text = ask.asked.content or await (await access.chat(session.id)).asked_last() or ""
    return await access.begin_turn(
        session.id,
        text if ask.answers else ask.typed,
        attachments=ask.attachments,
        max_output_tokens=ask.most_tokens,
        client=client,
        then=_noting(session, ask) if place.is_whole else None,
    )


def _noting(session: SessionHandle, ask: Ask) -> Callable[[Sequence[Event]], Awaitable[None]]:

    async def note(events: Sequence[Event]) -> None:
        shown, whole = ClientPieces(), Whole()
        for event in events:
            if (piece := shown.take(event)) is not None:
                whole.take(piece)
        reply = Message("assistant", whole.text, tool_calls=tuple(whole.calls))
        await histories.note(session, [*ask.said, reply])

    return note


async def said(turn: RunningTurn | KeptTurn, note: Callable[..., None]) -> AsyncGenerator[Piece, None]:
    """The reply of a turn, whose id is noted. Leaving the iterator does not stop it."""
    shown = ClientPieces()
    async for event in turn.events():
        if (piece := shown.take(event)) is not None:
            yield piece
    ended = await turn.ended()
    note(turn=ended.turn)
    finish = ended.receipt["finish"]
    reason: Reason = finish if finish in {"length", "content_filter", "tool_calls"} else "stop"
    yield End(reason, total(call.usage for call in calls_in([ended.receipt])))


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sum of the usage of several calls."""
    usages = list(usages)
    return Usage(
        sum(usage.input_tokens for usage in usages),
        sum(usage.output_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages),
    )
