"""Compare the waits of 200 clients that stream at once with those of a single one, on one server process.

    uv run benchmarks/server.py --clients 200 --words 40 --delay 0.05

The model is scripted. With a delay it takes that long for each word, as real ones do; else only our work counts.
"""

import argparse
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

ALONE = 20
"""How many turns one client takes, one after the other."""


def main() -> None:
    """Print the times and the server's memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that the model takes for a word")
    parser.add_argument("--serve", action="store_true", help="be the server")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(_serve(args.words, args.delay))
        return
    _compare(args.clients, args.words, args.delay)


def _compare(clients: int, words: int, delay: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = " ".join(["word"] * words)
        Path(folder, "config.toml").write_text(
            '[agents.chat]\nmemory = ["basic_session", "observations"]\n[server]\nrate_per_minute = 0\n',
            encoding="utf-8",
        )
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        options = ["--words", str(words), "--delay", str(delay)]
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as server:
            assert server.stdout is not None
            url = server.stdout.readline().split()[0]
            asyncio.run(_measure(url, clients, script))
            print(f"memory of the server   {_resident_mb(server.pid):6.0f} MB")
            server.terminate()
    print(f"CPU of the server      {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:6.1f} s")


async def _serve(words: int, delay: float) -> None:
    from chatbot.models import ScriptedModel
    from chatbot.runtime import Options, Runtime
    from chatbot.server.identities import Identities
    from chatbot.server.serve import serve

    script = " ".join(["word"] * words)

    def opened(options: Options) -> Runtime:
        return Runtime(options, model=ScriptedModel([script], delay_s=delay))

    async with Identities(Options(port=0), open_runtime=opened) as identities:
        await serve(identities, ready=lambda url: print(url, flush=True))


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
    """Return the seconds of a streamed turn in a session of its own; its reply must be whole."""
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
