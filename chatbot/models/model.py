"""Contract of models: everything that the chat needs from a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chatbot.messages import CallOptions, Delta, Message, ToolSpec, Usage
from chatbot.models.disclosure import Disclosure
from chatbot.stores.lifecycle import AsyncResource


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for one token."""

    input_usd: float
    output_usd: float


JsonMode = Literal["schema", "object", ""]
"""Support for JSON output: by schema, as any object, or none."""


class Model(AsyncResource):
    """One model, ready to be called. Open with `async with`; safe to share between tasks."""

    name: str
    """Name in receipts and bills, shown to guests: the configured name, without folders of files."""
    supports_tools: bool = True
    """True if the model supports tools."""
    server: str = ""
    """Address or host of the provider, where there is one and it is known."""
    disclosure: Disclosure = Disclosure()
    """Limits on memories sent to the provider."""

    def warm(self) -> None:
        """Prepare the first call in the background. Returns at once, never raises."""
        return

    @property
    def loading(self) -> str:
        """Name what must be loaded before the next call, such as a library; empty if nothing must."""
        return ""

    async def ready(self) -> None:
        """Wait until a call needs to load nothing more. Never raises: the first call reports errors."""
        self.warm()

    async def check(self) -> None:
        """Raise the `ModelError` that a call is sure to raise, as far as that is known without calling anyone."""
        return

    @abstractmethod
    async def context_window(self) -> int:
        """Tokens that prompt and reply may take together."""

    @abstractmethod
    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Count the tokens of a prompt: exact with the model's tokenizer, else a cautious estimate."""

    async def price(self) -> Price | None:
        """Return the price of tokens; None if unknown."""
        return None

    async def json_mode(self) -> JsonMode:
        """Return the support for JSON output; with none, only the prompt can ask for it."""
        return ""

    async def sees_images(self) -> bool:
        """Return whether it can be shown pictures."""
        return False

    async def unknown_options(self, options: CallOptions) -> tuple[str, ...]:  # noqa: ARG002 - most know them all
        """The names of those that the model does not know, though they change what a reply means."""
        return ()

    async def usage_of(self, prompt_tokens: int, reply: str) -> Usage:
        """Count the usage of a call that ended before the provider reported it."""
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
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Ask for a reply. Yields deltas, and `Finished` last.

        `options` are stronger than the settings; those of `unknown_options` are passed over.
        `json_schema`, of type object, constrains the reply as far as `json_mode` says; the reply may still violate it.

        Closing the generator, or cancelling the task that reads it, stops the model. Failures raise a `ModelError`;
        a call is retried only as long as nothing has been yielded.
        """

    async def aclose(self) -> None:
        """Release connections and memory. May be called twice."""
        return
