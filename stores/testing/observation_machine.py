"""Random histories of observations: a store, through several handles at once, must never differ from the model."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES, View
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observation import STATUSES, Observation, Triple
from chatbot.stores.query import FactFilter, Filter, Labelled, Question
from chatbot.stores.row_events import Event
from chatbot.stores.text.analysis import terms

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
OWNER = View("full", NOW)
EVERY_SENSITIVITY = frozenset(SENSITIVITIES)
IDS = [f"01900000-0000-7000-8000-{number:012x}" for number in range(40)]

Nearest = Literal["exact", "approximate"]
RECALL = 0.98
"""Minimum share of the nearest rows that an "approximate" store finds on average."""
COSINE_ERROR = 0.02
"""Maximum error of the cosines of an "approximate" store."""


def observation(number: int, **fields: Any) -> Observation:
    """Return an observation that a caller of full clearance sees; `number` gives its id and, in seconds, its time."""
    at = NOW + timedelta(seconds=number)
    given = {"title": f"title {number}", "sensitivity": "public"} | fields
    return Observation(id=IDS[number], created_at=at, updated_at=at, **given)


def adding(*rows: Observation) -> list[Event]:
    """Return the events that add rows."""
    return [Event(kind="add", at=row.created_at, row=row) for row in rows]


def fact(number: int, **fields: Any) -> Triple:
    """Return a fact that every caller but `public` sees; `number` gives its id."""
    given: dict[str, Any] = {"subject": "s", "predicate": "p", "object": "o", "created_at": NOW}
    return Triple(id=IDS[number], **given | {"visibility": "social", "sensitivity": "public"} | fields)


def stating(*facts: Triple) -> list[Event]:
    """Return the events that state facts."""
    return [Event(kind="triple", at=each.created_at, triple=each) for each in facts]


Result = TypeVar("Result")
# Below, what is listed twice is drawn more often.
_WORDS = ["tea", "green", "Ada", "runs", "running", "sqlite.go", "the", "東京", "x"]
_TEXTS = st.lists(st.sampled_from(_WORDS), max_size=4).map(" ".join)
_NAMES = st.lists(st.sampled_from(["Ada", "ada", "Grace", "b c"]), max_size=2)
_ID = st.sampled_from(IDS[:12])
_METADATA: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["kind", "n"]), st.sampled_from(["task", 1, True, None, [1]]), max_size=2
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "title": _TEXTS,
        "narrative": _TEXTS,
        "facts": st.lists(_TEXTS, max_size=2),
        "user_text": _TEXTS,
        "assistant_text": _TEXTS,
        "tags": _NAMES,
        "people": _NAMES,
        "files_read": st.lists(st.sampled_from(["a.py", "B.py"]), max_size=1),
        "files_modified": st.lists(st.sampled_from(["a.py", "c.py"]), max_size=1),
        "subject": st.sampled_from(["", "Tea", "tea"]),
        "category": st.sampled_from(["", "food"]),
        "type": st.sampled_from(["note", "decision", "exchange"]),
        "metadata": _METADATA,
        "importance": st.sampled_from([0.0, 0.5, 1.0]),
        "visibility": st.sampled_from(VISIBILITIES),
        "sensitivity": st.sampled_from(SENSITIVITIES),
        "min_clearance": st.sampled_from(CLEARANCES),
    },
)
_VIEWS = st.tuples(
    st.sampled_from(CLEARANCES) | st.just("full"),
    st.sampled_from([frozenset({"public"}), EVERY_SENSITIVITY]),
    st.sampled_from([frozenset({""}), frozenset({"", "work"}), None]),
)
_FILTERS = st.builds(
    Filter,
    types=st.sampled_from([(), (), ("note",), ("decision", "exchange")]),
    agent_id=st.sampled_from([None, None, "chat"]),
    session_id=st.sampled_from([None, None, IDS[30]]),
    subject=st.sampled_from([None, None, "TEA"]),
    tags=st.sampled_from([(), (), ("ADA",)]),
    people=st.sampled_from([(), (), ("grace", "b  c")]),
    files=st.sampled_from([(), (), ("A.py",)]),
    derived_from=st.sampled_from([(), (), (IDS[1],), (IDS[2], IDS[3])]),
    metadata=st.sampled_from([{}, {}, {"n": 1}, {"n": True}, {"kind": "task"}]),
    visibilities=st.sampled_from([(), (), ("shared", "social")]),
    after=st.sampled_from([None, None, NOW + timedelta(seconds=5)]),
    before=st.sampled_from([None, None, NOW + timedelta(seconds=20)]),
    min_importance=st.sampled_from([0, 0, 0.5]),
    statuses=st.sampled_from([("active",), ("active",), ("expired", "superseded"), STATUSES]),
)


class ObservationMachine(RuleBasedStateMachine):
    """Drives a store, through several handles at once, and its model through one random history; they never differ.

    class MyMachine(ObservationMachine):
        def open_store(self, home):
            return MyObservations(home, **self.caps)

    TestMyHistories = MyMachine.TestCase
    """

    handles = 2
    """Number of stores that are open on one home, as if each had a process; 1 for a store that keeps no files."""
    nearest: Nearest = "exact"
    model: type[ObservationStore] = InMemoryStore
    """The store that it is compared with."""
    caps: Mapping[str, float] = {}
    """Settings of both."""

    def open_store(self, home: Path) -> ObservationStore:
        """Return the store under test, which keeps its files below `home`."""
        raise NotImplementedError

    def disturb(self, home: Path) -> None:
        """Change or delete caches, as may happen at any time; results must stay the same."""

    def __init__(self) -> None:
        super().__init__()
        self._home = Path(tempfile.mkdtemp(prefix="observation-machine-"))
        self._runner = asyncio.Runner()
        self._stores: list[Any] = [self.open_store(self._home) for _ in range(self.handles)]
        self._model: Any = self.model(self._home, **self.caps)  # type: ignore[arg-type]
        self._now = NOW
        self._turn = 0
        self._said: dict[str, str] = {}

    @rule(fields=_FIELDS, number=_ID, view=_VIEWS, supersedes=st.none() | _ID, sources=st.lists(_ID, max_size=1),
          forgets=st.none() | st.none() | _ID,
          session=st.sampled_from([None, IDS[30]]), expires=st.sampled_from([None, None, 3]),
          namespace=st.sampled_from(["", "", "work"]))  # fmt: skip
    def add(  # noqa: PLR0917 - Hypothesis passes them by name
        self, fields: dict[str, Any], number: str, view: Any, supersedes: str | None, sources: list[str],
        forgets: str | None, session: str | None, expires: int | None, namespace: str,
    ) -> None:  # fmt: skip
        now = self._tick()
        given = {"title": "t"} | fields
        said = (*map(given.get, ("title", "narrative", "user_text", "assistant_text")), *given.get("facts", ()))
        if not any(said):
            given["title"] = "x"
        row = Observation(
            id=number,
            created_at=now,
            updated_at=now,
            agent_id="chat",
            session_id=session,
            namespace=namespace,
            derived_from=tuple(sources),
            expires_at=None if expires is None else now + timedelta(seconds=expires),
            **given,
        )
        self._commit(view, Event(kind="add", at=now, row=row, supersedes=supersedes, forgets=forgets))

    @rule(fields=_FIELDS, number=_ID, view=_VIEWS)
    def update(self, fields: dict[str, Any], number: str, view: Any) -> None:
        self._commit(view, Event(kind="update", at=self._tick(), ids=(number,), fields=fields))

    @rule(
        kind=st.sampled_from(["use", "confirm", "delete", "archive", "restore"]),
        numbers=st.lists(_ID, min_size=1, max_size=3, unique=True),
        view=_VIEWS,
    )
    def change(self, kind: Any, numbers: list[str], view: Any) -> None:
        self._commit(view, Event(kind=kind, at=self._tick(), ids=tuple(numbers)))

    @rule(numbers=st.lists(_ID, min_size=1, max_size=4), view=_VIEWS, rate=st.sampled_from([0.0, 2e3, 2e4]))
    def consolidate(self, numbers: list[str], view: Any, rate: float) -> None:
        fields = {"decay_per_day": rate}
        self._commit(view, Event(kind="consolidate", at=self._tick(), ids=tuple(numbers), fields=fields))

    @rule(number=_ID, sources=st.lists(_ID, min_size=1, max_size=3, unique=True), view=_VIEWS,
          visibility=st.sampled_from(VISIBILITIES), space=st.sampled_from(["", "work"]))  # fmt: skip
    def compress(self, number: str, sources: list[str], view: Any, visibility: Any, space: str) -> None:
        now = self._tick()
        row = Observation(
            id=number, created_at=now, updated_at=now, agent_id="chat", namespace=space, title=f"all {now}",
            type="compressed_summary", derived_from=tuple(sources), visibility=visibility, sensitivity="public",
        )  # fmt: skip
        self._commit(view, Event(kind="add", at=now, row=row, compresses=tuple(sources), why="alike"))

    @rule(number=_ID, by=_ID, view=_VIEWS)
    def supersede(self, number: str, by: str, view: Any) -> None:
        self._commit(view, Event(kind="supersede", at=self._tick(), ids=(number,), by=by))

    @rule(number=st.integers(20, 22), words=st.tuples(*[st.sampled_from(["Tea", "tea", "is"])] * 3),
          source=st.none() | _ID, view=_VIEWS, confidence=st.sampled_from([0.2, 1.0]))  # fmt: skip
    def state(self, number: int, words: tuple[str, ...], source: str | None, view: Any, confidence: float) -> None:
        self._said = dict(zip(("subject", "predicate", "object"), words, strict=True))
        [event] = stating(fact(number, created_at=self._tick(), source=source, confidence=confidence, **self._said))
        self._commit(view, event)

    @rule(number=st.sampled_from(IDS[20:23]), view=_VIEWS)
    def take_back(self, number: str, view: Any) -> None:
        self._commit(view, Event(kind="retract", at=self._tick(), ids=(number,)))

    @rule(numbers=st.lists(_ID | st.sampled_from(IDS[20:23]), min_size=1, max_size=2), view=_VIEWS)
    def purge(self, numbers: list[str], view: Any) -> None:
        self._both(lambda store: store.purge(self._view(view), numbers))

    @rule()
    def time_passes(self) -> None:
        self._now += timedelta(seconds=3)

    @rule()
    def reopen(self) -> None:
        at = self._turn % len(self._stores)
        if self._stores[at].is_durable:
            self._run(self._stores[at].aclose())
            self._stores[at] = self.open_store(self._home)

    @rule()
    def lose_caches(self) -> None:
        self.disturb(self._home)

    @rule(words=_TEXTS, wanted=_FILTERS, view=_VIEWS, limit=st.sampled_from([0, 1, 3, 200]))
    def search(self, words: str, wanted: Filter, view: Any, limit: int) -> None:
        self._both(lambda store: store.match(self._view(view), terms(words), wanted, limit=limit))
        asked = tuple(terms(words))
        question = Question(terms=asked[:1], earlier=asked[1:], limit=limit)
        self._both(lambda store: store.candidates(self._view(view), question, wanted))

    @rule(wanted=_FILTERS, view=_VIEWS, order=st.sampled_from(["created", "updated"]), ascending=st.booleans(),
          limit=st.sampled_from([0, 1, 3, 200]), after=st.none() | _ID)  # fmt: skip
    def page(self, wanted: Filter, view: Any, order: Any, ascending: bool, limit: int, after: str | None) -> None:  # noqa: FBT001, PLR0917
        self._both(
            lambda store: store.find(
                self._view(view), wanted, order=order, ascending=ascending, limit=limit, after=after
            )
        )
        self._both(lambda store: store.states(self._view(view), wanted, limit=limit, after=after))

    @rule(axes=st.tuples(*[st.integers(-2, 2)] * 3), wanted=_FILTERS, view=_VIEWS,
          limit=st.sampled_from([0, 1, 3, 200]))  # fmt: skip
    def search_by_vector(self, axes: tuple[int, ...], wanted: Filter, view: Any, limit: int) -> None:
        everything = self._view(("full", EVERY_SENSITIVITY, None))
        for store in (*self._stores, self._model):
            self._run(_embed_missing(store, everything))
        if self.nearest == "exact":
            self._both(lambda store: store.nearest(self._view(view), axes, wanted, model="m", limit=limit))
        else:
            self._check_approximate(self._view(view), axes, wanted, limit)
        self._both(lambda store: _count_vectors(store, self._view(view)))

    @rule(view=_VIEWS, name=st.sampled_from(get_args(Labelled)))
    def count(self, view: Any, name: Any) -> None:
        self._both(lambda store: store.facets(self._view(view), name))

    @rule(view=_VIEWS, number=_ID, prefix=st.sampled_from(["", "0190", IDS[3][:-1], IDS[3], "zz"]))
    def look_back(self, view: Any, number: str, prefix: str) -> None:
        self._both(lambda store: store.history(self._view(view), number))
        self._both(lambda store: store.written_at(self._view(view), IDS))
        self._both(lambda store: store.resolve(self._view(view), prefix, limit=20))

    @invariant()
    def all_hold_the_same(self) -> None:
        view = self._view(("full", EVERY_SENSITIVITY, None))
        self._both(lambda store: store.find(view, Filter(statuses=STATUSES), order="created", limit=100))
        self._both(lambda store: store.facts(view, FactFilter()))
        self._both(lambda store: store.facts(view, FactFilter(**self._said)))  # type: ignore[arg-type]
        self._both(lambda store: _counts(store, view))

    def teardown(self) -> None:
        for store in self._stores:
            self._run(store.aclose())
        self._runner.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _commit(self, view: Any, event: Event) -> None:
        self._both(lambda store: _outcomes(store, self._view(view), event))

    def _both(self, operation: Callable[[Any], Awaitable[object]]) -> None:
        self._turn += 1
        store = self._stores[self._turn % len(self._stores)]
        assert self._answer(operation, store) == self._answer(operation, self._model)

    def _check_approximate(self, view: View, axes: tuple[int, ...], wanted: Filter, limit: int) -> None:
        """Check that an approximate store finds only valid rows, with cosines within `COSINE_ERROR`."""
        found = self._run(self._stores[0].nearest(view, axes, wanted, model="m", limit=limit))
        exact = self._run(self._model.nearest(view, axes, wanted, model="m", limit=1_000))
        scores = {each.id: each.score for each in exact}
        assert len(found) <= limit
        assert all(abs(each.score - scores.get(each.id, 0.0)) <= COSINE_ERROR for each in found)
        assert {each.id for each in found} <= {row.id for row in self._run(self._model.find(view, wanted)).rows}

    def _answer(self, operation: Callable[[Any], Awaitable[object]], store: Any) -> object:
        try:
            return self._run(operation(store))
        except UnknownObservation as error:
            return str(error)

    def _view(self, parts: Any) -> View:
        clearance, asked, spaces = parts
        return View(clearance, self._now, asked, namespaces=spaces)

    def _tick(self) -> datetime:
        self._now += timedelta(milliseconds=1)
        return self._now

    def _run(self, work: Awaitable[Result]) -> Result:
        async def awaited() -> Result:
            return await work

        return self._runner.run(awaited())


async def _outcomes(store: ObservationStore, view: View, event: Event) -> list[tuple[str, str, str]]:
    return [(each.kind, each.id, each.reason) for each in await store.commit(view, [event])]


async def _counts(store: ObservationStore, view: View) -> tuple[dict[str, int], ...]:
    stats = await store.stats(view)
    return (dict(stats.by_status), dict(stats.by_type), dict(stats.by_visibility), {"facts": stats.facts})


async def _count_vectors(store: Any, view: View) -> tuple[int, int]:
    """Return the numbers of rows with and without a vector; not the model, which a store without rows may forget."""
    stats = await store.vector_stats(view)
    return stats.embedded, stats.missing


async def _embed_missing(store: ObservationStore, view: View) -> None:
    missing = await store.missing_vectors(view, model="m", limit=1000)
    parts = [(row, [len(row.title), 1, -len(row.facts)]) for row in missing if row.facts]  # besides the whole text
    vectors = [(row, [len(row.title) - 2, len(row.facts), len(row.narrative) - 3]) for row in missing]
    vectors = sorted([*parts, *vectors], key=lambda each: missing.index(each[0]))
    assert await store.put_vectors("m", vectors) == len(missing)
    assert not await store.missing_vectors(view, model="m")
