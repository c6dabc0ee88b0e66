"""A small OpenAI-compatible server on loopback, whose behaviour is chosen by the name of the model that is asked for.

A pytest plug-in: a test module that says `pytest_plugins = ["tests.servers.openai_server"]` has the fixture
`openai_url`, an address of its own. What was asked there is answered by `GET {openai_url}/requests`; `GET
{openai_url}/hung-up` is answered once a client has gone away from a reply that stalls. A reply that comes
slowly waits for `GET {openai_url}/release`; `GET {openai_url}/asked` is answered once somebody waits for it.
"""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from tests.patience import PATIENCE_S
from tests.servers.extraction_replies import REPLIES, work_of
from tests.servers.key_forms import KEY_FORMS

Json = dict[str, Any]
Behaviour = Callable[[web.Request, Json], Awaitable[web.StreamResponse]]

USAGE: Json = {
    "prompt_tokens": 120,
    "completion_tokens": 8,
    "total_tokens": 128,
    "prompt_tokens_details": {"cached_tokens": 100},
}
WORDS = ("Hello", ", ", "wörld", " \ud83c", "\udf89.")
"""The last character is cut in two, as servers do that count in UTF-16."""

_happened: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)
"""By the address, and the name that it is asked for by."""
_asked: defaultdict[str, list[Json]] = defaultdict(list)
"""The requests, by the address that they came to."""


def _vector_of(text: str, length: int) -> list[float]:
    """A letter of the text is a direction, so that texts of the same letters are alike."""
    counts = [0.0] * length
    for letter in text.lower():
        counts[ord(letter) % length] += 1
    return counts


def _text(text: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


def _thought(text: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}]}


def _tool(index: int, *, arguments: str, id: str | None = None, name: str | None = None) -> Json:  # noqa: A002
    call: Json = {"index": index, "function": {"arguments": arguments}}
    if name:
        call |= {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def _finish(reason: str = "stop") -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def _usage(**wrong: object) -> Json:
    return {"choices": [], "usage": {**USAGE, **wrong}}


def _error(status: int, message: str, *, code: str = "", headers: dict[str, str] | None = None) -> web.Response:
    body = {"error": {"message": message, "type": "error", "param": None, "code": code or str(status)}}
    return web.json_response(body, status=status, headers=headers)


async def _open(request: web.Request, asked: Json, *chunks: Json) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    opening = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    for chunk in (opening, *chunks) if chunks else ():
        whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"], **chunk}
        await response.write(f"data: {json.dumps(whole)}\n\n".encode())
    return response


async def _send(
    finish: Callable[[web.Request, web.StreamResponse], Awaitable[None]],
    chunks: Sequence[Json],
    request: web.Request,
    asked: Json,
) -> web.StreamResponse:
    response = await _open(request, asked, *chunks)
    await finish(request, response)
    return response


async def _end(_: web.Request, response: web.StreamResponse) -> None:
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()


async def _drop(request: web.Request, _: web.StreamResponse) -> None:
    assert request.transport is not None
    request.transport.abort()


async def _stall(request: web.Request, _: web.StreamResponse) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        _happened[request.match_info["client"], "hung-up"].set()


def _streams(*chunks: Json) -> Behaviour:
    """A reply of these chunks, which comes to its end."""
    return partial(_send, _end, chunks)


def _drops(*chunks: Json) -> Behaviour:
    """The connection breaks after these chunks."""
    return partial(_send, _drop, chunks)


def _stalls(*chunks: Json) -> Behaviour:
    """Nothing comes after these chunks."""
    return partial(_send, _stall, chunks)


def _fails(status: int, message: str, *, code: str = "", headers: dict[str, str] | None = None) -> Behaviour:
    async def fail(request: web.Request, asked: Json) -> web.StreamResponse:
        return _error(status, message, code=code, headers=headers)

    return fail


def _later(first: Behaviour, then: Behaviour, *, times: int = 1) -> Behaviour:
    """The first behaviour so many times, and then the other one."""

    async def either(request: web.Request, asked: Json) -> web.StreamResponse:
        is_later = len(_asked[request.match_info["client"]]) > times
        return await (then if is_later else first)(request, asked)

    return either


async def fails_at_length(request: web.Request, asked: Json) -> web.StreamResponse:
    return _error(500, "\n".join(f"{name}: {text}" for name, text in request.headers.items()) * 100)


async def denies(request: web.Request, asked: Json) -> web.StreamResponse:
    key = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return _error(401, f"Incorrect API key provided: {key}. See https://me:hunter2@example.com", code="invalid_api_key")


async def never_answers(request: web.Request, asked: Json) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def stammers(request: web.Request, asked: Json) -> web.StreamResponse:
    response = await _open(request, asked, _text("Half"))
    await response.write(b'data: {"id": "x", "choices": [{"index": 0, "del\n\n')
    await response.write_eof()
    return response


async def fails_midway(request: web.Request, asked: Json) -> web.StreamResponse:
    response = await _open(request, asked, _text("Half"))
    error = {"error": {"message": "The server had an error", "type": "server_error", "code": 500}}
    await response.write(f"data: {json.dumps(error)}\n\n".encode())
    await response.write_eof()
    return response


async def embeds(request: web.Request, asked: Json) -> web.StreamResponse:
    texts: list[str] = asked["input"]
    length = asked.get("dimensions") or 4
    rows: list[Json] = [
        {"object": "embedding", "index": index, "embedding": _vector_of(text, length)}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 3 * len(texts), "total_tokens": 3 * len(texts)}
    return web.json_response({"object": "list", "data": rows[::-1], "model": asked["model"], "usage": usage})


async def embeds_one_without_usage(request: web.Request, asked: Json) -> web.StreamResponse:
    row = {"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}
    return web.json_response({"object": "list", "data": [row], "model": asked["model"]})


async def embeds_nonsense(request: web.Request, asked: Json) -> web.StreamResponse:
    nonsense = [request.headers["Authorization"], None]
    return web.json_response({"object": "list", "data": [{"index": 0, "embedding": nonsense}], "model": "m"})


async def takes_facts(request: web.Request, asked: Json) -> web.StreamResponse:
    return await _streams(_text(work_of(asked["messages"])), _finish(), _usage())(request, asked)


async def takes_facts_slowly(request: web.Request, asked: Json) -> web.StreamResponse:
    _happened[request.match_info["client"], "asked"].set()
    await _happened[request.match_info["client"], "release"].wait()
    return await takes_facts(request, asked)


SAYS = _streams(*map(_text, WORDS), _finish(), _usage())
FAILS = _fails(500, "The server had an error while processing your request")
SLOWS_DOWN = _fails(429, "Rate limit reached for requests", headers={"Retry-After": "0.2"})
TOO_LONG = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."
BEHAVIOURS: dict[str, Behaviour] = {
    "says": SAYS,
    "thinks": _streams(_text("Hm. Alpacas?\n</th"), _text("ink>\n\nYes."), _finish(), _usage()),
    "says-without-usage": _streams(*map(_text, WORDS), _finish()),
    "reports-less-than-nothing": _streams(*map(_text, WORDS), _finish(), _usage(prompt_tokens=-120)),
    "reports-too-much": _streams(*map(_text, WORDS), _finish(), _usage(prompt_tokens=10**15)),
    "reports-nonsense": _streams(*map(_text, WORDS), _finish(), _usage(completion_tokens="many")),
    "drops-after-the-end": _drops(*map(_text, WORDS), _finish()),
    "calls-tools": _streams(
        _text("Let me look. "),
        _tool(0, id="call_a", name="search", arguments=""),
        _tool(0, arguments='{"query": '),
        _tool(0, arguments='"sea otters"}'),
        _tool(1, id="call_b", name="clock", arguments="{}"),
        _finish("tool_calls"),
        _usage(),
    ),
    "runs-out-of-tokens": _streams(_text("It goes"), _finish("length"), _usage()),
    "is-filtered": _streams(_text("I"), _finish("content_filter"), _usage()),
    "says-nothing": _streams(_finish(), _usage()),
    "ends-without-finishing": _streams(_text("Half a"), _text(" sentence")),
    "drops-at-once": _drops(),
    "drops-later": _drops(_text("Half a"), _text(" sentence")),
    "drops-while-thinking": _drops(_thought("Half a"), _thought(" thought")),
    "never-answers": never_answers,
    "opens-and-stalls": _stalls(),
    "opens-and-drops": _drops(),
    "opens-and-ends": _streams(),
    "stalls-later": _stalls(_text("Wait"), _text(" a")),
    "stammers": stammers,
    "fails-midway": fails_midway,
    "slows-down": SLOWS_DOWN,
    "slows-down-once": _later(SLOWS_DOWN, SAYS),
    "slows-down-for-an-hour": _fails(429, "Rate limit reached for tokens", headers={"Retry-After": "3600"}),
    **{
        f"asks-to-wait-{asked}": _fails(429, "Rate limit reached", headers={"Retry-After": asked})
        for asked in ("-5", "nan", "inf", "1e300")
    },
    "has-no-credit": _fails(402, "Insufficient balance"),
    "has-no-quota": _fails(429, "You exceeded your current quota", code="insufficient_quota"),
    "fails": FAILS,
    "fails-once": _later(FAILS, SAYS),
    "fails-at-length": fails_at_length,
    "is-overloaded": _fails(503, "The engine is currently overloaded"),
    "denies": denies,
    "repeats-keys": _fails(401, f"These keys are wrong: {', '.join(KEY_FORMS.values())}", code="invalid_api_key"),
    "forbids": _fails(403, "Your project may not use this model"),
    "is-unknown": _fails(404, "The model does not exist", code="model_not_found"),
    "refuses": _fails(400, "Invalid value: 'tools[0].name' is too long"),
    "is-too-small": _fails(400, TOO_LONG, code="context_length_exceeded"),
    "embeds": embeds,
    "embeds-one-without-usage": embeds_one_without_usage,
    "embeds-nonsense": embeds_nonsense,
    "takes-facts": takes_facts,
    "takes-facts-slowly": takes_facts_slowly,
    **{f"extracts-{name}": _streams(_text(text), _finish(), _usage()) for name, text in REPLIES.items()},
}
"""By the name of the model; any other says hello."""


async def _complete(request: web.Request) -> web.StreamResponse:
    asked = await request.json()
    _asked[request.match_info["client"]].append({"headers": dict(request.headers), "body": asked})
    return await BEHAVIOURS.get(asked["model"], SAYS)(request, asked)


async def _requests(request: web.Request) -> web.Response:
    return web.json_response(_asked[request.match_info["client"]])


async def _happens(request: web.Request) -> web.Response:
    happened = _happened[request.match_info["client"], request.match_info["what"]]
    if request.match_info["what"] == "release":
        happened.set()
    await happened.wait()
    return web.json_response({})


async def _serve() -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_post("/{client}/chat/completions", _complete)
    app.router.add_post("/{client}/embeddings", _complete)
    app.router.add_get("/{client}/requests", _requests)
    app.router.add_get("/{client}/{what}", _happens)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture(scope="session")
def _openai_port() -> Iterator[int]:
    """The server runs in a thread with a loop of its own, so that tests of any loop can call it."""
    port: Future[int] = Future()
    loop = asyncio.new_event_loop()
    is_over = asyncio.Event()

    async def run() -> None:
        async for number in _serve():
            port.set_result(number)
            await is_over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="openai server")
    thread.start()
    yield port.result(timeout=PATIENCE_S)
    loop.call_soon_threadsafe(is_over.set)
    thread.join(timeout=PATIENCE_S)
    loop.close()


_numbers = count()


@pytest.fixture
def openai_url(_openai_port: int) -> str:
    """The address of an OpenAI-compatible server that nobody else calls."""
    return f"http://127.0.0.1:{_openai_port}/client{next(_numbers)}"
