"""`chatbot mcp`, driven by the official client: over real standard streams and HTTP once, and within this process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, PromptReference, ResourceTemplateReference

from chatbot.chat.memory_tools import FRAME, agent_context, agent_tools
from chatbot.mcp.surface import UNAVAILABLE, server_for
from chatbot.memory import MemorySystem
from chatbot.server.callers import Grant, Tokens
from chatbot.stores.access import Clearance
from tests import command, process
from tests.patience import PATIENCE_S
from tests.servers.memory_server import connected, listening

NO_ID = "01990000-0000-7000-8000-000000000000"
NIGHT = pytest.mark.nightly
STORES = ["basic_session", "observations"]
MEMORY = Path("identities/ada/memory")


@pytest.fixture(autouse=True)
def _identities() -> None:
    memory = 'memory = ["basic_session", "observations"]\n[agents.bare]\nmemory = ["basic_session"]'
    for name, clearance in (("ada", "full"), ("guarded", "inner")):
        identity = f'clearance = "{clearance}"'
        command.project(f'[model]\nname = "scripted"\n[agents.chat]\n{memory}\n', name, identity=identity)


@asynccontextmanager
async def piped(*arguments: str) -> AsyncIterator[Client]:
    """The official client, over the streams of a process of its own."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "chatbot", "mcp", *arguments], env=dict(os.environ), cwd=Path.cwd()
    )
    async with Client(server, read_timeout_seconds=PATIENCE_S) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, which says what it is, or what went wrong."""
    result = await client.call_tool(name, arguments)
    [block] = result.content
    assert block.type == "text"
    answer: dict[str, Any] = json.loads(block.text)
    assert result.is_error == ("error" in answer)
    assert result.is_error or answer["about"] == FRAME
    assert result.structured_content == (None if result.is_error else answer)  # the client checks it by its schema
    return answer


async def addresses(client: Client) -> list[str]:
    """Every resource, from all pages."""
    page = await client.list_resources()
    found = [resource.uri for resource in page.resources]
    while page.next_cursor:
        page = await client.list_resources(cursor=page.next_cursor)
        found += [resource.uri for resource in page.resources]
    return found


async def read(client: Client, address: str) -> dict[str, Any]:
    [content] = (await client.read_resource(address)).contents
    assert content.mime_type == "application/json"
    answer: dict[str, Any] = json.loads(content.text)  # type: ignore[union-attr]
    assert answer["about"] == FRAME
    return answer


async def test_tools_and_resources_work_over_a_process_of_its_own() -> None:
    async with MemorySystem(MEMORY) as memory:
        held = await memory.create_session(STORES, "chat", title="About Oslo")
        await held.transcript_append("user", "I moved to Oslo in March")
    async with piped() as client:
        written = (await call(client, "memory_write", title="Sam likes tea", related_people=["Sam"]))["id"]
        [row] = (await call(client, "memory_get", ids=[written]))["observations"]
        assert (row["title"], row["visibility"], "session_id" in row) == ("Sam likes tea", "private", False)
        session, note = await addresses(client)
        [entry] = (await read(client, session))["entries"]
        assert entry["content"] == "I moved to Oslo in March"
        assert (await read(client, note))["observations"] == [row]
        await call(client, "memory_forget", ids=[written])
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource(note)
    async with MemorySystem(MEMORY) as memory:
        assert [record.id for record in await memory.list_sessions()] == [held.id]


async def test_the_tools_are_those_of_the_chat_and_say_what_they_do() -> None:
    async with MemorySystem(None) as memory:
        own = agent_tools(agent_context(memory, "chat"))
    async with connected() as client:
        listed = (await client.list_tools()).tools
        assert [(tool.name, tool.description, tool.input_schema) for tool in listed] == [
            (tool.spec.name, tool.spec.description, tool.spec.parameters) for tool in own
        ]
        hints = {tool.name: tool.annotations for tool in listed}
        reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
        destroying = {name for name, hint in hints.items() if hint and hint.destructive_hint}
        adding = {"memory_write", "memory_state", "memory_confirm", "memory_profile_set", "task_add"}
        assert destroying == {"memory_forget", "memory_profile_reject", "memory_supersede", "task_update"}
        assert reading == hints.keys() - destroying - adding
        assert all(hint and hint.open_world_hint is False for hint in hints.values())
        assert all(tool.title and {} not in (tool.output_schema or {})["properties"].values() for tool in listed)
        assert all(hint and hint.idempotent_hint is (name not in adding) for name, hint in hints.items())
        said = client.instructions or ""
        assert said.index("memory_search") < said.index("memory_timeline") < said.index("memory_get")
        assert FRAME in said
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == ["chatbot://sessions/{id}", "chatbot://memories/{id}"]
        assert "did you mean 'memory_search'" in (await call(client, "memory_serach"))["error"]
        assert "history needs a key" in (await call(client, "memory_profile", history=True))["error"]
        assert "no argument 'identity'" in (await call(client, "memory_search", identity="guarded"))["error"]


async def test_prompts_put_memory_before_the_model_and_what_is_typed_is_completed() -> None:
    async with MemorySystem(MEMORY) as memory:
        session = await memory.create_session(STORES, "chat", title="About Oslo")
        await session.transcript_append("user", "I moved to Oslo in March")
        row = await session.memory.remember("Sam lives in Oslo", people=["Sam"])
        async with Client(server_for(memory, "chat")) as client:
            prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
            assert all(prompt.title and prompt.arguments for prompt in prompts.values())
            for name, given, known in (
                ("recall", {"topic": "Oslo"}, "Sam lives in Oslo"),
                ("continue", {"session": session.id}, "I moved to Oslo in March"),
            ):
                [message] = (await client.get_prompt(name, given)).messages
                assert message.role == "user"
                assert known in message.content.text  # type: ignore[union-attr]
                assert FRAME in message.content.text  # type: ignore[union-attr]
            for reference, name, typed, found in (
                (PromptReference(name="recall"), "topic", "sa", "Sam"),
                (PromptReference(name="continue"), "session", "oslo", session.id),
                (ResourceTemplateReference(uri="chatbot://sessions/{id}"), "id", session.id[:13], session.id),
                (ResourceTemplateReference(uri="chatbot://memories/{id}"), "id", "lives", row.id),
            ):
                for value, values in ((typed, [found]), ("zzz", [])):
                    completed = await client.complete(reference, {"name": name, "value": value})
                    assert completed.completion.values == values
            for name, given in (("recal", {"topic": "x"}), ("recall", {}), ("continue", {"session": NO_ID})):
                with pytest.raises(MCPError):
                    await client.get_prompt(name, given)


NOWHERE = [
    f"chatbot://memories/{NO_ID}", f"chatbot://sessions/{NO_ID}", f"chatbot://identities/{NO_ID}",
    "chatbot://memories/../../identity.toml", "file:///etc/passwd", f"chatbot://sessions/{NO_ID}/../../guarded",
    "-" * 36, f"chatbot://memories/{'-' * 36}",
]  # fmt: skip
MADE_UP_CURSORS = ["x", "W10=", "WyJzZXNzaW9ucyJd", "eyJhIjoxfQ==", "é", "WyJtZW1vcmllcyIsICIuLi8iXQ=="]


async def test_an_address_that_leads_nowhere_and_a_made_up_cursor_are_refused() -> None:
    async with connected() as client:
        for address in NOWHERE:
            with pytest.raises(MCPError, match=r"unknown resource|no session has the id") as raised:
                await client.read_resource(address)
            assert raised.value.code == INVALID_PARAMS
        for cursor in MADE_UP_CURSORS:
            with pytest.raises(MCPError) as raised:
                await client.list_resources(cursor=cursor)
            assert raised.value.code == INVALID_PARAMS


async def test_pages_hold_every_session_and_memory_once() -> None:
    async with MemorySystem(MEMORY) as memory:
        sessions = [(await memory.create_session(STORES, "chat", title=str(n))).id for n in range(60)]
        rows = [(await memory.memory("chat").remember(f"note number {n} of its own")).id for n in range(70)]
        await memory.create_session(STORES, "other")
    async with connected() as client:
        found = await addresses(client)
        assert len(found) == len(set(found))
        assert set(found) == {f"chatbot://sessions/{each}" for each in sessions} | {
            f"chatbot://memories/{each}" for each in rows
        }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-i", "guarded", "--clearance", "full"], 3, "allows inner, and full is more than that"),
        (["--agent", "bare"], 3, "keeps memories"),
        (["--port", "1"], 2, "--port can only be used with --http"),
        (["--http", "--host", "0.0.0.0"], 3, "0.0.0.0 can be reached from other machines"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(arguments: list[str], code: int, words: str) -> None:
    command.fails(code, words, "mcp", *arguments)


ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT}).encode()


def test_a_session_in_a_file_is_answered_and_nothing_else_is_printed() -> None:
    said = b"\n".join([b"no json", HELLO, b"[1]", b'{"jsonrpc":"2.0","method":"notifications/initialized"}'])
    said += b'\n{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n{"jsonrpc":"2.0","id":"3","method":"tools/call",'
    said += b'"params":{"name":"memory_write","arguments":{"title":"Tea at four"}}}\n'
    done = process.run("mcp", stdin=said)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["id"] for answer in answers if not answer["result"].get("isError")} == {1, 2, "3"}
    assert answers[0]["result"]["serverInfo"]["name"] == "chatbot"
    subprocess.check_call([sys.executable, "-m", "chatbot", "mcp"], stdin=subprocess.DEVNULL, timeout=PATIENCE_S)


@pytest.fixture
def talking() -> Iterator[subprocess.Popen[bytes]]:
    """A server in the middle of a conversation."""
    started = subprocess.Popen(
        [sys.executable, "-m", "chatbot", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(HELLO + b"\n")
    started.stdin.flush()
    assert b'"id":1' in started.stdout.readline()
    with started:
        yield started
        started.kill()


def test_half_an_emoji_is_answered_wherever_it_stands(talking: subprocess.Popen[bytes]) -> None:
    """JavaScript cuts texts so. What is not answered at all is waited for without end."""
    assert talking.stdin is not None
    assert talking.stdout is not None
    asked = [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in
             (("memory_write", {"title": "\ud83d"}), ("memory_write", {"\ud83d": 1}), ("\ud83d", {}))]  # fmt: skip
    talking.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    for number, (method, given) in enumerate([*asked, ("resources/read", {"uri": "\ud83d"}), ("\ud83d", {})]):
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": given})
        talking.stdin.write(line.encode() + b"\n")
        talking.stdin.flush()
        answer = json.loads(talking.stdout.readline())
        assert (answer["id"], "error" in answer or answer["result"]["isError"]) == (number, True)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=NIGHT), pytest.param(signal.SIGHUP, marks=NIGHT)]
)
def test_a_signal_ends_it_though_its_input_stays_open(talking: subprocess.Popen[bytes], number: int) -> None:
    talking.send_signal(number)
    assert talking.wait(PATIENCE_S) == 0
    assert talking.stderr is not None
    assert talking.stderr.read() == b""


JSON_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def token(*identities: str, clearance: Clearance = "full") -> str:
    text, _ = Tokens(Path("identities/.server")).add(uuid4().hex, Grant(identities, clearance))
    return text


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_over_http_a_token_host_and_origin_are_checked() -> None:
    config, more = Path("config.toml"), '[server]\nbody_kb = 4\nallowed_hosts = ["memory.example.org"]\n'
    config.write_text(config.read_text(encoding="utf-8") + more, encoding="utf-8")
    command.ok("config", "trust")
    good, other = bearer(token("ada")), bearer(token("guarded"))
    async with listening() as url, httpx.AsyncClient() as web:

        async def told(content: bytes, /, **headers: str) -> httpx.Response:
            return await web.post(url, content=content, headers=JSON_HEADERS | headers)

        unknown = await told(HELLO, **bearer(f"cbt_{'x' * 43}"))
        foreign = await told(HELLO, **other)
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)
        assert unknown.json()["error"]["code"] == "invalid_token"
        assert (await told(HELLO)).status_code == 401
        assert (await told(HELLO, authorization="Basic s3cret")).status_code == 401
        assert (await told(HELLO, **good)).status_code == 200
        assert (await told(HELLO, **good, host="evil.example.org")).status_code == 421
        assert (await told(HELLO, **good, host="memory.example.org")).status_code == 200
        assert (await told(HELLO, **good, origin="https://evil.example.org")).status_code == 403
        assert (await told(HELLO, **good | {"sec-fetch-site": "cross-site"})).status_code == 403
        assert (await told(HELLO, **good, origin=url.removesuffix("/mcp"))).status_code == 200
        assert (await told(b"x" * 5_000, **good)).status_code == 413
        assert (await told(HELLO, **good | {"content-type": "text/plain"})).status_code == 415
        assert (await web.get(url.removesuffix("mcp"), headers=good)).status_code == 404
        listening_only = {"accept": "text/event-stream"} | good
        assert (await web.get(url, headers=listening_only)).status_code == 405  # it would outlive the token


@asynccontextmanager
async def calling(url: str, text: str) -> AsyncIterator[Client]:
    """The official client with a token."""
    async with (
        httpx2.AsyncClient(headers=bearer(text)) as own,
        Client(streamable_http_client(url, http_client=own), read_timeout_seconds=PATIENCE_S) as client,
    ):
        yield client


async def test_a_token_of_less_clearance_sees_less_and_never_more_than_the_start_allows() -> None:
    async with MemorySystem(MEMORY) as memory:
        held = await memory.create_session(STORES, "chat", title="A private talk")
        await held.transcript_append("user", "the code is 4711")
        memories = memory.memory("chat")
        seen = {
            each: (await memories.remember(f"a {each} thing about tea", visibility=each)).id
            for each in ("private", "shared", "social")
        }
    full, familiar = token("ada"), token("ada", "guarded", clearance="familiar")

    async def found(client: Client) -> set[str]:
        return {hit["id"] for hit in (await call(client, "memory_search", query="tea"))["hits"]}

    async with listening() as url, calling(url, full) as owner, calling(url, familiar) as guest:
        assert await found(owner) == set(seen.values())
        assert await found(guest) == {seen["social"]}
        assert f"chatbot://sessions/{held.id}" in await addresses(owner)
        assert await addresses(guest) == [f"chatbot://memories/{seen['social']}"]
        with pytest.raises(MCPError, match="no session has the id"):
            await guest.read_resource(f"chatbot://sessions/{held.id}")
        await call(guest, "memory_write", title="From a guest")
    async with listening("--clearance", "familiar") as url, calling(url, full) as owner:
        assert await found(owner) == {seen["social"]}


async def test_a_disk_that_fails_is_not_described_to_the_client() -> None:
    async with connected() as client:
        await call(client, "memory_write", title="All is well")
    (MEMORY / "observations.jsonl").rename(MEMORY / "aside")
    (MEMORY / "observations.jsonl").mkdir()
    async with connected() as client:
        assert (await call(client, "memory_search", query="well"))["error"] == UNAVAILABLE
        with pytest.raises(MCPError, match="memory is unavailable") as raised:
            await client.list_resources()
        assert raised.value.code == INTERNAL_ERROR
