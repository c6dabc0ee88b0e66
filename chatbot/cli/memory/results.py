"""Output of operations: tables, results, and the statistics of a memory."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from chatbot.cli import output
from chatbot.cli.memory.command import VerbRun, warn_redacted
from chatbot.cli.memory.tables import say_history, say_hits, say_in_full, say_observations, say_timeline
from chatbot.memory import AddResult, Hit, Person, Profile, Project, ProjectContent, SessionHit, SessionRecord, Task
from chatbot.memory.profile_lines import ProfileLine
from chatbot.operation import ListPage, Operation
from chatbot.operations import Alias, Entries
from chatbot.stores.access import SENSITIVITIES, project_words
from chatbot.stores.fields import how_many
from chatbot.stores.observation import Observation, Triple
from chatbot.stores.query import Stats, Version
from chatbot.stores.records import format_time
from chatbot.stores.text.dates import local

_NOTHING = {
    "list_people": "No people found: they are named in memories that you, or a model with tools, add",
    "list_projects": "No projects yet: begin a session in one with --project NAME",
}
_BECAME = {
    "added": "added {}",
    "exact_dup": "already exists: {} (new tags, people and files are added; `edit` changes the rest)",
    "updated": "changed {}",
    "deleted": "deleted {}",
    "skipped": "nothing to change in {}",
}
_SESSION_LINES: dict[str, Callable[[SessionRecord], str]] = {
    "fork_session": lambda record: f"forked {record.parent} as {record.id}",
    "rename_session": lambda record: (
        record.id + (f" is now called {record.title!r}" if record.title else " has no title")
    ),
    "move_session": lambda record: f"{record.id} is in {project_words(record.project)}",
    "mark_session": lambda record: f"{record.id} is {record.sensitivity}",
    "pin_session": lambda record: f"{'pinned' if record.pinned_at else 'unpinned'} {record.id}",
}
_DONE = {"add_task": "on the list", "start_task": "in progress", "finish_task": "completed", "cancel_task": "cancelled"}


def show(run: VerbRun, operation: Operation, result: Any, given: Mapping[str, Any]) -> None:
    """Show the result of an operation that was `given` these values."""
    if isinstance(result, AddResult):
        if result.warning:
            output.warn(result.warning)
        warn_redacted(result.redacted)
    if result is None:
        done = f"un{operation.gives}" if given.get("undo") else operation.gives  # such as "unpinned"
        show_changed(run, done, list(given.values()))
    elif run.args.json or isinstance(result, dict):
        output.say_json(as_json(result))
    elif isinstance(result, ListPage):
        _say_page(operation, result, is_first="cursor" not in given)
    elif type(result) in _WHOLE:
        _WHOLE[type(result)](result)
    elif isinstance(result, list):
        _say_list(operation, result, given)
    else:
        output.say(_line(operation, result))


def show_changed(run: VerbRun, gives: str, values: Sequence[Any], **more: Any) -> None:
    """Show what a change did: a line for each id, or JSON.

    Each word of `gives` is the key of one of the `values` in JSON: "forgotten" of ids, "superseded by" of two ids.
    """
    words = gives.split()
    if run.args.json:
        output.say_json(dict(zip(words, values, strict=False)) | more)
    elif len(words) > 1:
        old, new = values
        output.say(f"{new} replaces {old}")
    else:
        for each in [values[0]] if isinstance(values[0], str) else values[0]:
            output.say(f"{'would be ' if more.get('dry_run') else ''}{gives} {each}")


def as_json(item: Any) -> Any:  # noqa: PLR0911 - one for each type
    """Return the result of an operation as JSON values."""
    match item:
        case ListPage(rows):
            return [as_json(row) for row in rows]
        case list() | tuple():
            return [as_json(each) for each in item]
        case Hit():
            return item.brief()
        case Observation():  # an exchange has no title of its own
            return item.as_json() | {"title": item.title or item.headline}
        case Triple() | Person() | Project() | Profile() | SessionRecord() | SessionHit():
            return item.as_json()
        case Entries():
            return item.session.as_json() | {
                "entries": [
                    {"number": number, "role": entry.role, "at": format_time(entry.at), "content": entry.content}
                    for number, entry in enumerate(item.rows, item.first)
                ]
            }
        case Version():
            # An event can be about several observations: here it is about this one.
            events = [
                replace(event, ids=(item.observation.id,)).as_json()
                | {"changes": {name: {"old": old, "new": new} for name, (old, new) in changed.items()}}
                for event, changed in item.steps
            ]
            return {"observation": item.observation.as_json(), "events": events}
        case _:
            return to_builtins(item)


def _say_page(operation: Operation, page: ListPage[Any], *, is_first: bool) -> None:
    if page.rows:
        _TABLES.get(type(page.rows[0]), _say_each)(page.rows)
    if page.next_cursor:
        output.say(f"more: --page-after {page.next_cursor}")
    elif not page.rows:
        nothing = _NOTHING.get(operation.name, f"No {operation.name.rpartition('_')[2]} found")
        output.say(nothing if is_first else "no more results")


def _say_list(operation: Operation, rows: list[Any], given: Mapping[str, Any]) -> None:
    if rows and isinstance(rows[0], Version):
        say_history(rows)
    elif "anchor" in given:
        say_timeline(rows, given["anchor"])
    elif rows and isinstance(rows[0], Observation):
        for number, row in enumerate(rows):
            if number:
                output.say("\n---\n")
            say_in_full(row)
    else:
        _say_page(operation, ListPage(rows), is_first=True)


def _say_each(rows: Sequence[Any]) -> None:
    for row in rows:
        output.say(output.json_text(as_json(row)))


def _line(operation: Operation, item: Any) -> str:  # noqa: PLR0911 - one for each type
    match item:
        case AddResult():
            return _BECAME[item.outcome].format(item.id)
        case Task():
            details = (replace(item, status="pending") if operation.name in _DONE else item).details()
            if operation.name == "add_task" and item.due and item.due_on is None:
                details += " (no date such as 2026-05-01: kept as text, never overdue)"
            return f"{_DONE.get(operation.name, 'changed')}: {item.title} ({item.id})" + (details and f" – {details}")
        case Triple():
            done = "added" if item.count == 1 else "stated again"
            return f"{done}: {item.subject} · {item.predicate} · {item.object} ({item.id})"
        case SessionRecord():
            return _SESSION_LINES[operation.name](item)
        case ProjectContent():
            return f"moved {how_many(item.sessions, 'session')} and {how_many(item.memories, 'memory')}"
        case Alias():
            return f"{item.name} is also known as {item.alias} (fact {item.id})"
        case _:
            return output.json_text(as_json(item))


_PEOPLE: output.Columns[Person] = {
    "mentions": lambda person: str(person.mention_count),
    "last": lambda person: output.age(person.last_mentioned),
    "facts": lambda person: str(len(person.facts)),
    "name": lambda person: person.name + (f" ({', '.join(person.aliases)})" if person.aliases else ""),
}
_PROJECTS: output.Columns[Project] = {
    "project": lambda each: each.name,
    "sessions": lambda each: str(each.sessions),
    "memories": lambda each: str(each.memories),
    "used": lambda each: output.age(each.used_at) if each.used_at else "–",
}
_TASKS: output.Columns[Task] = {
    "id": None,
    "priority": lambda task: task.priority,
    "status": lambda task: task.status.replace("_", " "),
    "due": lambda task: task.due or "–",
    "project": lambda task: task.project or "–",
    "title": lambda task: f"{task.title} – {task.note}" if task.note else task.title,
}
_FACTS: output.Columns[Triple] = {
    "id": None,
    "confidence": lambda fact: f"{fact.confidence:.0%}",
    "fact": lambda fact: (
        f"{fact.subject} · {fact.predicate} · {fact.object}"
        + (f" (stated {fact.count} times)" if fact.count > 1 else "")
    ),
}
_PROFILE: output.Columns[ProfileLine] = {
    "id": None,
    "key": lambda line: line.key,
    "value": lambda line: line.value,
    "since": lambda line: f"{local(line.valid_from):%Y-%m-%d}",
    "until": lambda line: f"{local(line.valid_to):%Y-%m-%d}" if line.valid_to else "–",
    "said": lambda line: f"{local(line.said_at):%Y-%m-%d}",
    "": lambda line: ", ".join(word for word, holds in _notes(line) if holds),
}


def _say_found(hits: Sequence[SessionHit]) -> None:
    for hit in hits:
        output.say_hit(hit, f"chatbot -r {hit.record.id}")


def _say_entries(read: Entries) -> None:
    marked = f" · {read.session.sensitivity}" if read.session.sensitivity != "public" else ""
    output.say(f"# {read.session.title or 'untitled'}\n{read.session.id}{marked}")
    for number, entry in enumerate(read.rows, read.first):
        output.say(f"\n### {number} {entry.role} — {format_time(entry.at)}\n\n{entry.content}")


def _say_profile(known: Profile) -> None:
    """Print the lines, the proposed values with the commands to decide, and the answers to the standing questions."""
    if known.lines:
        output.say_columns(known.lines, _PROFILE)
    else:
        output.say("No values set yet: memory profile set KEY VALUE")
    for row in known.proposals:
        output.say(f"{row.title} (memory profile accept {row.id}, or reject)")
    answered = [answer for answer in known.standing if answer.rows]
    for answer in answered:
        output.say("")
        columns: output.Columns[Observation] = {
            "said": lambda row: f"{local(row.last_said_at):%Y-%m-%d}",
            "id": None,
            "source": lambda row: row.source,
            f"{answer.question}{' (pinned)' if answer.pinned else ''}": answer.text_of,
        }
        output.say_columns(answer.rows, columns)
    if nothing := len(known.standing) - len(answered):
        output.say(f"\n{how_many(nothing, 'standing question')} without an answer yet")


def _notes(line: ProfileLine) -> Sequence[tuple[str, bool]]:
    return (("pinned", line.pinned), (line.sensitivity, line.sensitivity != "public"), (f"by {line.by}", bool(line.by)))


_WHOLE: dict[type, Callable[[Any], None]] = {Entries: _say_entries, Profile: _say_profile}
"""Printers of results that are not lists of items of one type."""
_TABLES: dict[type, Callable[[Sequence[Any]], None]] = {
    Hit: say_hits,
    Observation: say_observations,
    Person: partial(output.say_columns, columns=_PEOPLE),
    Task: partial(output.say_columns, columns=_TASKS),
    Triple: partial(output.say_columns, columns=_FACTS),
    SessionRecord: output.say_sessions,
    SessionHit: _say_found,
    Project: partial(output.say_columns, columns=_PROJECTS),
}
"""Printers of lists."""


async def stats(run: VerbRun) -> None:
    """Print counts of what the caller may see, and bytes on the disk."""
    counted = await run.memories.stats(sensitivities=SENSITIVITIES)
    if run.args.json:
        output.say_json(to_builtins(counted))
    else:
        output.say_table(("", "what", "how many"), _rows(counted))


def _rows(counted: Stats) -> list[list[str]]:
    rows = [
        [group, name, f"{number:,}"]
        for group, numbers in (
            ("status", counted.by_status),
            ("type", counted.by_type),
            ("visibility", counted.by_visibility),
        )
        for name, number in sorted(numbers.items(), key=lambda each: (-each[1], each[0]))
    ]
    rows.append(["facts", "", f"{counted.facts:,}"])
    sizes = (("journal", counted.journal_bytes), ("caches", counted.cache_bytes))
    return rows + [["bytes", name, f"{size:,}"] for name, size in sizes if size is not None]
