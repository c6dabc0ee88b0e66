"""Work of one process that the next need not repeat; it is a cache and nothing more."""

import asyncio
import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chatbot.stores.observation import Observation
from chatbot.stores.observations import search
from chatbot.stores.observations.search import document_of
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import Filter
from chatbot.stores.row_events import Event
from chatbot.stores.text.bm25 import Document
from tests.disk import fill
from tests.stores import places
from tests.stores.places import NOW, OWNER, Place, id_of, update

ROOT = Path(__file__).parents[2]


def adding(number: int, **fields: Any) -> Event:
    return places.adding(number, **{"narrative": f"word{number % 7}"} | fields)


async def found(store: ObservationFileStore, *words: str) -> dict[str, float]:
    """Who is found by these words, and how well."""
    return {match.id: match.score for match in await store.match(OWNER, words or ["titl"], Filter(), limit=1000)}


class Short(Place):
    """A memory that short processes use, which count the rows that they analyse."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def analyses(self, *words: str) -> int:
        """How many rows have to be analysed until there is an answer, which is that of a new index."""
        self.read.clear()
        answer = self.run(lambda store: found(store, *words))
        count = len(self.read)
        with tempfile.TemporaryDirectory() as cache:
            assert answer == self.run(lambda store: found(store, *words), cache=Path(cache))
        return count

    def files(self) -> list[Path]:
        return list(self.cache.glob("*/index/seg-*"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Short:
    place = Short(tmp_path)

    def counted(row: Observation) -> Document:
        place.read.append(row.id)
        return document_of(row)

    monkeypatch.setattr(search, "document_of", counted)
    return place


@pytest.fixture(autouse=True)
def _all_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def test_the_next_process_does_not_analyse_what_one_has(place: Short) -> None:
    place.commit(*(adding(number) for number in range(1, 51)))
    assert place.analyses() == 50
    assert [path.stat().st_mode & 0o777 for path in place.files()] == [0o600]
    assert place.analyses() == 0
    assert place.analyses("word3", "title") == 0
    place.commit(adding(51), adding(52, title="other"))
    assert place.analyses() == 2


def test_what_was_changed_since_is_analysed_and_found_as_it_is(place: Short) -> None:
    place.commit(*(adding(number) for number in range(1, 51)))
    place.analyses()
    place.commit(update(id_of(5), title="altered title"), Event(kind="delete", at=NOW, ids=(id_of(6),)))
    assert place.analyses("titl", "alter") == 1
    assert id_of(6) not in place.run(found)
    place.commit(Event(kind="restore", at=NOW, ids=(id_of(6),)))
    assert place.analyses("titl", "alter") == 1
    assert set(place.run(lambda store: found(store, "alter"))) == {id_of(5)}


def test_what_is_deleted_is_not_kept(place: Short) -> None:
    place.commit(*(adding(number, narrative="unmistakable" if number > 39 else "") for number in range(1, 101)))
    place.commit(Event(kind="delete", at=NOW, ids=tuple(id_of(number) for number in range(40, 101))))
    assert place.analyses() == 39
    assert place.analyses() == 0
    assert place.holding("unmistak") == ["observations.jsonl"]


@pytest.mark.nightly
def test_many_processes_leave_few_segments_and_analyse_little(place: Short, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LEAST_ROWS", 16)
    segments = [0]

    async def work(first: int, store: ObservationFileStore) -> None:
        await store.commit(OWNER, [adding(number) for number in range(first, first + 4)])
        assert len(await found(store, f"word{first % 7}")) == len(range(first, 0, -7))

    for first in range(1, 1001, 4):
        place.run(partial(work, first))
        segments.append(len(place.files()))
    assert 2 <= max(segments) <= 8  # 512, 256 and so on to 16 rows, and one that is just being replaced
    assert len(place.read) < 5 * 1000  # not 125 * 1000, as often as there were processes since


@pytest.mark.parametrize("moment", ["before it leaves", "between erasing and rewriting", "while nothing is indexed"])
def test_what_another_purges_then_is_left_by_nobody(place: Short, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.commit(adding(1, narrative="unmistakable"), *(adding(number) for number in range(2, 101)))
    if moment != "while nothing is indexed":
        place.run(lambda store: store.reindex())
        place.commit(adding(101, narrative="unmistakable"), *(adding(number) for number in range(102, 201)))
    gone = [id_of(1)] if moment == "while nothing is indexed" else [id_of(1), id_of(101)]

    async def work(store: ObservationFileStore) -> None:
        if moment == "between erasing and rewriting":
            writer = purger._writer
            rewrite = writer._rewrite

            def rewriting(*given: Any, **more: Any) -> None:
                asyncio.run(late())
                rewrite(*given, **more)

            async def late() -> None:
                assert len(await found(store, "unmistak")) == 2
                store._replica.search.write_for_next()
                assert place.holding("unmistak") != []

            monkeypatch.setattr(writer, "_rewrite", rewriting)
        else:
            assert len(await found(store, "unmistak")) == len(gone)
        assert await purger.purge(OWNER, gone) == gone

    purger = place.open()
    place.run(work)
    asyncio.run(purger.aclose())
    assert place.holding("unmistak") == []
    assert place.analyses("titl", "unmistak") > 0
    assert place.holding("unmistak") == []


def test_a_full_disk_costs_the_file_alone(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Short(small_disk)
    place.commit(*(adding(number) for number in range(1, 101)))

    async def work(store: ObservationFileStore) -> None:
        assert len(await found(store)) == 100
        fill(small_disk)

    place.run(work)
    assert "stays in memory" in caplog.text
    assert place.files() == []
    assert len(place.run(found)) == 100
    (small_disk / "ballast").unlink()
    place.run(found)
    assert len(place.files()) == 1
