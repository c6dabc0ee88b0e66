"""Models and embedders that are watched, and the bill, on which every call stands with its purpose."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from opentelemetry.trace import SpanKind

from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import Call
from chatbot.embedding import Embedded, Embedder
from chatbot.messages import Delta, Finished, Message, ToolSpec, Usage
from chatbot.models.base import JsonMode, Model, Price
from chatbot.models.purpose import purpose
from chatbot.telemetry import names
from chatbot.telemetry.watch import Attributes, Watch, Work


class WatchedModel(Model):
    """A model, each call of which is a span. All else is the model's own."""

    def __init__(self, model: Model, watch: Watch) -> None:
        self.name = model.name
        self.supports_tools = model.supports_tools
        self._model = model
        self._watch = watch

    def warm(self) -> None:
        """See `Model`."""
        self._model.warm()

    async def check(self) -> None:
        """See `Model`."""
        await self._model.check()

    async def context_window(self) -> int:
        """See `Model`."""
        return await self._model.context_window()

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """See `Model`."""
        return await self._model.count_tokens(messages, tools)

    async def price(self) -> Price | None:
        """See `Model`."""
        return await self._model.price()

    async def json_mode(self) -> JsonMode:
        """See `Model`."""
        return await self._model.json_mode()

    async def usage_of(self, prompt_tokens: int, reply: str) -> Usage:
        """See `Model`."""
        return await self._model.usage_of(prompt_tokens, reply)

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """See `Model`."""
        work = _begin(self._watch, "chat", self.name, purpose.get())
        if max_output_tokens is not None:
            work.note({names.MAX_TOKENS: max_output_tokens})
        has_begun = False
        try:
            stream = self._model.stream(
                messages, tools=tools, max_output_tokens=max_output_tokens, json_schema=json_schema
            )
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    if not has_begun:
                        has_begun = True
                        work.note({names.FIRST_CHUNK: work.seconds})
                    if isinstance(delta, Finished):
                        work.note(_finished(delta))
                    yield delta
        except BaseException as error:
            work.fail(type(error).__name__, is_fault=isinstance(error, Exception))
            raise
        finally:
            work.end()

    async def aclose(self) -> None:
        """See `Model`."""
        await self._model.aclose()


class WatchedEmbedder(Embedder):
    """An embedder, each call of which is a span."""

    def __init__(self, embedder: Embedder, watch: Watch) -> None:
        self.name = embedder.name
        self.batch = embedder.batch
        self.sends_away = embedder.sends_away
        self._embedder = embedder
        self._watch = watch

    @property
    def dimension(self) -> int:
        """See `Embedder`."""
        return self._embedder.dimension

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See `Embedder`."""
        with _begin(self._watch, "embeddings", self.name, "embed") as work:
            embedded = await self._embedder.embed(texts)
            work.note(_used(embedded.usage))
            return embedded

    async def aclose(self) -> None:
        """See `Embedder`."""
        await self._embedder.aclose()


class WatchedLedger(Ledger):
    """A bill that also counts what is put on it."""

    def __init__(self, home: Path, *, watch: Watch) -> None:
        super().__init__(home)
        self._instruments = watch.instruments

    async def add(self, call: Call) -> None:
        """See `Ledger`. It is counted even where it cannot be written down."""
        labels = {names.REQUEST_MODEL: call.model, names.PURPOSE: call.purpose}
        usage, told = call.usage, {**labels, names.PROVIDER: names.provider_of(call.model)}
        self._instruments.tokens.record(usage.input_tokens, {**told, names.TOKEN_TYPE: "input"})
        self._instruments.tokens.record(usage.output_tokens, {**told, names.TOKEN_TYPE: "output"})
        if usage.cost_usd is None:
            self._instruments.unpriced.add(1, labels)
        else:
            self._instruments.cost.add(usage.cost_usd, labels)
        await super().add(call)


def _begin(watch: Watch, operation: str, model: str, what_for: str) -> Work:
    labels: Attributes = {
        names.OPERATION: operation,
        names.PROVIDER: names.provider_of(model),
        names.REQUEST_MODEL: model,
        names.PURPOSE: what_for,
    }
    return watch.begin(f"{operation} {model}", watch.instruments.calls, labels, kind=SpanKind.CLIENT)


def _finished(reply: Finished) -> Attributes:
    return {names.RESPONSE_MODEL: reply.model, names.FINISH_REASONS: [reply.reason], **_used(reply.usage)}


def _used(usage: Usage) -> Attributes:
    used: Attributes = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHED_TOKENS: usage.cached_tokens,
        names.ESTIMATED: usage.estimated,
    }
    return used if usage.cost_usd is None else {**used, names.COST: usage.cost_usd}
