# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[otel]", "aiohttp"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Compare our share of a turn with LiteLLM's share of a call, and check whether it grows over a thousand turns.

    uv run benchmarks/turns.py --rows 10000 --turns 1000
    uv run benchmarks/turns.py --telemetry

LiteLLM's share is the time of a call through it less that of the same call by aiohttp alone, to a server on loopback
that answers at once, in a process of its own. Ours is the time of dry runs (recall and prompt), of two appends, and of
whole turns with a model that answers at once: those also write the receipt, the bill and the exchange, durably.

With `--telemetry`, turns with telemetry are compared with turns without: spans and metrics are sent to a collector on
loopback, in a process of its own.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from observations import Texts, folder

from chatbot.chat.chat import Chat
from chatbot.memory import SessionHandle
from chatbot.memory.writing import Draft
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime

_CHUNKS = 100
_CALLS = 60
_LOADED_AT_ONCE = 2_000


def serve(port: Connection) -> None:
    """Serve replies of a hundred words at once, over an OpenAI-compatible interface."""
    from aiohttp import web

    def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        said = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(said)}\n\n".encode()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(_CHUNKS):
                await response.write(chunk({"content": "word "}))
            await response.write(chunk({}, "stop") + b"data: [DONE]\n\n")
            return response
        message = {"role": "assistant", "content": "word " * _CHUNKS}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": _CHUNKS, "total_tokens": 9 + _CHUNKS}
        return web.json_response(
            {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        )

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        for signal in ("traces", "metrics"):
            app.router.add_post(f"/v1/{signal}", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await work()
    return 1e3 * (time.perf_counter() - begin)


async def overhead(base: str) -> tuple[float, float]:
    """Return the milliseconds that LiteLLM adds to a call and to a stream: medians of calls that take turns."""
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    import aiohttp
    import litellm

    messages = [{"role": "user", "content": "hello"}]

    async def through(*, stream: bool) -> None:
        reply = await litellm.acompletion("openai/m", messages, api_base=base, api_key="none", stream=stream)
        if stream:
            async for _ in reply:
                pass

    async with aiohttp.ClientSession() as http:

        async def bare(*, stream: bool) -> None:
            asked = {"model": "m", "messages": messages, "stream": stream}
            async with http.post(f"{base}/chat/completions", json=asked) as reply:
                if not stream:
                    await reply.json()
                    return
                async for line in reply.content:
                    if line.startswith(b"data: {"):
                        json.loads(line[6:])

        async def added(*, stream: bool) -> float:
            pairs = [
                (await timed(lambda: through(stream=stream)), await timed(lambda: bare(stream=stream)))
                for _ in range(_CALLS)
            ][5:]
            return statistics.median(pair[0] for pair in pairs) - statistics.median(pair[1] for pair in pairs)

        return await added(stream=False), await added(stream=True)


@asynccontextmanager
async def conversing(
    path: Path, texts: Texts, rows: int, settings: str = ""
) -> AsyncIterator[tuple[SessionHandle, Chat]]:
    """Open a conversation, a few turns old, of an identity with that many rows."""
    identity = path / "identities" / "bench"
    identity.mkdir(parents=True)
    (identity / "identity.toml").write_text('persona = "You answer."\n', encoding="utf-8")
    config = path / "config.toml"
    config.write_text(
        f'identity = "bench"\n[memory.observations]\ncache = "{path}/cache"\n{settings}', encoding="utf-8"
    )
    model = ScriptedModel([texts.some(12)], window=200_000)
    async with Runtime(Options(config=config), model=model) as runtime:
        notes = runtime.memory.memory("chat")
        for _ in range(0, rows, _LOADED_AT_ONCE):
            drafts = [Draft(title=texts.some(5), narrative=texts.some(28)) for _ in range(_LOADED_AT_ONCE)]
            await notes.remember_all(drafts)
        session = await runtime.new_session()
        assert session is not None
        chat = runtime.chat(session)
        for _ in range(5):
            await chat.turn(texts.some(10))
        yield session, chat


async def compare(path: Path, rows: int, turns: int) -> None:
    """Measure the cost of telemetry."""
    texts = Texts()
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(child,), daemon=True)
    server.start()
    telemetry = f'[telemetry]\nendpoint = "http://127.0.0.1:{parent.recv()}"\ninterval_s = 5\n'
    async with (
        conversing(path / "plain", texts, rows) as (_, plain),
        conversing(path / "watched", texts, rows, telemetry) as (_, watched),
    ):
        spent: dict[Chat, list[tuple[float, float]]] = {plain: [], watched: []}
        for chat in [plain, watched] * turns:
            text, cpu = texts.some(10), time.process_time()
            wall = await timed(lambda chat=chat, text=text: chat.turn(text))  # type: ignore[misc]
            spent[chat].append((wall, 1e3 * (time.process_time() - cpu)))
    server.terminate()
    (wall, cpu), (wall_on, cpu_on) = (map(statistics.median, zip(*spent[chat], strict=True)) for chat in spent)
    print(f"{rows:,} rows, {turns} turns of each; milliseconds, medians")
    print(f"a turn: {wall:.2f} ({cpu:.2f} of CPU); watched: {wall_on:.2f} ({cpu_on:.2f})")
    print(f"watched by not watched: {wall_on / wall:.2f} ({cpu_on / cpu:.2f})")


async def measure(path: Path, rows: int, turns: int) -> None:
    texts = Texts()
    async with conversing(path, texts, rows) as (session, chat):
        questions = [texts.some(10) for _ in range(turns)]
        prompts = [await timed(lambda each=each: chat.dry_run(each)) for each in questions[:_CALLS]]  # type: ignore[misc]
        appends = [await timed(lambda: session.transcript_append("note", "a line")) for _ in range(_CALLS)]
        whole = [await timed(lambda each=each: chat.turn(each)) for each in questions]  # type: ignore[misc]
    ours = statistics.median(prompts) + 2 * statistics.median(appends)
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(child,), daemon=True)
    server.start()
    call, stream = await overhead(f"http://127.0.0.1:{parent.recv()}/v1")
    server.terminate()
    first, last = statistics.median(whole[:50]), statistics.median(whole[-50:])
    print(f"{rows:,} rows; milliseconds, medians")
    print(f"LiteLLM adds {call:.1f} to a call, {stream:.1f} to a stream of {_CHUNKS} chunks")
    shares = f"{ours / call:.2f} of the call's, {ours / stream:.2f} of the stream's"
    print(f"recall, prompt and two appends: {ours:.1f} ({shares})")
    print(f"a whole turn: {first:.1f} ({first / call:.2f}, {first / stream:.2f})")
    print(f"turns 1 to 50: {first:.1f}; the last 50 of {turns}: {last:.1f} ({last / first:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--telemetry", action="store_true")
    args = parser.parse_args()
    with folder() as path:
        asyncio.run((compare if args.telemetry else measure)(path, args.rows, args.turns))


if __name__ == "__main__":
    main()
