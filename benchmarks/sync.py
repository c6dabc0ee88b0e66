"""Cost of a sync when little is new: CPU and bytes, with many memories and with many sessions.

uv run benchmarks/sync.py [--rows 10000] [--sessions 1000]
"""

import argparse
import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from chatbot.memory import MemorySystem
from chatbot.memory.scope import utc_now
from chatbot.memory.writing import Draft
from chatbot.transfer.sync import sync
from chatbot.transfer.sync_place import FolderPlace

_STORES = ["basic_session", "observations"]


async def _synced(home: Path, place: Path) -> tuple[float, int]:
    """Sync, and return the CPU seconds and how many bytes were added to the place."""
    before = _size(place)
    async with MemorySystem(home) as memory:
        begun = time.process_time()
        await sync(memory, FolderPlace(place), now=utc_now)
        spent = time.process_time() - begun
    return spent, _size(place) - before


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*.gz"))


async def _remember(home: Path, begin: int, count: int) -> None:
    async with MemorySystem(home) as memory:
        texts = (
            f"On day {n} Ada saw {n % 97} bees near hive {n % 13} and wrote it down"
            for n in range(begin, begin + count)
        )
        await memory.memory("chat").remember_all(
            Draft(title=f"note {begin + n}", narrative=each) for n, each in enumerate(texts)
        )


async def _talk(home: Path, sessions: int) -> str:
    last = ""
    async with MemorySystem(home) as memory:
        for number in range(sessions):
            session = await memory.create_session(_STORES, "chat", title=f"session {number}")
            for turn in range(10):
                await session.transcript_append("user", f"message {turn} of {number}: how are the bees today?")
            last = session.id
    return last


async def _say(home: Path, session_id: str) -> None:
    async with MemorySystem(home) as memory:
        await (await memory.load_session(session_id, any_agent=True)).transcript_append("user", "one more")


async def _purge(home: Path) -> None:
    async with MemorySystem(home) as memory:
        memories = memory.memory("chat")
        rows = await memories.every()
        await memories.note_use([each.id for each in rows[:100]])
        await memories.purge(rows[0].id)


async def _main(rows: int, sessions: int) -> None:
    with TemporaryDirectory() as folder:
        one, other, place = (Path(folder, each) for each in ("one", "other", "place"))
        place.mkdir()
        await _remember(one, 0, rows)
        last = await _talk(one, sessions)
        print(f"{'':48} {'CPU':>8} {'bytes':>12}")
        for what, home in (("first machine, everything is new", one), ("second machine, everything is new", other)):
            _show(what, *await _synced(home, place))
        await _synced(one, place)
        _show("nothing is new", *await _synced(one, place))
        await _remember(one, rows, 10)
        _show(f"{rows:,} memories, 10 new: giving", *await _synced(one, place))
        _show(f"{rows:,} memories, 10 new: taking", *await _synced(other, place))
        await _synced(one, place)
        await _purge(one)
        await _remember(one, 2 * rows, 10)
        _show(f"{rows:,} memories, 10 new and a purge: giving", *await _synced(one, place))
        _show(f"{rows:,} memories, 10 new and a purge: taking", *await _synced(other, place))
        _show("nothing is new after a purge", *await _synced(other, place))
        await _synced(one, place)
        await _say(one, last)
        _show(f"{sessions:,} sessions, 1 message: giving", *await _synced(one, place))
        _show(f"{sessions:,} sessions, 1 message: taking", *await _synced(other, place))


def _show(what: str, spent: float, size: int) -> None:
    print(f"{what:48} {spent:6.2f} s {size:12,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    asyncio.run(_main(**vars(parser.parse_args())))
