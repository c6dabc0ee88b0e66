"""What sessions and memories look like on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from stores.access import Clearance, Sensitivity, Visibility
from stores.observation import Status, Type


class Shape(BaseModel):
    """Something to be read; made from the object that it tells of."""

    model_config = ConfigDict(from_attributes=True)


class Given(BaseModel):
    """Something to be written: a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


class Session(Shape):
    """What is known of a session without opening it."""

    id: str
    agent_id: str
    title: str
    created_at: datetime
    used_at: datetime = Field(description="When something was last added.")
    parent: str | None = Field(description="The session that it was forked from.")
    expires_at: datetime | None
    clearance: Clearance = Field(description="The clearance that is needed to open it, and the most that it sees.")
    store_types: list[str]


class Entry(Shape):
    """One entry of a transcript."""

    role: str
    content: str
    at: datetime


class Memory(Shape):
    """One remembered thing."""

    id: str
    type: Type
    title: str
    subtitle: str
    narrative: str
    facts: list[str]
    user_text: str = Field(description="Of an exchange: what the person said.")
    assistant_text: str = Field(description="Of an exchange: what the bot replied.")
    tags: list[str]
    concepts: list[str]
    people: list[str]
    subject: str
    category: str
    project: str
    metadata: dict[str, Any]
    files_read: list[str]
    files_modified: list[str]
    source: str
    agent_id: str
    session_id: str | None
    visibility: Visibility
    sensitivity: Sensitivity
    min_clearance: Clearance
    importance: float
    status: Status
    superseded_by: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    mention_count: int
    use_count: int
    confirmed_count: int
    token_count: int
