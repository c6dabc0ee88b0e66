"""No way of reading passes the gate, for any guard, status and view; one that is not entered here fails."""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
from msgspec import structs

from chatbot.embedder import Embedder, EmbeddingResult, Judgement
from chatbot.memory.meaning import Meaning
from chatbot.memory.memory import Memory
from chatbot.memory.profile import PROPOSED
from chatbot.memory.scope import Caller, Environment, Scope
from chatbot.messages import Usage
from chatbot.stores.access import CLEARANCES, NOT_SECRET, SENSITIVITIES, VISIBILITIES, Sensitivity, View
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observation import LINE, PROFILE, STATUSES, Observation, Triple
from chatbot.stores.query import FactFilter, Filter, Labelled, Question
from chatbot.stores.records import unit, vector
from chatbot.stores.row_events import HELD, KINDS, Event
from tests.effort import share
from tests.stores.places import NOW, OWNER, Place, adding_all, id_of, update
from tests.stores.places import row as made
from tests.stores.test_hidden_is_absent import answer, reads

SPACES = ("", "work")
SEEN = {"full": {"private", "shared", "social"}, "inner": {"shared", "social"}, "familiar": {"social"}, "public": set()}
ASKED: tuple[frozenset[Sensitivity], ...] = (
    frozenset({"public"}),
    frozenset({"public", "private"}),
    frozenset({"secret", "unknown"}),
    frozenset(SENSITIVITIES),
)
VIEWS = [
    View(clearance, NOW, asked, namespaces=spaces)
    for clearance, asked, spaces in product(CLEARANCES, ASKED, (*map(frozenset, ([""], ["work"], SPACES)), None))
]
_ID = re.compile(r"01900000-0000-7000-8000-[0-9a-f]{12}")


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


def guarded(
    statuses: Collection[Any], needed: Collection[Any], kinds: Collection[str] = ("task",)
) -> Iterator[Observation]:
    """A row for each guard and status; every label that it has is its id."""
    every = product(VISIBILITIES, SENSITIVITIES, statuses, needed, SPACES, kinds)
    for number, (visibility, sensitivity, status, min_clearance, space, kind) in enumerate(every):
        name = id_of(number)
        line = {"kind": kind, "line": "speaks", HELD: {"value": name, "also": True}}
        yield made(
            number,
            type="exchange" if kind == "exchange" else "session_summary",
            title=f"zebra {number}",
            user_text=f"zebra {number}" if kind == "exchange" else "",
            visibility=visibility,
            sensitivity=sensitivity,
            status=status,
            min_clearance=min_clearance,
            namespace=space,
            agent_id=name,
            session_id=name,
            project=name,
            subject=name,
            category=PROFILE if kind in {LINE, PROPOSED} else name,
            tags=(name,),
            concepts=(name,),
            people=(name,),
            files_read=(name,),
            metadata=line if kind != "task" else {"kind": "task", "status": "pending", "surface": "startup"},
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

    def seen(self, view: View, statuses: Collection[str] = STATUSES) -> set[str]:
        return {row.id for row in self.rows if row.status in statuses and is_allowed(row, view)}

    def facts_seen(self, view: View) -> set[str]:
        seen = self.seen(view, ["active"])
        return {fact.id for fact in self.facts if (fact.source in seen if fact.source else is_allowed(fact, view))}

    def hidden(self, view: View) -> list[Observation]:
        """Return the rows that the caller may not know of, whatever they ask for."""
        return [row for row in self.rows if not is_allowed(row, structs.replace(view, asked=frozenset(SENSITIVITIES)))]


async def filled(
    store: Any,
    statuses: Collection[Any] = STATUSES,
    needed: Collection[Any] = CLEARANCES,
    kinds: Collection[str] = ("task",),
) -> Zoo:
    rows = list(guarded(statuses, needed, kinds))
    facts = list(facts_of(rows))
    stating = [Event(kind="triple", at=NOW, triple=fact) for fact in facts]
    outcomes = await store.commit(OWNER, [*adding_all(*rows), *stating])
    assert {outcome.kind for outcome in outcomes} == {"added"}
    return Zoo(store, rows, facts)


@pytest.fixture
async def zoo(tmp_path: Path) -> AsyncIterator[Zoo]:
    async with Place(tmp_path).open() as store:
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
    assert {one.id for one in await zoo.store.match(view, ["zebra"], Filter(), limit=999)} == zoo.seen(view, ["active"])


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
    everything = View("full", NOW, frozenset(SENSITIVITIES), namespaces=None)
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
    assert found.sessions.keys() == {row.session_id for row in zoo.rows if row.id in seen and row.session_id}


async def _history(zoo: Zoo, view: View) -> None:
    seen = zoo.seen(view)
    for row in zoo.rows[VIEWS.index(view) % 23 :: 23]:
        versions = await zoo.store.history(view, row.id)
        assert [version.observation.id for version in versions] == ([row.id] if row.id in seen else [])


async def _written_at(zoo: Zoo, view: View) -> None:
    assert (await zoo.store.written_at(view, [row.id for row in zoo.rows])).keys() == zoo.seen(view)


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
        row = made(0, id=str(uuid4()), title=str(uuid4()), visibility="social", namespace="work")
        return Event(kind="add", at=NOW, row=row, supersedes=about)
    if kind == "triple":
        fact = Triple(id=str(uuid4()), subject="s", predicate="p", object="o", created_at=NOW, source=about,
                      visibility="social", sensitivity="public", namespace="work")  # fmt: skip
        return Event(kind="triple", at=NOW, triple=fact)
    return Event(kind=kind, at=NOW, ids=(about,), by=about, fields={"title": "mine"} if kind == "update" else {})


_CHECKS: tuple[Callable[[Zoo, View], Awaitable[None]], ...] = (
    _get, _find, _match, _candidates, _states, _nearest, _later_alike, _missing_vectors, _vector_stats, _history,
    _written_at, _facets, _facts, _resolve, _stats, _purge, _commit,
)  # fmt: skip
STORE = {check.__name__.removeprefix("_"): check for check in _CHECKS}


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
    of_vectors = {"put_vectors", "forget_vectors"}
    telling_nothing = {"turn_reads", "blocking_commit", "check_open", "reindex", "aclose", *of_vectors}
    assert without == telling_nothing | {"examine"}  # which tells of files


async def test_no_operation_of_a_store_passes_the_gate(zoo: Zoo) -> None:
    before = await zoo.store.find(OWNER, Filter(statuses=STATUSES), limit=1000)
    for name, check in STORE.items():
        for view in share(VIEWS, name):
            try:
                await check(zoo, view)
            except (AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{name} through {view}") from error
    assert await zoo.store.find(OWNER, Filter(statuses=STATUSES), limit=1000) == before
    told = repr(await zoo.store.examine(verify=True))  # of files
    assert not [row.id for row in zoo.rows if row.id in told or "zebra" in told]


class AllAlike(Embedder):
    """To whom everything means the same."""

    name = "all-alike"
    sends_away = False

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return EmbeddingResult([vector([1.0, 1.0])] * len(texts), Usage(0, 0))

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        return [Judgement(False, True, 0, {})] * len(texts)  # noqa: FBT003 - it is declared without defaults


SILENT = {"reindex", "embed_memories", "note_use", "preview_purge"}
"""Operations that show no row, and one that previews an erasure, which is of every sensitivity."""
ASKING: dict[str, Collection[Sensitivity]] = {
    "profile_for": NOT_SECRET,
    "profile_proposals": NOT_SECRET,
    "profile_history": SENSITIVITIES,
}
"""Sensitivities that are asked for by operations which let nobody choose."""


async def test_no_operation_of_the_memory_passes_the_gate(tmp_path: Path) -> None:
    kinds = ("task", LINE, PROPOSED, "exchange")
    zoo = await filled(InMemoryStore(tmp_path), ["active", "deleted"], ["full", "public"], kinds)
    meaning = Meaning(AllAlike(), zoo.store)
    await meaning.embed_missing()
    environment = Environment(clock=lambda: NOW, meaning_of=lambda _: meaning)
    views = [view for view in VIEWS if view.namespaces != frozenset(SPACES)]
    for name in reads(()).keys() - SILENT:
        for view in share(views, name):
            scope = Scope(zoo.store, Caller(clearance=view.clearance), environment, across=view.namespaces is None)
            space = "" if view.namespaces is None else next(iter(view.namespaces))
            memories = Memory(scope).within(namespace=space)
            asked = structs.replace(view, asked=frozenset(ASKING.get(name, view.asked)))
            shown, facts = zoo.seen(asked), zoo.facts_seen(asked)
            for each in [next(iter(shown), id_of(99_999)), *(row.id for row in zoo.hidden(view)[::150])]:
                told = await answer(reads(tuple(view.asked))[name], memories, each)
                titles = {id_of(int(number)) for number in re.findall(r"zebra (\d+)", told)}
                ids = {*re.findall(_ID, told)} - {each}
                assert titles <= shown, f"{name} of {each} through {view}"
                assert ids <= shown | facts, f"{name} of {each} through {view}"


INNER, FAMILIAR = (structs.replace(OWNER, clearance=each, namespaces=frozenset({""})) for each in ("inner", "familiar"))
A, B, C, D, MISSING = map(id_of, range(5))


def social(row_id: str, title: str, visibility: str = "social", **fields: object) -> Observation:
    return made(0, id=row_id, title=title, visibility=visibility, **fields)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObservationStore]:
    async with Place(tmp_path).open() as store:
        yield store


async def test_the_wording_of_a_row_before_it_was_widened_stays_hidden(store: ObservationStore) -> None:
    reworded, widened = update(A, title="in treatment"), update(A, title="is away", visibility="shared")
    later = update(A, title="is back", visibility="social")
    await store.commit(
        OWNER, [*adding_all(social(A, "drinks", "private")), reworded, widened, later, update(A, title="well")]
    )
    told = {}
    for view in (OWNER, INNER, FAMILIAR):
        [found] = await store.history(view, A)
        told[view.clearance] = [changes["title"] for _, changes in found.steps if "title" in changes]
        words = repr(found)
        assert ("drinks" in words) == ("in treatment" in words) == (view is OWNER)
    assert told == {
        "full": [("drinks", "in treatment"), ("in treatment", "is away"), ("is away", "is back"), ("is back", "well")],
        "inner": [("is away", "is back"), ("is back", "well")],
        "familiar": [("is back", "well")],
    }


@pytest.mark.parametrize("hidden", [A, C], ids=["the replaced row", "the new row"])
@pytest.mark.parametrize(
    "guard", [{"visibility": "private"}, {"sensitivity": "secret"}, {"min_clearance": "full"}], ids=str
)
async def test_ids_of_hidden_rows_appear_nowhere(store: ObservationStore, guard: dict[str, str], hidden: str) -> None:
    await store.commit(OWNER, adding_all(social(A, "old"), social(B, "source")))
    await store.commit(OWNER, adding_all(social(C, "new", derived_from=(B,)), supersedes=A))
    await store.commit(OWNER, [Event(kind="archive", at=NOW, ids=(A, B, C), why=f"as {hidden}")])
    await store.commit(OWNER, [update(hidden, **guard)])
    everything = Filter(statuses=("active", "superseded", "archived"))
    seen = [each for each in (A, B, C) if each != hidden]
    said = [await store.history(FAMILIAR, each) for each in seen]
    page = await store.find(FAMILIAR, everything, ascending=True)
    assert [version.observation.id for versions in said for version in versions] == seen
    assert {each.id for each in page.rows} == set(seen)
    assert hidden not in repr((said, page))
    assert hidden in repr(await store.history(OWNER, seen[0] if hidden == C else C))


async def test_a_hidden_source_an_erased_one_and_one_that_never_was_are_the_same_error(store: ObservationStore) -> None:
    await store.commit(
        OWNER, adding_all(social(A, "private", "private"), social(B, "elsewhere", namespace="work"), social(C, "c"))
    )
    await store.commit(OWNER, adding_all(social(D, "gone")))
    await store.purge(OWNER, [D])
    for source in (A, B, D, MISSING):
        new = social("01900000-0000-7000-8000-0000000000ff", "made", derived_from=(source,))
        for outcome in await store.commit(FAMILIAR, [*adding_all(new), update(C, derived_from=[source])]):
            assert type(outcome.error) is UnknownObservation
            assert outcome.reason == f"no memory has the id {source}"
