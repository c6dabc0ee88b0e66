"""No way of reading passes the gate, and one that is added without being entered here fails.

Every guard and status that a row can have stands in one memory, and every view of it is asked everything there is.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, product
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
from msgspec import structs

from chatbot.embedding import Embedder, EmbeddingResult, Judgement
from chatbot.memory.meaning import Meaning
from chatbot.memory.memory import Memory
from chatbot.memory.profile import PROPOSED
from chatbot.memory.profile_lines import CATEGORY, OWN
from chatbot.memory.scope import Caller, Environment, Scope
from chatbot.messages import Usage
from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES, Sensitivity, View
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import LINE, STATUSES, Observation, Triple
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import FactFilter, Filter, Labelled, Question
from chatbot.stores.row_events import HELD, KINDS, Event
from chatbot.stores.vectors import unit, vector
from tests.effort import share
from tests.stores.reference import ReferenceStore

NOW = datetime(2026, 3, 4, tzinfo=UTC)
SPACES = ("", "work")
SEEN = {
    "full": {"private", "shared", "social"},
    "inner": {"shared", "social"},
    "familiar": {"social"},
    "public": set(),
}
ASKED: tuple[frozenset[Sensitivity], ...] = (
    frozenset({"public"}),
    frozenset({"public", "private"}),
    frozenset({"secret", "unknown"}),
    frozenset(SENSITIVITIES),
)
VIEWS = [
    View(clearance, NOW, asked, spaces)
    for clearance, asked, spaces in product(CLEARANCES, ASKED, (*map(frozenset, ([""], ["work"], SPACES)), None))
]
OWNER = View("full", NOW, frozenset(SENSITIVITIES), None)


def is_allowed(row: Observation | Triple, view: View) -> bool:
    """The gate, in other words than those of `chatbot.stores.access`."""
    return (
        row.visibility in SEEN[view.clearance]
        and row.sensitivity in view.asked
        and row.sensitivity != "unknown"
        and (row.sensitivity != "secret" or view.clearance == "full")
        and (view.namespaces is None or row.namespace in view.namespaces)
        and CLEARANCES.index(view.clearance) <= CLEARANCES.index(row.min_clearance)
    )


def id_of(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def guarded(statuses: Collection[Any], needed: Collection[Any]) -> Iterator[Observation]:
    """A row for each guard and status; every label that it has is its id."""
    every = product(VISIBILITIES, SENSITIVITIES, statuses, needed, SPACES)
    for number, (visibility, sensitivity, status, min_clearance, space) in enumerate(every):
        name = id_of(number)
        yield Observation(
            id=name,
            created_at=NOW,
            updated_at=NOW,
            type="session_summary",
            title=f"zebra {number}",
            visibility=visibility,
            sensitivity=sensitivity,
            status=status,
            min_clearance=min_clearance,
            namespace=space,
            agent_id=name,
            session_id=name,
            project=name,
            subject=name,
            category=name,
            tags=(name,),
            concepts=(name,),
            people=(name,),
            files_read=(name,),
            metadata={"kind": "task", "status": "pending", "surface": "startup"},
        )


def facts_of(rows: list[Observation]) -> Iterator[Triple]:
    """For each row a fact that has it as its source, and one that has none and the same guard."""
    for number, row in enumerate(rows):
        guard = {name: getattr(row, name) for name in ("visibility", "sensitivity", "min_clearance", "namespace")}
        if row.sensitivity != "unknown":
            yield Triple(
                id=id_of(10_000 + number), subject="s", predicate="p", object="o", created_at=NOW, source=row.id,
                visibility="social", sensitivity="public", namespace=row.namespace,
            )  # fmt: skip
        yield Triple(id=id_of(20_000 + number), subject="s", predicate="p", object="o", created_at=NOW, **guard)


@dataclass
class Zoo:
    """A store that holds a row for each guard and status."""

    store: Any
    rows: list[Observation]
    facts: list[Triple]
    profiles: list[ReferenceStore] = field(default_factory=list)

    def seen(self, view: View, statuses: Collection[str] = STATUSES) -> set[str]:
        return {row.id for row in self.rows if row.status in statuses and is_allowed(row, view)}

    def facts_seen(self, view: View) -> set[str]:
        by_id = {row.id: row for row in self.rows}
        return {
            fact.id
            for fact in self.facts
            if (is_allowed(fact, view) if fact.source is None else fact.source in self.seen(view, ["active"]))
            and is_allowed(by_id[fact.source] if fact.source else fact, view)
        }

    def hidden(self, view: View) -> list[Observation]:
        """Return the rows that the caller may not know of, whatever they ask for."""
        return [row for row in self.rows if not is_allowed(row, structs.replace(view, asked=frozenset(SENSITIVITIES)))]


async def filled(store: Any, statuses: Collection[Any] = STATUSES, needed: Collection[Any] = CLEARANCES) -> Zoo:
    rows = list(guarded(statuses, needed))
    facts = list(facts_of(rows))
    outcomes = await store.commit(
        OWNER,
        [
            *(Event(kind="add", at=NOW, row=row) for row in rows),
            *(Event(kind="triple", at=NOW, triple=fact) for fact in facts),
        ],
    )
    assert {outcome.kind for outcome in outcomes} == {"added"}
    return Zoo(store, rows, facts)


@pytest.fixture(params=["reference", "observations"])
async def zoo(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Zoo]:
    store: Any = ReferenceStore(tmp_path)
    if request.param == "observations":
        store = ObservationFileStore(tmp_path / "memory", cache=str(tmp_path / "cache"))
    async with store:
        yield await filled(store)


async def _get(zoo: Zoo, view: View) -> None:
    ids = [row.id for row in zoo.rows]
    assert {row.id for row in await zoo.store.get(view, ids)} == zoo.seen(view, ["active"])
    assert {row.id for row in await zoo.store.get(view, ids, current=False)} == zoo.seen(view)


async def _find(zoo: Zoo, view: View) -> None:
    for statuses in [(status,) for status in STATUSES] + [STATUSES]:
        page = await zoo.store.find(view, Filter(statuses=statuses), limit=1000)
        assert {row.id for row in page.rows} == zoo.seen(view, statuses)
    for row in zoo.hidden(view)[::20]:
        with pytest.raises(UnknownObservation):
            await zoo.store.find(view, Filter(), after=row.id)


async def _match(zoo: Zoo, view: View) -> None:
    assert {match.id for match in await zoo.store.match(view, ["zebra"], Filter(), limit=1000)} == zoo.seen(
        view, ["active"]
    )


async def _nearest(zoo: Zoo, view: View) -> None:
    await _fill_vectors(zoo)
    found = await zoo.store.nearest(view, [1.0, 0.0], Filter(), model="m", limit=1000)
    assert {match.id for match in found} == zoo.seen(view, ["active"])


async def _later_alike(zoo: Zoo, view: View) -> None:
    await _fill_vectors(zoo)
    seen = zoo.seen(view, ["active"])
    found = await zoo.store.later_alike(view, [row.id for row in zoo.rows], Filter(), model="m", limit=100)
    assert found.keys() <= seen
    assert {match.id for matches in found.values() for match in matches} <= seen


async def _missing_vectors(zoo: Zoo, view: View) -> None:
    await _fill_vectors(zoo)
    assert await zoo.store.missing_vectors(view, model="m", limit=1000) == []


async def _vector_stats(zoo: Zoo, view: View) -> None:
    await _fill_vectors(zoo)
    stats = await zoo.store.vector_stats(view)
    assert (stats.embedded, stats.missing) == (len(zoo.seen(view, ["active"])), 0)


async def _fill_vectors(zoo: Zoo) -> None:
    """A vector for every row that somebody can see."""
    everything = View("full", NOW, frozenset(SENSITIVITIES), None)
    while rows := await zoo.store.missing_vectors(everything, model="m", limit=1000):
        await zoo.store.put_vectors("m", [(row, [1.0, 0.0]) for row in rows])


async def _states(zoo: Zoo, view: View) -> None:
    found = await zoo.store.states(view, Filter(statuses=STATUSES), limit=1000)
    assert {each.id for each in found} == zoo.seen(view)


async def _candidates(zoo: Zoo, view: View) -> None:
    await _fill_vectors(zoo)
    seen = zoo.seen(view, ["active"])
    question = Question(terms=("zebra",), vectors=(unit([1.0, 0.0]),), model="m", limit=1000)
    found = await zoo.store.candidates(view, question, Filter(statuses=STATUSES))
    assert found.rows.keys() == found.similar.keys() == seen
    assert found.neighbours.keys() <= seen
    assert {other for others in found.neighbours.values() for other in others} <= seen
    assert found.sessions.keys() == {row.session_id for row in zoo.rows if row.id in seen and row.session_id}


async def _history(zoo: Zoo, view: View) -> None:
    seen = zoo.seen(view)
    for row in zoo.rows[VIEWS.index(view) % 23 :: 23]:
        versions = await zoo.store.history(view, row.id)
        assert [version.observation.id for version in versions] == ([row.id] if row.id in seen else [])


async def _facets(zoo: Zoo, view: View) -> None:
    seen = zoo.seen(view, ["active"])
    for name in get_args(Labelled):
        facets = await zoo.store.facets(view, name, limit=1000)
        if name == "type":
            assert sum(facet.count for facet in facets) == len(seen)
        else:
            assert {facet.value for facet in facets} == seen


async def _facts(zoo: Zoo, view: View) -> None:
    found = await zoo.store.facts(view, FactFilter(), limit=1000)
    wanted = zoo.facts_seen(view)
    assert {fact.id for fact in found} <= wanted
    assert len(found) == min(len(wanted), 1000)


async def _resolve(zoo: Zoo, view: View) -> None:
    assert set(await zoo.store.resolve(view, "0", limit=1000)) == zoo.seen(view)
    for row in zoo.hidden(view)[::50]:
        assert await zoo.store.resolve(view, row.id) == []


async def _stats(zoo: Zoo, view: View) -> None:
    stats = await zoo.store.stats(view)
    current = zoo.seen(view, ["active"])
    assert sum(stats.by_status.values()) == len(zoo.seen(view))
    assert sum(stats.by_type.values()) == sum(stats.by_visibility.values()) == len(current)
    assert stats.facts == len(zoo.facts_seen(view))


async def _purge(zoo: Zoo, view: View) -> None:
    for row in zoo.hidden(view)[::40]:
        with pytest.raises(UnknownObservation, match=f"no memory has the id {row.id}"):
            await zoo.store.purge(view, [row.id])


async def _commit(zoo: Zoo, view: View) -> None:
    """Whatever is asked of a hidden row is answered as if there was none."""
    missing = id_of(99_999)
    for kind in KINDS:
        for row in islice(zoo.hidden(view), VIEWS.index(view) % 11, None, 97):
            about = [_about(kind, each) for each in (row.id, missing)]
            hidden, unknown = await zoo.store.commit(view.asking_all(), about)
            assert type(hidden.error) is type(unknown.error)
            assert hidden.reason == unknown.reason.replace(missing, row.id)
            assert hidden.kind == "skipped", kind


def _about(kind: Any, about: str) -> Event:
    if kind == "add":
        row = Observation(id=str(uuid4()), created_at=NOW, updated_at=NOW, title=str(uuid4()), visibility="social",
                          sensitivity="public", namespace="work")  # fmt: skip
        return Event(kind="add", at=NOW, row=row, supersedes=about)
    if kind == "triple":
        fact = Triple(id=str(uuid4()), subject="s", predicate="p", object="o", created_at=NOW, source=about,
                      visibility="social", sensitivity="public", namespace="work")  # fmt: skip
        return Event(kind="triple", at=NOW, triple=fact)
    return Event(kind=kind, at=NOW, ids=(about,), by=about, fields={"title": "mine"} if kind == "update" else {})


STORE: dict[str, Callable[[Zoo, View], Awaitable[None]]] = {
    "get": _get,
    "find": _find,
    "match": _match,
    "candidates": _candidates,
    "states": _states,
    "nearest": _nearest,
    "later_alike": _later_alike,
    "missing_vectors": _missing_vectors,
    "vector_stats": _vector_stats,
    "history": _history,
    "facets": _facets,
    "facts": _facts,
    "resolve": _resolve,
    "stats": _stats,
    "purge": _purge,
    "commit": _commit,
}


def test_every_operation_of_a_store_that_takes_a_view_is_known_here() -> None:
    taking_views = {
        name
        for name, method in inspect.getmembers(ObservationStore, inspect.iscoroutinefunction)
        if not name.startswith("_") and "view" in inspect.signature(method).parameters
    }
    assert taking_views == STORE.keys()
    without = {
        name
        for name, method in inspect.getmembers(ObservationStore, inspect.isfunction)
        if not name.startswith("_") and name not in taking_views
    }
    # None of these says anything about a row: what they are told comes from who was shown it.
    telling_nothing = {
        "turn_reads",
        "committing",
        "check_open",
        "reindex",
        "aclose",
        "put_vectors",
        "forget_vectors",
    }
    assert without == telling_nothing | {"examine"}  # which tells of files; see the test below


async def test_an_examination_tells_of_files_and_of_no_row(zoo: Zoo) -> None:
    told = repr(await zoo.store.examine(verify=True))
    assert not [row.id for row in zoo.rows if row.id in told]
    assert "zebra" not in told


async def test_no_operation_of_a_store_passes_the_gate(zoo: Zoo) -> None:
    before = await zoo.store.find(OWNER, Filter(statuses=STATUSES), limit=1000)
    for name, check in STORE.items():
        for view in share(VIEWS, name):
            try:
                await check(zoo, view)
            except (AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{name} through {view}") from error
    assert await zoo.store.find(OWNER, Filter(statuses=STATUSES), limit=1000) == before


async def test_a_hidden_row_is_no_twin_of_what_a_caller_says(tmp_path: Path) -> None:
    for store in (ReferenceStore(tmp_path), ObservationFileStore(tmp_path / "m", cache=str(tmp_path / "c"))):
        async with store:
            said = Observation(id=id_of(1), created_at=NOW, updated_at=NOW, title="tea", visibility="social")
            await store.commit(OWNER, [Event(kind="add", at=NOW, row=replace(said, sensitivity="secret"))])
            view = View("familiar", NOW)
            row = replace(said, id=id_of(2), sensitivity="public")
            [outcome] = await store.commit(view, [Event(kind="add", at=NOW, row=row)])
            assert outcome.kind == "added"


class AllAlike(Embedder):
    """To whom everything means the same."""

    name = "all-alike"
    sends_away = False

    @property
    def dimension(self) -> int:
        return 2

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return EmbeddingResult([vector([1.0, 1.0])] * len(texts), Usage(0, 0))

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        return [Judgement(False, True, 0, {})] * len(texts)  # noqa: FBT003 - it is declared without defaults


async def _lines(zoo: Zoo, memories: Memory, view: View) -> dict[str, set[str]]:
    """The same of a profile, whose lines the same rows are; no more is asked for than its operations ask for."""
    seen = zoo.seen(view, ["active"])
    lined, proposed, told = [Memory(structs.replace(memories.scope, store=each)) for each in await _profiles(zoo)]
    meaning = Meaning(AllAlike(), told.scope.store)
    await meaning.embed_missing()
    answers = await _meant(told, meaning).standing(ask=tuple(view.asked))
    ask = tuple(view.asked)
    is_own, is_whole = view.asked == set(OWN), view.asked == set(SENSITIVITIES)
    try:
        past = {line.id for line in await lined.profile_history("speaks")} if is_whole else seen
    except UnknownObservation:
        past = set()
    return {
        "standing": seen | {row.id for answer in answers for row in answer.rows},
        "profile": {line.id for line in await lined.profile(ask=ask)},
        "profile_for": {line.id for line in await lined.profile_for("Do I speak a language?", seen)}
        if is_own
        else seen,
        "profile_proposals": {row.id for row in await proposed.profile_proposals()} if is_own else seen,
        "profile_history": past,
    }


async def _profiles(zoo: Zoo) -> list[ReferenceStore]:
    """The rows of the memory as lines of a profile, as proposals for one, and as exchanges; made once for each."""
    if not zoo.profiles:
        kinds = [[_line(row, kind) for row in zoo.rows] for kind in (LINE, PROPOSED)]
        said = [replace(row, type="exchange", user_text=f"zebra {row.id}") for row in zoo.rows]
        for rows in (*kinds, said):
            store = ReferenceStore(Path())
            await store.commit(OWNER, [Event(kind="add", at=NOW, row=row) for row in rows])
            zoo.profiles.append(store)
    return zoo.profiles


def _line(row: Observation, kind: str) -> Observation:
    held = {"value": row.id, "also": True}
    return replace(row, category=CATEGORY, metadata={"kind": kind, "line": "speaks", HELD: held})


def _meant(memories: Memory, meaning: Meaning) -> Memory:
    environment = structs.replace(memories.scope.environment, meaning_of=lambda _: meaning)
    return Memory(structs.replace(memories.scope, environment=environment))


async def _remembered(zoo: Zoo, memories: Memory, view: View) -> dict[str, set[str]]:
    """For each operation that reads: the ids that it gives away, of those that are active and those that are not."""
    ask = tuple(view.asked)
    seen = zoo.seen(view, ["active"])
    found: dict[str, set[str]] = {
        "search": {hit.observation.id for hit in await memories.search("zebra", limit=1000, ask=ask)}
        | {hit.observation.id for hit in await memories.search(limit=1000, ask=ask, count_use=False)},
        "get": {row.id for row in await memories.get([row.id for row in zoo.rows], ask=ask)},
        "list_observations": {row.id for row in (await memories.list_observations(limit=1000, ask=ask)).rows},
        "every": {row.id for row in await memories.every(ask=ask)},
        "tasks": {task.id for task in await memories.tasks(ask=ask)},
        "session_summaries": {row.id for row in await memories.session_summaries(limit=1000, ask=ask)},
        "people": {person.name for person in await memories.people(ask=ask)},
        "stats": seen if sum((await memories.stats(ask=ask)).by_type.values()) == len(seen) else {"miscounted"},
        "query_facts": {fact.source for fact in await memories.query_facts(limit=1000, ask=ask) if fact.source},
    }
    recalled = {each.id for each in (await memories.recall("zebra", limit=1000, ask=ask)).considered}
    found["recall"] = seen | recalled
    meaning = Meaning(AllAlike(), zoo.store)
    await meaning.embed_missing()
    [alike] = await _meant(memories, meaning).like([("zebra", Filter())], limit=1000, ask=ask)
    found["like"] = {hit.observation.id for hit in alike}
    counted = await memories.vector_stats(ask=ask)
    found["vector_stats"] = seen if counted.embedded + counted.missing == len(seen) else {"miscounted"}
    [batch] = await memories.search_batch(["zebra"], limit=1000, ask=ask)
    found["search_batch"] = seen | {hit.observation.id for hit in batch}
    anchors = sorted(seen)[:1]
    found["timeline"] = {
        row.id for each in anchors for row in await memories.timeline(each, before=1000, after=1000, ask=ask)
    }
    found["history"] = set()
    found["row"] = set()
    found["resolve"] = set()
    for row in zoo.rows:
        if row.status != "active" and row.id in zoo.seen(view):
            continue
        try:
            found["resolve"].add(await memories.resolve(row.id, ask=ask))
            found["row"].add((await memories.row(row.id, ask=ask)).id)
            found["history"] |= {version.observation.id for version in await memories.history(row.id, ask=ask)}
        except UnknownObservation:
            with pytest.raises(UnknownObservation):
                await memories.timeline(row.id, ask=ask)
            with pytest.raises(UnknownObservation):
                await memories.history(row.id, ask=ask)
            with pytest.raises(UnknownObservation):
                await memories.row(row.id, ask=ask)
    return found | await _lines(zoo, memories, view)


READING = {
    "search", "get", "list_observations", "tasks", "session_summaries", "people", "stats", "query_facts",
    "timeline", "history", "resolve", "recall", "row",
    "search_batch", "every", "like", "vector_stats",
    "standing", "profile", "profile_for", "profile_proposals", "profile_history",
}  # fmt: skip
WRITING = {
    "remember", "remember_all", "update", "supersede", "confirm", "forget", "archive", "restore", "purge",
    "purge_expired", "add_task", "update_task", "store_fact", "retract_fact", "add_alias", "summarize_session", "move",
    "reindex", "embed_memories", "note_use", "purge_fact",
    "profile_set", "profile_accept", "profile_reject", "profile_pin", "profile_forget", "profile_learn", "upsert",
    "sum_up",
}  # fmt: skip
PREVIEWING = {"purging"}  # of every sensitivity and status; see `test_a_caller_erases_no_more_than_they_see`
TRYING = {"drafted"}  # which makes a row of what it is given, and asks the store for nothing


def test_every_operation_of_the_memory_is_known_here() -> None:
    operations = {
        name
        for name, method in inspect.getmembers(Memory, inspect.isfunction)
        if not name.startswith("_") and name not in {"within", "everywhere", "expecting"}
    }
    assert operations == READING | WRITING | PREVIEWING | TRYING


def test_no_operation_of_the_memory_passes_the_gate(tmp_path: Path) -> None:
    async def look() -> None:
        zoo = await filled(ReferenceStore(tmp_path), ["active", "deleted"], ["full", "public"])
        for view in VIEWS:
            if view.namespaces == frozenset(SPACES):
                continue
            caller, clock = Caller(clearance=view.clearance), Environment(clock=lambda: NOW)
            scope = Scope(zoo.store, caller, clock, across=view.namespaces is None)
            space = "" if view.namespaces is None else next(iter(view.namespaces))
            found = await _remembered(zoo, Memory(scope).within(namespace=space), view)
            assert found.keys() == READING
            for name, ids in found.items():
                assert ids == zoo.seen(view, ["active"]), f"{name} through {view}"

    asyncio.run(look())
