"""Reading a reply as LiteLLM streams it: chunks in, deltas out, and what is known once it has ended."""

from __future__ import annotations

from typing import Any

from chatbot.messages import Delta, FinishReason, TextDelta, ToolCallDelta

_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class Reading:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.written = ""
        """All that the model wrote, the arguments of tool calls included."""
        self.model = ""
        """The model that answered, as the provider names it."""
        self.reason: FinishReason = "stop"
        self.usage: Any = None
        """LiteLLM's sum of what was reported; or its own guess, where nothing was."""

    def take(self, chunk: Any) -> list[Delta]:
        """The deltas that a chunk holds, often none."""
        self.model = self.model or str(getattr(chunk, "model", None) or "")
        self.usage = getattr(chunk, "usage", None) or self.usage
        deltas: list[Delta] = []
        for choice in chunk.choices[:1]:
            if choice.finish_reason:
                self.reason = _REASONS.get(choice.finish_reason, "stop")
            if text := choice.delta.content:
                self.written += text
                deltas.append(TextDelta(text))
            deltas += [self._take_call(call) for call in getattr(choice.delta, "tool_calls", None) or ()]
        return deltas

    def _take_call(self, call: Any) -> ToolCallDelta:
        name, arguments = call.function.name, call.function.arguments or ""
        self.written += (name or "") + arguments
        return ToolCallDelta(call.index or 0, call.id, name, arguments)


def is_whole(response: Any) -> bool:
    """Whether the provider said that its reply has ended; LiteLLM ends every stream as if it had."""
    return getattr(response, "received_finish_reason", "") is not None


def has_reported_usage(response: Any) -> bool:
    """Whether the provider itself said what the reply took."""
    return any(getattr(chunk, "usage", None) for chunk in getattr(response, "chunks", ()))
