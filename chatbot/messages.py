"""What is said to a model and what comes back, in values that know no provider.

`Message` is one role-annotated entry of a prompt. A reply arrives as a stream of `Delta`s: any number of `TextDelta`
and `ToolCallDelta`, then exactly one `Finished`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool; `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a prompt. `tool_calls` only with role assistant, `tool_call_id` only with role tool."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def as_openai(self) -> dict[str, Any]:
        """The message in the chat-completions form that LiteLLM takes for every provider."""
        wire: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            wire["content"] = self.content or None
            wire["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        return wire


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}}, hash=False)

    def as_openai(self) -> dict[str, Any]:
        """The tool in the chat-completions form."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one model call.

    `cached_tokens` are those of `input_tokens` that the provider read from its cache. `cost_usd` is None where the
    price is not known. `estimated` is true where the provider reported no usage and we counted ourselves.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of the tool call at `index`: id and name come once, `arguments` in fragments to be joined."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply that arrived whole."""

    reason: FinishReason
    usage: Usage
    model: str
    """The model that answered, as the provider names it."""


Delta = TextDelta | ToolCallDelta | Finished
