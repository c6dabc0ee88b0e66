"""The shapes of `/v1/responses`: what is asked, and the parts of what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from chatbot.messages import CallOptions, File, Image, Message, ToolCall, ToolSpec, Usage
from chatbot.server.callers import Remembers
from chatbot.server.errors import UNSUPPORTED
from chatbot.server.openai.asked import Ask, without_tools
from chatbot.server.openai.places import one_of
from chatbot.server.openai.wire import (
    Asking,
    FunctionName,
    FunctionSpec,
    JsonSchema,
    Lenient,
    Unsupported,
    chosen,
    file_url,
    image_url,
    only,
)
from chatbot.server.request_values import Flag, Tokens

_TEXTS = frozenset({"input_text", "output_text", "text"})
_LOGPROBS = "message.output_text.logprobs"


class TextItem(Lenient):
    """A piece of a message that is text."""

    type: Literal["input_text", "output_text", "text"]
    """Type of the piece."""
    text: str
    """Text."""


class ImageItem(Lenient):
    """A piece of a message that is an image."""

    type: Literal["input_image"]
    """Type of the piece."""
    image_url: Annotated[str, AfterValidator(image_url)]
    """A `data:` URL."""
    detail: Literal["auto", "low", "high", "original"] | None = None
    """How closely the model looks."""


class FileItem(Lenient):
    """A piece of a message that is a file; the model is shown what it holds."""

    type: Literal["input_file"]
    """Type of the piece."""
    filename: str = "file"
    """Name."""
    file_data: Annotated[str, AfterValidator(file_url)]
    """A `data:` URL of a PDF, a DOCX, an ODT, a text or a picture."""


class RefusalItem(Lenient):
    """A piece of an assistant's message in which it refused."""

    type: Literal["refusal"]
    """Type of the piece."""
    refusal: str
    """Text of the reply."""


def _content(value: object) -> object:
    for part in value if isinstance(value, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in {*_TEXTS, "input_image", "input_file", "refusal"}:
            raise PydanticCustomError(
                UNSUPPORTED,
                "parts of the type {kind} are not supported: send text, images or files",
                {"kind": repr(kind)[:80]},
            )
    return value


_Part = Annotated[TextItem | ImageItem | FileItem | RefusalItem, Field(discriminator="type")]
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[_Part], Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
    BeforeValidator(_content),
]


class MessageItem(Lenient):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    """Type of the item."""
    role: Literal["system", "developer", "user", "assistant"]
    """Who says it."""
    content: Content
    """Text."""


class CallItem(Lenient):
    """A tool call that the model asked for."""

    type: Literal["function_call"]
    """Type of the item."""
    call_id: str
    """Which call; its output says the same."""
    name: str
    """The function."""
    arguments: str = ""
    """As JSON text."""


class OutputItem(Lenient):
    """Result of a tool."""

    type: Literal["function_call_output"]
    """Type of the item."""
    call_id: str
    """The call that it answers."""
    output: Content
    """The answer."""


class ReasoningItem(Lenient):
    """Reasoning of a model; taken and ignored."""

    type: Literal["reasoning"]
    """Type of the item."""


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return str(kind or "message")


def _only_kinds(*known: str, what: str) -> BeforeValidator:
    """Takes lists of things of these types alone; what has no type is a message."""

    def check(value: object) -> object:
        for each in value if isinstance(value, list) else ():
            if (kind := _kind(each)) not in known:
                raise PydanticCustomError(
                    UNSUPPORTED,
                    "{what} of the type {kind} are not supported",
                    {"what": what, "kind": repr(kind)[:80]},
                )
        return value

    return BeforeValidator(check)


_ITEMS = _only_kinds("message", "function_call", "function_call_output", "reasoning", what="items")


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


class ResponseFunction(FunctionSpec):
    """A function that the model may call, and you run."""

    type: Literal["function"]
    """Type of the tool."""


class ResponsesNamedTool(Lenient):
    """The tool to call."""

    type: Literal["function"]
    """Type of the tool."""
    name: FunctionName
    """Its name."""


class ResponsesAllowedTools(Lenient):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    """Type of the choice."""
    mode: Literal["auto", "required"]
    """`required` forces a call."""
    tools: list[ResponsesNamedTool] = Field(min_length=1)
    """Which ones."""


class PlainFormat(Lenient):
    """Text, or any JSON object."""

    type: Literal["text", "json_object"]
    """Which of these."""


class SchemaFormat(JsonSchema):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    """Type of the format."""


class TextSettings(Lenient):
    """Settings for the text of the reply."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    """Its format."""


class ReasoningSettings(Lenient):
    """Reasoning effort of the model."""

    effort: str | None = None
    """How much."""


class ConversationReference(Lenient):
    """A session, named as OpenAI names conversations."""

    id: str
    """The session's id."""


class AskedResponse(Asking):
    """A request for a response."""

    input: Annotated[
        Annotated[str, Tag("text")] | Annotated[list[Item], Tag("items")],
        Discriminator(lambda value: "items" if isinstance(value, list) else "text"),
        _ITEMS,
    ]
    """Input to answer, with or without the conversation before it."""
    instructions: str | None = None
    """In place of the persona."""
    conversation: str | ConversationReference | None = None
    """Say it in this session; `new` begins one."""
    tools: Annotated[
        Annotated[list[ResponseFunction], Field(max_length=128)] | None, _only_kinds("function", what="tools")
    ] = None
    """Functions that the model may call, and you run."""
    tool_choice: Literal["none", "auto", "required"] | ResponsesNamedTool | ResponsesAllowedTools | None = None
    """Choice of tools: none, auto, required, or one of `tools`."""
    text: TextSettings | None = None
    """Format of the text."""
    max_output_tokens: Tokens | None = None
    """The longest reply that is wanted; the identity's settings may allow less."""
    reasoning: ReasoningSettings | None = None
    """Reasoning effort of the model."""
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=20)] | None = None
    """Number of tokens per position whose probabilities are returned."""
    include: list[str] | None = None
    """Additional output; supported: `message.output_text.logprobs`."""
    background: Annotated[Flag | None, only(False, otherwise="a response is not made in the background")] = None  # noqa: FBT003
    """Always false."""
    prompt: Unsupported = None

    @model_validator(mode="after")
    def _check_together(self) -> AskedResponse:
        self._chosen()
        if not self.input:
            raise PydanticCustomError("input", "the input is empty")
        return self

    def as_ask(self, session: str | None, memory: Remembers | None) -> Ask:
        """The request, with what its headers say."""
        tools, choice = self._chosen()
        chosen_format = self.text.format if self.text else None
        options = CallOptions(
            temperature=self.temperature,
            top_p=self.top_p,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
            logprobs=True if self.top_logprobs or _LOGPROBS in (self.include or ()) else None,
            top_logprobs=self.top_logprobs or None,
            response_format=_format(chosen_format),
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
        )
        named = self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation
        kept: Remembers | None = memory if self.store is None else "on" if self.store else "off"
        ask = Ask(
            messages=(*self._instructions(), *messages_of(self.input)),
            tools=tools,
            options=options,
            most_tokens=self.max_output_tokens,
            session=one_of(**{"X-Chatbot-Session": session, "session_id": self.session_id, "conversation": named}),
            previous=self.previous_response_id,
            memory="off" if memory == "off" else kept,
            recalls_always=memory == "on",
        )
        return ask if tools else without_tools(ask)

    def _instructions(self) -> tuple[Message, ...]:
        return (Message("system", self.instructions),) if self.instructions else ()

    def _chosen(self) -> tuple[tuple[ToolSpec, ...], Any]:
        tools = tuple(tool.as_spec() for tool in self.tools or ())
        choice = self.tool_choice
        if isinstance(choice, ResponsesNamedTool):
            return chosen(choice, tools, [choice.name], "")
        if isinstance(choice, ResponsesAllowedTools):
            return chosen(choice, tools, [tool.name for tool in choice.tools], choice.mode)
        return chosen(choice, tools, [], "")


def messages_of(given: str | list[Any]) -> list[Message]:
    """The conversation of an input, in which calls belong to the message of the assistant before them."""
    if isinstance(given, str):
        return [Message("user", given)]
    messages: list[Message] = []
    for item in given:
        if isinstance(item, MessageItem):
            role = "system" if item.role == "developer" else item.role
            messages.append(_message(role, item.content))
        elif isinstance(item, OutputItem):
            messages.append(Message("tool", _message("user", item.output).content, tool_call_id=item.call_id))
        elif isinstance(item, CallItem):
            spoken = messages.pop() if messages and messages[-1].role == "assistant" else Message("assistant", "")
            call = ToolCall(item.call_id, item.name, item.arguments)
            messages.append(Message("assistant", spoken.content, tool_calls=(*spoken.tool_calls, call)))
    return messages


def _message(role: Any, content: str | list[Any]) -> Message:
    if isinstance(content, str):
        return Message(role, content)
    parts = tuple(map(_part, content))
    text = "\n".join(part for part in parts if isinstance(part, str))
    return Message(role, text, parts=parts if any(isinstance(part, Image | File) for part in parts) else ())


def _part(part: TextItem | ImageItem | FileItem | RefusalItem) -> str | Image | File:
    if isinstance(part, ImageItem):
        return Image(part.image_url, part.detail or "")
    if isinstance(part, FileItem):
        return File(part.filename, part.file_data)
    return part.text if isinstance(part, TextItem) else part.refusal


def _format(wanted: PlainFormat | SchemaFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if isinstance(wanted, PlainFormat):
        return {"type": wanted.type}
    schema = wanted.model_dump(exclude_none=True, by_alias=True, exclude={"type"})
    return {"type": "json_schema", "json_schema": schema}


def usage(used: Usage) -> dict[str, Any]:
    """Return the usage of a response in its own form."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input_tokens + used.output_tokens,
    }
