"""The shapes of `/v1/chat/completions`, as OpenAI documents them, and what we add: `session_id` and `identity`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from chatbot.messages import Message, ToolCall, ToolSpec
from chatbot.server.errors import UNSUPPORTED
from chatbot.server.values import Flag, Tokens

Ignored = Annotated[Any, Field(description="Taken and ignored: the identity's settings decide.")]


def _refuse(value: object) -> object:
    if value is not None:
        raise PydanticCustomError(UNSUPPORTED, "that is not supported: leave it out")
    return None


def _only(*known: object, otherwise: str) -> BeforeValidator:
    """Takes these alone; for all else it says `otherwise`."""

    def check(value: object) -> object:
        if value is not None and value not in known:
            raise PydanticCustomError(UNSUPPORTED, otherwise)
        return value

    return BeforeValidator(check)


def _only_text(value: object) -> object:
    if not (value is None or isinstance(value, str | list)):
        raise PydanticCustomError(UNSUPPORTED, "it should be text, or a list of parts that are text")
    for part in value if isinstance(value, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise PydanticCustomError(
                UNSUPPORTED, "parts of the type {kind} are not supported: only text is", {"kind": repr(kind)[:80]}
            )
    return value


_NAME = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")


def _function_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise PydanticCustomError("name", "a name has 1 to 64 letters, digits, dots, dashes and underscores")
    return name


Unsupported = Annotated[None, BeforeValidator(_refuse), Field(description="Not supported: it would change the reply.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class TextPart(_Strict):
    """A piece of a message; only text is understood."""

    type: Literal["text"]
    """What kind of piece it is."""
    text: str
    """What it says."""


class CalledFunction(_Strict):
    """Which function was called."""

    name: str
    """Its name."""
    arguments: str = ""
    """As JSON text."""


class AskedCall(_Strict):
    """A tool call that a model asked for, sent back with its history."""

    id: str
    """Which one: `tool_call_id` of the message that answers it says the same."""
    type: Literal["function"] = "function"
    """What kind of call it is."""
    function: CalledFunction
    """Which function."""


class AskedMessage(_Strict):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    """Who says it."""
    content: Annotated[str | list[TextPart] | None, BeforeValidator(_only_text)] = None
    """What is said."""
    name: str | None = None
    """Taken and ignored."""
    tool_calls: list[AskedCall] | None = None
    """Of an assistant: the tools that it called."""
    tool_call_id: str | None = None
    """Of a tool: the call that it answers."""
    refusal: str | None = None
    """Taken and ignored."""
    annotations: list[Any] | None = None
    """Taken and ignored."""
    audio: Unsupported = None
    function_call: Unsupported = None

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

    name: Annotated[str, WithJsonSchema({"type": "string", "pattern": _NAME.pattern}), AfterValidator(_function_name)]
    """How the model calls it."""
    description: str = ""
    """What it does, for the model."""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """What it takes, as a JSON schema."""
    strict: Flag | None = None
    """Taken and ignored."""


class AskedTool(_Strict):
    """A tool that the model is offered."""

    type: Literal["function"] = "function"
    """What kind of tool it is."""
    function: FunctionSpec
    """The function that it is."""

    def as_spec(self) -> ToolSpec:
        """The tool as models take it."""
        return ToolSpec(self.function.name, self.function.description, self.function.parameters)


class StreamOptions(_Strict):
    """What a stream holds beside the reply."""

    include_usage: Flag = False
    """Whether the last chunk tells the tokens that were used."""
    include_obfuscation: Flag | None = None
    """Taken and ignored."""


class TextFormat(_Strict):
    """The only format of replies."""

    type: Annotated[Literal["text"], _only("text", otherwise="replies are text: no other format is supported")]
    """Plain text."""


class Asked(_Strict):
    """A request for a reply."""

    model: str = Field(examples=["default"])
    """An identity's name, see /v1/models; `default` is the first of them."""
    messages: list[AskedMessage] = Field(min_length=1, max_length=10_000)
    """The conversation; the last one is answered."""
    session_id: str | None = None
    """Say the last message in this session, with its memory and transcript, which take the place of all messages before
    it; `new` begins one. Without it nothing is remembered and nothing recalled."""
    identity: str | None = None
    """Who answers; stronger than `model`."""
    stream: Flag | None = False
    """Whether the reply comes in pieces, as it is made."""
    stream_options: StreamOptions | None = None
    """What a stream holds beside the reply."""
    tools: list[AskedTool] | None = Field(None, max_length=128)
    """Functions that the model may call, and you run; not together with `session_id`, which has tools of its own."""
    tool_choice: Annotated[
        Literal["none", "auto"] | None,
        _only("none", "auto", otherwise="only none and auto are supported: the model cannot be made to call a tool"),
    ] = None
    """Whether the model may call any of `tools`."""
    parallel_tool_calls: Flag | None = None
    """Taken and ignored."""
    max_tokens: Tokens | None = None
    """The longest reply that is wanted, in tokens; the identity's settings may allow less."""
    max_completion_tokens: Tokens | None = None
    """The same by its newer name; of two the lesser holds."""
    n: Annotated[Literal[1] | None, _only(1, otherwise="only one reply is made")] = None
    """How many replies."""
    response_format: TextFormat | None = None
    """What replies look like."""
    logprobs: Annotated[Literal[False] | None, _only(False, otherwise="no probabilities are told")] = None  # noqa: FBT003
    """Whether probabilities of tokens are told."""
    modalities: list[Annotated[Literal["text"], _only("text", otherwise="replies are text alone")]] | None = None
    """What replies are made of."""
    stop: Unsupported = None
    logit_bias: Unsupported = None
    top_logprobs: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None
    prediction: Unsupported = None
    web_search_options: Unsupported = None
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


class _Told(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Usage(_Told):
    """Tokens that were read and written."""

    prompt_tokens: int
    """Read."""
    completion_tokens: int
    """Written."""
    total_tokens: int
    """Both together."""
    prompt_tokens_details: dict[str, int] = Field(default_factory=dict)
    """`cached_tokens`: those of the read ones that the provider had at hand."""


class Function(_Told):
    """Which function is called."""

    name: str
    """Its name."""
    arguments: str
    """As JSON text."""


class Call(_Told):
    """A tool call for you to run."""

    id: str
    """Say it again with the answer, as `tool_call_id`."""
    type: Literal["function"] = "function"
    """What kind of call it is."""
    function: Function
    """Which function."""


class Reply(_Told):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    """Who says it."""
    content: str | None
    """The reply; null where there are only tool calls."""
    tool_calls: list[Call] | None = None
    """The tools that you are asked to run."""
    refusal: str | None = None
    """Always null."""


Reason = Literal["stop", "length", "tool_calls", "content_filter"]


class Choice(_Told):
    """The only one."""

    index: int = 0
    """Always 0."""
    message: Reply
    """What was said."""
    finish_reason: Reason
    """Why it ended."""
    logprobs: None = None
    """Always null."""


class Completion(_Told):
    """A whole reply."""

    id: str
    """The reply's id."""
    object: Literal["chat.completion"] = "chat.completion"
    """What this is."""
    created: int
    """When it was made, in seconds since 1970."""
    model: str
    """The identity that answered."""
    choices: list[Choice]
    """The reply; there is one."""
    usage: Usage
    """What it took."""
    session_id: str | None = None
    """The session that it was said in."""
