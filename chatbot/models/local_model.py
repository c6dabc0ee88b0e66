"""The embedded model: its process-wide engine, and calls to it.

An engine generates one reply at a time. Further requests wait in line; a cancelled one is dropped at once.

A model is named by its file without folders, because receipts, bills and metrics are shared.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ChatbotError, ModelError, ModelTimeout, RequestRefused
from chatbot.messages import CallOptions, Delta, Finished, Message, TextDelta, ToolSpec, Usage
from chatbot.models.model import THINK_TAGS, Model, Price, estimate_text
from chatbot.models.provider import Provider
from chatbot.models.weights import EMBEDDED, PREFIX, SMOLLM2, find_model, has_engine, missing_engine, path_of
from chatbot.stores.loops import to_its_end

if TYPE_CHECKING:
    from chatbot.models.llama import Generation, Llama, Sampling

T = TypeVar("T")
_SAMPLING = ("temperature", "top_p", "seed")


class Engine:
    """One loaded model in its own thread. Weights are large: a process has one engine for each model and window."""

    _open: ClassVar["dict[tuple[str, int], Engine]"] = {}

    def __init__(self, name: str, window: int) -> None:
        self.users = 0
        """Number of models that have opened it."""
        self._name = name
        self._window = window
        self._llama: Llama | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{PREFIX}{name}")

    @classmethod
    def of(cls, name: str, window: int = 0) -> "Engine":
        """Open the engine of a model, named with or without `local/`; it loads on first use. End with `release`."""
        name = name.removeprefix(PREFIX)
        if name.endswith(".gguf"):
            name = str(path_of(name))
        engine = cls._open.setdefault((name, window), cls(name, window))
        engine.users += 1
        return engine

    async def release(self) -> None:
        """End one use of the engine; the last one frees the model's memory, once the reply under way has ended."""
        self.users -= 1
        if not self.users:
            del self._open[self._name, self._window]
            await to_its_end(self._run(self._unload))
            self._thread.shutdown(wait=False)

    def warm(self) -> None:
        """Begin to load the model. Returns at once, never raises."""
        self._thread.submit(self._load)

    @property
    def is_loaded(self) -> bool:
        """True if the model is in memory."""
        return self._llama is not None

    async def window(self) -> int:
        """Return the context window, in tokens."""
        return (await self._run(self._load)).window

    async def count(self, messages: Sequence[dict[str, Any]]) -> int:
        """Return the exact tokens of a prompt of these messages, the opening of the reply included."""
        return await self._run(lambda: len(self._prompt(messages)))

    async def stream(
        self, messages: Sequence[dict[str, Any]], *, max_tokens: int, sampling: "Sampling", done: "Generation"
    ) -> AsyncGenerator[str, None]:
        """Yield the reply in pieces, also empty ones; closing the generator stops the model. Fills in `done`."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        is_cancelled = threading.Event()

        def generate() -> None:
            try:
                llama = self._load()
                prompt = llama.template.render(messages)
                end = prompt[-1].text.rstrip() if prompt[-1].is_template else ""
                for tag in filter(end.endswith, THINK_TAGS):  # the reply goes on inside
                    loop.call_soon_threadsafe(pieces.put_nowait, tag)
                reply = llama.generate(
                    llama.vocabulary.tokenize(prompt),
                    max_tokens=max_tokens,
                    sampling=sampling,
                    is_cancelled=is_cancelled,
                    done=done,
                )
                for piece in reply:
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

    def _load(self) -> "Llama":
        if self._llama is None:
            from chatbot.models.llama import Llama

            try:
                self._llama = Llama(find_model(self._name), window=self._window)
            except RequestRefused:
                if self._name == EMBEDDED:
                    SMOLLM2.check()
                raise
        return self._llama

    def _prompt(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        llama = self._load()
        return llama.vocabulary.tokenize(llama.template.render(messages))

    def _unload(self) -> None:
        if self._llama is not None:
            self._llama.close()
            self._llama = None


class LocalModel(Model):
    """`local/smollm2-135m`, or `local/` and the path of a GGUF file. It takes no tools, and costs nothing."""

    supports_tools = False

    def __init__(self, settings: ModelSettings, providers: Mapping[str, ProviderSettings] | None = None) -> None:
        self.name = f"{PREFIX}{PurePath(settings.name).name}"
        self.disclosure = Provider(settings.name, providers).disclosure
        self._settings = settings
        self._is_open = True
        self._engine = Engine.of(settings.name, settings.context_window)

    def warm(self) -> None:
        self._engine.warm()

    @property
    def loading(self) -> str:
        """The model's name until its weights are loaded, then an empty text."""
        return "" if self._engine.is_loaded else self.name

    async def ready(self) -> None:
        with suppress(ChatbotError):
            await self._engine.window()

    async def check(self) -> None:
        await asyncio.to_thread(find_model, self._settings.name.removeprefix(PREFIX))
        if not has_engine():
            raise missing_engine()

    async def context_window(self) -> int:
        return await self._engine.window()

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:  # noqa: ARG002
        """Count the tokens exactly; local models have no tools."""
        return await self._engine.count([message.as_openai() for message in messages])

    async def unknown_options(self, options: CallOptions) -> tuple[str, ...]:
        """Return the options that change the meaning of a reply: a local model supports none of them."""
        return tuple(sorted(options.as_openai().keys() - CallOptions.HARMLESS))

    async def usage_of(self, prompt_tokens: int, reply: str) -> Usage:
        """Estimate the usage: the engine may be busy with the next reply."""
        return Usage(prompt_tokens, estimate_text(reply), cost_usd=0.0, estimated=True)

    async def price(self) -> Price:
        return Price(0.0, 0.0)

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),  # noqa: ARG002 - it takes none
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,  # noqa: ARG002 - JSON is only asked for in the prompt
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Ask for a reply; `timeout_s` of the settings limits the wait for each piece of prompt and reply."""
        from chatbot.models.llama import Generation, Sampling

        settings, done = self._settings, Generation()
        given = {name: getattr(settings, name) for name in _SAMPLING} | (options.as_openai() if options else {})
        pieces = self._engine.stream(
            [message.as_openai() for message in messages],
            max_tokens=min(max_output_tokens or settings.max_output_tokens, settings.max_output_tokens),
            sampling=Sampling(**{name: given[name] for name in _SAMPLING if given[name] is not None}),
            done=done,
        )
        async with aclosing(pieces):
            while (piece := await self._next(pieces)) is not None:
                if piece:
                    yield TextDelta(piece)
        usage = Usage(done.input_tokens, done.output_tokens, done.cached_tokens, cost_usd=0.0)
        yield Finished(done.reason, usage, self.name.removeprefix(PREFIX))

    async def _next(self, pieces: AsyncGenerator[str, None]) -> str | None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await anext(pieces, None)
        except TimeoutError:
            waited = f"no answer for {self._settings.timeout_s:g} s"
            raise ModelTimeout(f"{self.name}: {waited}: try again, or raise timeout_s in [model]") from None

    async def aclose(self) -> None:
        """Release the model; the weights are freed with their last user."""
        if self._is_open:
            self._is_open = False
            await self._engine.release()
