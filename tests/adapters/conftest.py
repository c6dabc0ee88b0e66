"""The memory of a user that adapters are tried with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatbot.embed import AgentMemory, open_memory


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    async with open_memory(tmp_path, user="ada") as opened:
        yield opened
