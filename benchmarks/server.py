"""How long 200 clients wait that stream at once, beside one alone, on one server process with the scripted model.

uv run python benchmarks/server.py [clients words [seconds]]

A reply takes that many seconds, as a real model's does; 0 leaves nothing but our own work.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from chatbot.server.house import House
from chatbot.server.serve import serve

ALONE = 10
"""How many turns one client takes, one after the other."""


def main() -> None:
    """Print the times and the server's memory."""
    given = sys.argv[1:]
    if given[:1] == ["serve"]:
        _serve(given[1], float(given[2]))
        return
    clients, words = [int(text) for text in [*given, "200", "40"][:2]] if len(given) > 1 else (200, 40)
    seconds = float(given[2]) if len(given) > 2 else 3.0
    with tempfile.TemporaryDirectory() as folder:
        script = " ".join(["word"] * words)
        Path(folder, "config.toml").write_text(
            '[agents.chat]\nmemory = ["basic_session", "observations"]\n[server]\nport = 0\nrate_per_minute = 0\n',
            encoding="utf-8",
        )
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        command = [sys.executable, __file__, "serve", script, str(seconds / words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as server:
            assert server.stdout is not None
            url = server.stdout.readline().split()[0]
            asyncio.run(_measure(url, clients, script))
            print(f"memory of the server   {_resident_mb(server.pid):6.0f} MB")
            server.terminate()
    print(f"CPU of the server, all {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:6.1f} s")


def _serve(script: str, delay_s: float) -> None:
    """Serve a model that takes so long for each word."""
    house = House(open_runtime=lambda options: Runtime(options, model=ScriptedModel([script], delay_s=delay_s)))
    asyncio.run(serve(house, ready=lambda url: print(url, flush=True)))


async def _measure(url: str, clients: int, script: str) -> None:
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        await _turn(client, script)
        alone = [await _turn(client, script) for _ in range(ALONE)]
        started = time.monotonic()
        together = await asyncio.gather(*(_turn(client, script) for _ in range(clients)))
        took = time.monotonic() - started
    _print("one client", alone)
    _print(f"{clients} clients", together)
    print(f"p95 ratio              {_p95(together) / _p95(alone):6.1f}")
    print(f"turns a second         {clients / took:6.1f}, alone {ALONE / sum(alone):.1f}")


async def _turn(client: httpx.AsyncClient, script: str) -> float:
    """Seconds that one streamed turn in a session of its own takes; its reply must be whole."""
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    started = time.monotonic()
    async with client.stream("POST", f"/v1/sessions/{session}/chat", json={"text": "Tell me a few words"}) as response:
        lines = [line async for line in response.aiter_lines()]
    words = sum(line.startswith('data: {"text":"word') for line in lines)
    assert words == len(script.split()), f"{words} of {len(script.split())} words came"
    return time.monotonic() - started


def _print(name: str, times: list[float]) -> None:
    print(f"{name:20} p50 {statistics.median(times) * 1000:8.1f} ms   p95 {_p95(times) * 1000:8.1f} ms")


def _p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95) - 1]


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
