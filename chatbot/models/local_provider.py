"""`local/…` as a LiteLLM provider: GGUF models in this process, streamed like any other.

After `register()`, `litellm.acompletion(model="local/smollm2-135m", stream=True, …)` works for everyone in the process.
An engine is loaded when first used, and shared; it generates one reply at a time, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from chatbot.errors import ModelError, RequestRefused
from chatbot.models.gguf import find_model
from chatbot.models.llama import Generation, Llama, Sampling

T = TypeVar("T")

PROVIDER = "local"
PREFIX = "local/"


class Engine:
    """One model in its own thread: loaded when first used, answering one prompt after the other."""

    def __init__(self, name: str, window: int) -> None:
        self._name = name
        self._window = window
        self._llama: Llama | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"local/{name}")

    async def window(self) -> int:
        """The context window, in tokens."""
        return (await self._run(self._ready)).window

    async def count(self, messages: Sequence[dict[str, Any]]) -> int:
        """Exactly the tokens of these messages, the opening of the reply included."""
        return await self._run(lambda: len(self._tokens(messages)))

    async def stream(
        self, messages: Sequence[dict[str, Any]], *, max_tokens: int, sampling: Sampling, done: Generation
    ) -> AsyncGenerator[str, None]:
        """The reply, piece by piece; closing the generator stops the model. `done` is filled in on the way."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        is_cancelled = threading.Event()

        def generate() -> None:
            try:
                for piece in self._ready().generate(
                    self._tokens(messages),
                    max_tokens=max_tokens,
                    sampling=sampling,
                    is_cancelled=is_cancelled,
                    done=done,
                ):
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        work = loop.run_in_executor(self._thread, generate)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
        finally:
            is_cancelled.set()
            await asyncio.shield(work)

    async def aclose(self) -> None:
        """Free the model's memory, once the reply under way has ended."""
        await self._run(self._unload)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _ready(self) -> Llama:
        if self._llama is None:
            self._llama = Llama(find_model(self._name), window=self._window)
        return self._llama

    def _tokens(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        llama = self._ready()
        return llama.tokenize(llama.template.render(messages))

    def _unload(self) -> None:
        if self._llama is not None:
            self._llama.close()
            self._llama = None


class Engines:
    """The engines of this process, by model and window."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, int], Engine] = {}

    def get(self, name: str, window: int = 0) -> Engine:
        """The engine for a model; not loaded before it is used."""
        name = name.removeprefix(PREFIX)
        key = (name if not name.endswith(".gguf") else str(Path(name).expanduser().absolute()), window)
        if key not in self._engines:
            self._engines[key] = Engine(*key)
        return self._engines[key]

    async def aclose(self) -> None:
        """Close every engine; the next use opens them anew."""
        while self._engines:
            _, engine = self._engines.popitem()
            await engine.aclose()


ENGINES = Engines()
"""Shared by all models of the process, for weights are large."""


def register(litellm: ModuleType) -> None:
    """Make `local/…` known to LiteLLM. Doing it again changes nothing."""
    if any(item["provider"] == PROVIDER for item in litellm.custom_provider_map):
        return
    litellm.custom_provider_map.append({"provider": PROVIDER, "custom_handler": _handler(litellm)})
    litellm.utils.custom_llm_setup()


def _handler(litellm: ModuleType) -> Any:
    class LocalModels(litellm.CustomLLM):  # type: ignore[misc, name-defined]
        """LiteLLM's side of the provider."""

        async def astreaming(self, **call: Any) -> AsyncGenerator[dict[str, Any], None]:
            done = Generation()
            try:
                async for piece in _stream(call, done):
                    yield _chunk(piece)
            except ModelError:
                raise
            except RuntimeError as error:
                raise RequestRefused(f"{call['model']}: the model could not go on: {error}") from error
            yield _chunk("", done)

        async def acompletion(self, **call: Any) -> Any:
            done = Generation()
            text = "".join([piece async for piece in _stream(call, done)])
            response = call["model_response"]
            response.choices[0].message.content = text
            response.choices[0].finish_reason = done.reason
            response.usage = litellm.Usage(**_usage(done))
            return response

    return LocalModels()


def _stream(call: dict[str, Any], done: Generation) -> AsyncGenerator[str, None]:
    parameters = call.get("optional_params") or {}
    asked = {key: parameters[key] for key in ("temperature", "top_p", "seed") if parameters.get(key) is not None}
    engine = ENGINES.get(call["model"], int(parameters.get("context_window") or 0))
    limit = int(parameters.get("max_tokens") or parameters.get("max_completion_tokens") or 1024)
    return engine.stream(call["messages"], max_tokens=limit, sampling=Sampling(**asked), done=done)


def _chunk(text: str, done: Generation | None = None) -> dict[str, Any]:
    return {
        "text": text,
        "tool_use": None,
        "is_finished": done is not None,
        "finish_reason": done.reason if done else "",
        "usage": _usage(done) if done else None,
        "index": 0,
    }


def _usage(done: Generation) -> dict[str, Any]:
    return {
        "prompt_tokens": done.input_tokens,
        "completion_tokens": done.output_tokens,
        "total_tokens": done.input_tokens + done.output_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }
