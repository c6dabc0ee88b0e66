"""The shapes of `/v1/chat/completions`, as OpenAI documents them, and what we add: `session_id` and `identity`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from chatbot.messages import Message, ToolCall, ToolSpec

Ignored = Annotated[Any, Field(description="Taken and ignored: the identity's settings decide.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TextPart(_Strict):
    """A piece of a message; only text is understood."""

    type: Literal["text"]
    text: str


class CalledFunction(_Strict):
    """Which function, with which arguments as JSON text."""

    name: str
    arguments: str = ""


class AskedCall(_Strict):
    """A tool call that a model asked for, sent back with its history."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AskedMessage(_Strict):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[AskedCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    def text(self) -> str:
        """All of its text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""

    def as_message(self) -> Message:
        """The message as models take it."""
        calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        return Message(role, self.text(), tool_calls=calls, tool_call_id=self.tool_call_id)


class FunctionSpec(_Strict):
    """A function that the model may call; you run it."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class AskedTool(_Strict):
    """A tool that the model is offered."""

    type: Literal["function"] = "function"
    function: FunctionSpec

    def as_spec(self) -> ToolSpec:
        """The tool as models take it."""
        return ToolSpec(self.function.name, self.function.description, self.function.parameters)


class StreamOptions(_Strict):
    """What a stream holds beside the reply."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class TextFormat(_Strict):
    """The only format of replies."""

    type: Literal["text"]


class Asked(_Strict):
    """A request for a reply."""

    model: str = Field(description="An identity's name, see /v1/models; `default` is the first of them.")
    messages: list[AskedMessage] = Field(min_length=1, max_length=10_000)
    session_id: str | None = Field(
        None,
        description="Say the last message in this session, with its memory and transcript, which take the place of all "
        "messages before it; `new` begins one. Without it nothing is remembered and nothing recalled.",
    )
    identity: str | None = Field(None, description="Who answers; stronger than `model`.")
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[AskedTool] | None = Field(None, max_length=128)
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: Literal[1] | None = None
    response_format: TextFormat | None = None
    logprobs: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None
    temperature: Ignored = None
    top_p: Ignored = None
    seed: Ignored = None
    presence_penalty: Ignored = None
    frequency_penalty: Ignored = None
    reasoning_effort: Ignored = None
    verbosity: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None
    metadata: Ignored = None
    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None

    @property
    def most_tokens(self) -> int | None:
        """The longest reply that is wanted."""
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit]
        return min(limits, default=None)


class Usage(BaseModel):
    """Tokens that were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] = Field(default_factory=dict)


class Function(BaseModel):
    """Which function is called, with which arguments as JSON text."""

    name: str
    arguments: str


class Call(BaseModel):
    """A tool call for you to run."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class Reply(BaseModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    tool_calls: list[Call] | None = None
    refusal: str | None = None


Reason = Literal["stop", "length", "tool_calls", "content_filter"]


class Choice(BaseModel):
    """The only one."""

    index: int = 0
    message: Reply
    finish_reason: Reason
    logprobs: None = None


class Completion(BaseModel):
    """A whole reply."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str = Field(description="The identity that answered.")
    choices: list[Choice]
    usage: Usage
    session_id: str | None = Field(None, description="The session that it was said in.")
