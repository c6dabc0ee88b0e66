"""Models as the chat sees them, and how many tokens a text takes.

The estimate is fitted to cl100k, one of the less efficient common tokenizers, so that it is rather too high: a token
per four letters of a word, two per three characters of other strings (`a3f5e8c9…`), one per three digits and one for a
sign or space before them, a weight for each character of other scripts and symbols, and 4 per message.
"""

import json
import math
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, Literal

from msgspec import Struct

from chatbot.embedder import guard_method
from chatbot.messages import CallOptions, Delta, Message, ToolSpec, Usage
from chatbot.providers import OURS
from chatbot.stores.access import GuardedRow, Sensitivity
from chatbot.stores.base import AsyncResource
from chatbot.stores.fields import how_many


class Disclosure(Struct, frozen=True):
    """Memories that may be sent to one provider.

    By default every row is sent unless it is marked: a private row is sent only to models that run in this process and
    to providers whose `sensitivity` allows it, a secret one to none.
    """

    provider: str = ""
    memory: bool = True
    sensitivity: Literal["", "public", "private"] = ""

    @property
    def sent(self) -> tuple[Sensitivity, ...]:
        """Sensitivities of the rows that are sent, if `memory` is true."""
        is_private = self.sensitivity == "private" or (self.provider in {"", *OURS} and not self.sensitivity)
        return ("public", "private") if is_private else ("public",)

    @property
    def rule(self) -> str:
        """Reason why rows are not sent: a setting of the provider, or else the mark of each."""
        if not self.memory:
            return "memory = false"
        return 'sensitivity = "public"' if self.sensitivity == "public" else "marked sensitive"

    def withholds(self, row: GuardedRow) -> bool:
        """Return True if a row must not be sent."""
        return not self.memory or row.sensitivity not in self.sent

    def record(self, **withheld: Any) -> dict[str, Any]:
        """Return the entry of a receipt about withheld memories."""
        return {"provider": self.provider, "rule": self.rule, **withheld}

    def note(self, count: int) -> str:
        """Return the line of a prompt that reports withheld memories."""
        notes = f"{how_many(count, 'note')} about this {'is' if count == 1 else 'are'}"
        return f"- ({notes} withheld from {self.provider or 'the model'} by the user's choice: {self.rule})"


UNKNOWN_MODEL = Disclosure("the model")
"""A model that may send texts anywhere: sensitive rows are left out."""


class Price(Struct, frozen=True):
    """US dollars for one token."""

    input_usd: float
    output_usd: float

    def cost(self, read: int, written: int) -> float:
        """Return the US dollars for these numbers of tokens read and written."""
        return read * self.input_usd + written * self.output_usd


JsonMode = Literal["schema", "object", ""]
"""Support for JSON output: by schema, as any object, or none."""


class Model(AsyncResource):
    """One model, ready to be called. Open with `async with`; safe to share between tasks.

    Errors of a plug-in that are no `ChatbotError` are logged, and reach callers as `ModelError`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in [] if cls.__module__.startswith("chatbot.") else list(vars(cls).items()):
            if name == "stream" and iscoroutinefunction(method):
                raise TypeError(f"{cls.__name__}.stream is not an async generator: it must `yield` its deltas")
            if iscoroutinefunction(getattr(Model, name, None)):
                setattr(cls, name, guard_method(method))

    name: str
    """Name in receipts and bills, shown to guests: the configured name, without folders of files."""
    supports_tools: bool = True
    server: str = ""
    """Address or host of the provider; empty if there is none, or it is unknown."""
    disclosure: Disclosure = UNKNOWN_MODEL
    """Limits on memories sent to the provider: `Disclosure()` for a model in this process."""

    def warm(self) -> None:
        """Prepare the first call in the background. Returns at once, never raises."""
        return

    @property
    def loading(self) -> str:
        """The name of what must be loaded before the next call, such as a library; empty if nothing."""
        return ""

    async def ready(self) -> None:
        """Wait until a call needs to load nothing more. Never raises: the first call reports errors."""
        self.warm()

    async def check(self) -> None:
        """Raise the `ModelError` that a call is sure to raise, as far as that is known without a call."""
        return

    @abstractmethod
    async def context_window(self) -> int:
        """Tokens that prompt and reply may take together."""

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Count the tokens of a prompt: exact with the model's tokenizer, else an estimate."""
        return estimate(messages, tools)

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
        """Return the options that change the meaning of a reply and that the model does not support."""
        return ()

    async def usage_of(self, prompt_tokens: int, reply: str) -> Usage:
        """Count the usage of a call that ended before the provider reported it."""
        written = await self.count_tokens([Message("assistant", reply)])
        price = await self.price()
        cost = None if price is None else price.cost(prompt_tokens, written)
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
    ) -> AsyncGenerator[Delta | None, Any]:
        """Ask for a reply. Yields deltas, and `Finished` last.

        Before it tries again what may be charged, it yields None, and takes the next `max_output_tokens` if sent.
        `options` override the settings; those in `unknown_options` are ignored.
        `json_schema`, of type object, constrains the reply as far as `json_mode` says; the reply may still violate it.

        Closing the generator, or cancelling the task that reads it, stops the model. Failures raise a `ModelError`,
        which is billed if `is_charged`; a call is retried only as long as no delta has been yielded.
        """

    async def aclose(self) -> None:
        """Release connections and memory. May be called twice."""
        return


THINK_TAGS = ("<think>", "<thinking>")
"""Tags that begin a reply with thoughts, where a server does not separate them from the text."""
LARGEST_REPLY_SHARE = 2
"""A prompt leaves room for the longest reply, but for no more than the window divided by this."""
_MESSAGE_TOKENS = 4
_IMAGE_TOKENS = 1_100
"""Tokens of an image: about as many as OpenAI counts for a large one at high detail, and others for any."""
_LONGEST_CACHED = 4_000
"""Characters up to which the tokens of a text are cached."""
_WEIGHTS = {
    "dense": 0.75,
    "capitals": 0.42,
    "word": 0.25,
    "digits": 0.33,
    "separator": 1.0,
    "space": 0.1,
    "indent": 0.1,
    "mark": 0.6,
    "alphabet": 0.85,
    "hangul": 1.6,
    "ideograph": 1.2,
    "symbol": 2.5,
    "other": 1.4,
}
"""Tokens for a character of each kind of text; a word, up to three digits and an indentation have at least one."""
_AT_LEAST_ONE = frozenset({"word", "digits", "indent"})
_KINDS = (
    r"(?s)(?P<dense>(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{8,})|(?P<capitals>[A-Z]{2,}(?![a-z]))"
    r"|(?P<word>[A-Za-z]+)|(?P<digits>[0-9]{1,3})|(?P<separator>[.,:;/-](?= ?[0-9])| (?=[0-9]))"
    r"|(?P<indent> {2,})|(?P<space> )|(?P<mark>[\x00-\x7f])"
    r"|(?P<alphabet>[\x80-\u036f\u0400-\u052f\u0600-\u08ff]+)|(?P<hangul>[\uac00-\ud7a3]+)|(?P<ideograph>[\u3000-\u9fff\uff00-\uffef]+)"
    r"|(?P<symbol>[\u0530-\u058f\u0a00-\u0b7f\u0c00-\u0dff\u0e80-\u17ff\u2010-\u2bff\ufe00-\ufe0f\U0001f000-\U0001ffff]+)|(?P<other>.)"
)


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    return _estimate_long(text) if len(text) > _LONGEST_CACHED else _estimate_short(text)


_PARTS, _PART_CHARS = 256, 1024
"""Parts of a very long text that are counted for all of it."""


def _estimate(text: str) -> int:
    if (step := len(text) // _PARTS) > _PART_CHARS:
        sample = "".join(text[at : at + _PART_CHARS] for at in range(0, step * _PARTS, step))
        return _estimate(sample) * len(text) // len(sample)
    total = 0.0
    for piece in re.finditer(_KINDS, text):
        kind = piece.lastgroup or "other"
        tokens = _WEIGHTS[kind] * (piece.end() - piece.start())
        total += max(1.0, tokens) if kind in _AT_LEAST_ONE else tokens
    return math.ceil(total)


_estimate_short = lru_cache(maxsize=2048)(_estimate)
"""For a text that the next prompt contains again."""
_estimate_long = lru_cache(maxsize=8)(_estimate)
"""For a long text, such as an attached document, which each prompt counts several times."""


def estimate(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """Estimate the tokens of a prompt, tool schemas included."""
    total = sum(map(_estimate_tool, tools))
    for message in messages:
        calls = "".join(f" {call.id} {call.name} {call.arguments}" for call in message.tool_calls)
        total += _MESSAGE_TOKENS + estimate_text(message.content + calls) + _IMAGE_TOKENS * len(message.images)
    return total


@lru_cache(maxsize=512)
def _estimate_tool(tool: ToolSpec) -> int:
    """Cached estimate for a tool: every prompt of a conversation has the same ones."""
    return _estimate(json.dumps(tool.as_openai()))
