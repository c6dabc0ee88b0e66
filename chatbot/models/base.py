"""The model contract: what the chat loop may ask of any model, and nothing about how it is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chatbot.messages import Delta, Message, ToolSpec, Usage
from stores.lifecycle import AsyncResource


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for one token."""

    input_usd: float
    output_usd: float


JsonMode = Literal["schema", "object", ""]
"""How a model can be held to JSON: to a schema, to any object, or not at all."""


class Model(AsyncResource):
    """One model, ready to be called. Open with `async with`; safe to share between tasks."""

    name: str
    """What it is called in receipts, on bills and to guests: the name that the user gave, without folders of files."""
    supports_tools: bool = True
    """Whether the model can be offered tools."""

    def warm(self) -> None:
        """Begin whatever makes the first call slow, in the background. Returns at once, never raises."""
        return

    async def check(self) -> None:
        """Raise the `ModelError` that a call is sure to raise, as far as that is known without calling anyone."""
        return

    @abstractmethod
    async def context_window(self) -> int:
        """Tokens that prompt and reply may take together."""

    @abstractmethod
    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Tokens that this prompt takes: exact where the tokenizer is at hand, else a cautious estimate."""

    async def price(self) -> Price | None:
        """What a token costs; None where it is not known."""
        return None

    async def json_mode(self) -> JsonMode:
        """How replies can be held to JSON; where not at all, asking for it in words is what is left."""
        return ""

    async def usage_of(self, prompt_tokens: int, reply: str) -> Usage:
        """What a call took by our own count: for one that broke off before the provider said it."""
        written = await self.count_tokens([Message("assistant", reply)])
        price = await self.price()
        cost = None if price is None else prompt_tokens * price.input_usd + written * price.output_usd
        return Usage(prompt_tokens, written, cost_usd=cost, estimated=True)

    @abstractmethod
    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Ask for a reply. Yields deltas, and `Finished` last.

        With `json_schema`, of type object, the reply is held to it as far as `json_mode` says; it may break it still.

        Closing the generator, or cancelling the task that reads it, stops the model. Failures raise a `ModelError`;
        a call is retried only as long as nothing has been yielded.
        """

    async def aclose(self) -> None:
        """Let go of connections and memory. May be called twice."""
        return
