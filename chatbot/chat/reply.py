"""A reply while it arrives: its text, the tools that it asks for, and how it ended."""

from __future__ import annotations

from chatbot.messages import Delta, Finished, TextDelta, ToolCall, ToolCallDelta


class Reply:
    """What has arrived of a reply."""

    def __init__(self) -> None:
        self.text = ""
        self.finished: Finished | None = None
        self._calls: dict[int, list[str]] = {}

    def take(self, delta: Delta) -> None:
        """Add what arrived."""
        if isinstance(delta, TextDelta):
            self.text += delta.text
        elif isinstance(delta, ToolCallDelta):
            call = self._calls.setdefault(delta.index, ["", "", ""])
            call[0] = delta.id or call[0]
            call[1] = delta.name or call[1]
            call[2] += delta.arguments
        else:
            self.finished = delta

    def calls(self) -> list[ToolCall]:
        """The tools that were asked for, in their order."""
        return [
            ToolCall(call_id or f"call_{index}", name, arguments)
            for index, (call_id, name, arguments) in sorted(self._calls.items())
        ]
