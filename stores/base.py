"""Contracts that a store plug-in inherits, with their promises, and the base class of resources to close.

A store object is opened once for an identity and shared by all sessions of it, so each operation names its session.
The keyword-only arguments of its constructor are its settings, checked against their annotations.

Every operation is safe to call from many tasks at once, in any number of threads with an event loop each; a durable one
also from several processes. Reading needs no write permission, and writes nothing in `home`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta

from chatbot.stores import errors, query
from chatbot.stores.access import View
from chatbot.stores.backend import Flaw
from chatbot.stores.home import Home
from chatbot.stores.observation import Observation, RowState, Triple
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry, reason_of
from chatbot.stores.row_events import Event, Outcome
from chatbot.stores.span import NOTHING, Observer, Span

Cap = Annotated[int, Meta(ge=1)]
CapOrNone = Annotated[int, Meta(ge=0)]
Days = Annotated[float, Meta(ge=0, le=365_000)]
Method = Callable[..., Awaitable[Any]]
_LISTS = {
    "kv_entries": KeyValue,
    "transcript_drop_last": TranscriptEntry,
    "transcript_read_all": TranscriptEntry,
    "transcript_read_last": TranscriptEntry,
    "transcript_stamps": str,
}
"""Operations of plug-ins that return a list, with the type of its items."""
_VALUES: dict[str, Any] = {"kv_delete": bool, "kv_get": str | None, "transcript_count": int}
CLOSED = "the memory is closed: open it again to continue"


class AsyncResource(ABC):
    """Closes itself at the end of an `async with` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish running work and release everything. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Closable(AsyncResource):
    """Public coroutine methods of its subclasses raise `ClosedResource` from the start of `aclose`."""

    is_closed = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, operation in list(vars(cls).items()):
            is_abstract = getattr(operation, "__isabstractmethod__", False)
            if iscoroutinefunction(operation) and not (is_abstract or name.startswith("_")):
                setattr(cls, name, cls._guard_operation(operation))

    def check_open(self) -> None:
        """Raise `ClosedResource` after `aclose`."""
        if self.is_closed:
            raise errors.ClosedResource(CLOSED)

    @classmethod
    def _guard_operation(cls, operation: Method) -> Method:
        closes = operation.__name__ == "aclose"

        @wraps(operation)
        async def guarded(self: Closable, *args: Any, **named: Any) -> Any:
            if closes:
                self.is_closed = True
            elif self.is_closed:
                self.check_open()
            return await operation(self, *args, **named)

        return guarded


class Store(Closable):
    """The root of every plug-in. It writes only in `home`, the identity's memory folder or its address in a database.

    After `aclose` every operation raises `ClosedResource`. An error of a plug-in that is not a `StoreError` reaches
    callers as `BrokenStore`, an `OSError` as `StoreFailed`. This class does both for every subclass.
    """

    is_durable: ClassVar[bool] = True
    """False for a store that forgets everything when it is closed: only such a store serves `--ephemeral`."""

    def __init__(self, home: Home) -> None:
        self.home = home

    configured_as: str = ""
    """Name of the store in the configuration and in spans."""
    observer: Observer | None = None
    """Receives a span for each operation; set by the opener of the store."""

    @classmethod
    def _guard_operation(cls, operation: Method) -> Method:
        @wraps(operation)
        async def translated(self: "Store", *args: Any, **named: Any) -> Any:
            observer = None if operation.__name__ == "aclose" else self.observer
            work: AbstractContextManager[object] = (
                nullcontext() if observer is None else _span_of(self, observer, operation.__name__, args)
            )
            kind = _LISTS.get(operation.__name__)
            with work:
                try:
                    found = await operation(self, *args, **named)
                    if kind and not (isinstance(found, list) and all(map(kind.__instancecheck__, found))):
                        raise TypeError(f"it returned {found!r:.80}, which is not a list of {kind.__name__}")
                    if not isinstance(found, wanted := _VALUES.get(operation.__name__, object)):
                        raise TypeError(f"it returned {found!r:.80}, not {getattr(wanted, '__name__', wanted)}")
                except BaseException as error:
                    is_item = kind is not None and isinstance(error, errors.InvalidValue)  # it made one that is invalid
                    if isinstance(error, errors.StoreError) and not is_item:
                        raise
                    from chatbot.stores.loops import is_failure  # late: it loads asyncio, which `--help` does not need

                    if not is_failure(error):
                        raise
                    failure = errors.kind_of(error) if isinstance(error, OSError) else errors.BrokenStore
                    what = f"the store {type(self).__name__} failed in {operation.__name__}"
                    raise failure(f"{what}: {reason_of(error)}") from error
                else:
                    return found

        return super()._guard_operation(translated)

    def turn_reads(self, session: SessionRef, fresh_at: float) -> Sequence[object]:
        """Return the reads that every turn begins with, to be made with its lease; none if reads are cheap.

        Only the backend knows their type. Operations whose `fresh_at` is the same may use their results.
        """
        return ()

    async def examine(self, *, verify: bool = False) -> list[Flaw]:
        """Examine what is stored outside of sessions; with `verify` compare all with checksums. Changes nothing."""
        return []

    async def aclose(self) -> None:
        """Finish pending work and close everything. May be called twice."""


class SessionStore(Store):
    """Root of the stores that keep something of each session."""

    @abstractmethod
    async def forget_session(self, session: SessionRef) -> None:
        """Delete all that is kept of the session, also outside of its folder. Unknown sessions are no error."""


class KeyValueStore(SessionStore):
    """Keeps a capped set of text entries for each session; past the cap, the oldest is dropped."""

    @abstractmethod
    async def kv_get(self, session: SessionRef, key: str) -> str | None:
        """Return the value of `key`, or None."""

    @abstractmethod
    async def kv_set(self, session: SessionRef, entry: KeyValue) -> None:
        """Keep `entry` as the newest, replacing any with the same key. Durable on return."""

    @abstractmethod
    async def kv_delete(self, session: SessionRef, key: str) -> bool:
        """Remove `key`; return whether it existed. Durable on return."""

    @abstractmethod
    async def kv_entries(self, session: SessionRef) -> list[KeyValue]:
        """Return all entries, oldest first; an empty list if the session has none."""


class TranscriptStore(SessionStore):
    """Keeps the conversation of each session, in order. A store may archive old entries, or drop those past a cap."""

    @abstractmethod
    async def transcript_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> None:
        """Add `entries` at the end, in order and next to each other. Durable on return."""

    def blocking_append(self, session: SessionRef, entries: Sequence[TranscriptEntry]) -> Callable[[], object] | None:
        """Return `transcript_append` as a blocking function for `Backend.write_together`; None if there is none."""
        return None

    @abstractmethod
    async def transcript_read_last(self, session: SessionRef, n: int) -> list[TranscriptEntry]:
        """Return the last `n` entries, archived ones too, oldest first, or all if fewer; [] if `n` is 0 or less."""

    async def transcript_read_all(self, session: SessionRef) -> list[TranscriptEntry]:
        """Return every entry that is still known, archived ones too, oldest first."""
        return await self.transcript_read_last(session, 2**31)

    async def transcript_count(self, session: SessionRef, roles: Collection[str] = ()) -> int:
        """Count the entries still known; only those of the roles, if any are named."""
        entries = await self.transcript_read_all(session)
        return sum(not roles or entry.role in roles for entry in entries)

    async def transcript_counts(
        self, sessions: Sequence[SessionRef], roles: Collection[str] = ()
    ) -> list[int | BaseException]:
        """Return `transcript_count` of each session, or why it cannot be read."""
        from asyncio import gather  # late: `--help` does not need it

        return await gather(*(self.transcript_count(each, roles) for each in sessions), return_exceptions=True)

    async def transcript_stamps(self, sessions: Sequence[SessionRef]) -> list[str]:
        """Return for each session a value that changes with its transcript; empty if the store has none."""
        return [""] * len(sessions)

    async def transcripts_read_all(self, sessions: Sequence[SessionRef]) -> list[list[TranscriptEntry] | BaseException]:
        """Return `transcript_read_all` of each session, or why it cannot be read."""
        from asyncio import gather  # late: `--help` does not need it

        return await gather(*map(self.transcript_read_all, sessions), return_exceptions=True)

    async def transcript_drop_last(
        self, session: SessionRef, n: int, instead: Sequence[TranscriptEntry] = ()
    ) -> list[TranscriptEntry]:
        """Remove the last `n` entries, archived ones too, permanently; return them, oldest first. Durable on return.

        `instead` takes their place in one step: a kill leaves the old entries or the new ones. It may also leave
        archived entries that were to be removed, before the new ones.
        """
        raise errors.UnsupportedOperation(f"{type(self).__name__} cannot remove the last {n} entries of {session.id}")

    async def transcript_clear(self, session: SessionRef) -> int:
        """Erase all entries permanently, archived ones too; return how many there were. Durable on return.

        After a kill midway the oldest entries may be left: clear again.
        """
        return len(await self.transcript_drop_last(session, 2**31))


class ObservationStore(Store):
    """Keeps memories: the observations and triples of all sessions of an identity.

    Every read and write goes through a `View`: what it does not let through is treated as if it did not exist, before
    any limit, count or use. Rows come back as they are at `view.now`. Equal scores and times are ordered by when the
    rows were added, the later one first.

    Once there are a tenth more than `max_observations`, the rows that matter least are archived, protected types last.
    Rows of unprotected types expire after `ttl_days`. 0 sets no limit.
    """

    def __init__(self, home: Home, *, max_observations: CapOrNone = 0, ttl_days: Days = 0) -> None:
        super().__init__(home)
        self.max_observations = max_observations
        self.ttl_days = ttl_days
        self.progress: query.Progress | None = None
        """Called with the progress while a cache is rebuilt before a search."""

    @abstractmethod
    async def commit(self, view: View, events: Sequence[Event]) -> list[Outcome]:
        """Make the changes that `decisions.decide` allows, in order; return their outcomes. Durable on return.

        A `use` may be durable only when the next change is.
        """

    def blocking_commit(self, view: View, events: Sequence[Event]) -> Callable[[], list[Outcome]] | None:
        """Return `commit` as a blocking function for `Backend.write_together`; None if there is none."""
        return None

    @abstractmethod
    async def get(self, view: View, ids: Sequence[str], *, current: bool = True) -> list[Observation]:
        """Return the observations of these ids that are there, in their order; `current` ones, or of any status."""

    @abstractmethod
    async def find(
        self,
        view: View,
        wanted: query.Filter,
        *,
        order: query.Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        after: str | None = None,
    ) -> query.Page:
        """Return the rows that match, by time; the page starts after the row with the id `after`, current or not.

        At most 1,000 rows a page. Raises `UnknownObservation` for an `after` that does not exist, or that the caller
        may not see at any sensitivity.
        """

    @abstractmethod
    async def states(self, view: View, wanted: query.Filter, *, limit: int, after: str | None = None) -> list[RowState]:
        """Return the states of matching rows, oldest first, after the row `after`; reads no row. Raises as `find`."""

    @abstractmethod
    async def match(
        self, view: View, terms: Sequence[str], wanted: query.Filter, *, limit: int = 200
    ) -> list[query.Match]:
        """Return the current rows that hold any of the analysed `terms`, best score first: `chatbot.stores.text.bm25`.

        Only current rows are searched: nothing is found if `wanted.statuses` lacks `active`.
        """

    @abstractmethod
    async def nearest(
        self, view: View, vector: Sequence[float], wanted: query.Filter, *, model: str, limit: int = 200
    ) -> list[query.Match]:
        """Return the current rows whose vectors, made by `model`, are closest to `vector`; their score is the cosine.

        Only those with a cosine above 0. Rows without a vector are not found, nor is any for a vector that is zero.
        Raises `OtherEmbedder` if the stored vectors are of another model or dimension.
        """

    async def later_alike(
        self, view: View, ids: Sequence[str], wanted: query.Filter, *, model: str, limit: int = 8
    ) -> dict[str, list[query.Match]]:
        """Return for each of `ids` the current rows added after it that `nearest` finds for its own vector.

        Rows without a vector are left out. A store without this returns nothing.
        """
        return {}

    @abstractmethod
    async def candidates(self, view: View, question: query.Question, wanted: query.Filter) -> query.Candidates:
        """Return the rows that may answer a question, with the data for ranking; raises as `nearest` does."""

    @abstractmethod
    async def missing_vectors(self, view: View, *, model: str, limit: int = 100) -> list[Observation]:
        """Return current rows without a vector of their present text, last added first. Raises `OtherEmbedder`."""

    @abstractmethod
    async def put_vectors(self, model: str, vectors: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        """Keep the vectors of rows, each with the row whose text was embedded; return of how many rows they were kept.

        A row may have several, of its parts and last of its whole text: the nearest one counts for a question. Vectors
        of rows that were changed or erased meanwhile are left out. They are only a cache.
        Raises `OtherEmbedder` for vectors of another model or dimension than the stored ones.
        """

    @abstractmethod
    async def forget_vectors(self) -> None:
        """Delete all vectors, so that another model can make them."""

    @abstractmethod
    async def vector_stats(self, view: View) -> query.VectorStats:
        """Return the vectors' model, and how many current rows have one."""

    @abstractmethod
    async def history(self, view: View, observation_id: str) -> list[query.Version]:
        """Return the chain of succession of the observation, oldest first, whatever the status.

        Empty if there is no such observation. Cycles, as after a broken import, are walked once.
        """

    @abstractmethod
    async def written_at(self, view: View, ids: Sequence[str]) -> dict[str, datetime]:
        """Return by id when these observations, of any status, were first written; one read for all."""

    @abstractmethod
    async def facets(self, view: View, name: query.Labelled, *, limit: int = 100) -> list[query.Facet]:
        """Return the values of a field among current rows, the most frequent first, then by value."""

    @abstractmethod
    async def facts(self, view: View, wanted: query.FactFilter, *, limit: int = 100) -> list[Triple]:
        """Return matching triples, newest first. One with a source is visible while its source is current and visible.

        A view that erases also sees retracted ones, and those whose source is damaged or not current.
        """

    @abstractmethod
    async def resolve(self, view: View, prefix: str, *, limit: int = 5) -> list[str]:
        """Return the ids of observations, of any status, that begin with `prefix`, in order."""

    @abstractmethod
    async def purge(
        self, view: View, ids: Sequence[str], *, who: str = "", why: str = "", alone: bool = False
    ) -> list[str]:
        """Erase observations and facts permanently, with everything derived from them and the facts from them.

        With `alone`, what was derived from them stays, until the same ids are purged again without it.
        No byte of them is in any file of the store on return; a journal may keep their ids, with who did it and why.
        Returns the erased ids, those asked for first. Raises `UnknownObservation` if none of the ids exists.
        """

    @abstractmethod
    async def stats(self, view: View) -> query.Stats:
        """Return counts of what is stored."""

    async def reindex(self, progress: query.Progress | None = None) -> int:
        """Rebuild all caches; return the number of rows. Does nothing for a store without caches."""
        return 0


CONTRACTS: dict[type[Store], str] = {
    KeyValueStore: "key-value",
    TranscriptStore: "transcript",
    ObservationStore: "observation",
}


def contracts_of(store: type[Store]) -> list[str]:
    """Return the contracts of a plug-in, in words."""
    return [words for contract, words in CONTRACTS.items() if issubclass(store, contract)]


_WRITES = frozenset(
    {
        "commit",
        "forget_session",
        "forget_vectors",
        "kv_delete",
        "kv_set",
        "purge",
        "put_vectors",
        "reindex",
        "transcript_append",
        "transcript_clear",
        "transcript_drop_last",
    }
)
"""The operations that change a store. All others only read."""
STORE_OPERATIONS = frozenset(
    name for contract in CONTRACTS for name in dir(contract) if iscoroutinefunction(getattr(contract, name))
)
"""The coroutine functions of the contracts."""


def _span_of(store: Store, observer: Observer, operation: str, args: Sequence[Any]) -> Span:
    if operation not in STORE_OPERATIONS:
        return NOTHING
    access = "write" if operation in _WRITES else "read"
    labels = {"store": store.configured_as, "operation": operation, "access": access}
    work = observer.begin("store", labels)
    if operation == "commit" and len(args) > 1:
        work.note(changes=sorted({event.kind for event in args[1]}))
    return work
