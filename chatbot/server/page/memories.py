"""Pages of memories: by day or search, with adding and hiding; of people, the profile and tasks; and of one memory."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from chatbot.memory.people import OPEN, Task
from chatbot.memory.reading import Hit
from chatbot.memory.scope import utc_now
from chatbot.memory.scoring import WEIGHTS
from chatbot.messages import TaskStatus
from chatbot.operations import get_profile_history, list_people, show_profile
from chatbot.server.dependencies import RANK
from chatbot.server.errors import no_such_page
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.rendering import AccessHere, Fields, PageRoute, base, day, goto, render_page
from chatbot.stores.access import NOT_SECRET, SENSITIVITIES
from chatbot.stores.errors import ConflictingChange, InvalidValue, UnknownObservation
from chatbot.stores.observation import CONTENT, GUARDED, STATUSES, TYPES, Observation, Status, Type, version_of
from chatbot.stores.query import Order, Version
from chatbot.stores.records import is_id

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 25
PART_NAMES = {
    "match": "match",
    "recency": "recency",
    "mention": "mentions",
    "importance": "importance",
    "credibility": "credibility",
    "lexical": "lexical match",
    "session": "session",
    "meaning": "meaning",
    "later": "said later about the same thing",
}
WEIGHED = PART_NAMES.keys() & set(WEIGHTS)
"""Weighted parts between 0 and 1; the others are parts of the match."""
_RESULTS = {
    "added": "Added.",
    "exact_dup": "Already remembered: nothing was added.",
    "erased": "Deleted permanently.",
    "restored": "Restored.",
    "corrected": "Saved. The history keeps the old text.",
    "superseded": "Saved. It replaces the old memory, which stays in the history.",
    "forgotten": "Hidden. It is not recalled; you can restore it.",
    "confirmed": "Confirmed. It now ranks higher.",
    "marked": "Saved.",
}


Hidden = Annotated[str, Query(max_length=8_000)]
"""Ids of the memories that were just hidden; an undo restores them."""


class MemoryQuery(BaseModel):
    """Search text and filters. Days are ISO dates, both included, in the time zone of this machine."""

    q: str = Field("", max_length=10_000)
    type: Type | Literal[""] = ""
    status: Status = "active"
    person: str = Field("", max_length=1_000)
    tag: str = Field("", max_length=1_000)
    since: str = Field("", max_length=10)
    until: str = Field("", max_length=10)
    order: Order = "created"
    after: str = Field("", max_length=100)
    done: str = Field("", max_length=100)
    hidden: Hidden = ""

    @property
    def is_search(self) -> bool:
        """True if rows are ranked rather than listed."""
        return bool(self.q.strip()) and self.status == "active"

    @property
    def is_filtered(self) -> bool:
        """True if anything but a search text is asked for."""
        return bool(self.model_dump(exclude={"q", *_NO_FILTERS}, exclude_defaults=True))

    def query(self, **more: str) -> dict[str, str]:
        """Return the parameters of an address with the same search and filters, and `more`."""
        return {name: value for name, value in self.model_dump(exclude=_NO_FILTERS).items() if value} | more

    def wanted(self) -> dict[str, Any]:
        """Return the filter. Raises `InvalidValue` for an invalid day."""
        return {
            "types": (self.type,) if self.type else (),
            "people": (self.person,) if self.person else (),
            "tags": (self.tag,) if self.tag else (),
            "after": _start_of_day(self.since) if self.since else None,
            "before": _start_of_day(self.until, days=1) if self.until else None,
        }


_NO_FILTERS = {"after", "done", "hidden"}


@router.get("/memory")
async def show(request: Request, access: AccessHere, asked: Annotated[MemoryQuery, Query()]) -> Response:
    """Search active memories, or list them by day."""
    hits, following, begin = await _find_page(access, asked)
    return render_page(
        request,
        "memories.html",
        access,
        here="memory",
        hits=hits,
        groups=_by_day(hits, asked),
        following=following,
        begin=begin,
        asked=asked,
        types=TYPES,
        statuses=STATUSES,
        done=_RESULTS.get(asked.done, ""),
        undo=_ids_in(asked.hidden),
        part_names=PART_NAMES,
        weighed=WEIGHED,
    )


def _ids_in(hidden: Hidden) -> list[str]:
    return [each for each in hidden.split(",") if is_id(each)]


async def _find_page(access: IdentityAccess, asked: MemoryQuery) -> tuple[list[Hit], str, int]:
    """Return a page of hits, the cursor of the next page (empty at the end), and the number of hits before this one."""
    if asked.is_search:
        if asked.after and not re.fullmatch(RANK, asked.after):
            raise no_such_page(asked.after)
        begin = int(asked.after or 0)
        hits = await access.memories.search(
            asked.q, limit=_ON_A_PAGE + 1, offset=begin, sensitivities=SENSITIVITIES, count_use=False, **asked.wanted()
        )
        return hits[:_ON_A_PAGE], str(begin + _ON_A_PAGE) if len(hits) > _ON_A_PAGE else "", begin
    page = await access.memories.list_observations(
        limit=_ON_A_PAGE,
        cursor=asked.after or None,
        sensitivities=SENSITIVITIES,
        order=asked.order,
        statuses=(asked.status,),
        **asked.wanted(),
    )
    return [Hit(row, 0.0) for row in page.rows], page.after or "", 0


def _by_day(hits: list[Hit], asked: MemoryQuery) -> list[tuple[str, list[Hit]]]:
    """Group rows by day; hits of a search, which are ranked, stay together."""
    if asked.is_search:
        return [("", hits)] if hits else []

    def moment(hit: Hit) -> str:
        return day(hit.observation.updated_at if asked.order == "updated" else hit.observation.created_at)

    return [(name, list(group)) for name, group in groupby(hits, key=moment)]


def _start_of_day(text: str, *, days: int = 0) -> datetime:
    """Return when a day, or the day `days` after it, begins. Raises `InvalidValue`."""
    try:
        first = date.fromisoformat(text) + timedelta(days=days)
        return datetime.combine(first, datetime.min.time()).astimezone(UTC)
    except (ValueError, OverflowError):  # also for the first day of the year 1
        raise InvalidValue(f"invalid date {text!r:.40}: write it as 2026-01-31") from None


_MOST_PEOPLE = 200


@router.get("/people")
async def show_people(request: Request, access: AccessHere, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """List people, most mentioned first."""
    page = await list_people(access.context, q.strip(), limit=_MOST_PEOPLE, sensitivities=SENSITIVITIES)
    return render_page(request, "people.html", access, here="people", q=q, people=page.rows, more=page.next_cursor)


MemoryId = Annotated[str, Path(max_length=100)]
_TEXTS = ("title", "narrative", "user_text", "assistant_text")
_INHERITED = {*CONTENT, *GUARDED} - {"expires_at", "source", "token_count"}


@router.get("/memory/{memory_id}")
async def show_one(
    request: Request, access: AccessHere, memory_id: MemoryId, done: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the memory in any status; `done` is the last action."""
    versions = await _history(access, memory_id)
    row = _row_in(versions, memory_id)
    return render_page(
        request,
        "memory.html",
        access,
        here="memory",
        row=row,
        version=version_of(row),
        line=versions,
        said=_TEXTS,
        done=_RESULTS.get(done, ""),
    )


@router.post("/memory/{memory_id}/correct")
async def correct(access: AccessHere, memory_id: MemoryId, fields: Fields) -> Response:
    """Edit the memory: `how` is `wrong` (correct it) or `changed` (replace it, keeping its history)."""
    row = _row_in(await _history(access, memory_id), memory_id)
    texts = _texts_in(fields)
    memories = access.memories.expecting(frozenset({fields["version"]}) if "version" in fields else None)
    match fields.get("how"):
        case "wrong":
            await memories.update(memory_id, **texts)
            done = "corrected"
        case "changed":
            inherited: dict[str, Any] = {name: getattr(row, name) for name in _INHERITED}
            new = await memories.remember(**inherited | texts, source="user", supersedes=row.id)
            if new.outcome == "exact_dup":
                raise ConflictingChange("an identical memory already exists: nothing was changed")
            memory_id, done = new.id, "superseded"
        case _:
            raise InvalidValue("choose a reason: wrong or changed")
    return goto(f"{base(access)}/memory/{memory_id}?done={done}")


def _texts_in(fields: Fields) -> dict[str, Any]:
    texts: dict[str, Any] = {name: fields[name].strip() for name in _TEXTS if name in fields}
    if "facts" in fields:
        texts["facts"] = [line.strip() for line in fields["facts"].splitlines() if line.strip()]
    return texts


async def _history(access: IdentityAccess, memory_id: str) -> list[Version]:
    if not is_id(memory_id):
        raise UnknownObservation.of([memory_id])
    return await access.memories.history(memory_id, sensitivities=SENSITIVITIES)


def _row_in(versions: list[Version], memory_id: str) -> Observation:
    return next(each.observation for each in versions if each.observation.id == memory_id)


@router.get("/profile")
async def show_profile_page(request: Request, access: AccessHere, hidden: Hidden = "") -> Response:
    """Render the current lines, the proposals, and the answers to the standing questions."""
    known = await show_profile(access.context, sensitivities=NOT_SECRET)
    return render_page(request, "profile.html", access, here="profile", known=known, key="", undo=_ids_in(hidden))


@router.get("/profile/{key:path}")
async def show_profile_history(
    request: Request, access: AccessHere, key: Annotated[str, Path(max_length=100)]
) -> Response:
    """Render all values that a key had."""
    known = await get_profile_history(access.context, key, sensitivities=SENSITIVITIES)
    return render_page(request, "profile.html", access, here="profile", known=known, key=key)


_ENDED: tuple[TaskStatus, ...] = ("completed", "cancelled")
_PRIORITIES = ("high", "normal", "low")


@router.get("/tasks")
async def show_tasks(request: Request, access: AccessHere, *, done: bool = False) -> Response:
    """List open or ended tasks."""
    tasks = await access.memories.tasks(statuses=_ENDED if done else OPEN, sensitivities=SENSITIVITIES)
    groups = [("", tasks)] if done and tasks else _by_due_date(tasks, utc_now().astimezone().date())
    return render_page(request, "tasks.html", access, here="tasks", groups=groups, done=done, priorities=_PRIORITIES)


def _by_due_date(tasks: Sequence[Task], today: date) -> list[tuple[str, list[Task]]]:
    groups: dict[str, list[Task]] = {name: [] for name in ("Overdue", "Today", "Next 7 days", "Later", "No date")}
    for task in sorted(tasks, key=lambda task: task.due or "~"):
        groups[_due_group(task, today)].append(task)
    return [(name, group) for name, group in groups.items() if group]


def _due_group(task: Task, today: date) -> str:
    if task.due_on is None:  # it may be given in words
        return "Later" if task.due else "No date"
    days = (task.due_on - today).days
    return "Overdue" if days < 0 else "Today" if not days else "Next 7 days" if days <= 7 else "Later"
