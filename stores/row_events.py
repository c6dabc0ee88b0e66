"""Events of a memory and their fold into observations, shared by all observation stores.

`decide` checks a requested event against the present rows and returns the events to write; `applied` folds a written
event into its observation. Both are pure. A store calls `decide` while no other writer can write, so that concurrent
changes are made one after another.

    add        a new row; it may supersede an older one in the same step
    update     fields were set to other values
    mention    the same thing was said again
    use        it was returned to a caller
    confirm    a caller confirmed it
    supersede  another observation replaced it
    tighten    it was made as strict as its source
    expire, archive, delete, restore      as named; the row stays in the history
    compress   it was merged into a summary
    triple, retract      a fact about subject, predicate and object was stated, or taken back
    consolidate          time and use changed the strength of many rows; see `chatbot.stores.consolidation`
    counts     uses and strength so far, in place of the events that compaction removed
    purge      rows were erased permanently; only their ids are known
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct, field, structs

from chatbot.stores.access import (
    Guard,
    View,
    check_may,
    is_stricter,
    is_within,
    may,
    may_see,
    may_write,
    project_words,
    strictest,
)
from chatbot.stores.consolidation import check_rate
from chatbot.stores.errors import (
    AccessDenied,
    ChangedMeanwhile,
    ConflictingChange,
    InvalidValue,
    LaterFormat,
    MissingRight,
    StoreError,
    UnknownObservation,
)
from chatbot.stores.fields import MERGED, MOST_COUNTED, Form, Id, check_id, declared, having, read, writer
from chatbot.stores.observation import (
    CONTENT,
    FIELDS,
    GUARDED,
    WRITTEN_DEFAULTS,
    NothingSaid,
    Observation,
    RowState,
    Status,
    Triple,
    changed,
    counted,
    is_line,
    is_own,
    parse_observation,
    parse_triple,
    unchecked,
    version_of,
)
from chatbot.stores.records import check_text, check_time, format_time, parse_time

VERSION = 1

Kind = Literal[
    "add",
    "update",
    "tighten",
    "mention",
    "use",
    "confirm",
    "supersede",
    "expire",
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

STATUS_AFTER: dict[str, Status] = {
    "supersede": "superseded",
    "compress": "compressed",
    "expire": "expired",
    "archive": "archived",
    "delete": "deleted",
    "restore": "active",
}
"""Events that change the state of a row, but not its content."""
_REPEATED = "the same was remembered before"
_UNSHOWN = frozenset({"use", "consolidate", "triple", "retract"})
"""Events whose outcome has no row, because they create no version."""
_FIXED = FIELDS.keys() - {*CONTENT, *GUARDED}
HELD = "held"
"""Metadata key of a value and its start, the only one in which a successor may differ."""
_COUNTED = frozenset({"use_count", "last_used_at", "strength", "consolidated_at", "consolidated_touches"})
_MERGED = having(FIELDS, MERGED)


def _check_list(items: object, _: str) -> tuple[Any, ...]:
    if not isinstance(items, list):
        raise InvalidValue("the event's ids or fields have the wrong form")
    return tuple(items)


def _check_ids(ids: object, name: str) -> tuple[str, ...]:
    return tuple(map(check_id, _check_list(ids, name)))


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
    """Observation that replaces the old ones, of supersede and compress."""
    supersedes: Id | None = None
    """Observation that the new row replaces, of add."""
    forgets: Id | None = None
    """Observation that is no longer true, of add; it is deleted in the same step."""
    compresses: _IdList = ()
    """Of add: the observations that the new row replaces as their summary, in one step."""
    triple: Triple | None = None
    who: _Note = ""
    """Principal who made the change."""
    why: _Note = ""
    """Reason, if it is not obvious."""

    def as_json(self) -> dict[str, Any]:
        """The event as a line of the journal."""
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


_DETAILS = {name: each for name, each in declared(Event).items() if each.form is not None and name != "kind"}
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
        return version_of(self.row) if self.row is not None else ""


class PriorState(Protocol):
    """State before the change, as far as `decide` needs it."""

    def observation(self, observation_id: str) -> Observation | None:
        """The observation, whatever its status."""

    def state(self, observation_id: str) -> RowState | None:
        """Return the state of the observation, which is known without reading it."""

    def settled(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        """Return the strength by `consolidated` of an existing row, and its touches; None if it is unchanged."""

    def twin(self, row: Observation, view: View) -> Observation | None:
        """Return the current observation with the same content, if the writer may see it.

        It has the same agent, namespace, visibility and principal.
        """

    def triple(self, triple_id: str) -> Triple | None:
        """The fact, unless it was taken back."""

    def derived_from(self, observation_id: str) -> Iterable[str]:
        """Return the observations that name it as a source, whatever their status, even if it does not exist."""


def parse_event(line: Mapping[str, Any]) -> Event:
    """Read a line of the journal. Raises `LaterFormat` or `InvalidValue`."""
    version = line.get("v", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise LaterFormat(f"it was written by a later release (format {version!r}): upgrade chatbot to read it")
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
        row=parse_observation(row) if kind == "add" and isinstance(row, dict) else None,
        fields=fields,
        triple=parse_triple(triple) if kind == "triple" and isinstance(triple, dict) else None,
        **read(line, _DETAILS),
    )
    _check_whole(event)
    return event


def applied(observation: Observation, event: Event) -> Observation:  # noqa: C901, PLR0911 - one for each kind of event
    """Return the observation after an event. Raises `InvalidValue` for impossible fields."""
    kind, at = event.kind, event.at
    check_fields(event)
    if kind in {"update", "mention"} and event.fields:
        observation = changed(observation, event.fields)
        if "importance" in event.fields:
            observation = replace(observation, strength=None)
    if kind == "update":
        return replace(observation, updated_at=at)
    if kind == "tighten":
        asked = changed(observation, {name: event.fields[name] for name in GUARDED if name in event.fields})
        return replace(observation, **strictest([observation, asked])._asdict())
    if kind == "mention":
        return replace(observation, updated_at=at, mention_count=observation.mention_count + 1, last_mentioned_at=at)
    if kind == "use":
        return replace(observation, use_count=observation.use_count + 1, last_used_at=at)
    if kind == "counts":
        return changed(observation, {name: event.fields[name] for name in _COUNTED & event.fields.keys()})
    if kind == "consolidate":
        return counted(
            observation, (observation.use_count, observation.last_used_at), strength_in(event, observation.id)
        )
    if kind == "confirm":
        return replace(observation, confirmed_count=observation.confirmed_count + 1, last_confirmed_at=at)
    if kind in {"supersede", "compress"}:
        return unchecked(observation, status=STATUS_AFTER[kind], superseded_by=event.by, superseded_at=at)
    if kind == "restore":
        expires = observation.expires_at
        kept = expires if expires is None or expires > at else None
        ended = dict.fromkeys(("superseded_by", "superseded_at", "deleted_at"))
        return unchecked(observation, status="active", expires_at=kept, **ended)
    if kind == "delete":
        return unchecked(observation, status="deleted", deleted_at=at)
    return unchecked(observation, status=STATUS_AFTER[kind]) if kind in STATUS_AFTER else observation


def check_fields(event: Event) -> None:
    """Raise `InvalidValue` for fields that no event of its kind can set."""
    if fixed := event.fields.keys() & (_FIXED - _COUNTED if event.kind == "counts" else _FIXED):
        raise InvalidValue(f"{', '.join(sorted(fixed))} cannot be changed by the event {event.kind!r}")


def decide(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    """Return the events to write for the requested one, and its outcome. Never raises for a refused change."""
    named = event.row.id if event.row else ""
    try:
        _check_asked(event)
        named = event.ids[0] if event.ids else named
        check_expected([*event.ids, *filter(None, (event.supersedes, event.forgets))], view, known)
        kept, outcome = _DECISIONS[event.kind](event, view, known)
        return kept, outcome if event.kind in _UNSHOWN or len(event.ids) > 1 else _with_row(outcome, kept, known)
    except StoreError as error:
        return [], Outcome("skipped", named, str(error), error)


def _with_row(outcome: Outcome, kept: Iterable[Event], known: PriorState) -> Outcome:
    """The outcome with the row that it is about, after the events."""
    row = known.observation(outcome.id)
    for event in kept:
        if event.row is not None:
            row = event.row
        elif row is not None and row.id in event.ids:
            row = applied(row, event)
    return replace(outcome, row=row)


def _check_asked(event: Event) -> None:
    """Refuse an event that could not be written, before it fails others in the same commit."""
    check_time(event.at)
    check_text(event.who, "who")
    check_text(event.why, "why")
    for each in (*event.ids, *event.compresses, event.by or "", event.supersedes or "", event.forgets or ""):
        if not isinstance(each, str):
            raise InvalidValue(f"{each!r:.80} is not an id")
    if not event.ids and event.kind not in {"add", "triple"}:
        raise UnknownObservation("no memory was named")


def check_expected(ids: Iterable[str], view: View, known: PriorState) -> None:
    """Raise `ChangedMeanwhile` for a row in a version that the caller does not expect."""
    if view.expects is None:
        return
    for each in ids:
        if not view.expects & {version_of(_visible(each, view, known)), "*"}:
            raise ChangedMeanwhile(f"{each} was changed since it was read: nothing was changed now; read it again")


def _add(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    row = event.row
    if row is None:
        raise InvalidValue("nothing to add")
    if known.observation(row.id) is not None:
        raise ConflictingChange(f"memory {row.id} already exists")
    _check_new(row, view)
    old = _seen(event.supersedes, view, known) if event.supersedes else None
    left = old or (_seen(event.forgets, view, known) if event.forgets else None)
    if left is not None and is_within(row.project, view.project or ""):  # unless its writer named another
        row = replace(row, project=left.project)
    if not row.project:  # a row derived from a project's memories belongs to it
        sources = filter(None, map(known.observation, row.derived_from))
        if project := next((source.project for source in sources if source.project), ""):
            row = replace(row, project=project)
    row = _inheriting(row, view, known, old.derived_from if old else ())
    _check_writable(row, view)
    if event.compresses:
        return [_compressing(structs.replace(event, row=row), row, view, known)], Outcome("added", row.id)
    if (twin := _twin(row, view, known)) is not None:
        return _mentioned(event, row, twin, view, known), Outcome("exact_dup", twin.id, _REPEATED)
    _leaving(event, row, view, known)
    return [*_tightening(event, row, known), event if row is event.row else structs.replace(event, row=row)], Outcome(
        "added", row.id
    )


def _mentioned(event: Event, row: Observation, twin: Observation, view: View, known: PriorState) -> list[Event]:
    """Return the events for a `row` that repeats `twin`, ordered so that a kill in between does no harm."""
    supersedes, forgets = (each if each != twin.id else None for each in (event.supersedes, event.forgets))
    leaving = _leaving(structs.replace(event, supersedes=supersedes, forgets=forgets), twin, view, known)
    mention = structs.replace(_alone(event, "mention", twin.id), fields=_merge(twin, row))
    if is_own(twin) and not is_own(row):  # a person's row is not confirmed when others repeat it
        mention = structs.replace(mention, kind="update")
    kept = [mention] if mention.kind == "mention" or mention.fields else []
    return [*_tightening(event, applied(twin, mention), known, twin), *leaving, *kept]


def _leaving(event: Event, row: Observation, view: View, known: PriorState) -> list[Event]:
    """Return the events by which `row` replaces others, if it may."""
    kept = []
    if event.supersedes is not None:
        old = _visible(event.supersedes, view, known)
        _check_replaced(old, view)
        kept.append(_superseding(event, old, row, known))
    if event.forgets is not None:
        old = _visible(event.forgets, view, known)
        _check_change(old, view)
        if old.status == "deleted":
            raise ConflictingChange(f"{old.id} was forgotten already")
        kept.append(_alone(event, "delete", old.id))
    return kept


def _alone(event: Event, kind: Kind, observation_id: str) -> Event:
    """Return one of the events that an added row implies."""
    return structs.replace(event, kind=kind, ids=(observation_id,), row=None, supersedes=None, forgets=None, fields={})


def _update(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    old = _visible(event.ids[0], view, known)
    _check_change(old, view)
    if old.status == "deleted" and event.fields.keys() != {"project"}:
        raise ConflictingChange(f"{old.id} was forgotten: restore it first")
    if fixed := _FIXED & event.fields.keys():
        raise InvalidValue(f"{', '.join(sorted(fixed))} cannot be changed")
    wanted = dict(event.fields)
    if isinstance(wanted.get("derived_from"), list | tuple):
        hidden = [each for each in old.derived_from if _seen(each, view, known) is None]
        named = wanted["derived_from"]
        wanted["derived_from"] = [
            *named,
            *(each for each in hidden if each not in named),
        ]  # sources that the caller may not see stay
    if isinstance(wanted.get("metadata"), Mapping):
        merged = {**old.metadata, **wanted["metadata"]}
        wanted["metadata"] = {key: value for key, value in merged.items() if value is not None}
    try:
        new = _inheriting(changed(old, wanted), view, known, old.derived_from)
    except NothingSaid:
        raise ConflictingChange("this would leave the memory empty; use `forget`") from None
    if any(known.observation(each) is None for each in old.derived_from):
        new = replace(new, **strictest([new, old])._asdict())  # an erased row has no guard to compare with
    if not set(old.derived_from) <= set(new.derived_from):
        raise InvalidValue("sources of a memory can be added, not removed")
    _check_writable(new, view)
    _check_update(old, new, view)
    if new.assistant_text and not old.assistant_text and (twin := _twin(new, view, known)) is not None:
        added = structs.replace(event, row=new, fields={})
        return _mentioned(added, new, twin, view, known), Outcome("exact_dup", twin.id, _REPEATED)
    before, after = old.as_json(), new.as_json()
    derived = {"hash", "token_count"} - wanted.keys()
    different = {
        name: after.get(name, WRITTEN_DEFAULTS[name])
        for name in before.keys() | after.keys()
        if name not in derived and before.get(name) != after.get(name)
    }
    if not different:
        return [], Outcome("skipped", old.id, "nothing changed")
    kept = structs.replace(event, fields=dict(sorted(different.items())))
    return [*_tightening(event, new, known, old), kept], Outcome("updated", old.id)


def _check_update(old: Observation, new: Observation, view: View) -> None:
    _check_line(new, view)
    if new.user_text != old.user_text:
        check_may(view, "chat", old)
    if not is_stricter(new, old):
        check_may(view, "declassify", old)


def _supersede(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    new = _visible(event.by, view, known)
    old = _visible(event.ids[0], view, known)
    _check_replaced(old, view)
    kept = _superseding(event, old, new, known)
    return [kept], Outcome("updated", event.ids[0])


def _compress(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    summary = _visible(event.by, view, known)
    rows = [row for row in _each_visible(event.ids, view, known) if row.is_current(view.now) and row.id != summary.id]
    if any(row.id not in summary.derived_from for row in rows):
        raise ConflictingChange(f"{summary.id} does not name all of its sources")
    _check_each(rows, view)
    return _kept(event, [row.id for row in rows], "updated")


def _compressing(event: Event, row: Observation, view: View, known: PriorState) -> Event:
    """Return the event by which `row` replaces others as their summary, if it may: all exist, with equal guards."""
    rows = _each_visible(event.compresses, view, known)
    if len(rows) != len(set(event.compresses)) or not all(each.is_current(view.now) for each in rows):
        raise ConflictingChange(f"not all sources of {row.id} are active")
    if not {each.id for each in rows} <= set(row.derived_from):
        raise ConflictingChange(f"{row.id} does not name all of its sources")
    if {_kin(each) for each in rows} != {_kin(row)}:
        raise ConflictingChange(
            f"{row.id} summarizes memories of several agents or principals, or of other visibility than its own"
        )
    _check_each(rows, view)
    if event.supersedes is not None or _twin(row, view, known) is not None:
        raise ConflictingChange(f"{row.id} repeats or supersedes a memory")
    return structs.replace(event, compresses=tuple(each.id for each in rows))


def _consolidate(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    check_may(view, "curate")
    rate = event.fields.get("decay_per_day", 0)
    check_rate(rate)
    new = {
        row.id: list(settled)
        for row in _each_state(event.ids, view, known)
        if row.is_current(view.now) and (settled := known.settled(row.id, event.at, rate)) is not None
    }
    if not new:
        return [], Outcome("skipped", event.ids[0], "nothing changed")
    return [structs.replace(event, ids=tuple(new), fields=new)], Outcome("updated", next(iter(new)))


def _set_status(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    allowed: Callable[[RowState], bool] = {
        "delete": lambda row: row.status != "deleted",
        "restore": lambda row: not row.is_current(view.now),
    }.get(event.kind, lambda row: row.status == "active")
    states = _each_state(event.ids, view, known)
    _check_each_state(states, view, known)
    rows = [row.id for row in states if allowed(row)]
    return _kept(event, rows, "deleted" if event.kind == "delete" else "updated")


def _count(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    states = _each_state(event.ids, view, known)
    if event.kind == "use":
        check_may(view, "read")
    else:
        _check_each_state(states, view, known)
    rows = [row.id for row in states if row.is_current(view.now)]
    return _kept(event, rows, "updated")


def _triple(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    triple = event.triple
    if triple is None:
        raise InvalidValue("event: missing fact")
    _check_new(triple, view)
    before = known.triple(triple.id)
    free = {} if before is None else {name: getattr(before, name) for name in ("count", "confidence", "project")}
    if before is not None and replace(triple, **free) != before:
        raise ConflictingChange(f"fact {triple.id} already exists")
    if triple.source is not None:
        source = _visible(triple.source, view, known)
        if source.namespace != triple.namespace:
            raise ConflictingChange(f"{triple.id} comes from a memory of another namespace")
        triple = replace(as_strict_as(triple, Guard.of(source)), project="")
    _check_writable(triple, view)
    return [structs.replace(event, triple=triple)], Outcome("added", triple.id)


def _retract(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    found = [known.triple(each) for each in event.ids]
    seen = [triple for triple in found if triple is not None and may_name(triple, view, known)]
    if not seen:
        raise UnknownObservation(f"no fact has the id {', '.join(event.ids)}")
    _check_each(seen, view)
    return _kept(event, [triple.id for triple in seen], "deleted")


def _never(event: Event, _view: View, _known: PriorState) -> tuple[list[Event], Outcome]:
    raise InvalidValue(f"event {event.kind!r} is reserved for stores")


_DECISIONS: dict[str, Callable[[Event, View, PriorState], tuple[list[Event], Outcome]]] = {
    "add": _add,
    "update": _update,
    "tighten": _never,
    "mention": _count,
    "use": _count,
    "confirm": _count,
    "supersede": _supersede,
    "compress": _compress,
    "consolidate": _consolidate,
    "expire": _set_status,
    "archive": _set_status,
    "delete": _set_status,
    "restore": _set_status,
    "triple": _triple,
    "retract": _retract,
    "counts": _never,
    "purge": _never,
}


def _kept(event: Event, ids: list[str], kind: Literal["updated", "deleted"]) -> tuple[list[Event], Outcome]:
    if not ids:
        return [], Outcome("skipped", event.ids[0] if event.ids else "", f"nothing to {event.kind}")
    return [structs.replace(event, ids=tuple(ids), fields={})], Outcome(kind, ids[0])


def _visible(observation_id: str | None, view: View, known: PriorState) -> Observation:
    row = _seen(observation_id, view, known) if observation_id else None
    if row is None:
        raise UnknownObservation(f"no memory has the id {observation_id}")
    return row


def _each_visible(ids: Iterable[str], view: View, known: PriorState) -> list[Observation]:
    states = _each_state(ids, view, known)
    return [row for state in states if (row := known.observation(state.id)) is not None]


def _each_state(ids: Iterable[str], view: View, known: PriorState) -> list[RowState]:
    everything = view.asking_all()
    found = [known.state(each) for each in dict.fromkeys(ids)]
    seen = [state for state in found if state is not None and may_see(state.guard, everything)]
    if not seen:
        raise UnknownObservation.of(ids)
    return seen


def _seen(observation_id: str, view: View, known: PriorState) -> Observation | None:
    """Return a visible row. A hidden one is not read, so that it takes no longer than a missing one."""
    state = known.state(observation_id)
    return known.observation(observation_id) if state is not None and may_see(state.guard, view.asking_all()) else None


def _check_writable(row: Observation | Triple, view: View) -> None:
    if not may_write(row, view):
        if not is_within(row.project, view.project):
            inside = project_words(view.project)
            raise AccessDenied(f"a caller in {inside} may not write in the project {row.project!r}")
        where = f"{row.visibility} and {row.sensitivity}" + (f" in {row.namespace!r}" if row.namespace else "")
        raise AccessDenied(f"a caller of {view.clearance} clearance may not write what is {where}")


def _check_new(row: Observation | Triple, view: View) -> None:
    """Refuse a row in the name of another principal, unless the caller may change that principal's rows."""
    check_may(view, "write")
    _check_change(row, view)


def _check_change(row: Observation | Triple, view: View) -> None:
    check_may(view, "write", row)
    _check_line(row, view)


def _check_line(row: Observation | Triple, view: View) -> None:
    """Refuse a change of a line of a profile by a caller that may not speak for its person, such as a tool."""
    if isinstance(row, Observation) and is_line(row) and not may(view, "chat", row):
        raise MissingRight("the right 'chat' is needed to change a line of a profile: propose a value instead")


def _check_replaced(old: Observation, view: View) -> None:
    """Refuse to replace what a person said, unless the caller may speak for that person."""
    _check_change(old, view)
    if old.user_text and not may(view, "chat", old):
        raise MissingRight("the right 'chat' is needed to replace what a person said: remember what is new instead")


def _check_each(rows: Iterable[Observation | Triple], view: View) -> None:
    for row in rows:
        _check_change(row, view)


def _check_each_state(states: Iterable[RowState], view: View, known: PriorState) -> None:
    """Check the principals of rows, which are read only if the caller lacks the right `curate`."""
    if not {"write", "chat", "curate"} <= view.rights:
        _check_each([row for state in states if (row := known.observation(state.id)) is not None], view)


def _twin(row: Observation, view: View, known: PriorState) -> Observation | None:
    """Return the twin, unless it is another principal's, of another project, or a profile's line that a tool repeats.

    Repeating a row must not change it for others.
    """
    twin = known.twin(row, structs.replace(view, project=row.project) if row.project else view)
    if twin is None or twin.principal != row.principal:
        return None
    return twin if not is_line(twin) or may(view, "chat", twin) else None


def _kin(row: Observation) -> tuple[object, ...]:
    """Return the properties that rows must share to be merged."""
    return (row.agent_id, row.principal, Guard.of(row))


def _inheriting(row: Observation, view: View, known: PriorState, before: Collection[str] = ()) -> Observation:
    """Return the row, at least as strict as its sources, which must exist and be visible to the caller.

    A hidden, erased or unknown source gives the same error. Sources in `before` were checked earlier.
    """
    for each in row.derived_from:
        if each not in before:
            _visible(each, view, known)
    sources = [source for each in row.derived_from if (source := known.observation(each)) is not None]
    if any(source.namespace != row.namespace for source in sources):
        raise ConflictingChange(f"{row.id} is derived from memories of another namespace")
    guard = strictest([row, *sources])
    return row if guard == Guard.of(row) else replace(row, **guard._asdict())


def _tightening(event: Event, row: Observation, known: PriorState, before: Observation | None = None) -> list[Event]:
    """Return the event that makes all rows derived from `row` at least as strict as it is now.

    It is written before `row`, so that a kill in between leaves no row too loose.
    """
    if before is not None and Guard.of(row) == Guard.of(before):
        return []
    derived = filter(None, map(known.observation, made_from([row.id], known.derived_from)))
    ids = tuple(each.id for each in derived if not is_stricter(each, row))
    if not ids:
        return []
    fields = {name: getattr(row, name) for name in GUARDED}
    return [Event(kind="tighten", at=event.at, ids=ids, fields=fields, who=event.who, why=f"as strict as {row.id}")]


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


def erased_by(
    ids: Collection[str], view: View, known: PriorState, facts: Mapping[str, Triple], *, alone: bool
) -> tuple[list[str], list[str], list[str]]:
    """Return what purging `ids` erases: all rows, those of them that the caller may see, and facts.

    Rows derived from these go too, unless `alone`. `facts` are all facts by id. Raises `UnknownObservation` for none.
    """
    everything, ids = view.asking_all(), list(dict.fromkeys(ids))
    asked = [each for each in ids if _is_seen_or_behind(each, everything, known)]
    stated = [each for each in ids if each in facts and may_name(facts[each], view, known)]
    there = [each for each in asked if known.state(each) is not None]
    gone = there if alone else there + made_from(asked, known.derived_from)
    if not gone and not stated:
        raise UnknownObservation.of(ids)
    check_expected(there, everything, known)
    return gone, [each for each in gone if _is_seen(each, everything, known)], stated


def _is_seen_or_behind(observation_id: str, view: View, known: PriorState) -> bool:
    """Return whether the caller may see the row or, if it was erased, a row derived from it."""
    asked = [observation_id] if known.state(observation_id) is not None else known.derived_from(observation_id)
    return any(_is_seen(each, view, known) for each in asked)


def _is_seen(observation_id: str, view: View, known: PriorState) -> bool:
    return (state := known.state(observation_id)) is not None and may_see(state.guard, view)


def _superseding(event: Event, old: Observation, new: Observation, known: PriorState) -> Event:
    """Return the event by which `new` replaces `old`, if it may."""
    if old.id == new.id:
        raise ConflictingChange(f"{old.id} cannot supersede itself")
    if not old.is_current(event.at):
        raise ConflictingChange(f"{old.id} is {old.status if old.status != 'active' else 'expired'}, not active")
    if not new.is_current(event.at):
        raise ConflictingChange(f"{new.id} is {new.status if new.status != 'active' else 'expired'}, not active")
    if (old.visibility, old.namespace) != (new.visibility, new.namespace):
        raise ConflictingChange(f"{new.id} is {new.visibility} and {old.id} is {old.visibility}: they must be alike")
    if not is_within(new.project, old.project):
        raise ConflictingChange(f"{new.id} is of the project {new.project!r}, and {old.id} is not")
    if conflict := metadata_conflict(old, new):
        raise ConflictingChange(f"the metadata of {new.id} and {old.id} differ in {conflict!r}")
    if old.id in _line_after(new, known):
        raise ConflictingChange(f"{old.id} supersedes {new.id} already")
    return structs.replace(_alone(event, "supersede", old.id), by=new.id)


def as_strict_as(triple: Triple, source: Guard) -> Triple:
    """Return the fact, at least as strict as its source is now, and in its project."""
    guard = strictest([triple, source._replace(namespace=triple.namespace)])._replace(project=source.project)
    return triple if guard == Guard.of(triple) else replace(triple, **guard._asdict())


def may_name(triple: Triple, view: View, known: PriorState) -> bool:
    """Return whether the caller may know of this fact: they may see it and its source."""
    source = known.state(triple.source) if triple.source else None
    everything = view.asking_all()
    return may_see(triple, everything) and (source is None or may_see(source.guard, everything))


def implied(event: Event) -> list[Event]:
    """Return the events that come with an event: an added row replaces another one, or several.

    A purge of the row keeps them: the rows that it replaced do not come back.
    """
    if event.row is None and event.kind != "purge":
        return []
    along: list[tuple[Kind, tuple[str, ...]]] = [("compress", event.compresses)]
    if event.supersedes is not None:
        along.append(("supersede", (event.supersedes,)))
    if event.forgets is not None:
        along.append(("delete", (event.forgets,)))
    by, who, why = event.row.id if event.row else event.ids[0], event.who, event.why
    return [Event(kind=kind, at=event.at, ids=ids, by=by, who=who, why=why) for kind, ids in along if ids]


def strength_in(event: Event, observation_id: str) -> tuple[float, datetime, int]:
    """Return a row's strength in a consolidation event, its time, and the touches it counts.

    Raises `InvalidValue` for impossible values.
    """
    match event.fields.get(observation_id):
        case [int() | float() as strength, int() as touches] if (
            0 <= strength <= 1 and -MOST_COUNTED < touches < MOST_COUNTED
        ):
            return (float(strength), event.at, touches)
    raise InvalidValue(f"event {event.kind!r}: missing strength of {observation_id}")


def line_of(
    start: str,
    after: Callable[[str], str | None],
    before: Callable[[str], Iterable[str]],
    is_seen: Callable[[str], bool],
) -> list[str]:
    """Return the line of succession through `start`, oldest first: the rows that it replaced, and that replaced it.

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


def metadata_conflict(old: Observation, new: Observation) -> str | None:
    """Return the first key that both have with different values; None if there is none."""
    shared = sorted((old.metadata.keys() & new.metadata.keys()) - {HELD})
    return next((key for key in shared if old.metadata[key] != new.metadata[key]), None)


def _line_after(row: Observation, known: PriorState) -> set[str]:
    seen: set[str] = set()
    after: Observation | None = row
    while after is not None and after.id not in seen:
        seen.add(after.id)
        after = known.observation(after.superseded_by) if after.superseded_by else None
    return seen


def _merge(twin: Observation, row: Observation) -> dict[str, Any]:
    """Return the fields of `twin` that change on a mention: labels are added, and the stricter guard holds."""
    fields: dict[str, Any] = {}
    for name in _MERGED:
        old = getattr(twin, name)
        if new := [item for item in getattr(row, name) if item not in old]:
            fields[name] = [*old, *new]
    if row.importance > max(twin.importance, WRITTEN_DEFAULTS["importance"]):
        fields["importance"] = row.importance
    guard, before = strictest([twin, row]), Guard.of(twin)
    if guard.sensitivity != before.sensitivity:
        fields["sensitivity"] = guard.sensitivity
    if guard.min_clearance != before.min_clearance:
        fields["min_clearance"] = guard.min_clearance
    return fields


def _check_whole(event: Event) -> None:
    needs = {"add": event.row, "triple": event.triple, "supersede": event.by, "compress": event.by}
    if event.kind in needs and needs[event.kind] is None:
        field = {"add": "row", "triple": "triple"}.get(event.kind, "by")
        raise InvalidValue(f"event {event.kind!r}: missing field {field!r}")
    if event.kind not in {"add", "triple"} and not event.ids:
        raise InvalidValue(f"event {event.kind!r}: missing ids")
