"""The table of operations: everything that can be done with memory and sessions, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypedDict, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from chatbot import memory
from chatbot.errors import SessionExpired, SessionNotFound, WrongAgent
from chatbot.messages import Priority, TaskScope, TaskStatus
from chatbot.operation import (
    About,
    Count,
    FactId,
    Future,
    Id,
    IdCursor,
    Kind,
    Limit,
    Line,
    LineKey,
    ListPage,
    Metadata,
    Name,
    Operation,
    Past,
    Query,
    RankCursor,
    SessionId,
    Share,
    Text,
    Title,
    Tokens,
    declare,
)
from chatbot.stores.access import SENSITIVITIES, Clearance, Sensitivity, Visibility
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue, UnsupportedOperation
from chatbot.stores.observation import Observation, Status, Triple, Type
from chatbot.stores.query import EVERY, Order, Progress, Version, check_limit
from chatbot.stores.records import SessionRecord, TranscriptEntry

OPERATIONS: dict[str, Operation] = {}
"""All operations, by the names of their functions."""
reads, adds = partial(declare, OPERATIONS, "reads"), partial(declare, OPERATIONS, "adds")
changes, destroys = partial(declare, OPERATIONS, "changes"), partial(declare, OPERATIONS, "destroys")
_FEW = 10
"""Number of hits for a limit of 0."""


class Context(Struct, frozen=True):
    """Memory and sessions as one caller sees them: the first argument of each operation."""

    memories_of: Callable[[], memory.Memory]
    """Raises `UnsupportedOperation` if the agent keeps no memories."""
    system: memory.MemorySystem
    """Opens sessions."""
    agent: str = ""
    writer: str = "user"
    """Source of what is written. A `tool` sees only public sessions, and only those of its own agent."""
    own: memory.SessionHandle | None = None
    """The running session, which a search of sessions leaves out."""
    store_types: Sequence[str] = ()
    progress: Progress | None = None
    stop_turns: Callable[[str], Awaitable[object]] | None = None
    """Stops running turns of a session before it is deleted."""

    @property
    def memories(self) -> memory.Memory:
        """The memories."""
        return self.memories_of()

    @property
    def sessions(self) -> memory.MemorySystem:
        """The sessions."""
        return self.system if self.own is None else self.own.confined(self.system)

    def is_open(self, record: SessionRecord) -> bool:
        """Return whether the caller may see a session: sensitive ones are hidden from tools."""
        return self.writer != "tool" or record.sensitivity == "public"

    async def hidden_sessions(self) -> list[str]:
        """Return the ids of sessions that are hidden from the caller."""
        if self.writer != "tool":
            return []
        return [each.id for each in await self.sessions.list_sessions(wanted=lambda each: not self.is_open(each))]

    async def session(self, session_id: str) -> memory.SessionHandle:
        """Open a session. Raises `SessionNotFound`, also for one that is not open to the caller."""
        if self.own is not None and session_id == self.own.id:
            return self.own
        try:
            session = await self.sessions.load_session(session_id, self.agent, any_agent=self.writer != "tool")
        except (SessionExpired, WrongAgent):
            if self.writer != "tool":
                raise
            session = None
        if session is None or not self.is_open(session.record):
            raise SessionNotFound.of(session_id)
        return session


class MemoryFilter(TypedDict, total=False):
    """Filter of memories: every field must match. Of several values in one field, any may match."""

    types: Annotated[Sequence[Type], About("of these types", cli="type", http="type")]
    tags: Annotated[Sequence[Line], About("with any of these tags", cli="tag", http="tag")]
    concepts: Annotated[Sequence[Line], About("with any of these concepts", cli="concept", http="concept")]
    people: Annotated[Sequence[Line], About("that mention these people, by any name", cli="person", http="person")]
    files: Annotated[Sequence[Line], About("about any of these files, by the end of the path", cli="file", http="file")]
    subject: Annotated[Line | None, About("with exactly this topic")]
    category: Annotated[Line | None, About("of this category", tool=None)]
    project: Annotated[Line | None, About("of this project")]
    session_id: Annotated[SessionId | None, About("of this session", cli="session", tool=None)]
    visibilities: Annotated[Sequence[Visibility], About("with this visibility", cli="visibility", http="visibility")]
    after: Annotated[Past | None, About("created at or after this time")]
    before: Annotated[Past | None, About("created before this time")]
    metadata: Annotated[Metadata, About("with this metadata: values or conditions", cli="meta", tool=None)]


class Fields(TypedDict, total=False):
    """Fields of a memory."""

    subtitle: Annotated[Line, About("a line below the title", tool=None)]
    narrative: Annotated[Text, About("full text")]
    facts: Annotated[Sequence[Text], About("complete statements", cli="fact")]
    tags: Annotated[Sequence[Line], About("words to find it by", cli="tag")]
    concepts: Annotated[Sequence[Line], About("kinds of knowledge, such as gotcha", cli="concept")]
    people: Annotated[Sequence[Line], About("people mentioned", cli="person", tool="related_people")]
    files_read: Annotated[Sequence[Line], About("files that it is about", cli="file", tool="related_files")]
    files_modified: Annotated[Sequence[Line], About("files that it changed", cli=None, tool=None)]
    subject: Annotated[Line, About("topic, for exact filters")]
    category: Annotated[Line, About("category", tool=None)]
    project: Annotated[Line, About("the project that it belongs to")]
    metadata: Annotated[Metadata | None, About("other values, set key by key", cli="meta", tool=None)]
    importance: Annotated[Share, About("from 0 to 1", "0-1")]
    visibility: Annotated[Visibility | None, About("visibility; default: by your clearance")]
    sensitivity: Annotated[Sensitivity, About("sensitivity")]
    min_clearance: Annotated[Clearance, About("minimum clearance to see it", cli=None, tool=None)]
    expires_at: Annotated[Future | None, About("when it stops being true", cli="expires")]


class Draft(Fields, total=False):
    """A memory to add."""

    type: Annotated[Kind, About("type; an unknown one becomes a note")]


class Change(Fields, total=False):
    """Fields to set to other values; others are unchanged."""

    title: Annotated[Line, About("another title")]
    type: Annotated[Type, About("type")]


class WantedSessions(TypedDict, total=False):
    """Filter of sessions: every field must match."""

    after: Annotated[Past | None, About("last used at or after this time")]
    before: Annotated[Past | None, About("last used before this time")]
    agent_id: Annotated[Line | None, About("of this agent", cli="agent", http="agent", tool=None)]
    project: Annotated[Line | None, About("of this project; - for none")]
    title: Annotated[Line, About("with this text in the title")]
    source: Annotated[Line, About("imported from this format, e.g. import:chatgpt")]
    min_messages: Annotated[Count, About("with at least this many messages")]
    archived: Annotated[bool, About("only archived ones")]
    with_archived: Annotated[bool, About("archived ones too", cli="all", http=None)]


class TaskDetails(TypedDict, total=False):
    """Fields of a task besides its title."""

    priority: Annotated[Priority, About("priority")]
    scope: Annotated[TaskScope, About("who does it")]
    surface: Annotated[Line, About('"startup" shows it when a session begins, "" does not')]
    project: Annotated[Line, About("the project that it belongs to")]
    due: Annotated[Line, About("when it is due, as text; ISO dates sort", "ISO date")]
    note: Annotated[Line, About("further details")]


class TaskChange(TaskDetails, total=False):
    """Fields to set; others are unchanged."""

    status: Annotated[TaskStatus, About("status", "completed, cancelled")]


_SENSITIVITIES = About("also include these sensitivities", cli=None, http="sensitivity", tool=None)
Sensitivities = Annotated[Sequence[Sensitivity], _SENSITIVITIES]
OwnSensitivities = Annotated[Sequence[Sensitivity], replace(_SENSITIVITIES, usual={"http": ("private",)})]
Ids = Annotated[Sequence[Id], About("id of the memory", http="memory_id")]
One = Annotated[Id, About("id of the memory", cli="id", http="memory_id")]
TaskId = Annotated[Id, About("id of the task", cli="id", tool="task")]
FactOne = Annotated[FactId, About("id of the fact", cli="id")]
_Title = Annotated[Title, About("title; empty: the next message names it", usual={"http": ""})]
OneProject = Annotated[Name, About("name of the project")]
IntoProject = Annotated[Name, About("project to move to; - for none")]
OneSession = Annotated[SessionId, About("session to use", cli="session")]
AfterRank = Annotated[RankCursor | None, About("start after this result", tool=None)]
AsOf = Annotated[Past | None, About("show what was true then")]
KnownAt = Annotated[Past | None, About("show what was known then")]
ProfileKey = Annotated[Name, About("any short text, such as home", http="key")]
OneKey = Annotated[LineKey, About("the key, or the id of one value", http="key")]
Proposal = Annotated[Id, About("id of the proposal", http="memory_id")]
Purge = Annotated[bool, About("delete permanently, with everything derived", cli=None, tool=None)]


@reads(
    cli="memory search",
    http="GET /v1/memories/search",
    tool="memory_search",
    first=True,
    gives="hits",
    brief="Search memory: ids and titles.",
    examples=(
        'search "heating" --person Ada --after 30d',
        "search heating --limit 5 --page-after 5",
        "search --type decision --json",
    ),
)
async def search_memories(
    context: Context,
    query: Annotated[Query, About("words to look for; without any, the newest", cli="text", http="q")] = "",
    *,
    limit: Annotated[Limit, About("maximum results; 0 means 10", usual={"http": 20}, most=50)] = _FEW,
    cursor: AfterRank = None,
    max_tokens: Annotated[Tokens | None, About("end the list after this many tokens", most=100_000)] = None,
    count_use: Annotated[bool, About("count the hits as used", cli=None, tool=None, usual={"tool": True})] = False,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    sensitivities: Sensitivities = (),
    **wanted: Unpack[MemoryFilter],
) -> ListPage[memory.Hit]:
    """Search memories, best first."""
    limit, offset = check_limit(limit) or _FEW, int(cursor or 0)
    hits = await context.memories.search(
        query,
        limit=limit + 1,
        offset=offset,
        max_tokens=max_tokens,
        sensitivities=("public", *sensitivities),
        count_use=False,
        as_of=as_of,
        known_at=known_at,
        **wanted,
    )
    if count_use:
        await context.memories.note_use([hit.observation.id for hit in hits[:limit]])
    return ListPage(hits[:limit], str(offset + limit) if len(hits) > limit else None)


@reads(
    cli="memory recall",
    http="GET /v1/memories/recall",
    tool="memory_recall",
    model=False,
    gives="recalled",
    examples=('recall "Where did I live?" --as-of 2025-05-15', "recall heating --limit 3 --json"),
)
async def recall_memories(
    context: Context,
    query: Annotated[Query, About("the message to recall for", cli="text", http="q")],
    *,
    limit: Annotated[Limit, About("maximum results", least=1, most=50)] = 5,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    sensitivities: Sensitivities = (),
    **wanted: Unpack[MemoryFilter],
) -> list[memory.Hit]:
    """Show what a message would recall.

    Best first; then what was said later about the same things.
    """
    found = await context.memories.recall(
        query, limit=limit, as_of=as_of, known_at=known_at, sensitivities=("public", *sensitivities), **wanted
    )
    return [memory.Hit(each.observation, each.score, each.parts) for each in found.hits if each.observation]


@reads(
    cli="memory list",
    http="GET /v1/memories",
    tool="memory_list",
    model=False,
    gives="memories",
    examples=("list --order created --limit 5", "list --status deleted"),
)
async def list_memories(
    context: Context,
    *,
    statuses: Annotated[
        Sequence[Status], About("of these statuses (default active)", tool=None, cli="status", http="status")
    ] = ("active",),
    order: Annotated[Order, About("sort by this time")] = "updated",
    limit: Annotated[Limit, About("maximum results (0: all)", least=1, most=50)] = 20,
    cursor: Annotated[IdCursor | None, About("start after this id")] = None,
    sensitivities: Sensitivities = (),
    **wanted: Unpack[MemoryFilter],
) -> ListPage[Observation]:
    """List memories, newest first."""
    rows: list[Observation] = []
    while True:
        page = await context.memories.list_observations(
            order=order,
            limit=(limit or EVERY) - len(rows),
            cursor=cursor,
            sensitivities=("public", *sensitivities),
            statuses=statuses,
            **wanted,
        )
        rows += page.rows
        cursor = page.after
        if cursor is None or len(rows) >= (limit or EVERY):
            return ListPage(rows, cursor)


@reads(cli="memory get", http="GET /v1/memories/{memory_id}")
async def get_memory(context: Context, ids: Ids, sensitivities: Sensitivities = ()) -> list[Observation]:
    """Show memories in full, of any status."""
    return [await context.memories.row(each, sensitivities=("public", *sensitivities)) for each in ids]


@reads(tool="memory_get", first=True, gives="observations")
async def read_memories(context: Context, ids: Ids) -> MemoryRows:
    """Read memories in full.

    By ids from memory_search or memory_timeline.
    """
    rows = await context.memories.get(ids)
    found = {row.id for row in rows}
    return MemoryRows(rows, [each for each in ids if each not in found])


class MemoryRows(Struct, frozen=True):
    """Memories that were read, and the ids of missing ones."""

    rows: Sequence[Observation]
    missing: Sequence[str]


@reads(cli="memory timeline", http="GET /v1/memories/{memory_id}/timeline", tool="memory_timeline", gives="timeline")
async def get_timeline(
    context: Context,
    anchor: One,
    *,
    before: Annotated[Count, About("number of earlier memories", most=20)] = 5,
    after: Annotated[Count, About("number of later memories", most=20)] = 5,
    session_id: Annotated[SessionId | None, About("only those of this session", cli="session")] = None,
    project: Annotated[Line | None, About("only those of this project")] = None,
    sensitivities: Sensitivities = (),
) -> list[Observation]:
    """Show memories created around one memory.

    It and those just before and after it, oldest first.
    """
    return await context.memories.timeline(
        anchor,
        before=before,
        after=after,
        session_id=session_id,
        project=project,
        sensitivities=("public", *sensitivities),
    )


@reads(cli="memory history", http="GET /v1/memories/{memory_id}/history", tool="memory_history", gives="versions")
async def get_history(context: Context, observation_id: One, sensitivities: Sensitivities = ()) -> list[Version]:
    """Show what a memory replaced, and its changes.

    The memories that it replaced or that replaced it, with the events of each, oldest first, and old and new values.
    Events while a memory was hidden from you are left out, and so are the ids of memories that are hidden now.
    """
    return await context.memories.history(observation_id, sensitivities=("public", *sensitivities))


@adds(
    cli="memory add",
    http="POST /v1/memories",
    tool="memory_write",
    first=True,
    brief=(
        "Remember what matters later: title is the whole fact, a sentence with its names, numbers and dates. "
        "supersedes: the id of what it replaces."
    ),
    examples=(
        'add "The heating is serviced in May" --type note --tag house',
        'git log -1 | chatbot memory add "What changed" -',
    ),
)
async def remember(
    context: Context,
    title: Annotated[Line, About("the point, in one sentence", usual={"http": ""})],
    *,
    supersedes: Annotated[Id | None, About("id of the memory that it replaces")] = None,
    memory_id: Annotated[Id | None, About("id of a memory to change instead", cli=None, http=None, tool="id")] = None,
    **fields: Unpack[Draft],
) -> memory.AddResult:
    """Remember something.

    Durable on return. A memory that exists already is not added again: the outcome is `exact_dup`.
    """
    if memory_id is not None and supersedes is not None:
        raise InvalidValue("id changes a memory, supersedes adds one that replaces it: give one of them")
    if memory_id is not None:
        if any(row.user_text for row in await context.memories.get([memory_id], count_use=False)):
            context.memories.scope.caller.check("chat")  # changes to a person's words need the right to speak for them
        return await change_memory(context, memory_id, **cast("Change", {**fields, "title": title}))
    draft: dict[str, Any] = dict(fields) if supersedes is None else {**fields, "supersedes": supersedes}
    return await context.memories.remember(title, source=context.writer, **draft)


@changes(http="PUT /v1/memories/by-key/{key}")
async def put_memory(
    context: Context,
    key: Annotated[Name, About("key of your own")],
    title: Annotated[Line, About("the point, in one sentence", usual={"http": ""})],
    **fields: Unpack[Draft],
) -> memory.AddResult:
    """Remember something under a key of your own.

    It replaces the memory under that key, which stays in the history. Repeating it changes nothing.
    """
    return await context.memories.upsert(key, title, source=context.writer, **fields)


@changes(
    cli="memory edit",
    http="PATCH /v1/memories/{memory_id}",
    examples=("edit 0195a1b2-c3d4 --tag house --tag may", "edit 0195a1b2-c3d4 --expires never --meta colour=null"),
)
async def change_memory(context: Context, memory_id: One, **fields: Unpack[Change]) -> memory.AddResult:
    """Change fields of a memory.

    Its history keeps the old values. If the fact itself has *changed*, supersede the memory instead. On the command
    line, without any field, its text is opened in $EDITOR.
    """
    changed: dict[str, Any] = dict(fields)
    return await context.memories.update(memory_id, **changed)


@changes(
    cli="memory supersede",
    http="POST /v1/memories/{memory_id}/supersede",
    tool="memory_supersede",
    gives="superseded by",
    brief="Replace what is no longer true.",
    examples=("supersede 0195a1b2-c3d4 0195b7aa-0001",),
)
async def supersede_memory(
    context: Context,
    old: Annotated[Id, About("id of the memory that is no longer true", http="memory_id")],
    new: Annotated[Id, About("id of the memory that is true now", http="by")],
) -> None:
    """Replace a memory, keeping its history.

    It is no longer recalled, and stays in the history of its successor.
    """
    await context.memories.supersede(old, new)


@adds(
    cli="memory confirm",
    http="POST /v1/memories/{memory_id}/confirm",
    tool="memory_confirm",
    model=False,
    gives="confirmed",
)
async def confirm_memory(context: Context, ids: Ids) -> None:
    """Mark memories as correct.

    They rank higher from then on.
    """
    await context.memories.confirm(*ids)


@changes(
    cli="memory forget",
    http="DELETE /v1/memories/{memory_id}",
    tool="memory_forget",
    first=True,
    gives="forgotten",
    brief="Forget memories if the user asks. Search first for their ids.",
)
async def forget_memory(context: Context, ids: Ids, *, purge: Purge = False) -> None:
    """Hide memories; `restore` brings them back.

    All of them or none. With `purge` they are deleted permanently.
    """
    await (context.memories.purge if purge else context.memories.forget)(*ids)


@changes(cli="memory restore", http="POST /v1/memories/{memory_id}/restore", gives="restored")
async def restore_memory(context: Context, ids: Ids) -> None:
    """Make memories active again.

    Restores memories of any status, unless purged.
    """
    await context.memories.restore(*ids)


@destroys(
    cli="memory purge",
    http="POST /v1/memories/purge",
    gives="purged",
    examples=("purge 0195a1b2-c3d4 --yes", "purge --session 0195a1b2-c3d4 --dry-run", 'purge --text "Anna Berg"'),
)
async def purge_memories(
    context: Context,
    ids: Annotated[Sequence[Id], About("id of the memory", http=None)] = (),
    *,
    expired: Annotated[bool, About("delete expired memories", http=None)] = False,
    session_id: Annotated[SessionId | None, About("delete the memories of a session", cli="session")] = None,
    person: Annotated[Name | None, About("delete the memories that list a person, by any name")] = None,
    text: Annotated[Name | None, About("delete what contains this text, also in earlier versions")] = None,
    source: Annotated[Name | None, About("delete the memories of a source, e.g. import:chatgpt")] = None,
    dry_run: Annotated[bool, About("show what would be deleted, delete nothing")] = False,
) -> PurgeResult:
    """Delete memories permanently, with everything derived.

    By id, or all that you may see of a session, with a person in their list of people, with a text such as a name, or
    from a source. An import does not bring them back. Transcripts keep their messages: to delete these too, delete the
    session.
    """
    memories = context.memories
    given = {"session": session_id, "person": person, "text": text, "source": source}
    target: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if bool(ids) + expired + len(target) != 1:
        raise InvalidValue(
            "select what to purge in one way: ids, a session, a person, a text, a source or expired ones"
        )
    if expired:
        ids = [row.id for row in await memories.every(sensitivities=SENSITIVITIES, statuses=["expired"])]
    erasure = await memories.preview_purge(*ids, **target) if ids or target else None
    if dry_run or erasure is None:
        return PurgeResult(erasure.ids if erasure else [], erasure, dry_run)
    return PurgeResult(await memories.purge(*ids, **target), erasure, dry_run)


class PurgeResult(Struct, frozen=True):
    """Ids of the memories and facts that are deleted, or would be."""

    ids: Sequence[str]
    erasure: memory.Erasure | None
    dry_run: bool

    @property
    def memories(self) -> int:
        """Number of memories, including derived ones."""
        return len(self.erasure.observations) if self.erasure else 0

    @property
    def facts(self) -> int:
        """Number of facts."""
        return len(self.erasure.facts) if self.erasure else 0


@reads(cli="memory people", http="GET /v1/people", tool="memory_people", gives="people", examples=("people ada",))
async def list_people(
    context: Context,
    query: Annotated[Query, About("a part of the name", cli="text", http="q")] = "",
    *,
    limit: Annotated[Limit, About("maximum results (0: all)", usual={"http": 50, "tool": 20}, least=1, tool=None)] = 0,
    cursor: AfterRank = None,
    sensitivities: Sensitivities = (),
) -> ListPage[memory.Person]:
    """List people.

    Most mentioned first, each with facts about the person.
    """
    found = await context.memories.people(query, sensitivities=("public", *sensitivities))
    return ListPage.by_rank(found, limit, cursor, total=len(found))


@adds(cli="memory alias", http="POST /v1/people", examples=('alias "Ada Lovelace" "Countess of Lovelace"',))
async def add_alias(
    context: Context,
    name: Annotated[Name, About("one name of the person")],
    alias: Annotated[Name, About("another name of the person")],
) -> Alias:
    """State that two names are one person.

    It is a fact like any other, and can be retracted like one.
    """
    return Alias(await context.memories.add_alias(name, alias), name, alias)


class Alias(Struct, frozen=True):
    """Two names of one person, and the id of the fact that states it."""

    id: str
    name: str
    alias: str


@reads(
    cli="memory tasks",
    http="GET /v1/tasks",
    tool="task_list",
    gives="tasks",
    examples=(
        "tasks --all",
        'tasks add "Book the service" --due 2026-05-01 --project home',
        "tasks done 0195a1b2-c3d4",
    ),
)
async def list_tasks(
    context: Context,
    *,
    statuses: Annotated[Sequence[TaskStatus], About("with these statuses", cli=None, http="status")] = (
        "pending",
        "in_progress",
    ),
    project: Annotated[Line | None, About("of this project", cli=None)] = None,
    surface: Annotated[Line | None, About('"startup": those shown when a session begins', cli=None)] = None,
    scope: Annotated[TaskScope | None, About("with this scope", cli=None, http=None)] = None,
    limit: Annotated[Limit, About("maximum results (0: all)", usual={"http": 50}, least=1, tool=None)] = 0,
    cursor: AfterRank = None,
    sensitivities: Sensitivities = (),
) -> ListPage[memory.Task]:
    """List tasks.

    By priority, then by due date, then the last added first.
    """
    found = await context.memories.tasks(
        statuses=statuses, surface=surface, project=project, scope=scope, sensitivities=("public", *sensitivities)
    )
    return ListPage.by_rank(found, limit, cursor, total=len(found))


@adds(
    cli="memory tasks add",
    http="POST /v1/tasks",
    tool="task_add",
    gives="task",
    examples=('tasks add "Book the service" --priority high',),
)
async def add_task(
    context: Context, title: Annotated[Name, About("title of the task")], **details: Unpack[TaskDetails]
) -> memory.Task:
    """Add a task.

    Its status is pending. An open task with the same title takes the given details instead.
    """
    return await context.memories.add_task(title, source=context.writer, **details)


@changes(http="PATCH /v1/tasks/{task_id}", tool="task_update", gives="task")
async def change_task(context: Context, task_id: TaskId, **changed: Unpack[TaskChange]) -> memory.Task:
    """Change a task, or tick it off.

    Fields that are not given are unchanged. To forget a task, forget the memory with its id.
    """
    return await context.memories.update_task(task_id, **changed)


@changes(cli="memory tasks start")
async def start_task(context: Context, task_id: TaskId) -> memory.Task:
    """Mark a task as in progress."""
    return await context.memories.update_task(task_id, status="in_progress")


@changes(cli="memory tasks done")
async def finish_task(context: Context, task_id: TaskId) -> memory.Task:
    """Mark a task as completed."""
    return await context.memories.update_task(task_id, status="completed")


@changes(cli="memory tasks cancel")
async def cancel_task(context: Context, task_id: TaskId) -> memory.Task:
    """Mark a task as cancelled."""
    return await context.memories.update_task(task_id, status="cancelled")


@reads(
    cli="memory facts",
    http="GET /v1/facts",
    tool="memory_facts",
    gives="facts",
    examples=("facts --subject Ada", "facts add Ada lives-in London --confidence 0.8"),
)
async def list_facts(
    context: Context,
    *,
    subject: Annotated[Line | None, About("with exactly that subject")] = None,
    predicate: Annotated[Line | None, About("with exactly that predicate")] = None,
    object: Annotated[Line | None, About("with exactly that object")] = None,  # noqa: A002 - the third part
    limit: Annotated[Limit, About("maximum results (0: all)", usual={"http": 50, "tool": 20}, least=1, most=100)] = 100,
    cursor: AfterRank = None,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    sensitivities: Sensitivities = (),
) -> ListPage[Triple]:
    """List facts (subject, predicate, object).

    Newest first. Facts about sessions, such as changes of topic, only with their subject or predicate.
    """
    found = await context.memories.query_facts(
        subject=subject,
        predicate=predicate,
        object=object,
        about_sessions=subject is not None or predicate is not None,
        limit=int(cursor or 0) + limit + 1 if limit else EVERY,
        sensitivities=("public", *sensitivities),
        as_of=as_of,
        known_at=known_at,
    )
    return ListPage.by_rank(found, limit, cursor)


@adds(
    cli="memory facts add",
    http="POST /v1/facts",
    tool="memory_state",
    gives="fact",
    examples=("facts add Ada lives-in London",),
)
async def state_fact(
    context: Context,
    subject: Annotated[Name, About("who or what the fact is about")],
    predicate: Annotated[Name, About("the relation, such as lives-in")],
    object: Annotated[Name, About("object: a place, a name or a value")],  # noqa: A002 - the third part
    *,
    confidence: Annotated[Share, About("confidence, from 0 to 1")] = 1.0,
    source: Annotated[Id | None, About("id of the memory that it was taken from")] = None,
    visibility: Annotated[Visibility | None, About("visibility; default: by your clearance", cli=None)] = None,
    sensitivity: Annotated[Sensitivity, About("sensitivity", cli=None)] = "public",
) -> Triple:
    """Add a fact.

    A fact with a source is visible while the source is.
    """
    return await context.memories.store_fact(
        subject, predicate, object, confidence=confidence, source=source, visibility=visibility, sensitivity=sensitivity
    )


@changes(cli="memory facts remove", http="DELETE /v1/facts/{fact_id}", gives="removed")
async def retract_fact(
    context: Context, fact_id: FactOne, *, purge: Annotated[bool, About("delete it permanently")] = False
) -> None:
    """Withdraw a fact.

    The journal keeps it until it is purged.
    """
    await (context.memories.purge_fact if purge else context.memories.retract_fact)(fact_id)


@reads(
    cli="memory profile",
    http="GET /v1/profile",
    tool="memory_profile",
    model=False,
    gives="profile",
    examples=("profile", "profile --as-of 2025-05-15", "profile set home Lisbon", "profile history home"),
)
async def show_profile(
    context: Context,
    key: Annotated[Line | None, About("only this key, such as home", cli=None, http=None)] = None,
    *,
    history: Annotated[bool, About("all values that the key had", cli=None, http=None)] = False,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    sensitivities: OwnSensitivities = (),
) -> memory.Profile:
    """Show what is known of the person, with dates.

    The profile has the values that were set or extracted; standing questions, about home, work, health and so on, are
    answered from memories. The whole profile includes these answers, and the values that tools proposed, which are
    valid only once the person accepts them.
    """
    memories, asked = context.memories, ("public", *sensitivities)
    if history:
        if not key:
            raise InvalidValue("history needs a key of the profile, such as home")
        return memory.Profile([line for line in await memories.profile_history(key) if line.sensitivity in asked])
    lines = await memories.profile(key, as_of=as_of, known_at=known_at, sensitivities=asked)
    if key:
        return memory.Profile(lines)
    is_now = as_of is None and known_at is None
    proposed = [row for row in await memories.profile_proposals() if row.sensitivity in asked] if is_now else ()
    return memory.Profile(lines, await memories.standing(as_of=as_of, known_at=known_at, sensitivities=asked), proposed)


@reads(cli="memory profile history", http="GET /v1/profile/{key}/history", examples=("profile history home",))
async def get_profile_history(
    context: Context, key: ProfileKey, sensitivities: OwnSensitivities = ()
) -> memory.Profile:
    """Show all values that a key of the profile had.

    Oldest first, each with its dates.
    """
    return await show_profile(context, key, history=True, sensitivities=sensitivities)


@adds(
    cli="memory profile set",
    http="PUT /v1/profile/{key}",
    tool="memory_profile_set",
    model=False,
    brief="Propose a value for a key of the profile: it is valid once the person accepts it",
    examples=("profile set home Lisbon --since 2025-12-01", "profile set allergy peanuts --also --sensitivity private"),
)
async def set_profile(
    context: Context,
    key: ProfileKey,
    value: Annotated[Name, About("its value")],
    *,
    since: Annotated[Past | None, About("time from which it is true (default: now)", tool=None)] = None,
    also: Annotated[bool, About("add to the values of the key, instead of replacing them")] = False,
    sensitivity: Annotated[Sensitivity | None, About("default: as the other values of the key", tool=None)] = None,
) -> memory.AddResult:
    """Give a key of the profile a value.

    The former value stays in the history. Without the right `chat`, which no tool has, the value is only proposed: it
    is valid once the person accepts it.
    """
    return await context.memories.profile_set(key, value, since=since, sensitivity=sensitivity, also=also)


@changes(cli="memory profile pin", http="PUT /v1/profile/{key}/pin", gives="pinned")
async def pin_profile(context: Context, key: OneKey, *, undo: Annotated[bool, About("unpin it")] = False) -> None:
    """Show a key of the profile in every prompt.

    Pinned lines come first.
    """
    await context.memories.profile_pin(key, pinned=not undo)


@changes(cli="memory profile forget", http="DELETE /v1/profile/{key}", gives="forgotten")
async def forget_profile(context: Context, key: OneKey) -> None:
    """Forget a key of the profile and its history.

    Its values become hidden memories, which can be restored. The messages stay.
    """
    await context.memories.profile_forget(key)


@changes(cli="memory profile accept", http="POST /v1/profile/proposals/{memory_id}/accept")
async def accept_proposal(context: Context, proposal_id: Proposal) -> memory.AddResult:
    """Accept a proposed value of the profile.

    Only a person may do this: it needs the right `chat`.
    """
    return await context.memories.profile_accept(proposal_id)


@changes(
    cli="memory profile reject",
    http="DELETE /v1/profile/proposals/{memory_id}",
    tool="memory_profile_reject",
    model=False,
    gives="rejected",
)
async def reject_proposal(context: Context, proposal_id: Proposal) -> None:
    """Reject a proposed value of the profile.

    Valid values are unchanged.
    """
    await context.memories.profile_reject(proposal_id)


@reads(
    cli="sessions list",
    http="GET /v1/sessions",
    gives="sessions",
    examples=("list --after 7d --min-messages 4", "list --page-after 0195a1b2-c3d4"),
)
async def list_sessions(
    context: Context,
    *,
    limit: Annotated[Limit, About("maximum results", least=1)] = 20,
    cursor: Annotated[SessionId | None, About("start after this session")] = None,
    **wanted: Unpack[WantedSessions],
) -> ListPage[SessionRecord]:
    """List sessions, last used first.

    Those that your clearance permits.
    """
    page = replace(filter_of(wanted), limit=limit + 1 if limit else None, after_id=cursor)
    records = await context.sessions.choose_sessions(page)
    end = limit or len(records)
    return ListPage(records[:end], records[end - 1].id if len(records) > end else None)


@reads(
    cli="sessions search",
    http="GET /v1/sessions/search",
    tool="session_search",
    gives="sessions",
    examples=("search bicycle --after 90d", "search tax return --all --json"),
)
async def search_sessions(
    context: Context,
    query: Annotated[Query, About("words to look for", cli="text", http="q", usual={"http": ""})],
    *,
    limit: Annotated[Limit, About("maximum results", usual={"tool": 5}, least=1, most=20)] = 10,
    cursor: AfterRank = None,
    **wanted: Unpack[WantedSessions],
) -> ListPage[memory.SessionHit]:
    """Search what was said in sessions.

    Sessions about these words, best first, each with its best line.
    """
    chosen = filter_of(wanted)
    found = await context.sessions.search_sessions(
        query,
        limit=int(cursor or 0) + limit + 1 if limit else EVERY,
        wanted=replace(chosen, agent_id=context.agent) if context.writer == "tool" else chosen,
        exclude=[*([context.own.id] if context.own else []), *await context.hidden_sessions()],
        progress=context.progress,
    )
    return ListPage.by_rank(found, limit, cursor)


@reads(
    cli="sessions show", tool="session_read", gives="entries", examples=("show 0195a1b2", 'show "tax return" --last 4')
)
async def read_session(
    context: Context,
    session_id: OneSession,
    *,
    last: Annotated[Limit, About("number of last entries (0: all)", usual={"cli": 0}, least=1, most=100)] = 20,
) -> Entries:
    """Read what was said in a session.

    Oldest first. Models read it without keys and passwords.
    """
    session = await context.session(session_id)
    if not session.supports(TranscriptStore):
        raise UnsupportedOperation(f"the session {session_id} keeps no transcript")
    count = await session.transcript_count()
    entries = await session.transcript_read_last(last or count)
    return Entries(session.record, entries, count - len(entries) + 1)


class Entries(Struct, frozen=True):
    """Entries of a transcript, oldest first, their session, and the number of the first."""

    session: SessionRecord
    rows: Sequence[TranscriptEntry]
    first: int


@adds(http="POST /v1/sessions")
async def begin_session(context: Context, *, title: _Title = "") -> SessionRecord:
    """Begin a session.

    Durable on return. Callers of less clearance than yours cannot open it.
    """
    if not context.store_types:
        raise UnsupportedOperation(f"the agent {context.agent!r} keeps no sessions: it has no stores")
    return (await context.sessions.create_session(context.store_types, context.agent, title=title)).record


@reads(http="GET /v1/sessions/{session_id}")
async def get_session(context: Context, session_id: OneSession) -> SessionRecord:
    """Look at a session.

    Its record, without its messages.
    """
    session = await context.session(session_id)
    session.check("read")
    return session.record


@changes(cli="sessions rename", http="PATCH /v1/sessions/{session_id}", examples=('rename 0195a1b2 "tax return"',))
async def rename_session(context: Context, session_id: OneSession, title: _Title) -> SessionRecord:
    """Rename a session.

    An empty title removes it; the next message then sets one.
    """
    session = await context.session(session_id)
    await session.rename(title)
    return session.record


@changes(
    cli="sessions mark",
    http="PUT /v1/sessions/{session_id}/sensitivity",
    examples=("mark 0195a1b2 private", 'mark "tax return" public'),
)
async def mark_session(
    context: Context, session_id: OneSession, sensitivity: Annotated[Sensitivity, About("public, private or secret")]
) -> SessionRecord:
    """Set the sensitivity of a session.

    Its memories, now and later, are as sensitive: they are sent only to models that may get that sensitivity.
    """
    session = await context.session(session_id)
    await session.mark(sensitivity)
    return session.record


@changes(
    cli="sessions move",
    http="PUT /v1/sessions/{session_id}/project",
    examples=("move 0195a1b2 house", 'move "tax return" -'),
)
async def move_session(context: Context, session_id: OneSession, project: IntoProject) -> SessionRecord:
    """Move a session to another project.

    Its memories move with it. It then recalls memories of that project, and those without a project.
    """
    session = await context.session(session_id)
    await session.move(project)
    return session.record


@changes(
    cli="sessions pin", http="PUT /v1/sessions/{session_id}/pin", examples=("pin 0195a1b2", 'pin "tax return" --undo')
)
async def pin_session(
    context: Context, session_id: OneSession, *, undo: Annotated[bool, About("unpin it")] = False
) -> SessionRecord:
    """Pin a session.

    The page lists pinned sessions first.
    """
    session = await context.session(session_id)
    await session.pin(undo=undo)
    return session.record


@adds(
    cli="sessions fork",
    http="POST /v1/sessions/{session_id}/fork",
    examples=("fork 0195a1b2 --at 6", 'fork "tax return" --title "another try"'),
)
async def fork_session(
    context: Context,
    session_id: OneSession,
    *,
    title: Annotated[Title, About("title; empty: from its next message")] = "",
    at: Annotated[Count | None, About("only up to entry N, as `show` numbers them", http=None)] = None,
) -> SessionRecord:
    """Copy a session to continue it differently.

    The copy has everything that the session holds, except receipts, as their cost was paid once.
    """
    source = await context.session(session_id)
    return (await context.sessions.fork_session(source.id, title=title, at=at)).record


@destroys(http="DELETE /v1/sessions/{session_id}")
async def delete_session(
    context: Context,
    session_id: OneSession,
    *,
    keep_memory: Annotated[bool, About("keep the memories of the session")] = False,
) -> None:
    """Delete a session permanently.

    With its files, and its memories that you may see; `deletion` shows how many. Forks keep their copy of the messages.
    An import does not bring it back.
    """
    session = await context.session(session_id)
    session.check("erase")
    if context.stop_turns is not None:
        await context.stop_turns(session.id)
    await context.sessions.delete_session(session.id, keep_memory=keep_memory)


@reads(http="GET /v1/sessions/{session_id}/deletion")
async def get_deletion(context: Context, session_id: OneSession) -> memory.Erasure:
    """Show what deleting a session would delete.

    The numbers of its memories and facts, and the forks that would keep its messages. Nothing is changed.
    """
    return await context.sessions.preview_delete((await context.session(session_id)).id)


@reads(cli="projects list", http="GET /v1/projects", gives="projects")
async def list_projects(context: Context) -> list[memory.Project]:
    """List projects.

    Those that hold a session or a memory, by name.
    """
    return await memory.projects_in(context.sessions)


@changes(cli="projects rename", http="PATCH /v1/projects/{project}", examples=("rename house home", "rename house -"))
async def rename_project(
    context: Context, project: OneProject, new: Annotated[Name, About("new name; - for no project", http="name")]
) -> memory.ProjectContent:
    """Rename a project, or merge it into another.

    All of its sessions and memories move.
    """
    return await memory.rename_project(context.sessions, project, new)


@reads(cli="projects export", http="GET /v1/projects/{project}", examples=("export house > house.json",))
async def export_project(context: Context, project: OneProject) -> dict[str, Any]:
    """Export a project as JSON.

    Its memories of any status, its facts, and whole sessions, as far as you may see them. For a bundle that can be
    imported again, use `sessions export --project`.
    """
    return await memory.export_user(context.sessions, project)


@destroys(cli="projects erase", http="DELETE /v1/projects/{project}", examples=("erase house --dry-run",))
async def erase_project(
    context: Context,
    project: OneProject,
    *,
    dry_run: Annotated[bool, About("show what would be deleted, delete nothing", cli=None)] = False,
) -> memory.ProjectContent:
    """Delete a project permanently.

    Its sessions with their files, its memories and facts, as far as you may see them. An import does not bring them
    back.
    """
    if context.stop_turns is not None and not dry_run:
        for record in await memory.sessions_of(context.sessions, project):
            await context.stop_turns(record.id)
    return await memory.erase_project(context.sessions, project, dry_run=dry_run)


def tool_names() -> frozenset[str]:
    """Return the names of all tools."""
    return frozenset(each.tool for each in OPERATIONS.values() if each.tool)


def filter_of(wanted: WantedSessions) -> memory.SessionFilter:
    """Return the filter of these fields. Doors without the field `with_archived` include archived sessions."""
    fields: dict[str, Any] = {**wanted}
    is_only, is_any = fields.pop("archived", False), fields.pop("with_archived", True)
    return memory.SessionFilter(is_archived=is_only or (None if is_any else False), **fields)
