"""Many users who talk at once to several servers of one storage, one of which dies: each asks until he is answered."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import httpx

from tests.patience import PATIENCE_S

_WORDS = "a reply that takes its time " * 4


@dataclass
class Crowd:
    """The users of one run, and what became of what they said."""

    clients: Sequence[httpx.AsyncClient]
    users: int
    turns: int
    endings: Counter[str] = field(default_factory=Counter)
    """How streams ended: `done`, `broken` with their server, or the code of their error."""
    answered: int = 0
    found: int = 0
    """Replies that were kept when their server died; their receipts may not have been."""
    dead: set[int] = field(default_factory=set)
    """The servers that answer no more."""

    async def talk(self, kill: Callable[[], None], *, at: int) -> None:
        """Talk in a session for each user; `kill` the first server after so many replies. Checks every reply."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.users):
                group.create_task(self._user(number))
            group.create_task(self._kill(kill, at))

    async def _kill(self, kill: Callable[[], None], at: int) -> None:
        while self.answered < at:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await asyncio.to_thread(kill)

    async def _user(self, number: int) -> None:
        session = (await self._ask(number, "POST", "/v1/sessions", json={})).json()["id"]
        said: list[tuple[str, str]] = []
        for turn in range(self.turns):
            text = f"{_WORDS}{number}.{turn}"
            said += [("user", text), ("assistant", await self._answer(number + turn, f"/v1/sessions/{session}", text))]
            assert said[-1][1].endswith(text)
            self.answered += 1
        stored = await self._read(number, f"/v1/sessions/{session}")
        assert stored == said, (stored, said, self.endings)
        receipts = await self._ask(number, "GET", f"/v1/sessions/{session}/receipts")
        assert self.turns - self.found <= len(receipts.json()["data"]) <= self.turns + self.endings["unsaved"]

    async def _answer(self, first: int, session: str, text: str) -> str:
        """Say it, and again after a failure; where nobody knows whether it was answered, look first."""
        key = _new_key()
        for server in count(first):
            ending, reply = await self._say(server, session, text, key)
            if ending == "done":
                return reply
            if ending == "broken":
                continue  # the same once more, at the other server
            await self._listen(server, session)
            entries = await self._read(server, session)
            if entries[-2:-1] == [("user", text)] and entries[-1][0] == "assistant":
                self.found += 1
                return entries[-1][1]
            if entries[-1:] == [("user", text)]:
                taken = await self._ask(server, "DELETE", f"{session}/messages")
                assert [each["content"] for each in taken.json()["data"]] == [text]
            key = _new_key()
        raise AssertionError("unreachable")

    async def _say(self, server: int, session: str, text: str, key: dict[str, str]) -> tuple[str, str]:
        """How it ended, and the reply."""
        client = self._client(server)
        try:
            body = {"text": text, "stream": True}
            async with client.stream("POST", f"{session}/chat", json=body, headers=key) as answer:
                ending, reply = await _ending(answer)
        except httpx.TransportError:
            self.dead.add(self.clients.index(client))
            ending, reply = "broken", ""
        self.endings[ending] += 1
        return ending, reply

    async def _listen(self, server: int, session: str) -> None:
        """Listen to the turn as long as anyone may run it: it ends with its reply, or is known to be lost."""
        async with self._client(server).stream("GET", f"{session}/chat") as answer:
            if answer.status_code == httpx.codes.OK:
                self.endings[f"listened: {(await _ending(answer))[0]}"] += 1

    async def _read(self, server: int, session: str) -> list[tuple[str, str]]:
        found = await self._ask(server, "GET", f"{session}/messages", params={"limit": 100})
        return [(each["role"], each["content"]) for each in found.json()["data"]]

    async def _ask(self, server: int, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask a server, or the next one if that has died."""
        for number in count(server):
            client = self._client(number)
            try:
                answer = await client.request(method, path, **more)
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    return answer
                self.endings[f"asked: {answer.json()['error']['code']}"] += 1
                await asyncio.sleep(0.1)
            except httpx.TransportError:
                self.dead.add(self.clients.index(client))
        raise AssertionError("unreachable")

    def _client(self, server: int) -> httpx.AsyncClient:
        alive = [number for number in range(len(self.clients)) if number not in self.dead]
        return self.clients[alive[server % len(alive)]]


def client(url: str, token: str = "") -> httpx.AsyncClient:
    """A client of a server, for all users."""
    limits = httpx.Limits(max_connections=None)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, limits=limits)


def _new_key() -> dict[str, str]:
    return {"idempotency-key": uuid4().hex}


async def _ending(answer: httpx.Response) -> tuple[str, str]:
    """How a stream ended, and its reply: `done`, `unsaved` where its receipt says so, or the code of its error."""
    if answer.status_code != httpx.codes.OK:
        return str(json.loads(await answer.aread())["error"]["code"]), ""
    event = ""
    async for line in answer.aiter_lines():
        kind, _, rest = line.partition(": ")
        event = rest if kind == "event" else event
        if kind == "data" and event == "done":
            told = json.loads(rest)
            return "unsaved" if told["receipt"]["notices"] else event, str(told["reply"])
        if kind == "data" and event == "error":
            return str(json.loads(rest)["error"]["code"]), ""
    return "broken", ""
