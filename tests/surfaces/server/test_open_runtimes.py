"""Identities that nobody uses are closed, and open again at their next request with everything that they had."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chatbot.chat.events import SESSION_END, SESSION_START
from chatbot.hooks import Hook
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import OWNER
from chatbot.server.identities import SPARED_S, Identities
from chatbot.server.identity_access import IDLE_S, Chats
from chatbot.stores.errors import ClosedResource, StoreFailed
from tests.command import project
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve, wait_until
from tests.talk import begun


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def identities(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Identities]:
    """Four identities, of which two may stay open."""
    monkeypatch.setattr("chatbot.server.identities.MOST_OPEN", 2)
    project("", "ada", "bea", "cleo", "dora")

    def opened(options: Options) -> Runtime:
        return Runtime(options, model=ScriptedModel(["Noted."] * 9, delay_s=0.001))

    async with Identities(Options(), open_runtime=opened) as identities:
        yield identities


@pytest.fixture
def clock(identities: Identities, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("chatbot.server.identities.monotonic", clock)
    return clock


async def test_the_longest_unused_are_closed_and_no_other_one(identities: Identities, clock: Clock) -> None:
    for name in ("ada", "bea", "cleo", "dora"):
        await identities.runtimes.get(name)
        clock.now += 1
    await identities.runtimes.get("ada")
    assert await identities.runtimes.close_unused() == 0  # each was used within the last minute
    clock.now += SPARED_S
    assert await identities.runtimes.close_unused() == 2
    assert identities.runtimes._all.keys() == {"dora", "ada"}
    clock.now += IDLE_S
    assert await identities.runtimes.close_unused() == 2
    assert not identities.runtimes._all


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_identity_that_cannot_be_closed_leaves_no_other_one_open(
    identities: Identities, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    async def fails() -> None:
        raise StoreFailed("the disk is gone")

    ada, bea = [await identities.runtimes.get(name) for name in ("ada", "bea")]
    monkeypatch.setattr(bea.memory._catalog, "aclose", fails)
    identities.at_work.add(asyncio.create_task(asyncio.sleep(0)))
    closing = asyncio.create_task(identities.aclose())
    await asyncio.sleep(0)
    if is_cancelled:
        closing.cancel()
    with pytest.raises(StoreFailed):
        await closing
    with pytest.raises(ClosedResource):
        await ada.memory.memory().search("heron")


async def test_one_that_cannot_be_closed_does_not_keep_others_open_for_ever(
    identities: Identities, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise RuntimeError("a plug-in's mistake")

    monkeypatch.setattr("chatbot.server.identities._TIDIED_EVERY_S", 0.01)
    ada, bea = [await identities.runtimes.get(name) for name in ("ada", "bea")]
    monkeypatch.setattr(ada.memory, "aclose", fails)
    clock.now += IDLE_S
    async with asyncio.timeout(PATIENCE_S):
        while not bea.memory.is_closed:  # noqa: ASYNC110 - the tidying closes it
            await asyncio.sleep(0.01)


async def test_what_was_closed_goes_on_with_all_that_was_said(identities: Identities, clock: Clock) -> None:
    access = await identities.access(OWNER, "ada")
    session = await access.new_session()
    await (await access.begin_turn(session.id, "The heron stands in the reeds.")).ended()
    clock.now += IDLE_S
    while not await identities.runtimes.close_unused():  # what follows the turn goes first
        clock.now += IDLE_S
        await asyncio.sleep(0)
    with pytest.raises(ClosedResource):
        await access.session(session.id)
    again = await identities.access(OWNER, "ada")
    await (await again.begin_turn(session.id, "And the coot swims.")).ended()
    said = await (await again.session(session.id)).transcript_read_last(9)
    assert [each.role for each in said] == ["user", "assistant"] * 2
    assert await again.memories.search("heron", limit=1)


def test_a_stream_keeps_its_identity_open_to_its_end(http: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = http(["word " * 2000], delay_s=0.005)
    runtimes, clock = served.identities.runtimes, Clock()
    monkeypatch.setattr("chatbot.server.identities.monotonic", clock)
    with served.client() as client:
        asked = {"model": "ada", "messages": [{"role": "user", "content": "Tell me."}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=asked) as stream:
            lines = stream.iter_lines()
            next(lines)
            clock.now += IDLE_S
            assert asyncio.run(runtimes.close_unused()) == 0
            assert "ada" in runtimes._all
            clock.now += IDLE_S
        wait_until(lambda: not runtimes._users)
        clock.now += IDLE_S
        assert asyncio.run(runtimes.close_unused()) == 1
        assert client.get("/v1/memories").is_success
        assert "ada" in runtimes._all


class Telling(Hook):
    """Notes when sessions begin and end."""

    topics = (SESSION_START, SESSION_END)
    told: ClassVar[list[tuple[str, str]]] = []

    async def handle(self, event: Any) -> None:
        self.told.append((event.topic, event.session.id))


@pytest.fixture
def runtime() -> Runtime:
    project(f'[hooks."{__name__}:Telling"]\n')
    return Runtime(Options(config=Path("config.toml")), model=ScriptedModel(["Noted."]))


async def test_a_session_without_a_turn_for_long_ends_and_may_begin_again(runtime: Runtime) -> None:
    now = 0.0
    chats = Chats(clock=lambda: now)
    async with runtime:
        (quiet, _), (lively, _) = await begun(runtime), await begun(runtime)
        for session in (quiet, lively):
            await chats.of(runtime, session).turn("The heron stands in the reeds.")
        now = IDLE_S
        await chats.of(runtime, lively).turn("And the coot swims.")
        now += 1
        assert await chats.close_idle(lambda *_: True) == 0
        assert await chats.close_idle(lambda *_: False) == 1
        assert Telling.told[2:] == [(SESSION_END, quiet.id)]
        await chats.of(runtime, quiet).turn("Still there?")
        assert Telling.told[3:] == [(SESSION_START, quiet.id)]
    assert sorted(Telling.told[4:]) == sorted([(SESSION_END, quiet.id), (SESSION_END, lively.id)])
