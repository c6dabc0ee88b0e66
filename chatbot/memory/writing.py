"""Operations that change memories."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, structs

from chatbot.embedder import SURE
from chatbot.memory.inputs import list_of, sets, takes
from chatbot.memory.profile_lines import forget_derived
from chatbot.memory.scope import Scope, ScopedOperations, project_named, raise_first
from chatbot.stores import errors
from chatbot.stores.access import SENSITIVITIES, Clearance, Sensitivity, Visibility, default_visibility, is_as_strict
from chatbot.stores.fields import LONGEST_TEXT, Line, check_depth, check_key
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import GUARDED, KIND, OF_SESSION, OWN_KEY, TYPES, Content, Observation, Triple, Type
from chatbot.stores.query import EVERY, FactFilter, Filter, status_now
from chatbot.stores.records import check_time, check_type, chunks, format_time, parse_time
from chatbot.stores.row_events import Event, Kind
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.redaction import redact_all

CONCEPTS = ("how-it-works", "why-it-exists", "what-changed", "problem-solution", "gotcha", "pattern", "trade-off")
"""Kinds of knowledge by which memories can be found."""
DEFAULT_TYPE: Type = "discovery"
TASK = "task"
"""The type of a task, and the value under the metadata key `KIND` of every row that is one."""
STARTUP = "startup"
ANSWERS = "answers"
"""Metadata key of an exchange: the one whose reply asked it, by its id, or its time in the same session."""
PENDING = {"status": "pending", "scope": "collaborative", "priority": "normal", "surface": STARTUP}
_BATCH = 500
_AT_ONCE = 16
"""Drafts checked in a row before other tasks get a turn."""
_BY_HAND = frozenset({"user", "tool"})
"""Sources of rows that are checked for a warning to the user."""
_LOOKED_AT = 4_000
"""Characters of a memory that are checked for a warning."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Change(Content[list[str] | tuple[str, ...]]):
    """Fields of an observation to set to other values."""

    visibility: Visibility | None = None
    sensitivity: Sensitivity = "public"
    min_clearance: Clearance = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Change):
    """Memory to add. A title (a line of at most 1,000 characters), a narrative (any text) or a fact is required.

    `docs/embedding.md` describes each field. An unknown `type` becomes `note`. The default of `visibility`
    depends on the caller's clearance: full private, inner shared, familiar social.
    """

    title: Line = field(default="", kw_only=False)
    type: Type = DEFAULT_TYPE
    source: Line = "agent"
    created_at: datetime | None = None
    supersedes: str | None = None
    forgets: str | None = None
    """The observation that is no longer true, to be forgotten in the same step."""


class AddResult(Struct, frozen=True):
    """Result of adding a draft, and the kinds of secrets that were removed from it."""

    outcome: Literal["added", "exact_dup", "updated", "deleted", "skipped"]
    id: str
    reason: str = ""
    redacted: tuple[str, ...] = ()
    warning: str = ""


class MemoryWrites(ScopedOperations):
    """Operations that change memories. Durable on return; refused for rows that the caller may not see.

    Those on several rows change all or none: they raise `UnknownObservation` if one is missing.
    """

    @takes(Draft, "a memory has no field")
    async def remember(self, draft: Draft) -> AddResult:
        """Add a memory; the parameters are the fields of `Draft`, the title first.

        Raises `InvalidValue`, `AccessDenied`, or `ConflictingChange` if it cannot supersede the old row.
        """
        [remembered] = await self.remember_all([draft])
        if draft.source in _BY_HAND and (noticed := await _warning(self.scope, draft)):
            return structs.replace(remembered, warning="; ".join(filter(None, (remembered.warning, noticed))))
        return remembered

    async def remember_all(self, drafts: Iterable[Draft], *, keep_going: bool = False) -> list[AddResult]:
        """Add memories, in order. With `keep_going` a refused one is `skipped` with the reason."""
        scope = self.scope
        remembered: list[AddResult] = []
        for some in chunks(list(drafts), _BATCH):
            remembered += await add_drafts(scope, some, keep_going=keep_going)
        if scope.meaning is not None:
            scope.meaning.embed_soon()
        return remembered

    def prepare(self, draft: Draft) -> tuple[Observation, tuple[str, ...]]:
        """Return the row of a draft, and the kinds of secrets removed. Writes nothing. Raises `InvalidValue`."""
        row, _, redacted, _ = _make_row(self.scope, draft)
        return row, redacted

    @sets(Change, "`update` cannot set")
    async def update(self, observation_id: str, **changes: Any) -> AddResult:
        """Set fields to other values. Keys of `metadata` are set one by one; None removes a key.

        Raises `UnknownObservation`, `InvalidValue`, or `AccessDenied`. A derived row stays as strict as its sources.
        Lowering sensitivity or clearance, or widening visibility, needs the right `declassify`. If adding
        `assistant_text` makes a row the same as another, it is hidden: the outcome is `exact_dup`.
        """
        scope = self.scope
        changes, redacted = redact_all(_clean_fields(changes))
        if changes.get("type") == TASK:
            rows = await scope.store.get(scope.write_view(SENSITIVITIES), [observation_id])
            held = rows[0].metadata if rows else {}
            changes["metadata"] = _as_task({**held, **(changes.get("metadata") or {})})
        _check_expiry(changes.get("expires_at"), scope.clock())
        if isinstance(expires := changes.get("expires_at"), datetime):
            changes["expires_at"] = format_time(expires)
        event = Event(kind="update", at=scope.clock(), ids=(observation_id,), fields=changes, who=scope.agent_id)
        [outcome] = await scope.commit(event)
        if not changes.keys().isdisjoint(GUARDED):
            rows = await scope.store.get(scope.write_view(SENSITIVITIES), [observation_id], current=False)
            if loose := [fact.id for fact in await changes_of_topic(scope, rows) if not is_as_strict(fact, rows[0])]:
                scope.changed("purge", await scope.store.purge(scope.write_view(), loose))
        return AddResult(outcome.kind, outcome.id, outcome.reason, redacted, _about_concepts(changes))

    async def upsert(self, key: str, title: str = "", *, is_new: bool = False, **draft: Any) -> AddResult:
        """Keep a row under the caller's own key, replacing the former one.

        The key is in the metadata as `key`; `draft` are fields of `Draft`. A repetition counts as a mention. With
        `is_new`, raises `ConflictingChange` if there is a former one, also with concurrent writers.
        """
        scope = self.scope
        check_key(key)
        scope.caller.check("write")
        async with scope.environment.key_lock:
            return await to_its_end(self._replace(key, title, draft, is_new=is_new))

    async def _replace(self, key: str, title: str, draft: dict[str, Any], *, is_new: bool) -> AddResult:
        scope = self.scope
        wanted = Filter(metadata={OWN_KEY: key})
        found = await scope.rows(wanted, view=scope.view(SENSITIVITIES), order="updated")
        rows = [row for row in found if row.principal == scope.caller.principal]
        old = rows[0] if rows else None
        if old is None and scope.expects is not None:
            raise errors.ChangedMeanwhile(f"no memory has the key {key!r:.80}: nothing was changed")
        if old is not None and is_new:
            raise errors.ConflictingChange(f"a memory has the key {key!r:.80} already: nothing was changed")
        metadata = {**(draft.pop("metadata", None) or {}), OWN_KEY: key}
        draft["supersedes"] = old.id if old is not None else None
        given = Draft(**draft, title=title, metadata=metadata)
        [kept] = await add_drafts(scope, [given])
        place = attrgetter("agent_id", "namespace", "project", "visibility")
        for each in rows[1:]:  # a sync brings the rows that other machines kept under the key
            if each.id != kept.id and place(each) == place(rows[0]):
                await scope.change("supersede", each.id, by=kept.id)
        if (old := next((each for each in rows if each.id == kept.id), None)) is None:
            return kept
        row, _ = self.prepare(given)  # the same text, perhaps with other fields, in another case or other white space
        fields = {name: getattr(row, name) for name in {"title", "narrative", "facts", *draft} & _CHANGEABLE}
        if "derived_from" in fields:
            fields["derived_from"] = [*dict.fromkeys((*old.derived_from, *row.derived_from))]
        unset = {name: None for name in old.metadata if not name.startswith("imported_")}  # an import needs those
        fields["metadata"] = {**unset, **row.metadata}
        if row.type == TASK == old.type:  # a completed task stays completed
            fields["metadata"] |= {name: old.metadata.get(name) for name in PENDING.keys() - given.metadata.keys()}
        changed = await self.update(old.id, **fields)
        return structs.replace(kept, outcome="updated", reason="") if changed.outcome == "updated" else kept

    async def supersede(self, old: str, new: str) -> None:
        """Replace the observation `old` by `new`; `old` stays in the history.

        Raises `UnknownObservation`, or `ConflictingChange`: both must be active, of one visibility and without
        conflict in their metadata, and no cycle may arise.
        """
        await self.scope.change("supersede", old, by=new)

    async def confirm(self, *ids: str) -> None:
        """Mark observations as correct. Raises `ConflictingChange` if one is not active."""
        await self._change("confirm", ids)

    async def forget(self, *ids: str) -> None:
        """Hide observations; `restore` brings them back. Supersede what has changed instead."""
        rows = await self._change("delete", ids)
        await forget_derived(self.scope, ids)
        await self.scope.erase_quotes(rows)

    async def restore(self, *ids: str) -> None:
        """Make observations active again, whatever their status, except those purged."""
        await self._change("restore", ids)

    async def _change(self, kind: Kind, ids: Sequence[str]) -> list[Observation]:
        """Make a change of these observations, and return them as they were."""
        scope = self.scope
        rows = await scope.store.get(scope.write_view(SENSITIVITIES), ids, current=False)
        there = {row.id for row in rows}
        if missing := [each for each in ids if each not in there]:
            raise errors.UnknownObservation.of(missing)
        now = scope.clock()
        if kind == "confirm" and (resting := [row for row in rows if not row.is_current(now)]):
            raise errors.ConflictingChange(f"{resting[0].id} is {status_now(resting[0], now)}: restore it first")
        await scope.change(kind, *ids)
        return rows


async def _warning(scope: Scope, draft: Draft) -> str:
    """Return a warning if a memory reads like an order to a model."""
    from chatbot.memory.prompt_injection import injection_in  # late: only rows written by hand are checked

    text = "\n".join(filter(None, (draft.title, draft.subtitle, *draft.facts, draft.narrative)))[:_LOOKED_AT]
    [judged] = await scope.meaning.judge([text]) if scope.meaning is not None else [None]
    if injection_in([text]) is None and (judged is None or judged.orders_a_model < SURE):
        return ""
    return "this reads like an order to a model: models are shown it as data, and are told not to obey it"


async def changes_of_topic(scope: Scope, rows: Iterable[Observation]) -> list[Triple]:
    """Return the facts about changes of topic in the sessions of these rows that quote one of them."""
    words_of: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.session_id is not None:
            words_of[row.session_id].update(terms(row.text()))
    found = []
    for session, words in words_of.items():
        wanted = FactFilter(subject=f"{OF_SESSION}{session}")
        found += [
            fact
            for fact in await scope.store.facts(scope.write_view(SENSITIVITIES), wanted, limit=EVERY)
            if not words.isdisjoint(terms(fact.object.partition(" ")[2]))
        ]
    return found


async def add_drafts(scope: Scope, drafts: Sequence[Draft], *, keep_going: bool = False) -> list[AddResult]:
    """Add a batch. Without `keep_going`, an invalid draft raises before any is added, a refused one afterwards."""
    answers: list[AddResult | None] = [None] * len(drafts)
    events: dict[int, tuple[Event, tuple[str, ...], str]] = {}
    for number, draft in enumerate(drafts):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            row, replaced, redacted, warning = _make_row(scope, draft)
            event = Event(kind="add", at=row.updated_at, row=row, who=scope.agent_id, **replaced)
            events[number] = (event, redacted, warning)
        except errors.StoreError as error:
            if not keep_going:
                raise
            answers[number] = AddResult("skipped", "", str(error))
    outcomes = await scope.attempt([event for event, *_ in events.values()])
    for (number, (_, redacted, warning)), outcome in zip(events.items(), outcomes, strict=True):
        answers[number] = AddResult(outcome.kind, outcome.id, outcome.reason, redacted, warning)
    kept = [answer for answer in answers if answer is not None]
    scope.changed("remember", [answer.id for answer in kept if answer.outcome != "skipped"])
    if not keep_going:
        raise_first(outcomes)
    return kept


def _make_row(scope: Scope, draft: Draft) -> tuple[Observation, dict[str, Any], tuple[str, ...], str]:
    """Return the row of a draft, the id that it `supersedes` or `forgets`, the kinds of secrets, and a warning."""
    now, values = scope.clock(), _values_of(check_type(draft, Draft, "a memory"))
    given = {
        name: value
        for (name, default), value in zip(_DEFAULTS.items(), values, strict=True)
        if value is not default and value != default and (name, value) != ("metadata", None)
    }
    given, redacted = redact_all(_clean_fields(given))
    _check_expiry(given.get("expires_at"), now)
    replaced: dict[str, Any] = {name: given.pop(name) for name in ("supersedes", "forgets") if name in given}
    warnings = [_about_concepts(given)]
    if (kind := given.setdefault("type", DEFAULT_TYPE)) not in TYPES:
        warnings.insert(0, f"{kind!r} is not a known type, kept as a note{errors.did_you_mean(str(kind), TYPES)}")
        given["type"] = "note"
    row = Observation(
        id=scope.environment.new_id(),
        agent_id=scope.agent_id,
        session_id=scope.session_id,
        namespace=scope.caller.namespace,
        principal=scope.caller.principal,
        updated_at=now,
        **{
            "created_at": now,
            "visibility": default_visibility(scope.caller.clearance),
            "source": "agent",
            "project": scope.caller.project or "",
            **given,
            "sensitivity": scope.caller.at_least(draft.sensitivity),
        },
    )
    if row.type == TASK:
        row = replace(row, metadata=_as_task(row.metadata))
    return row, replaced, redacted, "; ".join(filter(None, warnings))


def _about_concepts(given: Mapping[str, Any]) -> str:
    """Return a warning if the fields have unknown concepts."""
    unknown = [each for each in given.get("concepts") or () if each not in CONCEPTS]
    listed = f"unknown concepts, kept as they are: {', '.join(unknown)}; known ones: {', '.join(CONCEPTS)}"
    return listed if unknown else ""


def _as_task(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {KIND: TASK, **PENDING, **metadata}


def _clean_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their lists and project checked, within bounds that keep the search for secrets fast."""
    fields: dict[str, Any] = {name: list_of(value, name) if name in _LISTS else value for name, value in given.items()}
    for name, value in fields.items():
        check_depth(value, name)
        longest = max(map(_length, value), default=0) if isinstance(value, tuple) else _length(value)
        if longest > LONGEST_TEXT:
            raise errors.too_long(name, longest, LONGEST_TEXT)
    return fields | ({"project": project_named(fields["project"])} if "project" in fields else {})


def _check_expiry(expires: object, now: datetime) -> None:
    if isinstance(expires, str):
        expires = parse_time(expires)
    if isinstance(expires, datetime) and check_time(expires) <= now:
        raise errors.InvalidValue(f"the expiry time {format_time(expires)} is in the past: give a future time, or none")


def _length(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(_length(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str) else 0


_DEFAULTS = {each.name: {} if each.default is MISSING else each.default for each in fields(Draft)}
_CHANGEABLE = {each.name for each in fields(Change)}
_values_of = attrgetter(*_DEFAULTS)
_LISTS = frozenset(name for name, default in _DEFAULTS.items() if default == ())
