"""Several real processes write one memory at the same time: they lose nothing, and answer like one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from chatbot.stores.observation import STATUSES
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import FactFilter, Filter
from chatbot.stores.row_events import Event
from chatbot.stores.testing.processes import lines_of, start
from tests.effort import NIGHTLY, rounds
from tests.process import begin_together, wait_for_others
from tests.stores.places import NOW, OWNER, Place, adding_all, id_of, row

HERE = "tests.stores.test_observation_processes"
PROCESSES = 4 if NIGHTLY else 2
KEPT = [row(number) for number in range(10)]
EVERYTHING = Filter(statuses=STATUSES)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def at_once(work: Callable[..., Awaitable[None]], place: Place, times: int) -> None:
    """Let processes do the work at the same time; each is told its number, and how often."""
    processes = [start(f"{HERE}:work", f"{HERE}:Place", place.root, work.__name__, n, times) for n in range(PROCESSES)]
    begin_together(processes)
    assert [lines_of(each) for each in processes] == [["ended"]] * PROCESSES


def work(place: Place, name: str, worker: str, times: str) -> None:
    """Do the work of that name with a store of our own."""
    wait_for_others()
    place.run(lambda store: globals()[name](store, int(worker), int(times)))
    print("ended", flush=True)  # noqa: T201 - to the test


async def add(store: ObservationFileStore, worker: int, times: int) -> None:
    for batch in range(times):
        numbers = range(1000 * worker + 5 * batch, 1000 * worker + 5 * batch + 5)
        outcomes = await store.commit(OWNER, adding_all(*map(row, numbers)))
        assert {outcome.kind for outcome in outcomes} == {"added"}


async def say_the_same(store: ObservationFileStore, worker: int, times: int) -> None:
    said = [replace(row(100 * worker + each), title=f"Tea {each % 3}") for each in range(times)]
    assert {each.kind for each in await store.commit(OWNER, adding_all(*said))} <= {"added", "exact_dup"}


async def use_and_purge(store: ObservationFileStore, worker: int, times: int) -> None:
    using = [Event(kind="use", at=NOW, ids=(each.id,)) for each in KEPT]
    for number in range(times):
        extra = row(1000 + 100 * worker + number)
        assert [each.kind for each in await store.commit(OWNER, adding_all(extra))] == ["added"]
        assert {each.kind for each in await store.commit(OWNER, using * 30)} == {"updated"}
        assert len((await store.find(OWNER, Filter(), limit=5)).rows) == 5
        [version] = await store.history(OWNER, KEPT[number % 10].id)
        assert version.observation.id == KEPT[number % 10].id
        assert await store.purge(OWNER, [extra.id]) == [extra.id]


async def everything(store: ObservationFileStore) -> object:
    pages = [await store.find(OWNER, EVERYTHING, order=order, limit=1000) for order in ("created", "updated")]
    return (
        pages,
        await store.match(OWNER, ["titl"], Filter(), limit=1000),
        await store.facets(OWNER, "tags"),
        await store.facts(OWNER, FactFilter()),
        [await store.history(OWNER, row.id) for row in pages[0].rows[:20]],
        structs.replace(await store.stats(OWNER), cache_bytes=0),
    )


def test_processes_that_write_at_the_same_time_keep_every_row_once(place: Place, tmp_path: Path) -> None:
    batches = rounds(40, least=10)
    at_once(add, place, batches)
    found = place.run(lambda store: store.find(OWNER, Filter(), limit=1000))
    wanted = [id_of(1000 * worker + each) for worker in range(PROCESSES) for each in range(5 * batches)]
    assert sorted(row.id for row in found.rows) == sorted(wanted)
    assert place.run(everything) == place.run(everything, tmp_path / "another cache")


@pytest.mark.nightly
def test_the_same_said_by_all_at_once_becomes_one_row_that_counts_the_others(place: Place) -> None:
    at_once(say_the_same, place, 30)
    rows = place.run(lambda store: store.find(OWNER, EVERYTHING, limit=100)).rows
    counts = [(f"Tea {number}", PROCESSES * 10 - 1) for number in range(3)]
    assert sorted((row.title, row.mention_count) for row in rows) == counts


@pytest.mark.nightly
def test_uses_purges_and_compactions_at_the_same_time_lose_nothing(place: Place) -> None:
    place.commit(*adding_all(*KEPT))
    at_once(use_and_purge, place, 10)
    rows = place.run(lambda store: store.find(OWNER, EVERYTHING, order="created", limit=100)).rows
    assert [(row.id, row.use_count) for row in rows[::-1]] == [(row.id, PROCESSES * 300) for row in KEPT]
