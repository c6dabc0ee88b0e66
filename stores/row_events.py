"""Events of a memory, their lines in the journal and their fold into observations. Pure.

`chatbot.stores.decisions` decides which are written for a requested one; `apply` folds one into its observation.

    add        a new row; it may supersede an older one in the same step
    update     fields were set to other values
    mention    the same thing was said again
    use        it was returned to a caller
    confirm    a caller confirmed it
    supersede  another observation replaced it
    tighten    it was made as strict as its source
    archive, delete, restore      as named; the row stays in the history
    compress   it was merged into a summary
    triple, retract      a fact about subject, predicate and object was stated, or retracted
    consolidate          time and use changed the strength of many rows; see `chatbot.stores.observation`
    counts     uses and strength so far, in place of the events that compaction removed
    purge      rows were erased permanently; only their ids are known
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct, field

from chatbot.stores import observation
from chatbot.stores.access import Guard, View, may_see, strictest
from chatbot.stores.errors import ChangedMeanwhile, InvalidValue, LaterFormat, StoreError, UnknownObservation
from chatbot.stores.fields import MOST_COUNTED, Form, Id, check_id, fields_of, parse_fields, writer
from chatbot.stores.observation import CONTENT, FIELDS, GUARDED, Observation, RowState, Status, Triple
from chatbot.stores.records import format_time, parse_time

VERSION = 1

Kind = Literal[
    "add",
    "update",
    "tighten",
    "mention",
    "use",
    "confirm",
    "supersede",
    "archive",
    "delete",
    "restore",
    "compress",
    "consolidate",
    "triple",
    "retract",
    "counts",
    "purge",
]
KINDS: tuple[str, ...] = get_args(Kind)
MAINTENANCE = "maintenance"
"""The author of events of maintenance. A row that it purges is erased alone, without those derived from it."""

STATUS_AFTER: dict[str, Status] = {
    "supersede": "superseded",
    "compress": "compressed",
    "archive": "archived",
    "delete": "deleted",
    "restore": "active",
}
"""Events that change the state of a row, but not its content."""
_FIXED = FIELDS.keys() - {*CONTENT, *GUARDED}
HELD = "held"
"""Metadata key of a profile value with its start: the only key in which a row and its successor may differ."""
_COUNTED = {
    name: FIELDS[name] for name in ("use_count", "last_used_at", "strength", "consolidated_at", "consolidated_touches")
}


def _check_ids(ids: object, _: str) -> tuple[str, ...]:
    if not isinstance(ids, list):
        raise InvalidValue("the event's ids or fields have the wrong form")
    return tuple(map(check_id, ids))


_IdList: TypeAlias = Annotated[tuple[str, ...], Form(read=_check_ids, write=list)]
_Note: TypeAlias = Annotated[str, Form(read=lambda value, _: str(value))]


class Event(Struct, frozen=True, kw_only=True):
    """One change. `ids` are the observations it is about; `fields` are in the form in which they are written."""

    kind: Kind
    at: datetime
    ids: tuple[str, ...] = ()
    row: Observation | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    by: Id | None = None
    """For supersede and compress: the observation that replaces the old ones."""
    supersedes: Id | None = None
    """For add: the observation that the new row replaces."""
    forgets: Id | None = None
    """For add: the observation that is no longer true; it is deleted in the same step."""
    compresses: _IdList = ()
    """For add: the observations that the new row replaces as their summary, in one step."""
    triple: Triple | None = None
    who: _Note = ""
    """Agent that made the change, or a part of the program, such as `maintenance`."""
    why: _Note = ""
    """Reason, if it is not obvious."""

    def as_json(self) -> dict[str, Any]:
        """Return the event as a line of the journal."""
        line: dict[str, Any] = {"v": VERSION, "event": self.kind, "at": format_time(self.at)}
        if self.kind == "consolidate":
            return line | {"set": {each: self.fields[each] for each in self.ids}}
        if self.ids:
            line |= {"id": self.ids[0]} if len(self.ids) == 1 else {"ids": list(self.ids)}
        if self.row is not None:
            line["row"] = self.row.as_json()
        if self.triple is not None:
            line["triple"] = self.triple.as_json()
        if self.fields:
            line["set"] = dict(self.fields)
        return line | _written(self)


_DETAILS = {name: each for name, each in fields_of(Event).items() if each.form is not None and name != "kind"}
_written = writer(_DETAILS)
"""The fields of an event that are written under their own names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change. `skipped` gives the reason, and carries the error for a caller who wants it raised."""

    kind: Literal["added", "updated", "exact_dup", "deleted", "skipped"]
    id: str = ""
    reason: str = ""
    error: StoreError | None = None
    row: Observation | None = dataclasses.field(default=None, compare=False, repr=False)
    """The observation right after this change; None for facts, several ids or a use."""

    @property
    def version(self) -> str:
        """The version of `row`; empty without one."""
        return observation.version_of(self.row) if self.row is not None else ""


def parse_event(line: Mapping[str, Any]) -> Event:
    """Read a line of the journal. Raises `LaterFormat` or `InvalidValue`."""
    version = line.get("v", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise LaterFormat(f"a memory was written by a later release (format {version!r}): upgrade chatbot to read it")
    kind = line.get("event")
    if kind not in KINDS:
        raise InvalidValue(f"unknown event {kind!r:.40}")
    at = line.get("at")
    if not isinstance(at, str):
        raise InvalidValue("event: missing time")
    fields, row, triple = line.get("set", {}), line.get("row"), line.get("triple")
    if not isinstance(fields, dict):
        raise InvalidValue("the event's ids or fields have the wrong form")
    ids = list(fields) if kind == "consolidate" else line.get("ids", [line["id"]] if "id" in line else [])
    event = Event(
        kind=kind,
        at=parse_time(at),
        ids=_check_ids(ids, "ids"),
        row=observation.parse_observation(row) if kind == "add" and isinstance(row, dict) else None,
        fields=fields,
        triple=observation.parse_triple(triple) if kind == "triple" and isinstance(triple, dict) else None,
        **parse_fields(line, _DETAILS),
    )
    needed = {"add": "row", "triple": "triple", "supersede": "by", "compress": "by"}.get(kind)
    if needed and getattr(event, needed) is None:
        raise InvalidValue(f"event {kind!r}: missing field {needed!r}")
    if kind not in {"add", "triple"} and not event.ids:
        raise InvalidValue(f"event {kind!r}: missing ids")
    return event


def apply(row: Observation, event: Event) -> Observation:  # noqa: C901, PLR0911 - one for each kind of event
    """Return the observation after an event. Raises `InvalidValue` for impossible fields."""
    kind, at = event.kind, event.at
    check_fields(event)
    if kind in {"update", "mention"} and event.fields:
        row = observation.with_fields(row, event.fields)
        if "importance" in event.fields:
            row = replace(row, strength=None)
    if kind == "update":
        return replace(row, updated_at=at)
    if kind == "tighten":
        asked = observation.with_fields(row, {name: event.fields[name] for name in GUARDED if name in event.fields})
        return replace(row, **strictest([row, asked])._asdict())
    if kind == "mention":
        return replace(row, updated_at=at, mention_count=row.mention_count + 1, last_mentioned_at=at)
    if kind == "use":
        return replace(row, use_count=row.use_count + 1, last_used_at=at)
    if kind == "counts":
        return replace(row, **counts_in(event))
    if kind == "consolidate":
        return observation.with_counts(row, (row.use_count, row.last_used_at), strength_in(event, row.id))
    if kind == "confirm":
        return replace(row, confirmed_count=row.confirmed_count + 1, last_confirmed_at=at)
    if kind in {"supersede", "compress"}:
        return observation.replace_unchecked(row, status=STATUS_AFTER[kind], superseded_by=event.by, superseded_at=at)
    if kind == "restore":
        expires = row.expires_at
        kept = expires if expires is None or expires > at else None
        ended = dict.fromkeys(("superseded_by", "superseded_at", "deleted_at"))
        return observation.replace_unchecked(row, status="active", expires_at=kept, **ended)
    if kind == "delete":
        return observation.replace_unchecked(row, status="deleted", deleted_at=at)
    return observation.replace_unchecked(row, status=STATUS_AFTER[kind]) if kind in STATUS_AFTER else row


def check_fields(event: Event) -> None:
    """Raise `InvalidValue` for fields that no event of its kind can set."""
    if fixed := event.fields.keys() & (_FIXED - _COUNTED.keys() if event.kind == "counts" else _FIXED):
        raise InvalidValue(f"{', '.join(sorted(fixed))} cannot be changed by the event {event.kind!r}")


def as_strict_as(triple: Triple, source: Guard) -> Triple:
    """Return the fact, at least as strict as its source is now, and in its project."""
    guard = strictest([triple, source._replace(namespace=triple.namespace)])._replace(project=source.project)
    return triple if guard == Guard.of(triple) else replace(triple, **guard._asdict())


def implied_events(event: Event) -> list[Event]:
    """Return the events that an event implies: an added row replaces another one, or several.

    A purge of the row implies the same events, so that the rows that it replaced do not come back.
    """
    if event.row is None and event.kind != "purge":
        return []
    along: list[tuple[Kind, tuple[str, ...]]] = [("compress", event.compresses)]
    if event.supersedes not in {None, event.forgets}:
        along.append(("supersede", (event.supersedes,)))
    if event.forgets is not None:
        along.append(("delete", (event.forgets,)))
    by, who, why = event.row.id if event.row else event.ids[0], event.who, event.why
    return [Event(kind=kind, at=event.at, ids=ids, by=by, who=who, why=why) for kind, ids in along if ids]


def counts_in(event: Event) -> dict[str, Any]:
    """Return the fields that an event of the kind `counts` sets. Raises `InvalidValue` for impossible values."""
    check_fields(event)
    values = parse_fields(event.fields, _COUNTED, partial=True)
    for name, value in values.items():
        if value is not None and (form := _COUNTED[name].form) is not None:
            form.check(value, name)
    return values


def strength_in(event: Event, observation_id: str) -> tuple[float, datetime, int]:
    """Return strength, time and counted touches of a row in a consolidation event. Raises `InvalidValue`."""
    match event.fields.get(observation_id):
        case [int() | float() as strength, int() as touches] if (
            0 <= strength <= 1 and -MOST_COUNTED < touches < MOST_COUNTED
        ):
            return (float(strength), event.at, touches)
    raise InvalidValue(f"event {event.kind!r}: missing strength of {observation_id}")


def chain_of(
    start: str,
    after: Callable[[str], str | None],
    before: Callable[[str], Iterable[str]] = lambda _: (),
    is_seen: Callable[[str], bool] = lambda _: True,
) -> list[str]:
    """Return the chain of succession through `start`, oldest first: the rows that it replaced, and that replaced it.

    Has only visible rows, none if `start` is hidden. Cycles, as after a broken import, are walked once.
    """
    if not is_seen(start):
        return []
    line = {start: None}
    waiting = [start]
    while waiting:
        for earlier in filter(is_seen, before(waiting.pop())):
            if earlier not in line:
                line = {earlier: None} | line
                waiting.append(earlier)
    later = after(start)
    while later is not None and later not in line and is_seen(later):
        line[later] = None
        later = after(later)
    return list(line)


class PriorState(Protocol):
    """State before the change, as far as `decide` needs it."""

    def observation(self, observation_id: str) -> Observation | None:
        """Return the observation, whatever its status."""

    def state(self, observation_id: str) -> RowState | None:
        """Return the state of the observation, which is known without reading it."""

    def next_strength(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        """Return the strength of an existing row after consolidation, and its touches; None if it is unchanged."""

    def twin(self, row: Observation, view: View) -> Observation | None:
        """Return the current row of that content, agent, namespace, visibility and principal, if the writer sees it."""

    def triple(self, triple_id: str) -> Triple | None:
        """Return the fact; None if it was retracted."""

    def derived_from(self, observation_id: str) -> Iterable[str]:
        """Return the observations that name it as a source, whatever their status, even if it does not exist."""


def check_expected(ids: Iterable[str], view: View, known: PriorState) -> None:
    """Raise `ChangedMeanwhile` for a row in a version that the caller does not expect."""
    if view.expects is None:
        return
    for each in ids:
        if not view.expects & {observation.version_of(visible_row(each, view, known)), "*"}:
            raise ChangedMeanwhile(f"{each} was changed since it was read: nothing was changed now; read it again")


def visible_row(observation_id: str | None, view: View, known: PriorState) -> Observation:
    """Return a row that the caller may see, whatever its status. Raises `UnknownObservation` for any other."""
    row = seen_row(observation_id, view, known) if observation_id else None
    if row is None:
        raise UnknownObservation.of([str(observation_id)])
    return row


def each_state(ids: Iterable[str], view: View, known: PriorState) -> list[RowState]:
    """Return the states of the rows that the caller may see. Raises `UnknownObservation` if there are none."""
    everything = view.asking_all()
    found = [known.state(each) for each in dict.fromkeys(ids)]
    seen = [state for state in found if state is not None and may_see(state.guard, everything)]
    if not seen:
        raise UnknownObservation.of(ids)
    return seen


def seen_row(observation_id: str, view: View, known: PriorState) -> Observation | None:
    """Return a visible row. A hidden one is not read, so that it takes no longer than a missing one."""
    return known.observation(observation_id) if is_seen(observation_id, view.asking_all(), known) else None


def is_seen(observation_id: str, view: View, known: PriorState) -> bool:
    """Return whether there is a row of that id that the view shows."""
    state = known.state(observation_id)
    return state is not None and may_see(state.guard, view)


def may_name(triple: Triple, view: View, known: PriorState) -> bool:
    """Return whether the caller may know of this fact: they may see it and its source."""
    source = known.state(triple.source) if triple.source else None
    everything = view.asking_all()
    return may_see(triple, everything) and (source is None or may_see(source.guard, everything))


def made_from(ids: Iterable[str], derived_from: Callable[[str], Iterable[str]]) -> list[str]:
    """Return all rows derived, directly or not, from the rows in `ids`, excluding `ids`."""
    waiting = list(ids)
    found = dict.fromkeys(waiting)
    sources = len(found)
    while waiting:
        new = [each for each in derived_from(waiting.pop()) if each not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)[sources:]
