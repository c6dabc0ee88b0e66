"""Tools by name: one's own functions, installed plug-ins, what is said of wrong ones, and what strangers' see."""

import json
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from chatbot.errors import ConfigError, SessionNotFound, ToolError
from chatbot.messages import ToolCall, ToolSpec
from chatbot.models import ScriptedModel
from chatbot.operations import Alias
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import Clearance
from chatbot.tools.function import FunctionTool
from chatbot.tools.toolbox import Toolbox, tools_of

OWN = '''
from __future__ import annotations
from typing import Literal
from chatbot.tools import Tool
from chatbot.messages import ToolSpec

async def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Say how the weather will be.

    Args:
        city: where, in English
          or in the language of the place
        days (int): how far ahead
    """
    return f"{days} days of sun in {city}, {unit}"

class Clock(Tool):
    spec = ToolSpec("clock", "the time")
    async def run(self, arguments):
        return "noon"

clock = Clock()

def several(context):
    """Tools for one session."""
    async def whoami() -> dict:
        """Say whose session it is."""
        return {"agent": context}
    return [whoami, clock]

def one(context):
    return clock

def forgot_async(city: str):
    return "sunny"

def raises(context):
    raise KeyError("no key")


def no_tools(context):
    return [weather, 7]

async def unnamed(*cities: str) -> str: ...
async def untyped(city) -> str: ...
async def nowhere(city: Nowhere) -> str: ...
async def unfit(city: object()) -> str: ...
number = 7
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A module of one's own beside the configuration."""
    name = f"own_tools_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    return name


async def test_a_plain_function_is_a_tool(own: str, tmp_path: Path) -> None:
    [tool] = tools_of([f"{own}:weather"], None, beside=tmp_path)
    assert tool.spec == ToolSpec(
        "weather",
        "Say how the weather will be.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where, in English or in the language of the place"},
                "days": {"type": "integer", "default": 1, "description": "how far ahead"},
                "unit": {"type": "string", "default": "C", "enum": ["C", "F"]},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    )
    assert await tool.run({"city": "Oslo", "days": 2}) == "2 days of sun in Oslo, C"
    for arguments, words in (
        ({}, "weather: city: missing"),
        ({"city": 1}, "city: input should be a valid string"),
        ({"city": "Oslo", "unit": "K"}, "unit: input should be 'C' or 'F'"),
        ({"city": "Oslo", "day": 1}, "weather has no argument 'day': did you mean 'days'?"),
    ):
        with pytest.raises(ToolError, match=words.replace("?", r"\?")):
            await tool.run(arguments)


async def test_a_function_of_the_context_makes_tools_for_a_session(own: str, tmp_path: Path) -> None:
    whoami, clock = tools_of([f"{own}:several"], "ada", beside=tmp_path)
    assert await whoami.run({}) == '{"agent":"ada"}'
    assert await clock.run({}) == "noon"
    for name in ("clock", "one"):
        assert [tool.spec.name for tool in tools_of([f"{own}:{name}"] * 2, None, beside=tmp_path)] == ["clock"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("forgot_async", "'sunny' was returned instead of tools: is `async` missing?"),
        ("raises", "KeyError: 'no key'"), ("no_tools", "7 is neither a tool nor an async function"),
        ("unnamed", "has no name that a model could use"),
        ("untyped", "the argument 'city' of untyped has no annotation"),
        ("nowhere", "name 'Nowhere' is not defined; a tool that needs"), ("unfit", "cannot be made a schema"),
        ("number", "are 7: they must be"), ("missing", "no attribute 'missing'"),
    ],
)  # fmt: skip
def test_a_broken_plug_in_names_itself(own: str, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tools_of([f"{own}:{name}"], None, beside=tmp_path)
    assert f"'{own}:{name}'" in str(raised.value)
    assert words in str(raised.value)


async def test_two_tools_of_one_name_are_refused_before_anything_is_said() -> None:
    async def memory_search() -> str:
        """Do it."""
        return ""

    async with Runtime(Options(model="scripted", ephemeral=True), tools=(FunctionTool(memory_search),)) as runtime:
        session = await runtime.new_session()
        with pytest.raises(ConfigError, match="two tools are called 'memory_search'"):
            runtime.chat(session)
    plain: Any = "sunny".title
    with pytest.raises(TypeError, match="is neither a tool nor an async function"):
        FunctionTool(plain)


@pytest.mark.parametrize("answer", [None, "no", 1, 0])
async def test_an_answer_that_is_no_permission_allows_nothing(answer: Any) -> None:
    ran: list[str] = []

    async def send() -> None:
        """Send it."""
        ran.append("sent")

    async def confirm(_: ToolCall) -> Any:
        return answer

    toolbox = Toolbox([FunctionTool(send, asks_first=True)], confirm=confirm)
    [result] = await toolbox.run([ToolCall("c", "send", "{}")])
    assert (ran, f"confirm returned {answer!r}: it must be" in result.content) == ([], True)


async def test_bounds_are_part_of_the_schema_and_models_are_results() -> None:
    class Picked(BaseModel):
        n: int
        on: date

    async def pick(n: Annotated[int, Field(ge=1, le=5)] = 2) -> Any:
        """Pick."""
        return [Picked(n=n, on=date(2026, 5, 1)), Alias("1", "a", "b")]

    tool = FunctionTool(pick)
    assert tool.spec.parameters["properties"] == {"n": {"type": "integer", "default": 2, "minimum": 1, "maximum": 5}}
    assert await tool.run({"n": 1}) == '[{"n":1,"on":"2026-05-01"},{"id":"1","name":"a","alias":"b"}]'
    with pytest.raises(ToolError, match="n: input should be less than or equal to 5"):
        await tool.run({"n": 9})


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
