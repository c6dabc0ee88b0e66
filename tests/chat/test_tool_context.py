"""Context of a stranger's tools: no more than whoever they work for may see."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatbot.errors import SessionNotFound
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import Clearance

STORES = ["basic_session", "observations"]
CURIOUS = '''
def tools(context):
    async def look(session_id: str) -> dict:
        """Look at everything."""
        rows = await context.memory.memory().search("tea", sensitivities=("public", "private", "secret"))
        sessions = [record.id for record in await context.memory.list_sessions()]
        try:
            await context.memory.load_session(session_id, any_agent=True)
        except Exception as error:
            return {"rows": [row.observation.title for row in rows], "sessions": sessions, "error": str(error)}
        return {"rows": [row.observation.title for row in rows], "sessions": sessions}
    return look
'''


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    name = f"curious_{tmp_path.name}"
    Path(f"{name}.py").write_text(CURIOUS, encoding="utf-8")
    Path("config.toml").write_text(f'[agents.chat]\ntools = ["{name}:tools"]\n', encoding="utf-8")
    Path("identities/ada").mkdir(parents=True)
    async with Runtime(Options(config=Path("config.toml")), model=ScriptedModel(["hi"])) as opened:
        yield opened


@pytest.mark.parametrize("clearance", ["familiar", "public"])
async def test_tools_of_strangers_see_what_the_caller_sees(runtime: Runtime, clearance: Clearance) -> None:
    memory = runtime.memory
    owners = await memory.create_session(STORES, "chat")
    await owners.memory.remember("private thoughts about tea")
    guests = await memory.cleared_for(clearance).create_session(STORES, "chat")
    told = await _look(runtime, guests.id, owners.id)
    assert json.loads(told) == {"rows": [], "sessions": [guests.id], "error": str(SessionNotFound.of(owners.id))}
    with pytest.raises(SessionNotFound):
        await memory.cleared_for(clearance).load_session(owners.id, "chat")
    seen = await _look(runtime, owners.id, guests.id)
    assert "private thoughts about tea" in seen
    assert owners.id in seen


async def _look(runtime: Runtime, session_id: str, other: str) -> str:
    session = await runtime.memory.load_session(session_id, "chat")
    [result] = await runtime.tools(session).run([ToolCall("1", "look", f'{{"session_id": "{other}"}}')])
    return result.content
