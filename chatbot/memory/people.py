"""Facts, tasks, and the people whom observations name, derived from the memories.

A fact is a triple of subject, predicate and object; an alias of a person is a fact with the predicate `also known as`.
A task is an observation with the metadata `kind = "task"`, which every row of the type `task` gets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import asdict

from chatbot.memory.inputs import takes
from chatbot.memory.scope import PUBLIC, Scope, ScopedOperations, Sensitivities, project_named
from chatbot.memory.writing import DEFAULT_TYPE, PENDING, STARTUP, TASK, MemoryWrites
from chatbot.messages import Priority, TaskScope, TaskStatus
from chatbot.stores.access import SENSITIVITIES, Sensitivity, Visibility, default_visibility, fold
from chatbot.stores.errors import InvalidValue, UnknownObservation, did_you_mean
from chatbot.stores.fields import one_line
from chatbot.stores.observation import KIND, Observation, Triple
from chatbot.stores.query import EVERY, Facet, FactFilter, Filter, check_facts, check_limit
from chatbot.stores.records import check_text, check_time, format_time
from chatbot.stores.row_events import Event
from chatbot.stores.text.redaction import redact_all


class FactQuery(FactFilter, frozen=True, kw_only=True):
    """Filter of facts, and the maximum number to return."""

    limit: int = 100
    sensitivities: Sensitivities = PUBLIC
    as_of: datetime | None = None
    """Only facts stated by then, without retracted ones."""
    known_at: datetime | None = None
    """The same as `as_of`; the earlier of both applies."""


ALIAS = "also known as"


class Person(Struct, frozen=True):
    """A person by the most used name, with the number and time of mentions and the facts about them."""

    name: str
    aliases: tuple[str, ...]
    mention_count: int
    last_mentioned: datetime
    facts: tuple[Triple, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values, times as text."""
        facts = [fact.as_json() for fact in self.facts]
        last = format_time(self.last_mentioned)
        return asdict(self) | {"aliases": list(self.aliases), "last_mentioned": last, "facts": facts}


def _circumstances(fact: Triple) -> tuple[object, ...]:
    """Return the properties that two facts in the same words must share to be one."""
    guard = () if fact.source else (fact.visibility, fact.sensitivity, fold(fact.project))
    return fact.source, fact.session_id, fact.agent_id, fact.principal, fact.namespace, guard


class People(ScopedOperations):
    """Operations on facts, and on the people who are mentioned."""

    async def store_fact(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002 - the third part of a triple is called that
        *,
        confidence: float = 1.0,
        source: str | None = None,
        project: str | None = None,
        visibility: Visibility | None = None,
        sensitivity: Sensitivity = "public",
        at: datetime | None = None,
    ) -> Triple:
        """State a fact and return it; a repetition is counted. A fact is as restricted and current as its source.

        `at` is when it was stated; default: now.
        Raises `InvalidValue`, `UnknownObservation` for the source, or `AccessDenied`.
        """
        scope = self.scope
        said, _ = redact_all((subject, predicate, object))
        fact = Triple(
            id=scope.environment.new_id(),
            subject=said[0],
            predicate=said[1],
            object=said[2],
            created_at=scope.clock() if at is None else check_time(at),
            confidence=confidence,
            source=source,
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            namespace=scope.caller.namespace,
            project=project_named(project) if project else scope.caller.project or "",
            principal=scope.caller.principal,
            visibility=visibility or default_visibility(scope.caller.clearance),
            sensitivity=scope.caller.at_least(sensitivity),
        )
        wanted = FactFilter(source=source, subject=fact.subject, predicate=fact.predicate, object=fact.object)
        for each in await scope.store.facts(scope.write_view(SENSITIVITIES), wanted, limit=EVERY):
            if _circumstances(each) == _circumstances(fact):
                fact = replace(each, count=each.count + 1, confidence=max(each.confidence, confidence))
                break
        await scope.commit(Event(kind="triple", at=scope.clock(), triple=fact, who=scope.agent_id))
        kept = await scope.store.facts(scope.write_view(SENSITIVITIES), wanted, limit=EVERY) if source else [fact]
        return next((each for each in kept if each.id == fact.id), fact)

    @takes(FactQuery, "facts cannot be filtered by")
    async def query_facts(self, asked: FactQuery) -> list[Triple]:
        """Return the matching facts, newest first; the parameters are those of `FactQuery` and `FactFilter`."""
        scope = self.scope
        check_facts(asked)
        at = scope.moment(asked.as_of, asked.known_at)
        limit = check_limit(asked.limit)
        found = await scope.store.facts(scope.view(asked.sensitivities), asked, limit=limit if at is None else EVERY)
        return found if at is None else [fact for fact in found if fact.created_at <= at][:limit]

    async def retract_fact(self, fact_id: str) -> None:
        """Retract a fact; the journal keeps it until it is erased. Raises `UnknownObservation` if there is none."""
        await self.scope.change("retract", fact_id)

    async def people(self, query: str = "", *, sensitivities: Sensitivities = PUBLIC) -> list[Person]:
        """Return the people with a name or alias that contains `query`, the most mentioned first."""
        scope = self.scope
        view = scope.view(sensitivities)
        facets = await scope.store.facets(view, "people", limit=EVERY)
        facts = await scope.store.facts(view, FactFilter(), limit=EVERY)
        stated: defaultdict[str, list[Triple]] = defaultdict(list)
        for fact in facts:
            stated[fold(fact.subject)].append(fact)
        groups = _groups(facts)
        by_group: defaultdict[str, list[Facet]] = defaultdict(list)
        for facet in facets:
            names = groups.get(fold(facet.value), {fold(facet.value): facet.value})
            by_group[min(names)].append(facet)
        wanted = fold(check_text(query, "the query"))
        found = []
        for group, named in by_group.items():
            names = {fold(facet.value): facet.value for facet in named}
            names |= {key: name for key, name in groups.get(group, {}).items() if key not in names}
            if not any(wanted in key for key in names):
                continue
            first, *others = names.values()
            about = tuple(fact for key in names for fact in stated.get(key, ()) if fold(fact.predicate) != ALIAS)
            mentions, last = sum(facet.count for facet in named), max(facet.last_at for facet in named)
            found.append(Person(first, tuple(others), mentions, last, about))
        return sorted(found, key=lambda person: (-person.mention_count, fold(person.name)))

    async def add_alias(self, name: str, alias: str) -> str:
        """State that two names are one person; return the id of the fact."""
        return (await self.store_fact(name, ALIAS, alias)).id


async def other_names(scope: Scope, names: Iterable[str], sensitivities: Sensitivities) -> tuple[str, ...]:
    """Return the names with all aliases of these people, by facts that are public or of these sensitivities."""
    view = scope.view(("public", *sensitivities))
    groups = _groups(await scope.store.facts(view, FactFilter(predicate=ALIAS), limit=EVERY))
    found = {fold(name): name for name in names}
    for name in list(found):
        found |= {key: other for key, other in groups.get(name, {}).items() if key not in found}
    return tuple(found.values())


def _groups(facts: Iterable[Triple]) -> dict[str, dict[str, str]]:
    """Return, for each folded name of a person with aliases, all names of that person by their folded form."""
    groups: dict[str, dict[str, str]] = {}
    for fact in facts:
        if fold(fact.predicate) == ALIAS:
            one, other = fold(fact.subject), fold(fact.object)
            merged = {**groups.get(one, {}), **groups.get(other, {}), one: fact.subject, other: fact.object}
            groups |= dict.fromkeys(merged, merged)
    return groups


OPEN: tuple[TaskStatus, ...] = ("pending", "in_progress")
_WORDS: dict[str, tuple[str, ...]] = {
    "status": get_args(TaskStatus),
    "scope": get_args(TaskScope),
    "priority": get_args(Priority),
}
_PLAIN = frozenset({"note", DEFAULT_TYPE})
"""Generic types: a row of one gets the type `task` when it becomes a task; others keep theirs."""


class Task(Struct, frozen=True):
    """Something to do. `due` is any text; ISO dates sort."""

    id: str
    title: str
    status: TaskStatus
    priority: Priority
    scope: TaskScope
    surface: str
    project: str
    due: str
    note: str

    @property
    def due_on(self) -> date | None:
        """The date that `due` begins with; None for other words."""
        with suppress(ValueError):
            return date.fromisoformat(self.due[:10])
        return None

    def details(self) -> str:
        """Return the details besides the title, on one line; empty for a plain pending task."""
        said = (
            f"due {self.due}" if self.due else "",
            f"{self.priority} priority" if self.priority != PENDING["priority"] else "",
            self.status.replace("_", " ") if self.status != PENDING["status"] else "",
            f"project {self.project}" if self.project else "",
            self.note,
        )
        return " · ".join(filter(None, said))


class Tasks(MemoryWrites):
    """Operations on tasks."""

    async def add_task(
        self,
        title: str,
        *,
        scope: TaskScope = "collaborative",
        priority: Priority = "normal",
        surface: str = STARTUP,
        project: str = "",
        due: str = "",
        note: str = "",
        source: str = "user",
    ) -> Task:
        """Add a pending task. It is shown when a session begins if `surface` is "startup".

        An open task with the same words takes the given details and keeps the others; a closed one, or another memory
        with these words, becomes an open task.
        """
        details = {"scope": scope, "priority": priority, "surface": surface, "due": due, "note": note}
        _check(details)
        given = {name: value for name, value in _as_metadata(details).items() if value is not None}
        remembered = await self.remember(
            title, type="task", subject="todo", project=project, metadata=given, source=source
        )
        if remembered.outcome == "exact_dup":
            await self._make_open(remembered.id, details | {"project": project})
        return await self._task(remembered.id)

    async def update_task(self, task_id: str, **changes: str) -> Task:
        """Set `status`, `priority`, `scope`, `surface`, `project`, `due` or `note`; the title stays.

        A closed task is not shown when a session begins; a reopened one is, unless `surface` says otherwise. Raises
        `UnknownObservation` if it is no task, or `InvalidValue`.
        """
        _check(changes)
        task = await self._task(task_id)
        plain: dict[str, Any] = {"project": changes.pop("project")} if "project" in changes else {}
        status = changes.get("status", task.status)
        if status not in OPEN:
            changes.pop("surface", None)
        elif task.status not in OPEN:
            changes.setdefault("surface", STARTUP)
        quiet = {} if status in OPEN else {"surface": None}
        await self.update(task_id, metadata=_as_metadata(changes) | quiet, **plain)
        return await self._task(task_id)

    async def tasks(
        self,
        *,
        statuses: Sequence[TaskStatus] = OPEN,
        surface: str | None = None,
        project: str | None = None,
        scope: TaskScope | None = None,
        sensitivities: Sensitivities = PUBLIC,
    ) -> list[Task]:
        """Return the tasks of these statuses, by priority, then by due date, then the last added first."""
        wanted = [statuses] if isinstance(statuses, str) else list(statuses)
        for status in wanted:
            _check({"status": status} | ({} if scope is None else {"scope": scope}))
        others = [{"status": each} for each in _WORDS["status"] if each not in wanted]
        chosen = Filter(metadata={KIND: TASK, "$not": {"$or": others}}, project=project)  # also with no status
        rows = await self.scope.rows(chosen, view=self.scope.view(sensitivities))
        found = [task_of(row) for row in sorted(rows, key=lambda row: (row.last_said_at, row.id), reverse=True)]
        found = [each for each in found if each.status in wanted and scope in {None, each.scope}]
        found = [each for each in found if surface in {None, each.surface}]
        return sorted(found, key=lambda task: (_WORDS["priority"].index(task.priority), task.due or "9999"))

    async def _make_open(self, known_id: str, given: dict[str, str]) -> None:
        """Turn the memory with these words into an open task; if it is one already, update its `given` fields."""
        scope = self.scope
        [known] = await scope.store.get(scope.write_view(SENSITIVITIES), [known_id])
        if known.metadata.get(KIND) == TASK and known.metadata.get("status") in OPEN:
            if said := {name: value for name, value in given.items() if value != PENDING.get(name, "")}:
                await self.update_task(known_id, **said)
            return
        plain: dict[str, Any] = {"type": "task", "subject": "todo"} if known.type in _PLAIN else {}
        plain |= {"project": given["project"]} if given["project"] else {}
        rest = {name: value for name, value in given.items() if name != "project"}
        details = {KIND: TASK, "status": "pending", **_as_metadata(rest)}  # None drops the details of its completion
        await self.update(known_id, metadata=details, **plain)

    async def _task(self, task_id: str) -> Task:
        scope = self.scope
        rows = await scope.store.get(scope.write_view(SENSITIVITIES), [task_id])
        if not rows or rows[0].metadata.get(KIND) != TASK:
            raise UnknownObservation.of([task_id], "task")
        return task_of(rows[0])


def task_of(row: Observation) -> Task:
    """Return an observation as a task."""
    kept: dict[str, Any] = dict(row.metadata)
    status = _known_or_default("status", kept)
    return Task(
        id=row.id,
        title=row.title,
        status=status,
        priority=_known_or_default("priority", kept),
        scope=_known_or_default("scope", kept),
        surface=str(kept.get("surface", STARTUP)) if status in OPEN else "",
        project=row.project,
        due=str(kept.get("due", "")),
        note=str(kept.get("note", "")),
    )


def _as_metadata(details: dict[str, str]) -> dict[str, str | None]:
    """Return the details as metadata; None removes one. An empty `surface` is kept: a missing one means the default."""
    return {name: value if name == "surface" else value or None for name, value in details.items()}


def _known_or_default(name: str, kept: dict[str, Any]) -> Any:
    return kept[name] if kept.get(name) in _WORDS[name] else PENDING[name]


def _check(details: dict[str, Any]) -> None:
    known = {*_WORDS, "surface", "project", "due", "note"}
    for name, value in details.items():
        if name not in known:
            raise InvalidValue(f"a task has no {name!r:.80}{did_you_mean(name, known)}")
        if name not in _WORDS:
            one_line(value, name)
        elif value not in _WORDS[name]:
            raise InvalidValue(f"{name} is {value!r:.80}: it must be one of {', '.join(_WORDS[name])}")
