"""The request of `/v1/chat/completions`, as OpenAI documents it, with what we add: `session_id` and `identity`.

Clients add fields with every release, so an unknown field is ignored; one that looks like a misspelt field of ours is
an error, because it could lose a conversation, and so is a known field with a wrong value. The types of the package
`openai` are not used: they load for half a second, and report one wrong item as a hundred errors.
"""

import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from chatbot.config import Remembers
from chatbot.memory.scope import LONGEST_LABEL
from chatbot.messages import CallOptions, File, Image, Message, ToolCall, ToolSpec
from chatbot.server.errors import UNSUPPORTED
from chatbot.server.openai.places import ParsedRequest, one_of
from chatbot.server.request_values import Flag, Tokens, only, only_types

_OURS = ("session_id", "identity", "conversation", "previous_response_id", "safety_identifier", "user", "store")
_NAME = r"^[a-zA-Z0-9_.-]{1,64}$"


class Lenient(BaseModel):
    """A model that ignores unknown fields. Its length limit is never reached, but makes pydantic refuse surrogates."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, str_max_length=1 << 40)


def _of_form(pattern: str, otherwise: str, code: str = UNSUPPORTED) -> AfterValidator:
    form = re.compile(pattern, re.IGNORECASE | re.DOTALL)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise PydanticCustomError(code, otherwise)
        return text

    return AfterValidator(check)


_IMAGE = r"data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=\s]+"
_INLINE = "must be in the request, as data:{}…;base64,…: nothing is fetched from other addresses"
_NO_FILE = f"a file {_INLINE.format('')}"
FunctionName = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": _NAME}),
    _of_form(_NAME, "a name has 1 to 64 letters, digits, dots, dashes and underscores", "name"),
]


def _id_in(value: object) -> object:
    return value["id"] if isinstance(value, dict) and isinstance(value.get("id"), str) else value


Unsupported = Annotated[
    None, only(otherwise="not supported: leave it out"), Field(description="Not supported: it would change the reply.")
]
Elsewhere = Annotated[None, only(otherwise=_NO_FILE)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]


class TextPart(Lenient):
    """A text in a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Lenient):
    """An image in the request itself."""

    url: Annotated[str, _of_form(_IMAGE, f"an image {_INLINE.format('image/')}")]
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Lenient):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileData(Lenient):
    """A file in the request itself."""

    filename: str = "file"
    file_id: Elsewhere = None
    file_url: Elsewhere = None
    file_data: Annotated[str, _of_form("data:.*", _NO_FILE)]
    """A `data:` URL of a PDF, a DOCX, an ODT, a text or a picture."""


class FilePart(Lenient):
    """A file in a message; the model gets its content."""

    type: Literal["file"]
    file: FileData


Part = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Part], Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
    only_types("text", "image_url", "file", of="parts"),
]
"""Text, or a list of parts; an error names the part that is wrong."""


class CalledFunction(Lenient):
    """The called function."""

    name: str
    arguments: str = ""
    """As JSON text."""


class MessageToolCall(Lenient):
    """A tool call of a model, sent back as part of the history."""

    id: str
    """Id of the call; the message that answers it has it as `tool_call_id`."""
    type: Literal["function"] = "function"
    function: CalledFunction


class RequestMessage(Lenient):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    """Id of the call that a tool answers."""
    function_call: Unsupported = None

    @model_validator(mode="after")
    def _check_call(self) -> "RequestMessage":
        if self.role == "tool" and not self.tool_call_id:
            raise PydanticCustomError("tool_call_id", "a message of a tool needs the tool_call_id that it answers")
        return self

    def as_message(self) -> Message:
        """Return the message in the form for models."""
        calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        parts = tuple(map(_part, self.content)) if isinstance(self.content, list) else (self.content or "",)
        text = "\n".join(part for part in parts if isinstance(part, str))
        shown = parts if any(isinstance(part, Image | File) for part in parts) else ()
        return Message(role, text, tool_calls=calls, tool_call_id=self.tool_call_id, parts=shown)


def _part(part: TextPart | ImagePart | FilePart) -> str | Image | File:
    if isinstance(part, ImagePart):
        return Image(part.image_url.url, part.image_url.detail or "")
    if isinstance(part, FilePart):
        return File(part.file.filename, part.file.file_data)
    return part.text


class FunctionSpec(Lenient):
    """A function that the model may call; you run it."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """Parameters as a JSON schema."""
    strict: Flag | None = None
    """True if arguments must fit the schema, if the model supports that."""

    def as_spec(self) -> ToolSpec:
        """Return the tool in the form for models."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        return ToolSpec(self.name, self.description or "", parameters, strict=self.strict)


class RequestTool(Lenient):
    """A tool that the model is offered; as `tool_choice`, the tool to call, by its name."""

    type: Literal["function"]
    function: FunctionSpec


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")] | Annotated[RequestTool, Tag("function")],
    Discriminator(
        lambda value: value.get("type") if isinstance(value, dict) else "word",
        custom_error_type="tool_choice",
        custom_error_message="use none, auto, required, or an object of the type function; send only tools it may call",
    ),
]


class StreamOptions(Lenient):
    """Options of a stream."""

    include_usage: Flag | None = False
    """True to report token usage in the last chunk."""


class JsonSchema(Lenient):
    """A schema for the reply."""

    name: FunctionName
    description: str | None = None
    """Purpose of the format, for the model."""
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: Flag | None = None
    """True if the reply must fit the schema exactly."""


class ResponseFormat(Lenient):
    """Format of the reply: text, any JSON object, or JSON that fits a schema."""

    type: Annotated[
        Literal["text", "json_object", "json_schema"],
        only("text", "json_object", "json_schema", otherwise="it must be text, json_object or json_schema"),
    ]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise PydanticCustomError("json_schema", "give json_schema if the type is json_schema, and only then")
        return self

    def as_openai(self) -> dict[str, Any] | None:
        """Return the format in the form for models; None for plain text."""
        return None if self.type == "text" else self.model_dump(exclude_none=True, by_alias=True)


class IdentityRequest(Lenient):
    """Fields of every request: identity and end user."""

    model: str = Field(examples=["default"])
    """An identity's name, see /v1/models; `default` is the first one."""
    identity: str | None = None
    """Identity, in place of `model`."""
    user: str | None = Field(None, max_length=LONGEST_LABEL)
    """Any stable name of your end user, for their own sessions and memory. The server does not verify it."""
    safety_identifier: str | None = Field(None, max_length=LONGEST_LABEL)
    """Newer name of `user`. If several of these and `X-Chatbot-User` are sent, they must be equal."""


class ReplyFields(IdentityRequest):
    """Fields of any request for a reply."""

    session_id: str | None = None
    """Answer in this session: its memory and transcript replace all messages before the last; `new` begins a session.
    The header `X-Chatbot-Session` does the same."""
    conversation: Annotated[str | None, BeforeValidator(_id_in, str | dict[str, str] | None)] = None
    """The same as `session_id`, also as `{"id": …}`."""
    previous_response_id: str | None = None
    """Continue after that response: in its session, or in a fork if the session has continued since."""
    stream: Flag | None = False
    store: Flag | None = None
    """False to store nothing and recall no memories."""
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Total probability of the tokens to sample from."""
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=20)] | None = None
    """Number of tokens per position whose probabilities are returned."""
    parallel_tool_calls: Flag | None = None
    """True to allow several tool calls at once."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_misspelt(cls, data: object) -> object:
        """Refuse an unknown field that looks like one of ours: a misspelt session_id must not lose a conversation."""
        for name in data if isinstance(data, dict) else ():
            if isinstance(name, str) and name not in cls.model_fields:
                close = get_close_matches(name, [each for each in _OURS if each in cls.model_fields], 1, cutoff=0.8)
                if close:
                    raise PydanticCustomError(
                        "misspelt", "unknown field {name}: did you mean {close}?", {"name": name, "close": close[0]}
                    )
        return data


class ReplyRequest(ReplyFields):
    """A request for a reply."""

    messages: list[RequestMessage] = Field(min_length=1, max_length=10_000)
    """Messages; the last one is answered."""
    stream_options: StreamOptions | None = None
    tools: Annotated[Annotated[list[RequestTool], Field(max_length=128)] | None, only_types("function", of="tools")] = (
        None
    )
    """Functions that the model may call and that you run."""
    tool_choice: ToolChoice | None = None
    """Tool choice: none, auto, required, or one of `tools`."""
    max_tokens: Tokens | None = None
    """Longest reply in tokens; the identity's settings may allow less."""
    max_completion_tokens: Tokens | None = None
    """Newer name of `max_tokens`; the smaller value applies."""
    n: Annotated[Literal[1] | None, only(1, otherwise="only one reply is made")] = None
    """Number of replies; only 1 is supported."""
    response_format: ResponseFormat | None = None
    logprobs: Flag | None = None
    """True to return probabilities of tokens; `top_logprobs` requires it."""
    stop: (
        Annotated[
            list[Annotated[str, Field(min_length=1)]],
            BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
            Field(max_length=16),
        ]
        | None
    ) = None
    """Texts before which the reply ends."""
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None = None
    seed: Annotated[int, Field(strict=True)] | None = None
    presence_penalty: Penalty | None = None
    """Penalty for words that already occurred."""
    frequency_penalty: Penalty | None = None
    """Penalty for words by how often they occurred."""
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[Annotated[Literal["text"], only("text", otherwise="replies are only text")]] | None = None
    functions: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None
    web_search_options: Unsupported = None

    @model_validator(mode="after")
    def _check_together(self) -> "ReplyRequest":
        self.tools_and_choice()  # raises for a name that no tool has
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError("top_logprobs", "top_logprobs needs logprobs: true")
        return self

    def tools_and_choice(self) -> tuple[tuple[ToolSpec, ...], str | dict[str, Any] | None]:
        """Return the tools to offer, and the choice in the form for models. Raises for a name that no tool has."""
        tools = tuple(tool.function.as_spec() for tool in self.tools or ())
        choice = self.tool_choice
        if isinstance(choice, RequestTool):
            if (name := choice.function.name) not in {tool.name for tool in tools}:
                raise PydanticCustomError("tool_choice", "no tool is called {name}", {"name": repr(name)})
            return tools, {"type": "function", "function": {"name": name}}
        if choice == "required" and not tools:
            raise PydanticCustomError("tool_choice", "needs tools to choose from")
        return (() if choice == "none" else tools), choice

    def parsed(self, session: str | None, memory: Remembers | None) -> ParsedRequest:
        """Return the request with its header values."""
        tools, choice = self.tools_and_choice()
        options = CallOptions(
            **{name: getattr(self, name) for name in CallOptions.HARMLESS},
            stop=tuple(self.stop) if self.stop else None,
            logit_bias=self.logit_bias or None,
            logprobs=self.logprobs or None,
            top_logprobs=self.top_logprobs or None,
            response_format=self.response_format.as_openai() if self.response_format else None,
            tool_choice=choice if tools else None,
            parallel_tool_calls=self.parallel_tool_calls if tools else None,
        )
        return ParsedRequest(
            messages=tuple(message.as_message() for message in self.messages),
            tools=tools,
            options=options,
            most_tokens=min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None),
            session=one_of(
                **{"X-Chatbot-Session": session, "session_id": self.session_id, "conversation": self.conversation}
            ),
            previous=self.previous_response_id,
            memory="off" if self.store is False else memory,
            recalls_always=memory == "on",
        )
