"""Our own HTTP server, for real: uvicorn on a port of loopback, in a thread or a process of its own.

The fixture `http` serves the identities `ada` and `grace` from the test's own folder.
"""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from chatbot.models import ScriptedModel
from chatbot.models.scripted import ScriptedReply
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import Grant
from chatbot.server.identities import Identities
from chatbot.server.serve import listen_on, server_of
from chatbot.stores.access import RIGHTS, Clearance, Right
from tests.command import project
from tests.patience import PATIENCE_S

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading all certificates for each client would take longer than most tests."""


class Served:
    """A server that runs."""

    def __init__(self, identities: Identities, app: FastAPI, url: str, models: dict[str, ScriptedModel]) -> None:
        self.identities = identities
        self.app = app
        self.url = url
        self.models = models
        """The model of each identity that was opened."""

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect to."""
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """A client, to be closed by its `with`."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, verify=_NO_TLS)

    def token(
        self,
        *identities: str,
        clearance: Clearance = "full",
        rate: int = 100_000,
        rights: Collection[Right] = RIGHTS,
        **more: Any,
    ) -> str:
        """A new token, with every right unless others are named."""
        grant = Grant(identities, clearance, rate_per_minute=rate, rights=frozenset(rights), **more)
        return self.identities.tokens.add(uuid4().hex, grant)[0]


Serve = Callable[..., Served]


@pytest.fixture
def http() -> Iterator[Serve]:
    """Starts servers; they stop with the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(serving(*arguments, **options))


@contextmanager
def serving(
    replies: Sequence[ScriptedReply] = (),
    *,
    config: str = "",
    tokens: bool = False,
    delay_s: float = 0.0,
    options: Options | None = None,
    is_scripted: bool = True,
) -> Iterator[Served]:
    """Serve the identities in the current folder; with `tokens` nobody comes in without one.

    Their model is a scripted one with these replies, or the one in the configuration.
    """
    usual = '[agents.chat]\nmemory = ["basic_session", "observations"]\n'
    project(config or usual, "ada", "grace", identity='persona = "You are {name}."\n')
    models: dict[str, ScriptedModel] = {}

    def open_runtime(options: Options) -> Runtime:
        name = options.identity or ""
        models[name] = ScriptedModel(replies, delay_s=delay_s)
        return Runtime(options, model=models[name])

    identities = Identities(options, open_runtime=open_runtime if is_scripted else Runtime)
    if tokens:
        identities.tokens.add(uuid4().hex, Grant(("ada",)))
    server = server_of(identities)
    app = server.config.app
    assert isinstance(app, FastAPI)
    with listen_on("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield Served(identities, app, f"http://127.0.0.1:{sock.getsockname()[1]}", models)
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@contextmanager
def server_process(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] = os.environ,
    told: Literal["stdout", "stderr"] = "stdout",
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Python with these arguments, and the words of the line that says where it listens; it is killed at the end."""
    out, err = (subprocess.PIPE if told == each else None for each in ("stdout", "stderr"))
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=err, text=True) as process:
        try:
            yield process, getattr(process, told).readline().split()
        finally:
            process.kill()


def wait_until(is_true: Callable[[], Any]) -> None:
    """Wait for something that another thread does."""
    give_up = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < give_up, "waited too long"
        time.sleep(0.005)


def events(response: httpx.Response, *, phases: bool = False) -> Iterator[tuple[str, Any]]:
    """Name and data of each event of a stream, as they come; what is awaited only where that is wanted."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            text = line.removeprefix("data: ")
            if name != "phase" or phases:
                yield name, text if text == "[DONE]" else json.loads(text)
