"""The engine as a whole: a journal of format 1 opens, and nothing that is read is ever unpickled."""

import shutil
import subprocess
import sys
from pathlib import Path

from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import FactFilter, Filter
from tests.stores.places import OWNER, id_of

JOURNALS = Path(__file__).parent / "journals"
ROOT = Path(__file__).parents[2]


async def test_a_journal_of_the_first_format_opens_and_answers_unchanged(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    copy = tmp_path / "memory" / "observations.jsonl"
    shutil.copy(JOURNALS / "observations-1.jsonl", copy)
    for _ in range(2):  # from the journal, and then from the caches
        async with ObservationFileStore(tmp_path / "memory", cache=str(tmp_path / "cache")) as store:
            stats = await store.stats(OWNER)
            assert dict(stats.by_status) == {"active": 5, "superseded": 1, "deleted": 1, "archived": 1}
            found = await store.match(OWNER, ["appl"], Filter())
            assert {each.id for each in found} == set(map(id_of, (1, 2, 3, 8)))
            assert [each.id for each in await store.match(OWNER, ["alter"], Filter())] == [id_of(1)]
            assert [fact.object for fact in await store.facts(OWNER, FactFilter())] == ["pears"]
            rows = {row.id: row for row in await store.get(OWNER, [id_of(2), id_of(3)])}
            assert (rows[id_of(2)].mention_count, rows[id_of(3)].confirmed_count) == (1, 1)
            assert [each.observation.id for each in await store.history(OWNER, id_of(9))] == [id_of(4), id_of(9)]
            assert await store.get(OWNER, [id_of(7)]) == []
            await store.reindex()
    assert copy.read_bytes() == (JOURNALS / "observations-1.jsonl").read_bytes()


READS = """
import asyncio, marshal, pickle, sys
from pathlib import Path

import numpy
import whoosh.writing
from chatbot.memory import MemorySystem
import chatbot.memory.recall, chatbot.memory.session_search
from chatbot.stores.observations import codec


def refuse(*_given, **_more):
    raise AssertionError("something was unpickled")


async def drive(home, cache, is_first):
    stores = {"observations": {"cache": cache}}
    async with MemorySystem(home, settings=stores) as memory:
        session = await memory.create_session(["observations"], "chat")
        if is_first:
            for number in range(60):
                title = f"apples and pears {number}"
                await session.memory.remember(title, people=("Ada",), type="note", tags=("fruit",))
        hits = await session.memory.search("apples")
        assert hits
        assert (await session.memory.recall("what about pears?")).considered
        assert (await session.memory.list_observations(limit=5)).rows
        assert await session.memory.history(hits[0].observation.id)
        assert (await session.memory.timeline(hits[0].observation.id)) is not None
        assert await session.memory.people()
        await session.memory.query_facts()
        await memory.search_sessions("apples")
        assert await memory.memory().reindex() == 60
        assert await session.memory.search("pears")


def drive_all(home, cache):
    asyncio.run(drive(home, str(cache), is_first=not home.exists()))
    assert list(cache.glob("*/index/seg-*"))


root = Path(sys.argv[1])
drive_all(root / "other", root / "other cache")  # imports everything
pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = pickle._load = pickle._loads = refuse
marshal.load = marshal.loads = refuse
drive_all(root / "memory", root / "cache")
print("read")
"""


def test_nothing_that_is_read_is_ever_unpickled(tmp_path: Path) -> None:
    for _ in range(2):  # the second process reads what the first has left
        command = [sys.executable, "-c", READS, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stdout) == (0, "read\n"), done.stdout + done.stderr
