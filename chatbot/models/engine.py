"""Local models at work: each in a thread of its own, loaded when first used, shared by all who ask for it.

An engine generates one reply at a time; who comes meanwhile waits in line, and who goes away is forgotten at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chatbot.errors import ModelError
from chatbot.models.gguf import PREFIX, find_model

if TYPE_CHECKING:  # llama.cpp and jinja2 are loaded with the first model
    from chatbot.models.llama import Generation, Llama, Sampling

T = TypeVar("T")


class Engine:
    """One loaded model in its own thread. `users` counts the models that have opened it."""

    def __init__(self, name: str, window: int) -> None:
        self.users = 0
        self._name = name
        self._window = window
        self._llama: Llama | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{PREFIX}{name}")

    def warm(self) -> None:
        """Begin to load the model. Returns at once, never raises."""
        self._thread.submit(self._load)

    @property
    def is_loaded(self) -> bool:
        """Return whether the model is in memory."""
        return self._llama is not None

    async def window(self) -> int:
        """The context window, in tokens."""
        return (await self._run(self._load)).window

    async def count(self, messages: Sequence[dict[str, Any]]) -> int:
        """Exactly the tokens of a prompt of these messages, the opening of the reply included."""
        return await self._run(lambda: len(self._prompt(messages)))

    async def stream(
        self, messages: Sequence[dict[str, Any]], *, max_tokens: int, sampling: Sampling, done: Generation
    ) -> AsyncGenerator[str, None]:
        """The reply, piece by piece; closing the generator stops the model. `done` is filled in on the way."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        is_cancelled = threading.Event()

        def generate() -> None:
            try:
                for piece in self._generate(messages, max_tokens, sampling, is_cancelled, done):
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        work = self._thread.submit(generate)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            await asyncio.wrap_future(work)
        finally:
            is_cancelled.set()
            await self._stop(work)

    async def aclose(self) -> None:
        """Free the model's memory, once the reply under way has ended."""
        await self._run(self._unload)
        self._thread.shutdown(wait=False)

    async def _stop(self, work: Future[None]) -> None:
        """Wait for a cancelled generation to leave the thread, which it does within one token."""
        if work.cancel() or work.done():
            return
        if self._llama is not None:
            self._llama.cancel()
        with suppress(ModelError):  # the waiter was cancelled
            await asyncio.wrap_future(work)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(work))

    def _load(self) -> Llama:
        if self._llama is None:
            from chatbot.models.llama import Llama

            self._llama = Llama(find_model(self._name), window=self._window)
        return self._llama

    def _generate(
        self,
        messages: Sequence[dict[str, Any]],
        max_tokens: int,
        sampling: Sampling,
        is_cancelled: threading.Event,
        done: Generation,
    ) -> Iterator[str]:
        prompt = self._prompt(messages)
        return self._load().generate(
            prompt, max_tokens=max_tokens, sampling=sampling, is_cancelled=is_cancelled, done=done
        )

    def _prompt(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        llama = self._load()
        return llama.vocabulary.tokenize(llama.template.render(messages))

    def _unload(self) -> None:
        if self._llama is not None:
            self._llama.close()
            self._llama = None


class Engines:
    """The engines of a process, by model and window: weights are large, so they are shared."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, int], Engine] = {}

    def get(self, name: str, window: int = 0) -> Engine:
        """The engine for a model, `local/…` or without; nothing is loaded before it is used."""
        name = name.removeprefix(PREFIX)
        if name.endswith(".gguf"):
            name = str(Path(name).expanduser().absolute())
        key = (name, window)
        if key not in self._engines:
            self._engines[key] = Engine(*key)
        return self._engines[key]

    def open(self, name: str, window: int = 0) -> Engine:
        """Hold an engine until the context ends."""
        engine = self.get(name, window)
        engine.users += 1
        return engine

    async def let_go(self, engine: Engine) -> None:
        """Close the engine if no other model uses it."""
        engine.users -= 1
        if engine.users == 0:
            self._engines = {key: other for key, other in self._engines.items() if other is not engine}
            await engine.aclose()


ENGINES = Engines()
"""The engines of this process."""
