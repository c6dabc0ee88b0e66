"""The four ways in, each asked the same operations of the table by a driver, and answering in the same plain values."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from mcp import Client

from chatbot import operation as kinds
from chatbot.cli.memory.results import as_json
from chatbot.errors import ChatbotError
from chatbot.memory import MemorySystem
from chatbot.memory.scope import Caller
from chatbot.operations import OPERATIONS, Context
from chatbot.stores.access import RIGHTS, TOOL_RIGHTS, Clearance, Right
from chatbot.stores.errors import StoreError
from chatbot.stores.home import Address, parse_address
from chatbot.stores.records import read_time
from tests.command import run
from tests.patience import PATIENCE_S
from tests.servers.http_server import serving
from tests.servers.memory_server import connected

AGENT = "chat"


def home() -> Path | Address:
    """Where the memory of `ada` is kept: in the current folder, or in the database that the environment names."""
    url = os.environ.get("CHATBOT_STORAGE__URL")
    return parse_address(url).of("ada") if url else Path("identities/ada/memory")


class Refusal(Exception):
    """Error of a door in place of an answer; `kind` is None where it shows words alone."""

    def __init__(self, kind: str | None, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class Door(ABC):
    """A way in. Every method raises `Refusal`."""

    _principal: str | None = None
    """In whose name it writes; None for the owner."""

    @abstractmethod
    async def run(self, name: str, /, **given: Any) -> Any:
        """The JSON that an operation answers."""

    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        """The outcome, the id and the warning."""
        kept = await self.run("remember", title=title, **fields)
        return kept["outcome"], kept["id"], kept.get("warning", "")

    async def each(self, name: str, /, *fields: str, **given: Any) -> list[Any]:
        """The value of a field in each row that an operation answers, or those of several."""
        rows = [_row(hit) for hit in _rows(await self.run(name, **given))]
        told = [tuple(row.get(field, _USUAL.get(field)) for field in fields) for row in rows]
        return told if len(fields) > 1 else [value for (value,) in told]

    async def made(self, name: str, /, **given: Any) -> str:
        """The id of what an operation makes."""
        answer = await self.run(name, **given)
        return str((answer.get("task") or answer.get("fact") or answer)["id"])

    async def search(self, text: str, **wanted: Any) -> list[str]:
        """The ids of what is found."""
        return await self.each("search_memories", "id", query=text, **wanted)

    async def get(self, observation_id: str) -> tuple[str, str]:
        """The title and the type."""
        answer = await self.run("get_memory", ids=[observation_id])
        [row] = answer if isinstance(answer, list) else [answer]
        return row["title"], row.get("type", "note")

    async def propose(self, key: str, value: str) -> str:
        """The outcome of a proposal for the profile, which a caller makes who may not chat, such as a tool."""
        async with _owner(rights=TOOL_RIGHTS, principal=self._principal) as tool:
            return str((await tool.run("set_profile", key=key, value=value))["outcome"])

    async def state_of_me(self, key: str, value: str) -> None:
        """Give a key of the profile a value, as only a person may."""
        await self.run("set_profile", key=key, value=value)

    async def profile_history(self, key: str) -> list[tuple[str, str]]:
        """Keys and values, oldest first."""
        return await self.each("get_profile_history", "key", "value", key=key)

    async def proposals(self) -> list[tuple[str, str]]:
        """Ids and titles, newest first."""
        return [(row["id"], row["title"]) for row in (await self.run("show_profile"))["proposals"]]

    async def sessions(self) -> list[str]:
        """Titles, the one used last first."""
        return await self.each("list_sessions", "title")

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        """Roles and contents."""
        entries = (await self.run("read_session", session_id=session_id))["entries"]
        return [(entry["role"], entry["content"]) for entry in entries]


_USUAL = {"status": "active", "type": "note"}
"""Values that a tool leaves out."""


def _rows(answer: Any) -> list[dict[str, Any]]:
    """The list in an answer, under whatever name."""
    return answer if isinstance(answer, list) else next(each for each in answer.values() if isinstance(each, list))


def _row(hit: dict[str, Any]) -> dict[str, Any]:
    """A row, and of a hit or a version what it is about as well."""
    return hit | (hit.get("memory") or hit.get("observation") or hit.get("session") or {})


class Library(Door):
    """The operations themselves."""

    def __init__(self, system: MemorySystem) -> None:
        self._context = Context(lambda: system.memory(AGENT), system, AGENT)

    async def run(self, name: str, /, **given: Any) -> Any:
        operation = OPERATIONS[name]
        times = [each.name for each in operation.parameters if each.item in (kinds.Past, kinds.Future)]
        with _refusals():
            timed = {each: read_time(given[each]) for each in times if each in given}
            return as_json(await operation.run(self._context, "cli", given | timed))


_OWN_VERBS = {
    "change_task": "memory tasks done {task_id}",
    "delete_session": "sessions delete {session_id} --with-memory --yes",
}
"""Commands in place of some operations."""


class Cli(Door):
    """`chatbot … --json`, run for each question."""

    async def run(self, name: str, /, **given: Any) -> Any:
        if name in _OWN_VERBS:
            return self._ask(*(word.format(**given) for word in _OWN_VERBS[name].split()))
        operation = OPERATIONS[name]
        words: list[str] = []
        for called, each in operation.at("cli").items():
            values = given.get(each.name, [])
            values = values if isinstance(values, list | tuple) else [values]
            words += [
                part
                for value in values
                for part in ([] if each.is_positional else [f"--{called.replace('_', '-')}"]) + [str(value)]
            ]
        return self._ask(*operation.cli.split(), *words, *(["--yes"] if operation.effect == "destroys" else []))

    def _ask(self, *arguments: str) -> Any:
        done = run(*arguments, "--json")
        if done.returncode == 2 and done.stderr.startswith("usage:"):
            raise Refusal("InvalidValue", done.stderr)  # the grammar's own refusal
        if done.returncode:
            error = json.loads(done.stderr)["error"]
            raise Refusal(error["type"], error["message"])
        return json.loads(done.stdout)


_KINDS = {
    "invalid_value": "InvalidValue", "memory_not_found": "UnknownObservation", "project_not_found": "UnknownProject",
    "session_not_found": "SessionNotFound", "conflicting_change": "ConflictingChange", "clearance": "AccessDenied",
}  # fmt: skip


class Http(Door):
    """The HTTP API."""

    def __init__(self, client: httpx.AsyncClient, principal: str) -> None:
        self._client = client
        self._principal = principal

    async def run(self, name: str, /, **given: Any) -> Any:
        if name == "purge_memories":  # of one memory
            name, given = "forget_memory", given | {"purge": True}
        operation = OPERATIONS[name]
        method, path = operation.http.split()
        sent = {called: given[each.name] for called, each in operation.at("http").items() if each.name in given}
        for called in [each for each in sent if f"{{{each}}}" in path]:
            value = sent.pop(called)
            path = path.replace(f"{{{called}}}", value[0] if isinstance(value, list) else value)
        has_body = method in {"POST", "PATCH", "PUT"} and bool(sent)
        return await self._ask(method, path, json=sent if has_body else None, params=None if has_body else sent)

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        entries = await self._ask("GET", f"/v1/sessions/{session_id}/messages")
        return [(entry["role"], entry["content"]) for entry in entries["data"]]

    async def _ask(self, method: str, path: str, **sent: Any) -> Any:
        response = await self._client.request(method, path, **sent)
        if response.is_error:
            error = response.json()["error"]
            raise Refusal(_KINDS[error["code"]], error["message"])
        return response.json() if response.content else None


class Mcp(Door):
    """The MCP server; what it has no tool for, the person whose memory it is does beside it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.used: set[str] = set()

    async def tools(self) -> set[str]:
        """Return the tools that it offers."""
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def run(self, name: str, /, **given: Any) -> Any:
        operation = OPERATIONS[name]
        if not operation.tool:
            async with _owner() as owner:
                return await owner.run(name, **given)
        sent = {called: given[each.name] for called, each in operation.at("tool").items() if each.name in given}
        self.used.add(operation.tool)
        result = await self._client.call_tool(operation.tool, sent)
        [block] = result.content
        assert block.type == "text"
        answer = json.loads(block.text)
        if result.is_error:
            raise Refusal(None, answer["error"])
        return answer

    async def get(self, observation_id: str) -> tuple[str, str]:
        answer = await self.run("read_memories", ids=[observation_id])
        if answer.get("missing"):
            raise Refusal(None, f"no memory has the id {', '.join(answer['missing'])}")
        [row] = answer["observations"]
        return row["title"], row["type"]

    async def propose(self, key: str, value: str) -> str:
        return str((await self.run("set_profile", key=key, value=value))["outcome"])

    async def state_of_me(self, key: str, value: str) -> None:
        async with _owner() as owner:
            await owner.state_of_me(key, value)

    async def profile_history(self, key: str) -> list[tuple[str, str]]:
        return await self.each("show_profile", "key", "value", key=key, history=True)

    async def sessions(self) -> list[str]:
        listed = (await self._client.list_resources()).resources
        return [each.name for each in listed if str(each.uri).startswith("chatbot://sessions/")]


NAMES: Sequence[str] = ("library", "cli", "http", "mcp")


@asynccontextmanager
async def door(name: str, clearance: Clearance = "full") -> AsyncIterator[Door]:
    """That way in to the memory of `ada` in the current folder, for a caller of that clearance."""
    Path("config.toml").write_text('identity = "ada"\n[model]\nname = "scripted"\n', encoding="utf-8")
    identity = Path("identities", "ada", "identity.toml")
    identity.parent.mkdir(parents=True, exist_ok=True)
    if not identity.exists() or name == "cli":
        identity.write_text(f'clearance = "{clearance if name == "cli" else "full"}"\n', encoding="utf-8")
    if name == "library":
        async with MemorySystem(home(), Caller(clearance=clearance)) as system:
            yield Library(system)
    elif name == "cli":
        yield Cli()
    elif name == "http":
        with serving(config=Path("config.toml").read_text(encoding="utf-8"), tokens=True) as served:
            headers = {"Authorization": f"Bearer {served.token('ada', clearance=clearance)}"}
            principal = served.identities.tokens.all()[-1].caller().principal
            async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=PATIENCE_S) as client:
                yield Http(client, principal)
    else:
        async with connected("--clearance", clearance) as client:
            yield Mcp(client)


@asynccontextmanager
async def _owner(rights: Collection[Right] = RIGHTS, principal: str | None = None) -> AsyncIterator[Library]:
    """Whose memory it is, who does beside a door what that has no way for, or lets a tool with less rights do it."""
    async with MemorySystem(home()) as system:
        yield Library(system.cleared_for(rights=rights, principal=principal))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (ChatbotError, StoreError) as error:
        raise Refusal(type(error).__name__, str(error)) from error
