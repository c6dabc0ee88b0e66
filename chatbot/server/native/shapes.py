"""What sessions and memories look like on the wire. What the documentation says of a field stands below it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from stores.access import Clearance, Sensitivity, Visibility
from stores.observation import Status, Type


class Shape(BaseModel):
    """Something to be read; made from the object that it tells of."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class Given(BaseModel):
    """Something to be written: a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def described_as(shape: type[BaseModel], **more: Any) -> Callable[[dict[str, Any]], None]:
    """Says of the fields that have no words of their own what `shape` says of its own; `more` joins the schema."""

    def describe(schema: dict[str, Any]) -> None:
        for name, field in schema["properties"].items():
            if "description" not in field:
                field["description"] = shape.model_fields[name].description
        schema |= more

    return describe


class Session(Shape):
    """What is known of a session without opening it."""

    id: str
    """UUIDv7: sorts by when it began."""
    agent_id: str
    """The agent that it belongs to."""
    title: str
    """Empty until something is said."""
    created_at: datetime
    """When it began."""
    used_at: datetime
    """When something was last added."""
    parent: str | None
    """The session that it was forked from."""
    expires_at: datetime | None
    """When it goes by itself; null for never."""
    clearance: Clearance
    """The clearance that is needed to open it, and the most that it sees."""
    store_types: list[str]
    """The stores that keep it."""


class Entry(Shape):
    """One entry of a transcript."""

    role: str
    """`user`, `assistant`, `tool_call`, `tool`, or one for people alone, such as `error`."""
    content: str
    """What was said."""
    at: datetime
    """When it was written."""


class Memory(Shape):
    """One remembered thing."""

    id: str
    """UUIDv7."""
    type: Type
    """What kind of thing it is."""
    title: str
    """What it is, on one line."""
    subtitle: str
    """More about it, on one line."""
    narrative: str
    """The whole of it."""
    facts: list[str]
    """Single statements, each complete in itself."""
    user_text: str
    """Of an exchange: what the person said."""
    assistant_text: str
    """Of an exchange: what the bot replied."""
    tags: list[str]
    """Words to find it by."""
    concepts: list[str]
    """What sort of knowledge it is, such as `gotcha` or `trade-off`."""
    people: list[str]
    """Who is mentioned."""
    subject: str
    """What it is about, to be asked for exactly."""
    category: str
    """Free; to be asked for exactly."""
    project: str
    """The project that it belongs to."""
    metadata: dict[str, Any]
    """Anything else, as JSON; it is not searched."""
    files_read: list[str]
    """Files that it came from."""
    files_modified: list[str]
    """Files that were changed."""
    source: str
    """Who wrote it: `user`, `agent`, `auto` or an import."""
    agent_id: str
    """The agent that wrote it."""
    session_id: str | None
    """The session that it was noted in."""
    visibility: Visibility
    """Who it is for."""
    sensitivity: Sensitivity
    """How delicate it is: what is more than `public` is returned only to who asks for it."""
    min_clearance: Clearance
    """The least clearance that sees it."""
    importance: float
    """From 0 to 1."""
    status: Status
    """Only what is `active` is recalled."""
    superseded_by: str | None
    """The memory that has taken its place."""
    created_at: datetime
    """When it was noted."""
    updated_at: datetime
    """When it was last changed or mentioned again."""
    expires_at: datetime | None
    """When it stops being true; null for never."""
    mention_count: int
    """How often it was said again."""
    use_count: int
    """How often it was recalled."""
    confirmed_count: int
    """How often someone vouched for it."""
    token_count: int
    """About how many tokens it takes in a prompt."""
