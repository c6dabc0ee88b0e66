"""A server that never saw an identity begins with what others keep in the database, not with the whole log."""

import sys
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import Draft, MemorySystem
from chatbot.stores.observations import replica
from tests.postgres import address, open_backend

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]
ROWS = 600
PIECES = "SELECT count(*) FROM chatbot.piece WHERE identity = %(identity)s AND shelf = 'table'"


def _opened(folder: Path, cache: str) -> MemorySystem:
    where = address(folder)
    settings: dict[str, dict[str, Any]] = {"observations": {"cache": str(folder / cache)}}
    return MemorySystem(f"{where.url}#{where.identity}", settings=settings)


async def test_it_reads_their_table_and_no_line_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _opened(tmp_path, "one") as one:
        await one.memories("chat").remember_all([Draft(f"hive {n} of Ada") for n in range(ROWS)])
        assert await one.memories("chat").search("hive", limit=1, count_use=False)
    monkeypatch.setattr(replica, "event_of", lambda *_: sys.exit("a line was read"))
    async with _opened(tmp_path, "two") as two:
        [hit] = await two.memories("chat").search("hive 17", limit=1, count_use=False)
        assert hit.observation.title == "hive 17 of Ada"
    assert not (tmp_path / "two").exists()  # nothing is kept on its disk


async def test_what_is_erased_is_in_no_table_that_others_read(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    async with _opened(tmp_path, "one") as one:
        kept = await one.memories("chat").remember_all([Draft(f"hive {n} of Ada", tags=("bees",)) for n in range(ROWS)])
    assert backend.rows(PIECES) == [(1,)]
    async with _opened(tmp_path, "two") as two:
        await two.memories("chat").purge(kept[0].id)
        assert backend.rows(PIECES) == [(0,)]
    backend.close()
