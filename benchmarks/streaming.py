"""Measure the CPU time of a streamed chunk: LiteLLM alone, and a whole server with LiteLLM in it.

    uv run --group dev benchmarks/streaming.py --streams 20 --chunks 200

The same upstream streams the same chunks to both, as fast as they are taken, or with `--delay` between them. The CPU
time of each process is counted after a first stream as warm-up. They take turns, so that noise affects both equally;
the ratio is the median of all rounds.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

WORD = "word "


def main() -> None:
    """Print the CPU microseconds per chunk, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between two chunks")
    parser.add_argument("--session", action="store_true", help="say it in sessions, which are kept")
    parser.add_argument("--alone", metavar="URL", help="be LiteLLM alone")
    parser.add_argument("--serve", metavar="URL", help="be the server")
    args = parser.parse_args()
    if args.alone:
        asyncio.run(_alone(args.alone, args.streams))
    elif args.serve:
        asyncio.run(_serve(args.serve))
    else:
        asyncio.run(_compare(args.streams, args.chunks, args.delay, args.rounds, is_session=args.session))


async def _compare(streams: int, chunks: int, delay: float, rounds: int, *, is_session: bool) -> None:
    async with (
        _upstream(chunks, delay) as url,
        _alone_at(url, streams) as alone,
        _served_at(url, streams, chunks, is_session=is_session) as served,
    ):
        took = [(await alone(), await served()) for _ in range(rounds)]
    each = streams * chunks / 1e6
    print(f"LiteLLM alone   {statistics.median(its for its, _ in took) / each:8.0f} µs a chunk")
    print(f"the server      {statistics.median(ours for _, ours in took) / each:8.0f} µs a chunk")
    ratios = sorted(ours / its for its, ours in took)
    print(f"ratio           {statistics.median(ratios):8.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})")


@asynccontextmanager
async def _upstream(chunks: int, delay: float) -> AsyncIterator[str]:
    """Start a provider that streams a given number of chunks."""
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake"}

    def event(**choice: Any) -> bytes:
        return f"data: {json.dumps({**frame, 'choices': [{'index': 0, **choice}]})}\n\n".encode()

    async def complete(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(chunks):  # LiteLLM gives up on a model that repeats itself
            await response.write(event(delta={"content": f"{WORD}{number} "}, finish_reason=None))
            await asyncio.sleep(delay)
        await response.write(event(delta={}, finish_reason="stop"))
        used = {"prompt_tokens": 9, "completion_tokens": chunks, "total_tokens": chunks + 9}
        await response.write(f"data: {json.dumps({**frame, 'choices': [], 'usage': used})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _alone_at(url: str, streams: int) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Return a function that measures the CPU seconds of a round of LiteLLM alone."""
    with _process("--alone", url, "--streams", str(streams)) as process:
        await asyncio.to_thread(_line, process)

        async def took() -> float:
            begun = _cpu(process.pid)
            _go_on(process)
            await asyncio.to_thread(_line, process)
            return _cpu(process.pid) - begun

        yield took


@asynccontextmanager
async def _served_at(
    url: str, streams: int, chunks: int, *, is_session: bool
) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Return a function that measures the CPU seconds of a round of the server."""
    with _process("--serve", url) as process:
        address = (await asyncio.to_thread(_line, process)).split()[0]
        extra = {"session_id": "new"} if is_session else {}
        body = {"model": "ada", "messages": [{"role": "user", "content": "Talk."}], "stream": True, **extra}
        limits = httpx.Limits(max_connections=streams)
        async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:

            async def stream() -> None:
                async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                    text = "".join([each async for each in response.aiter_text()])
                assert text.count(WORD) == chunks, text[-500:]

            async def took() -> float:
                begun = _cpu(process.pid)
                await asyncio.gather(*(stream() for _ in range(streams)))
                return _cpu(process.pid) - begun

            await stream()
            yield took


async def _alone(url: str, streams: int) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    async def stream() -> None:
        messages = [{"role": "user", "content": "Talk."}]
        response: Any = await litellm.acompletion(
            model="openai/fake",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            api_base=url,
            api_key="none",
        )
        async for chunk in response:
            _ = [choice.delta.content for choice in chunk.choices]

    await stream()
    print("warm", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        await asyncio.gather(*(stream() for _ in range(streams)))
        print("done", flush=True)


async def _serve(url: str) -> None:
    from chatbot.runtime import Options
    from chatbot.server.identities import Identities
    from chatbot.server.serve import serve

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.toml")
        config.write_text(  # noqa: ASYNC240 - nothing else runs yet
            f'[model]\nname = "openai/fake"\n\n[providers.openai]\napi_base = "{url}"\napi_key = "none"\n'
            '[agents.chat]\nmemory = ["basic_session", "observations"]\n'
            '[embedding]\nmodel = ""\n[server]\nrate_per_minute = 0\n',
            encoding="utf-8",
        )
        os.environ["XDG_CACHE_HOME"] = folder
        async with Identities(Options(config=config, port=0)) as identities:
            await serve(identities, ready=lambda address: print(address, flush=True))


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
