"""Caller and scope of operations on memory, and the namespaces that keep users apart.

    ""                    the owner
    shop                  an application, named by its token or its code
    user:alice            a user named by a request
    shop/user:alice       a user of that application

The label of a user is percent-encoded, or replaced by its SHA-256 if that is too long. Labels that differ in Unicode
form, case or white space are different users.
"""

import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from chatbot.memory.scoring import PROFILES, ScoringProfile
from chatbot.stores import access
from chatbot.stores.base import Closable, ObservationStore
from chatbot.stores.errors import AccessDenied, InvalidValue, UnknownObservation
from chatbot.stores.fields import LONGEST_LINE, one_line
from chatbot.stores.observation import Observation
from chatbot.stores.query import EVERY, Filter, Order
from chatbot.stores.records import check_time, check_type
from chatbot.stores.row_events import Event, Kind, Outcome
from chatbot.stores.span import Observer, count, observed, span

if TYPE_CHECKING:
    from chatbot.config import StandingSettings
    from chatbot.memory.erasure import Tombstones
    from chatbot.memory.meaning import Billing, Meaning
else:
    StandingSettings = Tombstones = Billing = Meaning = Any  # `help` evaluates the annotations of a struct


def new_id() -> str:
    """Return a UUIDv7: unique, and ordered by time."""
    import uuid6  # late: the first prompt needs no id

    return str(uuid6.uuid7())


utc_now: Callable[[], datetime] = partial(datetime.now, UTC)
"""The current time, aware."""


LONGEST_LABEL = 1_000
"""Maximum characters of a user's name."""
LONGEST_NAME = 200
"""Maximum characters of a namespace, without that of a user inside it."""
_LONGEST_WRITTEN = 200
"""Maximum characters of a percent-encoded label; a longer one is replaced by its digest."""
_USER = "user:"
_HASHED = "#"
"""Prefix of the digest of a long label, which `quote` never returns."""


def check_namespace(name: str, longest: int = LONGEST_NAME) -> str:
    """Return the name of a namespace. Raises `InvalidValue` for one that could not be stored unchanged."""
    if name != "" and (one_line(name, "the namespace") != name or len(name) > longest):
        raise InvalidValue(
            f"the namespace {name!r:.80} is invalid: use one line of at most {longest} characters, "
            "without spaces at its ends or control characters"
        )
    return name


def user_namespace(label: str, within: str = "") -> str:
    """Return the namespace of the user with that label, inside the namespace `within`. Raises `InvalidValue`."""
    if not check_type(label, str, "a user's name") or len(label) > LONGEST_LABEL:
        raise InvalidValue(f"a user's name has 1 to {LONGEST_LABEL:,} characters")
    written = label.encode("utf-8", "surrogatepass")
    name = quote(written, safe="@+")
    if len(name) > _LONGEST_WRITTEN:
        name = _HASHED + hashlib.sha256(written).hexdigest()
    return join_namespaces(within, _USER + name)


def user_of(namespace: str) -> str | None:
    """Return the label of the user of a namespace, or the digest of a long label; None if it is not a user's."""
    name = namespace.rpartition("/")[2]
    if not name.startswith(_USER):
        return None
    return unquote_to_bytes(name.removeprefix(_USER)).decode("utf-8", "surrogatepass")


def join_namespaces(outer: str, inner: str) -> str:
    """Return the namespace `inner` inside of `outer`."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


def namespace_digest(namespace: str) -> str:
    """Return the digest that replaces a namespace where no user's name may be stored."""
    return hashlib.sha256(namespace.encode()).hexdigest()


PUBLIC: tuple[access.Sensitivity, ...] = ("public",)
_NEW = frozenset({"add", "triple"})
"""Kinds of events that make new rows or facts."""
Sensitivities: TypeAlias = tuple[access.Sensitivity, ...] | Collection[access.Sensitivity]
"""Sensitivities asked for. The tuple type is for mypy, which otherwise infers `("private",)` as a tuple of `str`."""
EraseQuotes = Callable[[Sequence[Observation], Collection[str]], Awaitable[None]]
"""Delete summaries of sessions with these rows, and quotes of the erased ones in receipts and titles."""


class MemoryEvent(Struct, frozen=True):
    """An operation on memory. The ids are those of the rows that it changed or returned, in its order."""

    action: Literal["update", "retrieve"]
    operation: str
    """Its name: remember, update, supersede, forget, search, recall, get, …"""
    session_id: str
    """Empty for a caller without a session."""
    agent_id: str
    ids: tuple[str, ...]
    at: datetime

    @property
    def topic(self) -> str:
        """The topic for its hooks: `memory.<session id>.update`, or `.retrieve`."""
        return f"memory.{self.session_id}.{self.action}"


EventListener = Callable[[MemoryEvent], None]
"""Called after each operation, with its event."""


def project_named(name: str) -> str:
    """Return the project of that name; empty for `-`, which means none."""
    return "" if name == access.NO_PROJECT else one_line(name, "the project")


def check_rights(rights: Collection[access.Right]) -> frozenset[access.Right]:
    """Return the set of these rights. Raises `InvalidValue` for an unknown one."""
    if unknown := [each for each in check_type(rights, Collection, "rights") if each not in access.RIGHTS]:
        raise InvalidValue(f"unknown right {unknown[0]!r:.80}: use {', '.join(access.RIGHTS)}")
    return frozenset(rights)


class Caller(Struct, frozen=True):
    """The user of memory and sessions: namespace, project, principal, clearance and rights."""

    namespace: str = ""
    """Namespace of memory; see `chatbot.memory.scope`."""
    principal: str = ""
    """Principal in whose name they write; by default the user of the namespace, or the owner."""
    clearance: access.Clearance = "full"
    rights: frozenset[access.Right] = access.EVERY_RIGHT
    observer: Observer | None = None
    sensitivity: access.Sensitivity = "public"
    """Minimum sensitivity of what they write."""
    project: str | None = None
    """Project to write to and to read, with rows of no project; empty or `-` for no project, None for all."""

    def __post_init__(self) -> None:
        check_namespace(self.namespace, LONGEST_LINE)
        if not access.EVERY_RIGHT.issuperset(self.rights):
            check_rights(self.rights)
        if self.project not in (None, ""):
            force_setattr(self, "project", project_named(self.project))
        if not self.principal:
            force_setattr(self, "principal", access.OWNER if user_of(self.namespace) is None else self.namespace)

    @property
    def may_cross(self) -> bool:
        """True if they may go to any namespace, or look across all of them."""
        return self.principal == access.OWNER and "curate" in self.rights

    def at_least(self, sensitivity: access.Sensitivity) -> access.Sensitivity:
        """Return the sensitivity of a new row; an invalid one is left for the row's check."""
        order = access.SENSITIVITIES.index
        is_less = sensitivity in access.SENSITIVITIES and order(sensitivity) < order(self.sensitivity)
        return self.sensitivity if is_less else sensitivity

    def check(self, right: access.Right, row: access.OwnedRow | None = None) -> None:
        """Raise `MissingRight` without the right, or without it for the row."""
        if right not in self.rights or (row is not None and row.principal != self.principal):
            access.check_may(self, right, row)

    def narrowed(
        self,
        clearance: access.Clearance | None = None,
        *,
        rights: Collection[access.Right] | None = None,
        principal: str | None = None,
        namespace: str | None = None,
        project: str | None = None,
    ) -> "Caller":
        """Return the caller with at most these clearances and rights, in a namespace and project they may enter.

        Every caller may enter a namespace inside their own; only the owner with the right `curate` may enter others, or
        act for another principal. The default principal in a user's namespace is that user. A caller in a project stays
        there. Raises `AccessDenied`, or `InvalidValue` for an invalid namespace or an unknown right.
        """
        space = self.namespace if namespace is None else check_namespace(namespace, LONGEST_LINE)
        is_inside = bool(self.namespace) and space.startswith(f"{self.namespace}/")
        if not (space == self.namespace or is_inside or self.may_cross):
            raise AccessDenied(f"a caller in the namespace {self.namespace!r} may not enter {space!r:.80}")
        where = Caller(project=project).project
        if where is not None and self.project is not None and not access.is_same_project(where, self.project):
            own, other = map(access.project_words, (self.project, where))
            raise AccessDenied(f"a caller in {own} may not enter {other}")
        if principal is None:
            principal = self.principal if space == self.namespace or user_of(space) is None else space
        is_further_in = is_inside and principal != access.OWNER
        if principal != self.principal and not (is_further_in or self.may_cross):
            raise AccessDenied(f"{self.principal!r} may not act in the name of {principal!r:.80}")
        return replace(
            self,
            clearance=access.least_clearance(self.clearance, self.clearance if clearance is None else clearance),
            rights=self.rights if rights is None else self.rights & check_rights(rights),
            principal=principal,
            namespace=space,
            project=self.project if where is None else where,
        )

    def elevated(self, *rights: access.Right, clearance: access.Clearance | None = None) -> "Caller":
        """Return the caller with more rights or clearance, for work whose result does not depend on the caller."""
        return replace(self, rights=self.rights | {*rights}, clearance=clearance or self.clearance)


def standing_questions() -> "Sequence[StandingSettings]":
    """Return the standing questions of a memory without a configuration."""
    from chatbot.config import Config  # late: few memories need it

    return Config().questions


class SystemOptions(Struct, frozen=True, kw_only=True):
    """Advanced settings of a memory system."""

    observations: str | None = None
    """Store of memories without a session; by default `observations`, or `in_memory` without a home."""
    plugins_beside: Path | None = None
    profiles: Mapping[str, ScoringProfile] = field(default_factory=lambda: PROFILES)
    """Profiles of ranking: `search`, `recent`, `inject` and custom ones."""
    questions: "Callable[[], Sequence[StandingSettings]]" = standing_questions
    bill: "Billing | None" = None
    """Called after each call of the embedder, to bill it."""
    on_event: EventListener | None = None
    project: str = ""
    """Project of new sessions of a caller that is not in a project."""


class Environment(Struct, frozen=True):
    """Clock, ids, options and encoders that all callers of one memory share."""

    clock: Callable[[], datetime] = utc_now
    new_id: Callable[[], str] = new_id
    options: SystemOptions = SystemOptions()
    meaning_of: "Callable[[ObservationStore], Meaning | None]" = lambda _: None
    """Search of a store's rows by meaning, or None."""
    check_there: Callable[[], None] = lambda: None
    """Raises `StoreAway` if the folder of the memory has vanished."""
    erase_quotes: EraseQuotes | None = None
    """Removes what sessions keep of deleted exchanges."""
    tombstones: "Tombstones | None" = None
    """Purged rows, which an import does not restore."""
    key_lock: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    """Lock that is held while a row under a caller's own key is replaced."""
    ttl: timedelta | None = None
    """Time to live of a session after the last addition to it; None: it does not expire."""

    def __post_init__(self) -> None:
        """Raise `InvalidValue` for a clock whose times have no time zone."""
        check_time(self.clock())


class Scope(Struct, frozen=True):
    """A caller in one store, with the agent and session they write for."""

    store: ObservationStore
    caller: Caller
    environment: Environment
    agent_id: str = ""
    session_id: str | None = None
    ancestors: Callable[[], Awaitable[Sequence[tuple[str, datetime]]]] | None = None
    """Returns the sessions that the session was forked from, each with the time of the fork."""
    across: bool = False
    """True if rows of all namespaces are read, not only those of the caller's."""
    erasing: bool = False
    """As in `View.erasing`."""
    expects: frozenset[str] | None = None
    """Expected version, as in `View.expects`."""
    new_versions: dict[str, str] | None = None
    """Filled with the new version of each changed memory by id; None notes none."""
    asked_row: Callable[[], str] = str
    """Returns the id of the row of the message that is being answered, which searches leave out."""
    fresh_at: Callable[[], float] = time.monotonic
    """Returns the `View.fresh_at` of a new operation."""
    sensitivity_now: Callable[[], Awaitable[access.Sensitivity]] | None = None
    """Returns the sensitivity of the session, which another process may have marked; new rows have it at least.

    Raises `MissingFolder` if the session was deleted: it gets no new rows.
    """

    @property
    def meaning(self) -> "Meaning | None":
        """Search by meaning, or None."""
        return self.environment.meaning_of(self.store)

    def clock(self) -> datetime:
        """Return the current time."""
        return self.environment.clock()

    def view(self, sensitivities: Sensitivities = PUBLIC) -> access.View:
        """Return the caller's view of these sensitivities now. Raises `MissingRight` without the right to read."""
        self.caller.check("read")
        return self.write_view(sensitivities)

    def write_view(self, sensitivities: Sensitivities = PUBLIC) -> access.View:
        """Return the caller's view for a change, which the store allows or refuses. Raises `InvalidValue`."""
        known = access.SENSITIVITIES
        if not (hasattr(sensitivities, "__iter__") and (asked := frozenset(sensitivities)).issubset(known)):
            raise InvalidValue(f"sensitivities is {sensitivities!r:.80}: it must be a list of {', '.join(known)}")
        own = self.caller
        return access.View(
            own.clearance,
            self.clock(),
            asked=asked,
            namespaces=None if self.across else frozenset({own.namespace}),
            principal=own.principal,
            rights=own.rights,
            erasing=self.erasing,
            expects=self.expects,
            fresh_at=self.fresh_at(),
            project=own.project,
        )

    def moment(self, as_of: datetime | None, known_at: datetime | None, now: datetime | None = None) -> datetime | None:
        """Return the earlier of the times that are given; None (now) if none is. Raises `InvalidValue`."""
        given = [check_time(each) for each in (as_of, known_at) if each is not None]
        if given and max(given) > (now or self.clock()):
            raise InvalidValue("as_of and known_at cannot be in the future")
        return min(given, default=None)

    def everywhere(self) -> "Scope":
        """Return the scope across all namespaces if the caller may look there; if not, unchanged."""
        return replace(self, across=self.caller.may_cross)

    async def rows(
        self,
        wanted: Filter,
        *,
        view: access.View,
        limit: int = EVERY,
        order: Order = "created",
        ascending: bool = False,
        after: str | None = None,
    ) -> list[Observation]:
        """Return the matching rows by time, at most `limit`, read page by page."""
        found: list[Observation] = []
        cursor = after
        while True:
            try:
                page = await self.store.find(
                    view, wanted, order=order, ascending=ascending, limit=limit - len(found), after=cursor
                )
            except UnknownObservation:
                if not found:
                    raise
                found.pop()  # it was erased meanwhile
                cursor = found[-1].id if found else after
                continue
            found += page.rows
            cursor = page.after
            if cursor is None or len(found) >= limit:
                return found

    async def erase_quotes(self, rows: Iterable[Observation], *, erased: Collection[str] = ()) -> None:
        """Remove deleted exchanges and captures from summaries, and `erased` ones from receipts and titles."""
        quoted = [row for row in rows if row.type == "exchange" or row.source == "auto"]
        if self.environment.erase_quotes is not None and any(row.session_id for row in quoted):
            await self.environment.erase_quotes(quoted, erased)

    def changed(self, operation: str, ids: Sequence[str]) -> None:
        """Report that these rows were changed."""
        if ids:
            self._report("update", operation, ids)

    def retrieved(self, operation: str, ids: Iterable[str]) -> None:
        """Report that these rows were returned; with none, that nothing was found."""
        self._report("retrieve", operation, ids)

    def _report(self, action: Literal["update", "retrieve"], operation: str, ids: Iterable[str]) -> None:
        found = tuple(ids)
        if (on_event := self.environment.options.on_event) is not None:
            on_event(MemoryEvent(action, operation, self.session_id or "", self.agent_id, found, self.clock()))
        count(action, len(found), operation=operation)

    async def attempt(self, events: Sequence[Event]) -> list[Outcome]:
        """Make the changes that are allowed; outcomes name refusals. Raises as `sensitivity_now` does."""
        if self.sensitivity_now is not None and not _NEW.isdisjoint(event.kind for event in events):
            own = replace(self.caller, sensitivity=self.caller.at_least(await self.sensitivity_now()))
            events = events if own == self.caller else [_at_least(own, each) for each in events]
        outcomes = await self.store.commit(self.write_view().asking_all(), events)
        if self.new_versions is not None:
            self.new_versions.update({outcome.id: outcome.version for outcome in outcomes if outcome.version})
        return outcomes

    async def change(self, kind: Kind, *ids: str, by: str | None = None) -> None:
        """Make one change of these rows, now and in the agent's name; raises the error if it is refused."""
        await self.commit(Event(kind=kind, at=self.clock(), ids=ids, by=by, who=self.agent_id))

    async def commit(self, *events: Event) -> list[Outcome]:
        """Make changes; if some are refused, make the others and raise the first error."""
        outcomes = await self.attempt(events)
        for event, outcome in zip(events, outcomes, strict=True):
            if outcome.error is None:
                self.changed(event.kind, event.ids or (outcome.id,))
        raise_first(outcomes)
        return outcomes


def _at_least(caller: Caller, event: Event) -> Event:
    """Return the event with its new row or fact at least as sensitive as what the caller writes."""
    row, fact = event.row, event.triple
    if row is not None:
        row = dataclasses.replace(row, sensitivity=caller.at_least(row.sensitivity))
    if fact is not None:
        fact = dataclasses.replace(fact, sensitivity=caller.at_least(fact.sensitivity))
    return replace(event, row=row, triple=fact)


def raise_first(outcomes: Iterable[Outcome]) -> None:
    """Raise the error of the first change that was refused, if there is one."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


class Observable:
    """Acts for a `caller`: a subclass's public coroutines are spans, and raise `ClosedResource` once it is closed."""

    _owner: Closable
    """Resource with which it is closed."""
    _check_there: Callable[[], None]
    """Raises `StoreAway` if the folder of the memory has vanished."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, operation in list(vars(cls).items()):
            if iscoroutinefunction(operation) and not name.startswith("_") and name != "aclose":
                setattr(cls, name, _with_span(operation))


def _with_span(operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the operation in a span with the caller's observer; it raises `ClosedResource` for a closed owner."""

    @wraps(operation)
    async def entered(self: Any, *arguments: Any, **options: Any) -> Any:
        if self._owner.is_closed:
            self._owner.check_open()
        self._check_there()
        observer = self.caller.observer
        if observer is None:
            return await operation(self, *arguments, **options)
        with observed(observer), span("memory", operation=operation.__name__):
            return await operation(self, *arguments, **options)

    return entered


class ScopedOperations(Observable):
    """The base of the operations on memory, in one caller's scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        """The caller's scope."""
        self._owner = scope.store
        self._check_there = scope.environment.check_there

    def __repr__(self) -> str:
        own = self.scope
        where = f"agent_id={own.agent_id!r}, session_id={own.session_id!r}, namespace={own.caller.namespace!r}"
        return f"{type(self).__name__}({where})"

    @property
    def caller(self) -> Caller:
        """The caller in whose scope the operations run."""
        return self.scope.caller
