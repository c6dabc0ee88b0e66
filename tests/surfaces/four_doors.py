"""The four ways in, each made to answer the same questions in the same plain values."""

import asyncio
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from mcp import Client, StdioServerParameters

from chatbot.errors import ChatbotError
from chatbot.memory import MemorySystem
from stores.access import Clearance
from stores.errors import StoreError
from stores.records import read_time
from tests.command import run
from tests.servers.http_server import serving

MEMORY = Path("identities/ada/memory")
AGENT = "chat"


class Refusal(Exception):
    """What a door said instead of an answer; `kind` is None where it shows words alone."""

    def __init__(self, kind: str | None, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class Door(ABC):
    """A way in. Every method raises `Refusal`."""

    @abstractmethod
    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        """The outcome, the id and the warning."""

    @abstractmethod
    async def search(self, text: str, limit: int = 10, **wanted: str) -> list[tuple[str, float]]:
        """Ids and scores; `wanted` may be a `type`, and a time `after`."""

    @abstractmethod
    async def listed(self) -> list[str]:
        """Ids, the one changed last first."""

    @abstractmethod
    async def get(self, observation_id: str) -> tuple[str, str]:
        """The title and the type."""

    @abstractmethod
    async def edit(self, observation_id: str, **fields: str) -> str:
        """The outcome."""

    @abstractmethod
    async def confirm(self, observation_id: str) -> None: ...

    @abstractmethod
    async def purge(self, observation_id: str) -> None: ...

    @abstractmethod
    async def timeline(self, observation_id: str) -> list[str]:
        """Ids."""

    @abstractmethod
    async def supersede(self, old: str, new: str) -> None: ...

    @abstractmethod
    async def history(self, observation_id: str) -> list[tuple[str, str]]:
        """Ids and statuses."""

    @abstractmethod
    async def forget(self, observation_id: str) -> None: ...

    @abstractmethod
    async def restore(self, observation_id: str) -> None: ...

    @abstractmethod
    async def people(self) -> list[tuple[str, int]]:
        """Names and mentions."""

    @abstractmethod
    async def add_task(self, title: str) -> str:
        """Its id."""

    @abstractmethod
    async def finish_task(self, task_id: str) -> None: ...

    @abstractmethod
    async def tasks(self) -> list[str]:
        """Titles of those that are open."""

    @abstractmethod
    async def facts(self, subject: str) -> list[str]: ...

    @abstractmethod
    async def state_fact(self, subject: str, predicate: str, object_: str) -> str:
        """Its id."""

    @abstractmethod
    async def take_back(self, fact_id: str) -> None: ...

    @abstractmethod
    async def add_alias(self, name: str, alias: str) -> None: ...

    @abstractmethod
    async def sessions(self) -> list[str]:
        """Titles, the one used last first."""

    @abstractmethod
    async def search_sessions(self, text: str) -> list[tuple[str, str]]:
        """Titles, and the lines that were found."""

    @abstractmethod
    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        """Roles and contents."""

    @abstractmethod
    async def fork(self, session_id: str, title: str) -> str:
        """The copy's id."""

    @abstractmethod
    async def rename(self, session_id: str, title: str) -> None: ...

    @abstractmethod
    async def delete_session(self, session_id: str) -> None: ...


class Library(Door):
    """`MemorySystem` itself."""

    def __init__(self, system: MemorySystem) -> None:
        self._system = system
        self._memories = system.memories(AGENT)

    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        with _refusals():
            kept = await self._memories.remember(title, **fields)
        return kept.outcome, kept.id, kept.warning

    async def search(self, text: str, limit: int = 10, **wanted: str) -> list[tuple[str, float]]:
        with _refusals():
            filtered: dict[str, Any] = {"types": [wanted["type"]]} if "type" in wanted else {}
            filtered |= {"after": read_time(wanted["after"])} if "after" in wanted else {}
            hits = await self._memories.search(text, limit=limit, **filtered)
        return [(hit.observation.id, hit.score) for hit in hits]

    async def listed(self) -> list[str]:
        return [row.id for row in (await self._memories.list_observations()).rows]

    async def get(self, observation_id: str) -> tuple[str, str]:
        rows = await self._memories.get([observation_id])
        if not rows:
            raise Refusal("UnknownObservation", f"there is no observation {observation_id}")
        return rows[0].title, rows[0].type

    async def edit(self, observation_id: str, **fields: str) -> str:
        with _refusals():
            return (await self._memories.update(observation_id, **fields)).outcome

    async def confirm(self, observation_id: str) -> None:
        with _refusals():
            await self._memories.confirm(observation_id)

    async def purge(self, observation_id: str) -> None:
        with _refusals():
            await self._memories.purge(observation_id)

    async def timeline(self, observation_id: str) -> list[str]:
        with _refusals():
            return [row.id for row in await self._memories.timeline(observation_id)]

    async def supersede(self, old: str, new: str) -> None:
        with _refusals():
            await self._memories.supersede(old, new)

    async def history(self, observation_id: str) -> list[tuple[str, str]]:
        with _refusals():
            line = await self._memories.history(observation_id)
        return [(version.observation.id, version.observation.status) for version in line]

    async def forget(self, observation_id: str) -> None:
        with _refusals():
            await self._memories.forget(observation_id)

    async def restore(self, observation_id: str) -> None:
        with _refusals():
            await self._memories.restore(observation_id)

    async def people(self) -> list[tuple[str, int]]:
        return [(person.name, person.mention_count) for person in await self._memories.people()]

    async def add_task(self, title: str) -> str:
        return (await self._memories.add_task(title)).id

    async def finish_task(self, task_id: str) -> None:
        with _refusals():
            await self._memories.update_task(task_id, status="completed")

    async def tasks(self) -> list[str]:
        return [task.title for task in await self._memories.tasks()]

    async def facts(self, subject: str) -> list[str]:
        found = await self._memories.query_facts(subject=subject)
        return [f"{fact.subject} {fact.predicate} {fact.object}" for fact in found]

    async def state_fact(self, subject: str, predicate: str, object_: str) -> str:
        with _refusals():
            return (await self._memories.store_fact(subject, predicate, object_)).id

    async def take_back(self, fact_id: str) -> None:
        with _refusals():
            await self._memories.retract_fact(fact_id)

    async def add_alias(self, name: str, alias: str) -> None:
        await self._memories.add_alias(name, alias)

    async def sessions(self) -> list[str]:
        return [record.title for record in await self._system.list_sessions()]

    async def search_sessions(self, text: str) -> list[tuple[str, str]]:
        return [(hit.record.title, hit.line) for hit in await self._system.search_sessions(text)]

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        with _refusals():
            session = await self._system.load_session(session_id, AGENT)
        return [(entry.role, entry.content) for entry in await session.transcript_read_all()]

    async def fork(self, session_id: str, title: str) -> str:
        with _refusals():
            return (await self._system.fork_session(session_id, title=title)).id

    async def rename(self, session_id: str, title: str) -> None:
        with _refusals():
            await (await self._system.load_session(session_id, AGENT)).rename(title)

    async def delete_session(self, session_id: str) -> None:
        with _refusals():
            await self._system.delete_session(session_id)


class Cli(Door):
    """`chatbot …  --json`, a process for each question."""

    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        people = [part for name in fields.pop("people", ()) for part in ("--person", name)]
        kept = await self._ask("memory", "add", title, *people, *_options(fields))
        return kept["outcome"], kept["id"], kept["warning"]

    async def search(self, text: str, limit: int = 10, **wanted: str) -> list[tuple[str, float]]:
        hits = await self._ask("memory", "search", text, "--limit", str(limit), *_options(wanted))
        return [(hit["id"], hit["score"]) for hit in hits]

    async def listed(self) -> list[str]:
        return [row["id"] for row in await self._ask("memory", "list")]

    async def get(self, observation_id: str) -> tuple[str, str]:
        [row] = await self._ask("memory", "get", observation_id)
        return row["title"], row.get("type", "note")

    async def edit(self, observation_id: str, **fields: str) -> str:
        return str((await self._ask("memory", "edit", observation_id, *_options(fields)))["outcome"])

    async def confirm(self, observation_id: str) -> None:
        await self._ask("memory", "confirm", observation_id)

    async def purge(self, observation_id: str) -> None:
        await self._ask("memory", "purge", observation_id, "--yes")

    async def timeline(self, observation_id: str) -> list[str]:
        return [row["id"] for row in await self._ask("memory", "timeline", observation_id)]

    async def supersede(self, old: str, new: str) -> None:
        await self._ask("memory", "supersede", old, new)

    async def history(self, observation_id: str) -> list[tuple[str, str]]:
        line = [version["observation"] for version in await self._ask("memory", "history", observation_id)]
        return [(row["id"], row.get("status", "active")) for row in line]

    async def forget(self, observation_id: str) -> None:
        await self._ask("memory", "forget", observation_id)

    async def restore(self, observation_id: str) -> None:
        await self._ask("memory", "restore", observation_id)

    async def people(self) -> list[tuple[str, int]]:
        return [(person["name"], person["mention_count"]) for person in await self._ask("memory", "people")]

    async def add_task(self, title: str) -> str:
        return str((await self._ask("memory", "tasks", "add", title))["id"])

    async def finish_task(self, task_id: str) -> None:
        await self._ask("memory", "tasks", "done", task_id)

    async def tasks(self) -> list[str]:
        return [task["title"] for task in await self._ask("memory", "tasks")]

    async def facts(self, subject: str) -> list[str]:
        found = await self._ask("memory", "facts", "--subject", subject)
        return [f"{fact['subject']} {fact['predicate']} {fact['object']}" for fact in found]

    async def state_fact(self, subject: str, predicate: str, object_: str) -> str:
        return str((await self._ask("memory", "facts", "add", subject, predicate, object_))["id"])

    async def take_back(self, fact_id: str) -> None:
        await self._ask("memory", "facts", "remove", fact_id)

    async def add_alias(self, name: str, alias: str) -> None:
        await self._ask("memory", "people", "alias", name, alias)

    async def sessions(self) -> list[str]:
        return [session["title"] for session in await self._ask("sessions", "list")]

    async def search_sessions(self, text: str) -> list[tuple[str, str]]:
        return [(hit["session"]["title"], hit["line"]) for hit in await self._ask("sessions", "search", text)]

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        shown = await self._ask("sessions", "show", session_id)
        return [(entry["role"], entry["content"]) for entry in shown["entries"]]

    async def fork(self, session_id: str, title: str) -> str:
        return str((await self._ask("sessions", "fork", session_id, "--title", title))["id"])

    async def rename(self, session_id: str, title: str) -> None:
        await self._ask("sessions", "rename", session_id, title)

    async def delete_session(self, session_id: str) -> None:
        await self._ask("sessions", "delete", session_id, "--yes")

    async def _ask(self, *arguments: str) -> Any:
        done = await asyncio.to_thread(run, *arguments, "--json")
        if done.returncode == 2 and done.stderr.startswith("usage:"):
            raise Refusal("InvalidValue", done.stderr)  # the grammar's own refusal
        if done.returncode:
            error = json.loads(done.stderr)["error"]
            raise Refusal(error["type"], error["message"])
        return json.loads(done.stdout)


_KINDS = {
    "invalid_value": "InvalidValue",
    "memory_not_found": "UnknownObservation",
    "session_not_found": "SessionNotFound",
    "conflicting_change": "ConflictingChange",
    "clearance": "AccessDenied",
}


class Http(Door):
    """The HTTP API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        kept = await self._ask("POST", "/memories", json={"title": title, **fields})
        return kept["outcome"], kept["id"], kept["warning"]

    async def search(self, text: str, limit: int = 10, **wanted: str) -> list[tuple[str, float]]:
        hits = await self._ask("GET", "/memories/search", params={"q": text, "limit": limit, **wanted})
        return [(hit["memory"]["id"], hit["score"]) for hit in hits["data"]]

    async def listed(self) -> list[str]:
        return [row["id"] for row in (await self._ask("GET", "/memories"))["data"]]

    async def get(self, observation_id: str) -> tuple[str, str]:
        row = await self._ask("GET", f"/memories/{observation_id}")
        return row["title"], row["type"]

    async def edit(self, observation_id: str, **fields: str) -> str:
        return str((await self._ask("PATCH", f"/memories/{observation_id}", json=fields))["outcome"])

    async def confirm(self, observation_id: str) -> None:
        await self._ask("POST", f"/memories/{observation_id}/confirm")

    async def purge(self, observation_id: str) -> None:
        await self._ask("DELETE", f"/memories/{observation_id}", params={"purge": "true"})

    async def timeline(self, observation_id: str) -> list[str]:
        return [row["id"] for row in (await self._ask("GET", f"/memories/{observation_id}/timeline"))["data"]]

    async def supersede(self, old: str, new: str) -> None:
        await self._ask("POST", f"/memories/{old}/supersede", json={"by": new})

    async def history(self, observation_id: str) -> list[tuple[str, str]]:
        line = (await self._ask("GET", f"/memories/{observation_id}/history"))["data"]
        return [(version["memory"]["id"], version["memory"]["status"]) for version in line]

    async def forget(self, observation_id: str) -> None:
        await self._ask("DELETE", f"/memories/{observation_id}")

    async def restore(self, observation_id: str) -> None:
        await self._ask("POST", f"/memories/{observation_id}/restore")

    async def people(self) -> list[tuple[str, int]]:
        people = (await self._ask("GET", "/people"))["data"]
        return [(person["name"], person["mention_count"]) for person in people]

    async def add_task(self, title: str) -> str:
        return str((await self._ask("POST", "/tasks", json={"title": title}))["id"])

    async def finish_task(self, task_id: str) -> None:
        await self._ask("PATCH", f"/tasks/{task_id}", json={"status": "completed"})

    async def tasks(self) -> list[str]:
        return [task["title"] for task in (await self._ask("GET", "/tasks"))["data"]]

    async def facts(self, subject: str) -> list[str]:
        found = (await self._ask("GET", "/facts", params={"subject": subject}))["data"]
        return [f"{fact['subject']} {fact['predicate']} {fact['object']}" for fact in found]

    async def state_fact(self, subject: str, predicate: str, object_: str) -> str:
        fact = {"subject": subject, "predicate": predicate, "object": object_}
        return str((await self._ask("POST", "/facts", json=fact))["id"])

    async def take_back(self, fact_id: str) -> None:
        await self._ask("DELETE", f"/facts/{fact_id}")

    async def add_alias(self, name: str, alias: str) -> None:
        await self._ask("POST", "/people", json={"name": name, "alias": alias})

    async def sessions(self) -> list[str]:
        return [session["title"] for session in (await self._ask("GET", "/sessions"))["data"]]

    async def search_sessions(self, text: str) -> list[tuple[str, str]]:
        hits = (await self._ask("GET", "/sessions/search", params={"q": text}))["data"]
        return [(hit["session"]["title"], hit["line"]) for hit in hits]

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        entries = (await self._ask("GET", f"/sessions/{session_id}/messages"))["data"]
        return [(entry["role"], entry["content"]) for entry in entries]

    async def fork(self, session_id: str, title: str) -> str:
        return str((await self._ask("POST", f"/sessions/{session_id}/fork", json={"title": title}))["id"])

    async def rename(self, session_id: str, title: str) -> None:
        await self._ask("PATCH", f"/sessions/{session_id}", json={"title": title})

    async def delete_session(self, session_id: str) -> None:
        await self._ask("DELETE", f"/sessions/{session_id}")

    async def _ask(self, method: str, path: str, **sent: Any) -> Any:
        response = await self._client.request(method, f"/v1{path}", **sent)
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
        """What it offers."""
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def remember(self, title: str, **fields: Any) -> tuple[str, str, str]:
        if "people" in fields:
            fields["related_people"] = fields.pop("people")
        kept = await self._ask("memory_write", title=title, **fields)
        return kept["outcome"], kept["id"], kept.get("warning", "")

    async def search(self, text: str, limit: int = 10, **wanted: str) -> list[tuple[str, float]]:
        filtered: dict[str, Any] = {"types": [wanted["type"]]} if "type" in wanted else {}
        filtered |= {"after": wanted["after"]} if "after" in wanted else {}
        hits = (await self._ask("memory_search", query=text, limit=limit, **filtered))["hits"]
        return [(hit["id"], hit["score"]) for hit in hits]

    async def listed(self) -> list[str]:
        return [row["id"] for row in (await self._ask("memory_list"))["memories"]]

    async def confirm(self, observation_id: str) -> None:
        await self._ask("memory_confirm", ids=[observation_id])

    async def edit(self, observation_id: str, **fields: str) -> str:
        async with _owner() as owner:
            return await owner.edit(observation_id, **fields)

    async def purge(self, observation_id: str) -> None:
        async with _owner() as owner:
            await owner.purge(observation_id)

    async def state_fact(self, subject: str, predicate: str, object_: str) -> str:
        async with _owner() as owner:
            return await owner.state_fact(subject, predicate, object_)

    async def take_back(self, fact_id: str) -> None:
        async with _owner() as owner:
            await owner.take_back(fact_id)

    async def add_alias(self, name: str, alias: str) -> None:
        async with _owner() as owner:
            await owner.add_alias(name, alias)

    async def fork(self, session_id: str, title: str) -> str:
        async with _owner() as owner:
            return await owner.fork(session_id, title)

    async def rename(self, session_id: str, title: str) -> None:
        async with _owner() as owner:
            await owner.rename(session_id, title)

    async def delete_session(self, session_id: str) -> None:
        async with _owner() as owner:
            await owner.delete_session(session_id)

    async def get(self, observation_id: str) -> tuple[str, str]:
        answer = await self._ask("memory_get", ids=[observation_id])
        if answer.get("missing"):
            raise Refusal(None, f"there is no observation {', '.join(answer['missing'])}")
        [row] = answer["observations"]
        return row["title"], row["type"]

    async def timeline(self, observation_id: str) -> list[str]:
        return [row["id"] for row in (await self._ask("memory_timeline", anchor=observation_id))["timeline"]]

    async def supersede(self, old: str, new: str) -> None:
        await self._ask("memory_supersede", old=old, new=new)

    async def history(self, observation_id: str) -> list[tuple[str, str]]:
        line = (await self._ask("memory_history", observation_id=observation_id))["versions"]
        return [(version["id"], version["status"]) for version in line]

    async def forget(self, observation_id: str) -> None:
        await self._ask("memory_forget", ids=[observation_id])

    async def restore(self, observation_id: str) -> None:
        async with _owner() as owner:
            await owner.restore(observation_id)

    async def people(self) -> list[tuple[str, int]]:
        people = (await self._ask("memory_people"))["people"]
        return [(person["name"], person["mention_count"]) for person in people]

    async def add_task(self, title: str) -> str:
        return str((await self._ask("task_add", title=title))["task"]["id"])

    async def finish_task(self, task_id: str) -> None:
        await self._ask("task_update", task_id=task_id, status="completed")

    async def tasks(self) -> list[str]:
        return [task["title"] for task in (await self._ask("task_list"))["tasks"]]

    async def facts(self, subject: str) -> list[str]:
        found = (await self._ask("memory_facts", subject=subject))["facts"]
        return [f"{fact['subject']} {fact['predicate']} {fact['object']}" for fact in found]

    async def sessions(self) -> list[str]:
        listed = (await self._client.list_resources()).resources
        return [each.name for each in listed if str(each.uri).startswith("chatbot://sessions/")]

    async def search_sessions(self, text: str) -> list[tuple[str, str]]:
        hits = (await self._ask("session_search", query=text))["sessions"]
        return [(hit["title"], hit["line"]) for hit in hits]

    async def read_session(self, session_id: str) -> list[tuple[str, str]]:
        entries = (await self._ask("session_read", session_id=session_id))["entries"]
        return [(entry["role"], entry["content"]) for entry in entries]

    async def _ask(self, name: str, **arguments: Any) -> Any:
        self.used.add(name)
        result = await self._client.call_tool(name, arguments)
        [block] = result.content
        assert block.type == "text"
        answer = json.loads(block.text)
        if result.is_error:
            raise Refusal(None, answer["error"])
        return answer


NAMES: Sequence[str] = ("library", "cli", "http", "mcp")


@asynccontextmanager
async def door(name: str, clearance: Clearance = "full") -> AsyncIterator[Door]:
    """That way in to the memory of `ada` in the current folder, for a caller of that clearance."""
    Path("config.toml").write_text(
        f'identity = "ada"\n[model]\nname = "scripted"\n[agents.{AGENT}]\nmemory = ["basic_session", "observations"]\n',
        encoding="utf-8",
    )
    identity = Path("identities", "ada", "identity.toml")
    identity.parent.mkdir(parents=True, exist_ok=True)
    if not identity.exists() or name == "cli":
        identity.write_text(f'clearance = "{clearance if name == "cli" else "full"}"\n', encoding="utf-8")
    if name == "library":
        async with MemorySystem(MEMORY, clearance=clearance) as system:
            yield Library(system)
    elif name == "cli":
        yield Cli()
    elif name == "http":
        with serving(config=Path("config.toml").read_text(encoding="utf-8"), tokens=True) as served:
            headers = {"Authorization": f"Bearer {served.token('ada', clearance=clearance)}"}
            async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=30) as client:
                yield Http(client)
    else:
        arguments = ["-m", "chatbot", "mcp", "--clearance", clearance]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ), cwd=Path.cwd())
        async with Client(server, read_timeout_seconds=30) as client:
            yield Mcp(client)


@asynccontextmanager
async def _owner() -> AsyncIterator[Library]:
    """Whose memory it is, who does beside a door what that has no way for."""
    async with MemorySystem(MEMORY) as system:
        yield Library(system)


def _options(fields: Mapping[str, str]) -> list[str]:
    return [part for name, value in fields.items() for part in (f"--{name}", value)]


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (ChatbotError, StoreError) as error:
        raise Refusal(type(error).__name__, str(error)) from error
