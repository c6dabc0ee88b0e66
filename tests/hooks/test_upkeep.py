"""The hooks that maintain memory as sessions end, and as they begin where that is overdue."""

from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.memory.upkeep import NAME
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from chatbot.stores.observation import STATUSES
from tests.clock import Clock


@pytest.fixture(autouse=True)
def _config() -> None:
    _configure("")
    Path("identities", "ada").mkdir(parents=True)
    Path("identities", "ada", "identity.toml").write_text('persona = "You are Ada."', encoding="utf-8")


def _configure(more: str, stores: str = '["basic_session", "observations"]') -> None:
    Path("config.toml").write_text(f"[agents.chat]\nmemory = {stores}\n{more}", encoding="utf-8")


async def _live(clock: Clock, days: float) -> dict[str, int]:
    """Talk once, that many days later; how many rows there are of each status."""
    clock.now += timedelta(days=days)
    async with Runtime(model=ScriptedModel(["ok"]), clock=clock) as runtime:
        session = await runtime.new_session()
        assert session is not None
        await runtime.chat(session).turn("ok")
        await runtime.leave(session)
        await runtime.hooks.settle()
        return dict((await runtime.memory.memory().stats()).by_status)


async def _remember(clock: Clock) -> None:
    async with Runtime(model=ScriptedModel(["ok"]), clock=clock) as runtime:
        for number in range(3):
            await runtime.memory.memory("chat").remember(f"the green kettle in the kitchen leaks again {number}")


async def test_memory_is_maintained_as_sessions_go_by() -> None:
    clock = Clock()
    await _remember(clock)
    assert await _live(clock, 1) == {"active": 3}
    assert await _live(clock, 8) == {"active": 1, "compressed": 3}
    async with Runtime(model=ScriptedModel(["ok"]), clock=clock) as runtime:
        page = await runtime.memory.memory().list_observations(statuses=STATUSES)
    assert any(row.strength is not None for row in page.rows)


async def test_each_part_can_be_switched_off() -> None:
    clock = Clock()
    await _remember(clock)
    _configure("[hooks.compression]\nenabled = false\n")
    assert await _live(clock, 30) == {"active": 3}
    async with Runtime(model=ScriptedModel(["ok"]), clock=clock) as runtime:
        rows = (await runtime.memory.memory().list_observations()).rows
    assert {row.strength for row in rows} == {0.1}


async def test_sessions_without_observations_leave_nothing_behind() -> None:
    _configure("", stores='["basic_session"]')
    async with Runtime(model=ScriptedModel(["ok"]), clock=Clock()) as runtime:
        session = await runtime.new_session()
        assert session is not None
        await runtime.chat(session).turn("ok")
    assert not Path("identities/ada/memory", NAME).exists()
