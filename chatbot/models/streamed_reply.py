"""Parsing of LiteLLM's stream: chunks in, deltas out, and the facts known at its end."""

from __future__ import annotations

from typing import Any

from chatbot.messages import Delta, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta

_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class StreamedReply:
    """Parts of a reply so far. With `tells_all` also what the model thinks, and how sure it is of its words."""

    def __init__(self, *, tells_all: bool = False) -> None:
        self._tells_all = tells_all
        self.written = ""
        """All that the model wrote, the arguments of tool calls included."""
        self.model = ""
        """The model that answered, as the provider names it."""
        self.reason: FinishReason = "stop"
        self.usage: Any = None
        """Return LiteLLM's sum of the reported usage, or its own estimate."""

    def take(self, chunk: Any) -> list[Delta]:
        """The deltas that a chunk holds, often none."""
        self.model = self.model or str(getattr(chunk, "model", None) or "")
        self.usage = getattr(chunk, "usage", None) or self.usage
        deltas: list[Delta] = []
        for choice in chunk.choices[:1]:
            if choice.finish_reason:
                self.reason = _REASONS.get(choice.finish_reason, "stop")
            if self._tells_all and (thought := getattr(choice.delta, "reasoning_content", None)):
                deltas.append(ReasoningDelta(thought))
            if text := choice.delta.content:
                self.written += text
                deltas.append(TextDelta(text, _logprobs(choice) if self._tells_all else ()))
            deltas += [self._take_call(call) for call in getattr(choice.delta, "tool_calls", None) or ()]
        return deltas

    def _take_call(self, call: Any) -> ToolCallDelta:
        name, arguments = call.function.name, call.function.arguments or ""
        self.written += (name or "") + arguments
        return ToolCallDelta(call.index or 0, call.id, name, arguments)


def _logprobs(choice: Any) -> tuple[dict[str, Any], ...]:
    told = getattr(choice, "logprobs", None)
    listed = told.get("content") if isinstance(told, dict) else getattr(told, "content", None)
    return tuple(each if isinstance(each, dict) else each.model_dump() for each in listed or ())


def is_whole(response: Any) -> bool:
    """Return True if the provider reported the end; LiteLLM ends every stream as if it had.

    Gemini reports it together with the last text, which LiteLLM notes as an intermittent reason.
    """
    reported = (getattr(response, "received_finish_reason", ""), getattr(response, "intermittent_finish_reason", None))
    return any(reason is not None for reason in reported)


def has_reported_usage(response: Any) -> bool:
    """Return True if the provider itself reported the usage."""
    return any(getattr(chunk, "usage", None) for chunk in getattr(response, "chunks", ()))
