"""Following a memory: what is told, to whom, from which position, and that it tells nothing that is hidden."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from chatbot.embed import open_memory
from chatbot.memory import MemorySystem
from chatbot.memory.notices import Following, MemoryChange
from chatbot.memory.scope import digest_of, user_namespace
from chatbot.memory.users import erase_user
from chatbot.stores.errors import InvalidValue

STORES = ("basic_session", "observations")
ALICE = user_namespace("alice")


def run(home: Path, check: Callable[[MemorySystem], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with MemorySystem(home) as system:
            await check(system)

    asyncio.run(opened())


async def everything(following: Following) -> list[MemoryChange]:
    found: list[MemoryChange] = []
    while new := await following.read(limit=3):
        found += new
    return found


def told(changes: list[MemoryChange]) -> list[tuple[Any, ...]]:
    return [(each.kind, each.change, each.memory.id if each.memory else each.ids) for each in changes]


def test_changes_of_memories_and_sessions_are_told_from_any_position(tmp_path: Path) -> None:
    async def check(system: MemorySystem) -> None:
        memory, live = system.memory("chat"), system.following("chat")
        assert await live.read() == []
        kept = await memory.remember("Anna lives in Lisbon")
        session = await system.create_session(STORES, "chat", title="Moving")
        await memory.update(kept.id, title="Anna lives in Porto")
        await system.rename_session(session.id, "Porto")
        await system.delete_session(session.id)
        await memory.purge(kept.id)
        every = await everything(system.following("chat", "0"))
        assert told(every) == [
            ("session.added", "", (session.id,)),
            ("session.changed", "", (session.id,)),
            ("session.deleted", "", (session.id,)),
            ("memory.purged", "", (kept.id,)),
        ]
        assert told(await everything(live)) == told(every)
        for number, each in enumerate(every):
            assert told(await everything(system.following("chat", each.position))) == told(every[number + 1 :])

    run(tmp_path, check)


def test_a_change_of_another_process_is_seen_and_the_position_outlives_this_one(tmp_path: Path) -> None:
    positions: list[str] = []

    async def follow(system: MemorySystem) -> None:
        live = system.following("chat")
        assert await live.read() == []
        async with MemorySystem(tmp_path) as other:
            first = await other.memory("chat").remember("Anna lives in Lisbon")
        [change] = await live.read()
        assert (change.kind, change.memory and change.memory.id) == ("memory.added", first.id)
        positions.append(live.position)
        await system.memory("chat").remember("Ben has a boat")

    async def go_on(system: MemorySystem) -> None:
        [change] = await everything(system.following("chat", positions[0]))
        assert change.memory is not None
        assert change.memory.title == "Ben has a boat"

    run(tmp_path, follow)
    run(tmp_path, go_on)


def test_nobody_learns_of_what_they_may_not_read(tmp_path: Path) -> None:
    async def check(system: MemorySystem) -> None:
        guest, alice = system.cleared_for("familiar"), system.cleared_for(namespace=ALICE)
        await guest.memory("chat").remember("Open to guests", visibility="social")
        lives = [each.following("chat") for each in (guest, alice)]
        before = [await each.read() or each.position for each in lives]
        secret = await system.memory("chat").remember("For me alone")
        await system.memory("chat").update(secret.id, title="Still for me alone")
        session = await system.create_session(STORES, "chat", title="Mine")
        await system.rename_session(session.id, "Still mine")
        await system.delete_session(session.id)
        await system.memory("chat").purge(secret.id)
        assert [await each.read() or each.position for each in lives] == before
        alices = await alice.memory("chat").remember("Alice's own")
        assert told(await everything(lives[1])) == [("memory.added", "add", alices.id)]
        assert await lives[0].read() == []

    run(tmp_path, check)


def test_an_erased_user_is_told_to_who_may_list_users_and_not_by_name(tmp_path: Path) -> None:
    async def check(system: MemorySystem) -> None:
        alice = system.cleared_for(namespace=ALICE)
        kept = await alice.memory("chat").remember("Alice's own")
        owner, guest, theirs = (
            system.following("chat"),
            system.cleared_for("inner").following("chat"),
            alice.following(),
        )
        for each in (owner, guest, theirs):
            await each.read()
        await erase_user(alice)
        assert told(await everything(owner)) == [("user.erased", "", (digest_of(ALICE),))]
        assert await guest.read() == []
        assert [each.ids for each in await everything(theirs)] == [(kept.id,), (digest_of(ALICE),)]
        assert b"alice" not in b"".join(each.read_bytes() for each in tmp_path.rglob("changes*"))

    run(tmp_path, check)


def test_a_position_that_is_none_is_refused(tmp_path: Path) -> None:
    async def check(system: MemorySystem) -> None:
        for wrong in ("", "x", "1~2", "1.x", "-1", "1" * 20, "0.0.0"):
            with pytest.raises(InvalidValue, match="position"):
                system.following("chat", wrong)

    run(tmp_path, check)


def test_an_agent_follows_its_memory() -> None:
    async def check() -> None:
        async with open_memory(None, user="ada") as memory:
            await memory.remember("Anna lives in Lisbon")
            changes = memory.changes("0")
            first = await anext(changes)
            assert first.memory is not None
            assert first.memory.title == "Anna lives in Lisbon"
            await changes.aclose()

    asyncio.run(check())
