"""Decision about a requested event: the events to write, if no one else has written since, and the outcome. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from msgspec import structs

from chatbot.stores import access, errors, observation, row_events
from chatbot.stores.access import Guard, View
from chatbot.stores.fields import MERGED, names_with
from chatbot.stores.observation import FIELDS, GUARDED, WRITTEN_DEFAULTS, NothingSaid, Observation, RowState, Triple
from chatbot.stores.query import status_now
from chatbot.stores.records import check_text, check_time
from chatbot.stores.row_events import Event, Kind, Outcome, PriorState

_REPEATED = "the same was remembered before: new tags, people and files are added to it, other fields stay"
_UNSHOWN = frozenset({"use", "consolidate", "triple", "retract"})
"""Events whose outcome has no row, because they create no version."""
_MERGED = names_with(FIELDS, MERGED)


def decide(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    """Return the events to write for the requested one, and its outcome. Never raises for a refused change."""
    named = event.row.id if event.row else ""
    try:
        _check_asked(event)
        named = event.ids[0] if event.ids else named
        row_events.check_expected([*event.ids, *filter(None, (event.supersedes, event.forgets))], view, known)
        if event.kind not in _DECISIONS:
            raise errors.InvalidValue(f"event {event.kind!r} is reserved for stores")
        kept, outcome = _DECISIONS[event.kind](event, view, known)
        return kept, outcome if event.kind in _UNSHOWN or len(event.ids) > 1 else _with_row(outcome, kept, known)
    except errors.StoreError as error:
        return [], Outcome("skipped", named, str(error), error)


def _with_row(outcome: Outcome, kept: Iterable[Event], known: PriorState) -> Outcome:
    row = known.observation(outcome.id)
    for event in kept:
        if event.row is not None:
            row = event.row
        elif row is not None and row.id in event.ids:
            row = row_events.apply(row, event)
    return replace(outcome, row=row)


def _check_asked(event: Event) -> None:
    """Refuse an event that could not be written, before it fails others in the same commit."""
    check_time(event.at)
    check_text(event.who, "who")
    check_text(event.why, "why")
    for each in (*event.ids, *event.compresses, event.by or "", event.supersedes or "", event.forgets or ""):
        if not isinstance(each, str):
            raise errors.InvalidValue(f"{each!r:.80} is not an id")
    if not event.ids and event.kind not in {"add", "triple"}:
        raise errors.UnknownObservation("no memory was named")


def _add(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    row = event.row
    if row is None:
        raise errors.InvalidValue("nothing to add")
    if known.observation(row.id) is not None:
        raise errors.ConflictingChange(f"memory {row.id} already exists")
    _check_new(row, view)
    old = row_events.seen_row(event.supersedes, view, known) if event.supersedes else None
    replaced = old or (row_events.seen_row(event.forgets, view, known) if event.forgets else None)
    # Outside of the caller's project, the writer has named one.
    if replaced is not None and access.is_within(row.project, view.project or ""):
        row = replace(row, project=replaced.project)
    if not row.project:  # a row derived from a project's memories belongs to it
        sources = filter(None, map(known.observation, row.derived_from))
        if project := next((source.project for source in sources if source.project), ""):
            row = replace(row, project=project)
    row = _inherit_guards(row, view, known, old.derived_from if old else ())
    _check_writable(row, view)
    if event.compresses:
        return [_compress_event(structs.replace(event, row=row), row, view, known)], Outcome("added", row.id)
    if (twin := _twin(row, view, known)) is not None:
        return _mention_events(event, row, twin, view, known), Outcome("exact_dup", twin.id, _REPEATED)
    _replacement_events(event, row, view, known)  # only raises: the added event implies them
    added = event if row is event.row else structs.replace(event, row=row)
    return [*_tightening_events(event, row, known), added], Outcome("added", row.id)


def _mention_events(event: Event, row: Observation, twin: Observation, view: View, known: PriorState) -> list[Event]:
    """Return the events for a `row` that repeats `twin`, ordered so that a kill in between does no harm."""
    supersedes, forgets = (each if each != twin.id else None for each in (event.supersedes, event.forgets))
    replacing = _replacement_events(structs.replace(event, supersedes=supersedes, forgets=forgets), twin, view, known)
    mention = structs.replace(_implied_event(event, "mention", twin.id), fields=_merge(twin, row))
    if observation.is_own(twin) and not observation.is_own(row):  # others do not confirm a person's row by repeating it
        mention = structs.replace(mention, kind="update")
    kept = [mention] if mention.kind == "mention" or mention.fields else []
    return [*_tightening_events(event, row_events.apply(twin, mention), known, twin), *replacing, *kept]


def _replacement_events(event: Event, row: Observation, view: View, known: PriorState) -> list[Event]:
    """Return the events that let `row` replace others. Raises a `StoreError` if it may not."""
    kept = []
    if event.supersedes is not None:
        old = row_events.visible_row(event.supersedes, view, known)
        _check_replaced(old, view)
        kept.append(_supersession_event(event, old, row, known))
    if event.forgets is not None:
        old = row_events.visible_row(event.forgets, view, known)
        _check_change(old, view)
        if old.status == "deleted":
            raise errors.ConflictingChange(f"{old.id} was forgotten already")
        kept.append(_implied_event(event, "delete", old.id))
    return kept


def _implied_event(event: Event, kind: Kind, observation_id: str) -> Event:
    return structs.replace(event, kind=kind, ids=(observation_id,), row=None, supersedes=None, forgets=None, fields={})


def _update(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    old = row_events.visible_row(event.ids[0], view, known)
    _check_change(old, view)
    if old.status == "deleted" and not event.fields.keys() <= {"project", "sensitivity"}:  # a session sets these
        raise errors.ConflictingChange(f"{old.id} was forgotten: restore it first")
    row_events.check_fields(event)
    wanted = dict(event.fields)
    if isinstance(named := wanted.get("derived_from"), list | tuple):  # sources that the caller may not see stay
        hidden = [
            each for each in old.derived_from if row_events.seen_row(each, view, known) is None and each not in named
        ]
        wanted["derived_from"] = [*named, *hidden]
    if isinstance(wanted.get("metadata"), Mapping):
        merged = {**old.metadata, **wanted["metadata"]}
        wanted["metadata"] = {key: value for key, value in merged.items() if value is not None}
    try:
        new = _inherit_guards(observation.with_fields(old, wanted), view, known, old.derived_from)
    except NothingSaid:
        raise errors.ConflictingChange("this would leave the memory empty; use `forget`") from None
    if any(known.observation(each) is None for each in old.derived_from):
        new = replace(new, **access.strictest([new, old])._asdict())  # the guard of an erased source is unknown
    _check_sources(old, new, known)
    _check_writable(new, view)
    _check_update(old, new, view)
    if new.assistant_text and not old.assistant_text and (twin := _twin(new, view, known)) is not None:
        kept = [*_mention_events(event, new, twin, view, known), *_hiding_events(event, new, old, twin, known)]
        return kept, Outcome("exact_dup", twin.id, _REPEATED)
    before, after = old.as_json(), new.as_json()
    derived = {"hash", "token_count"} - wanted.keys()
    different = {
        name: after.get(name, WRITTEN_DEFAULTS[name])
        for name in before.keys() | after.keys()
        if name not in derived and before.get(name) != after.get(name)
    }
    if not different:
        return [], Outcome("skipped", old.id, "nothing changed")
    update = structs.replace(event, fields=dict(sorted(different.items())))
    return [*_tightening_events(event, new, known, old), update], Outcome("updated", old.id)


def _check_sources(old: Observation, new: Observation, known: PriorState) -> None:
    if not set(old.derived_from) <= set(new.derived_from):
        raise errors.InvalidValue("sources of a memory can be added, not removed")
    added = set(new.derived_from).difference(old.derived_from)
    if added and not added.isdisjoint([old.id, *row_events.made_from([old.id], known.derived_from)]):
        raise errors.ConflictingChange(f"{old.id} cannot be derived from itself: it could never be declassified")


def _hiding_events(
    event: Event, new: Observation, old: Observation, twin: Observation, known: PriorState
) -> list[Event]:
    """Return the events that hide `old`, whose new version repeats `twin`, and have it erased with `twin`."""
    guard = access.strictest([new, old, twin])
    strict: dict[str, Any] = {"sensitivity": guard.sensitivity, "min_clearance": guard.min_clearance}
    derive = structs.replace(event, fields={"derived_from": [*old.derived_from, twin.id], **strict})
    hide = structs.replace(_implied_event(event, "delete", old.id), why=_REPEATED)
    return [*_tightening_events(event, row_events.apply(old, derive), known, old), derive, hide]


def _check_update(old: Observation, new: Observation, view: View) -> None:
    _check_line(new, view)
    if new.user_text != old.user_text:
        access.check_may(view, "chat", old)
    if not access.is_as_strict(new, old):
        access.check_may(view, "declassify", old)


def _supersede(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    new = row_events.visible_row(event.by, view, known)
    old = row_events.visible_row(event.ids[0], view, known)
    _check_replaced(old, view)
    return [_supersession_event(event, old, new, known)], Outcome("updated", event.ids[0])


def _compress_event(event: Event, row: Observation, view: View, known: PriorState) -> Event:
    """Return the event that replaces active rows by their summary `row`; all have its agent, principal and guard."""
    states = row_events.each_state(event.compresses, view, known)
    rows = [each for state in states if (each := known.observation(state.id)) is not None]
    if len(rows) != len(set(event.compresses)) or not all(each.is_current(view.now) for each in rows):
        raise errors.ConflictingChange(f"not all sources of {row.id} are active")
    if not {each.id for each in rows} <= set(row.derived_from):
        raise errors.ConflictingChange(f"{row.id} does not name all of its sources")
    if {_merge_key(each) for each in rows} != {_merge_key(row)}:
        raise errors.ConflictingChange(f"{row.id} and its sources differ in agent, principal or access")
    _check_each(rows, view)
    if event.supersedes is not None or _twin(row, view, known) is not None:
        raise errors.ConflictingChange(f"{row.id} repeats or supersedes a memory")
    return structs.replace(event, compresses=tuple(each.id for each in rows))


def _consolidate(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    access.check_may(view, "curate")
    rate = event.fields.get("decay_per_day", 0)
    observation.check_rate(rate)
    new = {
        row.id: list(settled)
        for row in row_events.each_state(event.ids, view, known)
        if row.is_current(view.now) and (settled := known.next_strength(row.id, event.at, rate)) is not None
    }
    if not new:
        return [], Outcome("skipped", event.ids[0], "nothing changed")
    return [structs.replace(event, ids=tuple(new), fields=new)], Outcome("updated", next(iter(new)))


def _set_status(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    allowed: Callable[[RowState], bool] = {
        "delete": lambda row: row.status != "deleted",
        "restore": lambda row: not row.is_current(view.now),
    }.get(event.kind, lambda row: row.status == "active")
    states = row_events.each_state(event.ids, view, known)
    _check_each_state(states, view, known)
    rows = [row.id for row in states if allowed(row)]
    return _narrow_event(event, rows, "deleted" if event.kind == "delete" else "updated")


def _count(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    states = row_events.each_state(event.ids, view, known)
    if event.kind == "use":
        access.check_may(view, "read")
    else:
        _check_each_state(states, view, known)
    rows = [row.id for row in states if row.is_current(view.now)]
    return _narrow_event(event, rows, "updated")


def _triple(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    triple = event.triple
    if triple is None:
        raise errors.InvalidValue("event: missing fact")
    _check_new(triple, view)
    if (before := known.triple(triple.id)) is not None:
        own = GUARDED if triple.source is not None else ("sensitivity",)  # it is read as strict as its source is now
        free = {name: getattr(before, name) for name in ("count", "confidence", "project", *own)}
        if replace(triple, **free) != before:
            raise errors.ConflictingChange(f"fact {triple.id} already exists")
        if not access.is_as_strict(triple, before):
            access.check_may(view, "declassify", before)
    if triple.source is not None:
        source = row_events.visible_row(triple.source, view, known)
        if source.namespace != triple.namespace:
            raise errors.ConflictingChange("a fact cannot come from a memory of another namespace")
        triple = replace(row_events.as_strict_as(triple, Guard.of(source)), project="")
    _check_writable(triple, view)
    return [structs.replace(event, triple=triple)], Outcome("added", triple.id)


def _retract(event: Event, view: View, known: PriorState) -> tuple[list[Event], Outcome]:
    found = [known.triple(each) for each in event.ids]
    seen = [triple for triple in found if triple is not None and row_events.may_name(triple, view, known)]
    if not seen:
        raise errors.UnknownObservation.of(event.ids, "fact")
    _check_each(seen, view)
    return _narrow_event(event, [triple.id for triple in seen], "deleted")


_DECISIONS: dict[str, Callable[[Event, View, PriorState], tuple[list[Event], Outcome]]] = {
    "add": _add,
    "update": _update,
    "mention": _count,
    "use": _count,
    "confirm": _count,
    "supersede": _supersede,
    "consolidate": _consolidate,
    "archive": _set_status,
    "delete": _set_status,
    "restore": _set_status,
    "triple": _triple,
    "retract": _retract,
}
"""Decisions by kind of event; all other kinds are reserved for stores."""


def _narrow_event(event: Event, ids: list[str], kind: Literal["updated", "deleted"]) -> tuple[list[Event], Outcome]:
    if not ids:
        return [], Outcome("skipped", event.ids[0] if event.ids else "", f"nothing to {event.kind}")
    return [structs.replace(event, ids=tuple(ids), fields={})], Outcome(kind, ids[0])


def _check_writable(row: Observation | Triple, view: View) -> None:
    if not access.may_write(row, view):
        if not access.is_within(row.project, view.project):
            inside = access.project_words(view.project)
            raise errors.AccessDenied(f"a caller in {inside} may not write in the project {row.project!r}: name none")
        where = f"{row.visibility} and {row.sensitivity}" + (f" in {row.namespace!r}" if row.namespace else "")
        raise errors.AccessDenied(f"a caller of {view.clearance} clearance may not write what is {where}")


def _check_new(row: Observation | Triple, view: View) -> None:
    """Refuse a row in the name of another principal, unless the caller may change that principal's rows."""
    access.check_may(view, "write")
    _check_change(row, view)


def _check_change(row: Observation | Triple, view: View) -> None:
    access.check_may(view, "write", row)
    _check_line(row, view)


def _check_line(row: Observation | Triple, view: View) -> None:
    """Refuse a change of a profile line by a caller without the right `chat` for it, such as a tool."""
    if isinstance(row, Observation) and observation.is_line(row) and not access.may(view, "chat", row):
        raise errors.MissingRight("the right 'chat' is needed to change a line of a profile: propose a value instead")


def _check_replaced(old: Observation, view: View) -> None:
    """Refuse to replace what a person said, unless the caller may speak for that person."""
    _check_change(old, view)
    if old.user_text and not access.may(view, "chat", old):
        raise errors.MissingRight(
            "the right 'chat' is needed to replace what a person said: remember what is new instead"
        )


def _check_each(rows: Iterable[Observation | Triple], view: View) -> None:
    for row in rows:
        _check_change(row, view)


def _check_each_state(states: Iterable[RowState], view: View, known: PriorState) -> None:
    """Refuse to change rows of others; the rows are not read if the caller's rights suffice for all of them."""
    if not {"write", "chat", "curate"} <= view.rights:
        _check_each([row for state in states if (row := known.observation(state.id)) is not None], view)


def _twin(row: Observation, view: View, known: PriorState) -> Observation | None:
    """Return another row with the same content, which a repetition of it may change.

    None if it is of another principal or project, or a profile line that a tool repeats.
    """
    is_anywhere = row.type == "task" and not row.project  # a task that is added again keeps its project
    twin = known.twin(row, view if is_anywhere else structs.replace(view, project=row.project))
    if twin is None or twin.id == row.id or twin.principal != row.principal:
        return None
    return twin if not observation.is_line(twin) or access.may(view, "chat", twin) else None


def _merge_key(row: Observation) -> tuple[object, ...]:
    return (row.agent_id, row.principal, Guard.of(row))


def _inherit_guards(row: Observation, view: View, known: PriorState, before: Collection[str] = ()) -> Observation:
    """Return the row, at least as strict as its sources, which must exist and be visible to the caller.

    A hidden, erased or unknown source gives the same error. Sources in `before` were checked earlier.
    """
    for each in row.derived_from:
        if each not in before:
            row_events.visible_row(each, view, known)
    sources = [source for each in row.derived_from if (source := known.observation(each)) is not None]
    if any(source.namespace != row.namespace for source in sources):
        raise errors.ConflictingChange("a memory cannot be derived from memories of another namespace")
    guard = access.strictest([row, *sources])
    return row if guard == Guard.of(row) else replace(row, **guard._asdict())


def _tightening_events(
    event: Event, row: Observation, known: PriorState, before: Observation | None = None
) -> list[Event]:
    """Return the events that make all rows derived from `row` at least as strict as it is now.

    They are written before `row`, so that a kill in between leaves no row less strict than its source.
    """
    if before is not None and Guard.of(row) == Guard.of(before):
        return []
    derived = filter(None, map(known.observation, row_events.made_from([row.id], known.derived_from)))
    guards: defaultdict[Guard, list[str]] = defaultdict(list)
    for each in derived:
        if not access.is_as_strict(each, row):
            guards[access.strictest([each, row])].append(each.id)
    tighten = Event(kind="tighten", at=event.at, who=event.who, why=f"as strict as {row.id}")
    return [
        structs.replace(tighten, ids=tuple(ids), fields={name: getattr(guard, name) for name in GUARDED})
        for guard, ids in guards.items()
    ]


def _supersession_event(event: Event, old: Observation, new: Observation, known: PriorState) -> Event:
    """Return the event that lets `new` replace `old`. Raises `ConflictingChange` if it may not."""
    if old.id == new.id:
        raise errors.ConflictingChange(f"{old.id} cannot supersede itself: name another memory, which is true now")
    for row in (old, new):
        if not row.is_current(event.at):
            raise errors.ConflictingChange(f"{row.id} is {status_now(row, event.at)}, not active")
    name = "the new memory" if known.observation(new.id) is None else new.id
    if (old.visibility, old.namespace) != (new.visibility, new.namespace):
        raise errors.ConflictingChange(f"{name} and {old.id} must have the same visibility and namespace")
    if not access.is_within(new.project, old.project):
        raise errors.ConflictingChange(f"{name} is of the project {new.project!r}, and {old.id} is not")
    names = (old.metadata.keys() & new.metadata.keys()) - {row_events.HELD}
    differing = sorted(name for name in names if old.metadata[name] != new.metadata[name])
    if differing and observation.OWN_KEY not in names.difference(differing):  # versions under one key may differ
        raise errors.ConflictingChange(f"the metadata of {name} and {old.id} differ in {differing[0]!r}")
    chain = row_events.chain_of(new.id, lambda each: state.superseded_by if (state := known.state(each)) else None)
    if old.id in chain:
        raise errors.ConflictingChange(f"{old.id} supersedes {new.id} already")
    return structs.replace(_implied_event(event, "supersede", old.id), by=new.id)


def _merge(twin: Observation, row: Observation) -> dict[str, Any]:
    """Return the fields of `twin` that change on a mention: labels are added, and the stricter guard holds."""
    fields: dict[str, Any] = {}
    for name in _MERGED:
        old = getattr(twin, name)
        if new := [item for item in getattr(row, name) if item not in old]:
            fields[name] = [*old, *new]
    if row.importance > max(twin.importance, WRITTEN_DEFAULTS["importance"]):
        fields["importance"] = row.importance
    guard, before = access.strictest([twin, row]), Guard.of(twin)
    if guard.sensitivity != before.sensitivity:
        fields["sensitivity"] = guard.sensitivity
    if guard.min_clearance != before.min_clearance:
        fields["min_clearance"] = guard.min_clearance
    return fields
