"""Sync of an identity between machines: the rules, each alone, and all of them in random lives."""

from pathlib import Path

import pytest

from tests.effort import rounds
from tests.transfer.sync_world import World


@pytest.mark.parametrize("seed", range(rounds(40, least=3)))
async def test_machines_that_live_apart_come_to_the_same_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed, 2 + seed % 2)
    await world.begin()
    await world.live(40)
    await world.settle()
    await world.check()
