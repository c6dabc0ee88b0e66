"""JSON of the HTTP API: one model for each type that operations return. Field docs become the OpenAPI document's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from chatbot import operations
from chatbot.memory import SessionRecord, people, projects, reading, session_search, standing, writing
from chatbot.memory.erasure import Erasure
from chatbot.messages import Priority, TaskScope, TaskStatus
from chatbot.operations import Context
from chatbot.stores import query
from chatbot.stores.access import SENSITIVITIES, Clearance, Sensitivity, Visibility
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import Observation, Status, Triple, Type

Made = Mapping[str, str]


class Shape(BaseModel):
    """Part of an answer, made from the object that an operation returned."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, item: Any) -> Self:
        """Return the shape of an object."""
        return cls.model_validate(item)

    def made(self) -> dict[str, str] | None:
        """Return the id by which a repeated request finds its result; None if there is none."""
        return {"id": found} if "again" in vars(type(self)) and (found := getattr(self, "id", "")) else None

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:
        """Return the result of an earlier request without repeating it."""
        raise NotImplementedError


class RequestBody(BaseModel):
    """Body of a write: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Session(Shape):
    """A session, without its transcript."""

    id: str
    agent_id: str
    title: str
    """Empty until something is said."""
    created_at: datetime
    used_at: datetime
    parent: str | None
    """The session that it was forked from."""
    expires_at: datetime | None
    clearance: Clearance
    """The clearance that is needed to open it, and the highest clearance of memories seen through it."""
    store_types: list[str]
    """The stores that keep it."""
    pinned_at: datetime | None
    """When it was pinned; null if it is not."""
    sensitivity: Sensitivity
    """Least sensitivity of its memories."""
    project: str

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:
        """Override `Shape`."""
        return cls.of((await context.session(made["id"])).record)


class Entry(Shape):
    """One entry of a transcript."""

    role: str
    """`user`, `assistant`, `tool_call`, `tool`, or one for people alone, such as `error`."""
    content: str
    at: datetime


class MemoryRecord(Shape):
    """A memory."""

    id: str
    type: Type
    title: str
    subtitle: str
    """More about it, on one line."""
    narrative: str
    facts: list[str]
    """Complete statements."""
    user_text: str
    """Of an exchange: what the person said."""
    assistant_text: str
    """Of an exchange: what the bot replied."""
    tags: list[str]
    """Search terms."""
    concepts: list[str]
    """Kinds of knowledge, such as `gotcha` or `trade-off`."""
    people: list[str]
    """Who is mentioned."""
    subject: str
    """Topics, matched exactly."""
    category: str
    """Any text, matched exactly."""
    project: str
    metadata: dict[str, Any]
    """Anything else, as JSON; it is not searched."""
    files_read: list[str]
    """Files that were read."""
    files_modified: list[str]
    """Files that were changed."""
    source: str
    """Who wrote it: `user`, `agent`, `auto` or an import."""
    agent_id: str
    session_id: str | None
    visibility: Visibility
    """Who it is for."""
    sensitivity: Sensitivity
    """How sensitive it is: memories above `public` are returned only on request."""
    min_clearance: Clearance
    """The least clearance that may see it."""
    importance: float
    """From 0 to 1."""
    status: Status
    """Only what is `active` is recalled."""
    superseded_by: str | None
    """The memory that replaced it."""
    created_at: datetime
    updated_at: datetime
    """When it was last changed or mentioned again."""
    expires_at: datetime | None
    """When it stops being true; null for never."""
    mention_count: int
    """How often it was repeated."""
    use_count: int
    """How often it was recalled."""
    confirmed_count: int
    """How often it was confirmed."""
    token_count: int
    """About how many tokens it takes in a prompt."""


class Fact(Shape):
    """A fact."""

    id: str
    subject: str
    predicate: str
    """Predicate, such as `lives in`."""
    object: str
    """Object, such as a place, a name or a value."""
    confidence: float
    """How sure it is, from 0 to 1."""
    source: str | None
    """The id of the memory that it was taken from."""
    created_at: datetime
    """When it was stated first."""
    count: int
    """How often it was stated."""
    project: str

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:
        """Override `Shape`."""
        found = await context.memories.query_facts(ids=frozenset({made["id"]}), ask=SENSITIVITIES)
        if not found:
            raise UnknownObservation(f"no fact has the id {made['id']}")
        return cls.of(found[0])


class Person(Shape):
    """Someone who is mentioned."""

    name: str
    """The name used most."""
    aliases: list[str]
    """Other names of theirs."""
    mention_count: int
    """How often they are mentioned."""
    last_mentioned: datetime
    """When that was last."""
    facts: list[Fact]


class StoredAlias(Shape):
    """The stored fact."""

    id: str
    """Id to retract it, see `/v1/facts`."""

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:  # noqa: ARG003 - the id is all there is
        """Override `Shape`."""
        return cls(id=made["id"])


class Task(Shape):
    """Something to be done."""

    id: str
    """The id of the memory that it is."""
    title: str
    status: TaskStatus
    priority: Priority
    scope: TaskScope
    """Who does it."""
    surface: str
    """`startup` brings it up whenever a session begins; empty does not. A closed task has none."""
    project: str
    due: str
    """When it is due, as text; ISO dates sort."""
    note: str
    """Anything else."""

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:
        """Override `Shape`."""
        found = await context.memories.get([made["id"]], ask=SENSITIVITIES, count_use=False)
        if not found:
            raise UnknownObservation(f"no task has the id {made['id']}")
        return cls.of(people.task_of(found[0]))


class AddResult(Shape):
    """Result of adding a memory."""

    id: str
    """Id of the memory; empty if skipped."""
    outcome: str
    """added, exact_dup, updated, deleted or skipped"""
    reason: str
    """Why it was skipped."""
    redacted: list[str]
    """Kinds of secrets that were removed before storing."""
    warning: str
    """Warning about values that were changed."""

    def made(self) -> dict[str, str]:
        """Return the stored parts of the answer."""
        return {"id": self.id, "outcome": self.outcome, "redacted": ",".join(self.redacted)}

    @classmethod
    async def again(cls, context: Context, made: Made) -> Self:  # noqa: ARG003 - what is known is all that is told
        """Override `Shape`."""
        redacted = [*filter(None, made["redacted"].split(","))]
        return cls(id=made["id"], outcome=made["outcome"], redacted=redacted, reason="", warning="")


class Project(Shape):
    """A project with memories, facts or sessions."""

    name: str
    """Its name; compared without case."""
    memories: int
    """Number of its active memories and facts."""
    sessions: int
    used_at: datetime | None


class ProjectContent(Shape):
    """Numbers of what was moved or deleted with a project."""

    memories: int
    """Number of memories and facts."""
    sessions: int


class PurgeResult(Shape):
    """Ids and counts of what is deleted, or would be."""

    purged: list[str] = Field(validation_alias="ids")
    """The ids of memories and facts."""
    memories: int
    """Number of memories, including derived ones."""
    facts: int
    dry_run: bool
    """True if this was a dry run: nothing was changed."""


class Line(Shape):
    """One value of a key of the profile."""

    id: str
    """The id of the memory that it is."""
    key: str
    """The key, such as `home`."""
    value: str
    title: str
    """The line as it is in a prompt."""
    valid_from: datetime
    """When it became valid."""
    valid_to: datetime | None
    """When it ceased to be valid; null while it is."""
    said_at: datetime
    """When it was said last."""
    pinned: bool
    """True if it is shown in every prompt."""
    by: str
    """Who set it: `person` or `model`."""
    sources: tuple[str, ...]
    """The ids of the memories that it was taken from."""
    sensitivity: Sensitivity


class StandingAnswer(Shape):
    """A standing question, with the current answer from memory."""

    question: str
    """As the configuration has it."""
    pinned: bool
    """True if the answer is shown in every prompt."""
    rows: tuple[MemoryRecord, ...]
    """The memories that answer it, newest first."""
    sentence: str
    """Sentence that a model made of these memories; empty without a model, and until it is asked after they changed."""


class Profile(Shape):
    """The profile of the person, and the answers to the standing questions."""

    data: tuple[Line, ...] = Field(validation_alias="lines")
    """The lines of the profile, pinned ones first."""
    standing: tuple[StandingAnswer, ...]
    """The standing questions, in the order of the configuration."""


class Hit(Shape):
    """A search result."""

    score: float
    """From 0 to 1; 0 if nothing was ranked."""
    memory: MemoryRecord = Field(validation_alias="observation")


class FieldChange(Shape):
    """The value of a field before and after."""

    old: Any
    """The value until then."""
    new: Any
    """The value from then on."""


class Happening(Shape):
    """An event of a memory."""

    kind: str
    """add, update, mention, use, confirm, supersede, expire, archive, compress, consolidate, restore or delete"""
    at: datetime
    by: str | None
    """Memory that replaced it."""
    who: str
    """The agent that did it."""
    why: str
    """The reason, if one was given."""
    fields: dict[str, Any]
    changes: dict[str, FieldChange] = Field(default_factory=dict)
    """The changed fields, with the values before and after."""


class Version(Shape):
    """One memory in a line of replacements."""

    memory: MemoryRecord
    events: list[Happening]
    """Events of the memory, oldest first."""

    @classmethod
    def of(cls, item: query.Version) -> Self:
        """Override `Shape`."""
        events = []
        for event, changed in item.steps():
            changes = {name: FieldChange(old=old, new=new) for name, (old, new) in changed.items()}
            events.append(Happening.of(event).model_copy(update={"changes": changes}))
        return cls(memory=MemoryRecord.of(item.observation), events=events)


class Deletion(Shape):
    """Data deleted along with a session, unless its memory is kept."""

    memories: int
    """Number of memories of the session, including derived ones."""
    derived: int
    """Number of these that are derived from the others."""
    facts: int
    forks: list[str]
    """The ids of its forks, which keep a copy of what was said, and their own memory."""

    @classmethod
    def of(cls, item: Erasure) -> Self:
        """Override `Shape`."""
        forks = list(item.forks)
        return cls(memories=len(item.observations), derived=item.derived, facts=len(item.facts), forks=forks)


class SessionHit(Shape):
    """A session that matches a search, with its best line."""

    session: Session = Field(validation_alias="record")
    score: float
    """Score for sorting, without an upper bound."""
    role: str
    """Role of the entry; `memory` for a memory of the session, or `title`."""
    line: str
    """The matching line."""
    ranges: list[tuple[int, int]]
    """Where the words are in the line."""
    at: datetime
    number: int | None
    """Number of the entry, counted from 1; null if the match is not in an entry."""
    observation: str | None
    """The id of the memory, if it is one."""


SHAPES: dict[Any, type[Shape]] = {
    Observation: MemoryRecord,
    reading.Hit: Hit,
    query.Version: Version,
    writing.AddResult: AddResult,
    operations.PurgeResult: PurgeResult,
    people.Person: Person,
    standing.Profile: Profile,
    projects.Project: Project,
    projects.ProjectContent: ProjectContent,
    operations.Alias: StoredAlias,
    people.Task: Task,
    Triple: Fact,
    SessionRecord: Session,
    session_search.SessionHit: SessionHit,
    Erasure: Deletion,
}
"""The shape of each type; pydantic serializes all others."""
