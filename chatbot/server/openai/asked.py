"""Request of an OpenAI client, independent of its route."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from chatbot.attachments import named, split
from chatbot.attachments.read import Upload, picture_of, upload_of
from chatbot.messages import CallOptions, Image, Message, ToolSpec
from chatbot.server.callers import Remembers

NEW = "new"
"""Value that begins a new session."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request for a reply, with at least one message."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = field(default_factory=CallOptions)
    most_tokens: int | None = None
    session: str | None = None
    """The session of the reply, or `new`."""
    previous: str | None = None
    """Id of the preceding response."""
    memory: Remembers | None = None
    """True to remember the exchange; None leaves it to the caller's token."""
    recalls_always: bool = False
    """True to recall even if the reply has a required form."""

    @cached_property
    def persona(self) -> str:
        """Text of the system messages; empty if none."""
        return "\n\n".join(each.content for each in self.messages if each.role == "system" and each.content)

    @cached_property
    def said(self) -> tuple[Message, ...]:
        """The conversation without instructions."""
        return tuple(each for each in self.messages if each.role != "system")

    @cached_property
    def new(self) -> tuple[Message, ...]:
        """Messages to answer: the last run of user messages, or of tool results."""
        last = self.said[-1].role if self.said else "system"
        at = len(self.said)
        while last in {"user", "tool"} and at and self.said[at - 1].role == last:
            at -= 1
        return self.said[at:]

    @cached_property
    def history(self) -> tuple[Message, ...]:
        """Messages before the new ones."""
        return self.said[: len(self.said) - len(self.new)]

    @cached_property
    def turn(self) -> tuple[Message, ...]:
        """The user's last message, and all after it."""
        at = max((at for at, each in enumerate(self.said) if each.role == "user"), default=len(self.said))
        return self.said[at:] if self.answers else self.new

    @property
    def before(self) -> tuple[Message, ...]:
        """Messages before the user's current turn."""
        return self.said[: len(self.said) - len(self.turn)] if self.turn else ()

    @cached_property
    def answers(self) -> tuple[Message, ...]:
        """Tool results among the new messages."""
        return tuple(each for each in self.new if each.role == "tool")

    @cached_property
    def asked(self) -> Message:
        """User's text as one message, with its images noted in the text; with tool results, the text before them."""
        users = [each for each in (self.said if self.answers else self.new) if each.role == "user"]
        users = users[-1:] if self.answers else users
        parts = tuple(part for each in users for part in (each.parts or (each.content,)))
        has_more = any(not isinstance(part, str) for part in parts)
        return Message("user", "\n\n".join(map(text_of, users)), parts=parts if has_more else ())

    @cached_property
    def attachments(self) -> tuple[Upload, ...]:
        """The pictures and files of the new user messages. Raises `InvalidValue` for other data."""
        parts = () if self.answers else self.asked.parts
        pictures = [part for part in parts if isinstance(part, Image)]
        return (
            *(picture_of(number, each.url) for number, each in enumerate(pictures, 1)),
            *(upload_of(each.name, each.url) for each in self.asked.files if not self.answers),
        )

    @property
    def typed(self) -> str:
        """The text of the user's new messages, without notes of images and files."""
        if not self.attachments:
            return self.asked.content
        return "\n\n".join(each.content for each in self.new if each.role == "user" and each.content)


def text_of(message: Message) -> str:
    """The text of a message, with a note for each image and file."""
    notes = [f"[{image.url.partition(':')[2].partition(';')[0]}]" for image in message.images]
    notes += [f"[{named(file.name)}]" for file in message.files]
    return "\n".join([text for text in [message.content, *notes] if text])


def kept_text(content: str) -> str:
    """Return the same text of a message in the transcript, which names images and files by links."""
    text, links = split(content)
    notes = [f"[{link.media}]" if link.is_image else f"[{link.name}]" for link in links]
    return "\n".join([part for part in [text, *notes] if part])
