"""A reply while it arrives: its text, the tools that it asks for, and how it ended."""

from __future__ import annotations

from chatbot.messages import Delta, Finished, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta


class Reply:
    """The part of a reply that has arrived."""

    def __init__(self) -> None:
        self.text = ""
        self.finished: Finished | None = None
        self.has_begun = False
        self._calls: dict[int, list[str]] = {}

    def take(self, delta: Delta) -> None:
        """Add a delta."""
        self.has_begun = True
        if isinstance(delta, TextDelta):
            self.text += delta.text
        elif isinstance(delta, ReasoningDelta):
            return
        elif isinstance(delta, ToolCallDelta):
            call = self._calls.setdefault(delta.index, ["", "", ""])
            call[0] = delta.id or call[0]
            call[1] = delta.name or call[1]
            call[2] += delta.arguments
        else:
            self.finished = delta

    @property
    def written(self) -> str:
        """All that the model wrote, the arguments of tool calls included."""
        return self.text + "".join(arguments for _, _, arguments in self._calls.values())

    def calls(self) -> list[ToolCall]:
        """Return the tool calls, in their order."""
        return [
            ToolCall(call_id or f"call_{index}", name, arguments)
            for index, (call_id, name, arguments) in sorted(self._calls.items())
        ]
