"""A session with a transcript, for the tests of chats."""

import pytest

from chatbot.memory import MemorySystem, SessionHandle


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    return await memory.create_session(["basic_session"], "chat")
