"""The table of operations: one function is enough to have an operation at every door."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from mcp import Client

from chatbot.chat.memory_tools import ToolContext, session_tools
from chatbot.chat.prompt import is_memory_tool
from chatbot.cli.arguments import build_parser
from chatbot.cli.bind import OF_MEMORY, OF_OPERATIONS, OF_SESSIONS
from chatbot.mcp.surface import server_for
from chatbot.memory import MemorySystem
from chatbot.messages import ToolCall
from chatbot.operation import About, Limit, Line
from chatbot.operations import OPERATIONS, Alias, Context, reads
from chatbot.server.bind import router_of
from chatbot.server.shapes import SHAPES
from chatbot.stores.observation import Observation
from chatbot.tools import Toolbox
from tests import command
from tests.servers.http_server import Serve
from tests.surfaces.test_help import parsers

CONFIG = '[model]\nname = "scripted"\n'


async def list_tagged(
    context: Context,
    tag: Annotated[Line, About("the tag")],
    *,
    limit: Annotated[Limit, About("maximum results", most=2)] = 5,
) -> Sequence[Observation]:
    """List memories with a tag.

    Newest first.
    """
    return list((await context.memories.list_observations(tags=[tag], limit=limit)).rows)


@dataclass(frozen=True)
class TagCount:
    """How often a tag is used."""

    tag: str
    count: int


async def count_tagged(context: Context, tag: Annotated[Line, About("the tag")]) -> TagCount:
    """Count memories with a tag."""
    return TagCount(tag, len((await context.memories.list_observations(tags=[tag])).rows))


@pytest.fixture
def _one_more() -> Iterator[None]:
    reads(cli="sessions tagged", http="GET /v1/counts/{tag}", tool="session_tags")(count_tagged)
    declare = reads(
        cli="memory tagged", http="GET /v1/tagged/{tag}", tool="memory_tagged", gives="memories", examples=("tagged x",)
    )
    declare(list_tagged)
    yield
    for name in ("list_tagged", "count_tagged"):
        del OPERATIONS[name]


@pytest.mark.usefixtures("_one_more")
async def test_a_new_operation_is_one_function_and_is_found_at_every_door(http: Serve) -> None:
    command.project(CONFIG)
    home = Path("identities/ada/memory")
    async with MemorySystem(home) as memory:
        for number in range(3):
            await memory.memory("chat").remember(f"tea {number}", tags=["drink"])
        await memory.memory("chat").remember("bread", tags=["food"])
        session = await memory.create_session(["basic_session", "observations"], "chat")
        toolbox = Toolbox(session_tools(ToolContext(session, memory, "chat", "ada")))
        [result] = await toolbox.run([ToolCall("c", "memory_tagged", '{"tag": "drink", "limit": "2"}')])
        async with Client(server_for(memory, "chat")) as client:
            answer = await client.call_tool("memory_tagged", {"tag": "drink"})
            counted = await client.call_tool("session_tags", {"tag": "drink"})
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    by_model = json.loads(result.content)
    assert [row["title"] for row in by_model["memories"]] == ["tea 2", "tea 1"]
    [block] = answer.content
    assert block.type == "text"
    assert len(json.loads(block.text)["memories"]) == 3
    assert listed["memory_tagged"].input_schema["properties"]["tag"] == {"type": "string", "description": "the tag"}
    assert is_memory_tool("memory_tagged")
    assert counted.structured_content is not None
    assert counted.structured_content["result"] == {"tag": "drink", "count": 3}
    assert json.loads(command.ok("sessions", "tagged", "food", "-i", "ada")) == {"tag": "food", "count": 1}
    rows = command.from_json("memory", "tagged", "drink", "--limit", "2", "-i", "ada")
    assert [row["title"] for row in rows] == ["tea 2", "tea 1"]
    assert "list memories with a tag" in command.ok("memory", "tagged", "--help")
    served = http(tokens=True)
    with served.client(served.token("ada", rights=["read"])) as client_of_http:
        page = client_of_http.get("/v1/tagged/food").json()
        assert [row["title"] for row in page["data"]] == ["bread"]
        assert client_of_http.get("/v1/counts/drink").json() == {"tag": "drink", "count": 3}
        described = client_of_http.get("/openapi.json").json()["paths"]["/v1/tagged/{tag}"]["get"]
    assert described["summary"] == "List memories with a tag"
    assert {each["name"]: each["description"] for each in described["parameters"]}["limit"] == "Maximum results."
    with served.client(served.token("ada", rights=["write"])) as client_of_http:
        assert client_of_http.get("/v1/tagged/food").status_code == 403


def test_an_operation_whose_answer_has_no_shape_is_named_with_the_file_to_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SHAPES, Alias)
    with pytest.raises(TypeError, match=r"add_alias returns Alias: name its fields in chatbot/server/shapes\.py"):
        router_of(OPERATIONS.values())


def test_every_operation_says_what_it_does_where_it_is_and_what_its_parameters_mean() -> None:
    for operation in OPERATIONS.values():
        assert operation.cli or operation.http or operation.tool, operation.name
        assert 0 < len(operation.summary) <= 60, operation.name
        assert all(each.about.words for each in operation.parameters), operation.name
        assert operation.gives or operation.function.__annotations__["return"] != "None" or not operation.cli


def test_every_verb_is_an_operation_or_says_why_not() -> None:
    verbs = {each.prog.removeprefix("chatbot ") for each in parsers(build_parser())}
    verbs = {verb for verb in verbs if verb.startswith(("memory ", "sessions ", "projects "))}
    bound = {each.cli for each in OPERATIONS.values() if each.cli}
    own = {f"sessions {name}" for name in OF_SESSIONS} | {f"memory {name}" for name in OF_MEMORY}
    assert bound <= verbs
    assert own <= verbs
    assert {" ".join(verb.split()[:2]) for verb in verbs - bound} == own
    assert all(len(verb.why) > 10 for verb in (*OF_SESSIONS.values(), *OF_MEMORY.values(), *OF_OPERATIONS.values()))
    assert OF_OPERATIONS.keys() <= OPERATIONS.keys()
