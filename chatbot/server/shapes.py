"""JSON of the HTTP API: one model for each type that operations return, most derived from the fields of that type."""

import ast
import inspect
import sys
from collections import ChainMap
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Self, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from chatbot import operations
from chatbot.memory import (
    Erasure,
    SessionRecord,
    people,
    profile,
    profile_lines,
    reading,
    session_search,
    users_and_projects,
    writing,
)
from chatbot.stores import query
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import Observation, Triple
from chatbot.transfer.sync_place import RefusedFile, ServerAnswer

StoredParts = Mapping[str, str]
_LIST: Any = list


class Shape(BaseModel):
    """Part of an answer, made from the object that an operation returned."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, item: Any) -> Self:
        """Return the shape of an object."""
        return cls.model_validate(item)

    def stored_parts(self) -> dict[str, str] | None:
        """Return the id by which a repeated request finds its result; None if there is none."""
        can_repeat = any("again" in vars(each) for each in type(self).__mro__ if each is not Shape)
        return {"id": found} if can_repeat and (found := getattr(self, "id", "")) else None

    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:
        """Return the result of an earlier request without repeating it."""
        raise NotImplementedError


class RequestBody(BaseModel):
    """Body of a write: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Entry(Shape):
    """One entry of a transcript."""

    role: str
    """`user`, `assistant`, `tool_call`, `tool`, or one only for people, such as `error`."""
    content: str
    at: datetime


class _Derived(Shape):
    """Shape whose fields are declared by another type."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # derived models have no source to read them from


class _Session(_Derived):
    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:
        return cls.of((await context.session(stored["id"])).record)


class _Fact(_Derived):
    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:
        found = await context.memories.query_facts(ids=frozenset({stored["id"]}), sensitivities=SENSITIVITIES)
        if not found:
            raise UnknownObservation.of([stored["id"]], "fact")
        return cls.of(found[0])


class _Task(_Derived):
    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:
        found = await context.memories.get([stored["id"]], sensitivities=SENSITIVITIES, count_use=False)
        if not found:
            raise UnknownObservation.of([stored["id"]], "task")
        return cls.of(people.task_of(found[0]))


SHAPES: dict[Any, type[Shape]] = {}
"""The shape of each type; pydantic serializes all others."""


def _derive(kind: type, name: str, shown: str, base: type[Shape] = _Derived, **renamed: str) -> type[Shape]:
    """Make the shape of a type with the fields `shown`, and with `renamed` ones under new names."""
    hints, words = get_type_hints(kind), _docstrings(kind)
    names = renamed | {each: each for each in shown.split()}
    fields: dict[str, Any] = {
        called: (_shape_of(hints[own]), Field(validation_alias=own, description=words.get(own)))
        for called, own in names.items()
    }
    summary = (inspect.getdoc(kind) or "").partition("\n")[0]
    shape: type[Shape] = create_model(name, __base__=base, __doc__=summary, **fields)
    SHAPES[kind] = shape
    return shape


def _shape_of(hint: Any) -> Any:
    if isinstance(hint, TypeVar):  # generic over the kind of list
        return list[str]
    item = next(iter(get_args(hint)), None)
    return _LIST[SHAPES[item]] if item in SHAPES else SHAPES.get(hint, hint)


def _docstrings(kind: type) -> Mapping[str, str]:
    ours = (each for each in kind.__mro__ if each.__module__.startswith("chatbot."))
    return ChainMap(*(_docstrings_in(each.__module__)[each.__name__] for each in ours))


@cache
def _docstrings_in(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of each class of a module, which is parsed once."""
    found: dict[str, dict[str, str]] = {}
    for declared in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(declared, ast.ClassDef):
            found[declared.name] = {}
            for line, following in pairwise(declared.body):
                match line, following:
                    case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                        found[declared.name].setdefault(name, words)
    return found


Session: Any = _derive(
    SessionRecord,
    "Session",
    "id agent_id title created_at used_at parent expires_at clearance store_types pinned_at sensitivity project",
    base=_Session,
)
MemoryRecord: Any = _derive(
    Observation,
    "MemoryRecord",
    "id type title subtitle narrative facts user_text assistant_text tags concepts people subject category project "
    "metadata files_read files_modified source agent_id session_id visibility sensitivity min_clearance importance "
    "status superseded_by created_at updated_at expires_at mention_count use_count confirmed_count token_count",
)
Fact: Any = _derive(
    Triple, "Fact", "id subject predicate object confidence source created_at count project", base=_Fact
)
Person: Any = _derive(people.Person, "Person", "name aliases mention_count last_mentioned facts")
Task: Any = _derive(people.Task, "Task", "id title status priority scope surface project due note", base=_Task)
_derive(users_and_projects.Project, "Project", "name memories sessions used_at")
User: Any = _derive(users_and_projects.User, "User", "namespace user memories sessions used_at")
_derive(users_and_projects.ProjectContent, "ProjectContent", "memories sessions")
_derive(
    profile_lines.ProfileLine, "Line", "id key value title valid_from valid_to said_at pinned by sources sensitivity"
)
_derive(profile.StandingAnswer, "StandingAnswer", "question pinned rows")
_derive(profile.Profile, "Profile", "standing proposals", data="lines")
_derive(reading.Hit, "Hit", "score", memory="observation")
_derive(RefusedFile, "SyncAside", "file why")
SyncAnswer: Any = _derive(ServerAnswer, "SyncAnswer", "identity files taken aside")
_derive(session_search.SessionHit, "SessionHit", "score role line ranges at number observation", session="record")


class StoredAlias(Shape):
    """The stored fact."""

    id: str
    """Id to retract it, see `/v1/facts`."""

    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:  # noqa: ARG003 - the id is all there is
        return cls(id=stored["id"])


class AddResult(Shape):
    """Result of adding a memory."""

    id: Annotated[str | None, BeforeValidator(lambda id_: id_ or None)]
    """Id of the memory; null if skipped."""
    outcome: str
    """added, exact_dup, updated, deleted or skipped"""
    reason: str
    """Why it was skipped."""
    redacted: list[str]
    """Kinds of secrets that were removed before storing."""
    warning: str
    """Warning about values that were changed."""

    def stored_parts(self) -> dict[str, str]:
        proposed = "1" if self.warning == profile.ONLY_PROPOSED else ""
        return {"id": self.id or "", "outcome": self.outcome, "redacted": ",".join(self.redacted), "proposed": proposed}

    @classmethod
    async def again(cls, context: operations.Context, stored: StoredParts) -> Self:  # noqa: ARG003 - nothing else is stored
        """Return the result without the reason, which is not stored."""
        redacted = [*filter(None, stored["redacted"].split(","))]
        warning = profile.ONLY_PROPOSED if stored.get("proposed") else ""
        return cls(id=stored["id"], outcome=stored["outcome"], redacted=redacted, reason="", warning=warning)


class PurgeResult(Shape):
    """Ids and counts of what is deleted, or would be."""

    purged: list[str] = Field(validation_alias="ids")
    """The ids of memories and facts."""
    memories: int
    """Number of memories, including derived ones."""
    facts: int
    dry_run: bool
    """True if this was a dry run: nothing was changed."""


class FieldChange(Shape):
    """The value of a field before and after."""

    old: Any
    """The value before."""
    new: Any
    """The value after."""


class VersionEvent(Shape):
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
    """One memory in a chain of versions."""

    memory: MemoryRecord
    events: list[VersionEvent]
    """Events of the memory, oldest first."""

    @classmethod
    def of(cls, item: query.Version) -> Self:
        events = []
        for event, changed in item.steps:
            changes = {name: FieldChange(old=old, new=new) for name, (old, new) in changed.items()}
            events.append(VersionEvent.of(event).model_copy(update={"changes": changes}))
        return cls(memory=MemoryRecord.of(item.observation), events=events)


class Deletion(Shape):
    """Data deleted along with a session, unless its memory is kept."""

    memories: int
    """Number of memories of the session, including derived ones."""
    derived: int
    """Number of these that are derived from the others."""
    facts: int
    forks: list[str]
    """Ids of its forks, which keep their own transcript and their own memory."""

    @classmethod
    def of(cls, item: Erasure) -> Self:
        forks = list(item.forks)
        return cls(memories=len(item.observations), derived=len(item.derived), facts=len(item.facts), forks=forks)


SHAPES |= {
    query.Version: Version,
    writing.AddResult: AddResult,
    operations.PurgeResult: PurgeResult,
    operations.Alias: StoredAlias,
    Erasure: Deletion,
}
