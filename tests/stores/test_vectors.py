"""Vectors in the cache: what damages, kills and strangers do to them, and what an erased row leaves in the files."""

import shutil
import struct
from operator import mul
from pathlib import Path

import pytest

from chatbot.stores.observation import Observation
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import Filter, Question
from chatbot.stores.records import unit
from chatbot.stores.row_events import Event
from chatbot.stores.testing.observation_machine import NOW, OWNER, adding, observation
from tests.stores.places import Place
from tests.stores.reference import alike

MODEL = "local/minilm"
ROWS = [observation(number) for number in range(4)]
VECTORS = [(1.0, 0.0, 0.25), (0.0, 1.0, 0.5), (1.0, 1.0, 0.75), (0.5, 0.25, 1.0)]
ALL = [row.id for row in ROWS]


async def fill(home: Path) -> Path:
    """Four rows with their vectors; where these are."""
    async with Place(home).open() as store:
        await store.commit(OWNER, adding(*ROWS))
        await store.put_vectors(MODEL, list(zip(ROWS, VECTORS, strict=True)))
    [path] = (home / "cache").glob("*/meaning/part-*")
    return path


def all_bytes(home: Path) -> bytes:
    """All that the cache holds of vectors, in whatever file."""
    return b"".join(path.read_bytes() for path in (home / "cache").glob("*/meaning/**/*") if path.is_file())


async def nearest(store: ObservationFileStore, vector: tuple[float, ...] = (1, 1, 1)) -> set[str]:
    return {match.id for match in await store.nearest(OWNER, vector, Filter(), model=MODEL)}


async def missing(store: ObservationFileStore) -> list[Observation]:
    return await store.missing_vectors(OWNER, model=MODEL)


async def mend(store: ObservationFileStore) -> int:
    """Make what is missing again; how much it was."""
    again = [(row, VECTORS[ROWS.index(row)]) for row in await missing(store)]
    kept = await store.put_vectors(MODEL, again)
    assert kept == len(again)
    assert await nearest(store) == set(ALL)
    return kept


async def test_vectors_outlive_the_store_as_little_endian_floats_and_are_not_in_the_identity(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with Place(tmp_path).open() as store:
        assert await nearest(store) == set(ALL)
        stats = await store.vector_stats(OWNER)
    assert (stats.model, stats.dimension, stats.embedded, stats.missing) == (MODEL, 3, 4, 0)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "memory").iterdir())
    assert MODEL.encode() not in kept
    assert unit(VECTORS[2]).tobytes() not in kept
    assert b"".join(struct.pack("<3f", *unit(each)) for each in VECTORS) in all_bytes(tmp_path)


@pytest.mark.parametrize("name", ["part-*", "manifest.json"])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.99])
async def test_a_changed_byte_costs_its_part_and_mixes_nothing(tmp_path: Path, name: str, share: float) -> None:
    [path] = (await fill(tmp_path)).parent.glob(name)
    data = bytearray(path.read_bytes())
    data[int(share * len(data))] ^= 0x41
    path.write_bytes(data)
    async with Place(tmp_path).open() as store:
        assert await nearest(store) <= set(ALL)
        assert await mend(store) in {0, 4}
    async with Place(tmp_path).open() as store:
        assert await mend(store) == 0


async def test_the_density_of_candidates_counts_the_columns_that_all_vectors_use(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with Place(tmp_path).open() as store:
        whole, part = unit([1.0, 1.0, 1.0]), unit([0.0, 1.0, 1.0])
        for vectors, columns in (((whole,), slice(3)), ((whole, part), slice(1, 3))):
            found = await store.candidates(OWNER, Question(vectors=vectors, model=MODEL), Filter())
            parts = [unit(list(each)[columns]) for each in VECTORS]
            around = [sum(sum(map(mul, own, each)) for each in parts) - 1 for own in parts]
            assert found.density == pytest.approx(
                {each: one / 10 for each, one in zip(ALL, around, strict=True)}, abs=1e-5
            )


async def test_an_erased_row_leaves_no_vector_of_any_of_its_texts_behind_and_others_stay(tmp_path: Path) -> None:
    path = await fill(tmp_path)
    async with Place(tmp_path).open() as other, Place(tmp_path).open() as store:
        for title, vector in (("tea", (3.0, 1.0, 0.0)), ("milk", (1.0, 3.0, 0.0))):
            await store.commit(OWNER, [Event(kind="update", at=NOW, ids=(ALL[0],), fields={"title": title})])
            [changed] = await missing(store)
            await store.put_vectors(MODEL, [(changed, (3.0, 3.0, 1.0)), (changed, vector)])
        assert await nearest(other) == set(ALL)
        await store.purge(OWNER, [ALL[0]])
        assert not path.exists()
        for each in (store, other):
            assert await nearest(each) == set(ALL[1:])
            assert await missing(each) == []
        assert await store.put_vectors(MODEL, [(ROWS[0], VECTORS[0])]) == 0
    data = all_bytes(tmp_path)
    vectors = (VECTORS[0], (3, 1, 0), (1, 3, 0), (3, 3, 1), VECTORS[1])
    assert [unit(each).tobytes() in data for each in vectors] == [0, 0, 0, 0, 1]


async def test_texts_that_changed_often_and_small_additions_leave_few_and_small_parts(tmp_path: Path) -> None:
    async with Place(tmp_path).open() as store:
        rows = [observation(number) for number in range(40)]
        await store.commit(OWNER, adding(*rows))
        for turn in range(20):
            events = [Event(kind="update", at=NOW, ids=(row.id,), fields={"title": f"{turn} {row.id}"}) for row in rows]
            await store.commit(OWNER, events)
            changed = await missing(store)
            assert len(changed) == 40
            for batch in [[row] for row in changed] if turn == 19 else [changed]:
                assert await store.put_vectors(MODEL, [(row, (1.0, turn, 0.0)) for row in batch]) == len(batch)
        assert await missing(store) == []
        assert len(await nearest(store)) == 40
        last = rows[-1].id
        for title in ("tea", f"19 {last}"):
            await store.commit(OWNER, [Event(kind="update", at=NOW, ids=(last,), fields={"title": title})])
            assert await store.put_vectors(MODEL, [(each, (0.0, 0.0, 1.0)) for each in await missing(store)]) == 1
        assert last not in await nearest(store, (1, 0, 0))  # by its vector of the same text before
    assert len(all_bytes(tmp_path)) < 24 * 3 * 40 + 2_000
    assert len(list((tmp_path / "cache").glob("*/meaning/part-*"))) <= 6


async def test_losing_the_cache_loses_vectors_and_no_answer_in_words(tmp_path: Path) -> None:
    path = await fill(tmp_path)
    async with Place(tmp_path).open() as store:
        in_words = await store.match(OWNER, ["titl"], Filter())
        assert await nearest(store) == set(ALL)
        shutil.rmtree(path.parent)
        assert await nearest(store) == set()
        assert await store.match(OWNER, ["titl"], Filter()) == in_words
        assert await mend(store) == 4
        await store.reindex()
        assert await mend(store) == 0  # building an index again costs no calls


async def test_rows_that_claim_to_be_longer_than_one_or_no_numbers_are_left_out() -> None:
    rows = b"".join(struct.pack("<2f", *row) for row in [(9, 9), (float("nan"), 1), (1, 0), (float("inf"), 0), (-1, 0)])
    assert list(alike(unit([1, 0]), memoryview(rows))) == [(1.0, 2)]
