"""One call through LiteLLM, with a time limit on every step, own errors, and no connection left open."""

import asyncio
import inspect
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any, Self

from chatbot import errors
from chatbot.messages import Delta, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta
from chatbot.models.litellm_import import close_quietly
from chatbot.providers import known_providers
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import nearest_hint
from chatbot.stores.records import well_formed
from chatbot.stores.text.redaction import without_secrets

MARGIN_S = 5.0
"""LiteLLM's own limit comes this much later than ours, so that ours applies first."""


class ModelRequest(AsyncResource):
    """A request; each `async with` is a new try of it. `secrets` gives the keys that no message may repeat."""

    def __init__(
        self,
        litellm: ModuleType,
        request: dict[str, Any],
        timeout_s: float,
        secrets: Callable[[], Sequence[str]],
        name: str,
    ) -> None:
        self._litellm = litellm
        self.request = {**request, "timeout": timeout_s + MARGIN_S}
        self._name = name
        self._timeout_s = timeout_s
        self._secrets = secrets
        self.stream: Any = None
        """LiteLLM's stream, once it has been opened."""

    async def next(self) -> Any:
        """Return the next chunk, None after the last. The first call sends the request, within the same limit."""
        failure: errors.ModelError
        try:
            async with asyncio.timeout(self._timeout_s):
                if self.stream is None:
                    self.stream = _with_one_iterator(await self._litellm.acompletion(**self.request))
                return await anext(self.stream, None)
        except TimeoutError:
            failure = errors.ModelTimeout(f"{self._name}: no answer for {self._timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - LiteLLM raises any exception of its many providers
            where = self._name if self.stream is None else f"{self._name}: the reply broke off"
            failure = translate(error, where, self._secrets())
            failure.is_charged |= self.stream is not None  # the provider has accepted the request
        # Raised outside the handler: the provider's exception, which may hold the key, must not be in the traceback.
        raise failure

    async def aclose(self) -> None:
        """Close the stream, whether or not the reply is complete."""
        stream, self.stream = self.stream, None
        await close_quietly(stream)


class _OneIterator:
    """A stream of chunks that is its own iterator."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _with_one_iterator(stream: Any) -> Any:
    """Return LiteLLM's stream over a source that is its own iterator.

    LiteLLM calls `aiter` for each chunk. OpenAI's client returns a new generator each time; closing it needs a task.
    """
    source = getattr(stream, "completion_stream", None)
    if hasattr(source, "__anext__") and inspect.isasyncgenfunction(getattr(type(source), "__aiter__", None)):
        stream.completion_stream = _OneIterator(source)
    return stream


_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class StreamedReply:
    """Parts of a reply so far."""

    def __init__(self) -> None:
        self.written = ""
        """All that the model wrote, its thoughts and the arguments of tool calls included."""
        self.model = ""
        """The model that answered, as the provider names it."""
        self.reason: FinishReason = "stop"
        self.usage: Any = None
        """LiteLLM's sum of the reported usage, or its own estimate."""
        self._half = ""
        """The first half of a character that a server cut in two, until the second comes."""

    def take(self, chunk: Any) -> list[Delta]:
        """Return the deltas that a chunk holds, often none."""
        self.model = self.model or str(getattr(chunk, "model", None) or "")
        self.usage = getattr(chunk, "usage", None) or self.usage
        deltas: list[Delta] = []
        for choice in chunk.choices[:1]:
            if choice.finish_reason:
                self.reason = _REASONS.get(choice.finish_reason, "stop")
            if thought := getattr(choice.delta, "reasoning_content", None):
                self.written += thought
                deltas.append(ReasoningDelta(thought))
            if (said := choice.delta.content) and (text := self._whole(said)):
                self.written += text
                deltas.append(TextDelta(text, _logprobs(choice)))
            for call in getattr(choice.delta, "tool_calls", None) or ():
                name, arguments = call.function.name, call.function.arguments or ""
                self.written += (name or "") + arguments
                deltas.append(ToolCallDelta(call.index or 0, call.id, name, arguments))
        return deltas

    def _whole(self, text: str) -> str:
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return well_formed(text.removesuffix(self._half))


def _logprobs(choice: Any) -> tuple[dict[str, Any], ...]:
    given = getattr(choice, "logprobs", None)
    listed = given.get("content") if isinstance(given, dict) else getattr(given, "content", None)
    return tuple(each if isinstance(each, dict) else each.model_dump() for each in listed or ())


def is_whole(response: Any) -> bool:
    """Return True if the provider reported the end; LiteLLM ends every stream as if it had.

    Gemini reports it together with the last text, which LiteLLM notes as an intermittent reason.
    """
    reported = (getattr(response, "received_finish_reason", ""), getattr(response, "intermittent_finish_reason", None))
    return any(reason is not None for reason in reported)


def has_reported_usage(response: Any) -> bool:
    """Return True if the provider itself reported the usage."""
    return any(getattr(chunk, "usage", None) for chunk in getattr(response, "chunks", ()))


TRANSIENT = (errors.RateLimited, errors.ModelTimeout, errors.ProviderFailed)
"""Errors that are worth another try, as long as nothing has arrived."""
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes by which providers report an account without credit."""

# LiteLLM gives its exceptions the names that the SDK of OpenAI gave them; importing them here would cost seconds.
_BY_NAME: dict[str, type[errors.ModelError]] = {
    "ContextWindowExceededError": errors.ContextTooLong,
    "Timeout": errors.ModelTimeout,
    "APITimeoutError": errors.ModelTimeout,
    "LiteLLMUnknownProvider": errors.UnknownModel,
}
"""The kinds that no status says."""
_BY_STATUS: dict[int, type[errors.ModelError]] = {
    401: errors.KeyRefused,
    403: errors.KeyRefused,
    404: errors.UnknownModel,
    408: errors.ModelTimeout,
    413: errors.ContextTooLong,
    429: errors.RateLimited,
}
_NAMES_IN_FRONT = re.compile(r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?::| -) )+")
_BODY = re.compile(r"(?:b')?(\{.*\})'?", re.DOTALL)
"""The body of an answer, which LiteLLM gives as the message for Anthropic."""
_LONGEST_MESSAGE = 300
_MOST_READ = 20_000
"""Characters of a provider's message that are read: redacting megabytes would hold up everyone."""
_LONGEST_ASKED_S = 86_400.0
"""Cap on the wait that a provider asks for."""


def translate(error: Exception, model: str, secrets: Iterable[str] = ()) -> errors.ModelError:
    """Return the error for an exception of a call to `model`."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    if own := next((each for each in chain if isinstance(each, errors.ModelError)), None):
        return own
    # A stream that broke off is reported as a failure of LiteLLM's own, with the provider's inside.
    original = getattr(error, "original_exception", None) or error
    message = _message(original)
    if "Provider NOT provided" in message or "LiteLLMUnknownProvider" in message:
        return unknown_provider(model)
    if missing := next((each for each in chain if isinstance(each, ImportError)), None):
        return errors.MissingModel(f"{model}: {missing}: install the package, as LiteLLM's page of the provider says")
    is_silent = any(type(each).__name__ == "ReadTimeout" for each in chain)  # it is connected
    unreachable = None if is_silent else next((each for each in chain if isinstance(each, OSError)), None)
    if unreachable is not None:
        message = f"no connection: {unreachable.strerror or unreachable}"
    if malformed := next((each for each in chain if type(each).__name__ == "ValidationError"), None):
        # Pydantic's message quotes the answer in pieces, in which a key would no longer be recognised.
        message = f"the answer is not a valid {getattr(malformed, 'title', '')}".rstrip()
    line = " ".join(without_secrets(well_formed(message[:_MOST_READ]), secrets).split())
    shown = line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"
    failure = _kind(original)(f"{model}: {shown}")
    failure.retry_after_s = _retry_after(original)
    failure.status = 0 if unreachable is not None else getattr(original, "status_code", None)
    codes = (str(getattr(each, "code", None) or "") for each in chain)
    failure.code = next((code for code in codes if code and not code.isdecimal()), "")
    return failure


def unknown_provider(model: str, own: Iterable[str] = ()) -> errors.UnknownModel:
    """Return the error for a name without a provider, or with one that LiteLLM does not know."""
    name, slash, _ = model.partition("/")
    known = {*known_providers(), *own}
    nearest = nearest_hint(name, known) if slash and name not in known else ""
    return errors.UnknownModel(
        f"no provider is known for the model {model!r:.80}: write provider/model as LiteLLM does, "
        f"such as anthropic/…, openai/… or ollama_chat/…, or local/smollm2-135m{nearest}"
    )


def _kind(error: Exception) -> type[errors.ModelError]:
    kind = next((_BY_NAME[each.__name__] for each in type(error).__mro__ if each.__name__ in _BY_NAME), None)
    status = getattr(error, "status_code", 0)
    refused = errors.RequestRefused if status in range(400, 500) else errors.ProviderFailed
    return kind or _BY_STATUS.get(status, refused)


def _message(error: Exception) -> str:
    """Return the provider's own message, without the names of exceptions that each layer put before it."""
    text = _NAMES_IN_FRONT.sub("", str(getattr(error, "message", None) or error).strip())
    if body := _BODY.fullmatch(text):
        with suppress(ValueError, LookupError, TypeError):
            return str(json.loads(body[1])["error"]["message"])
    return text or type(error).__name__


def _retry_after(error: Exception) -> float | None:
    """Return the seconds to wait that the provider asked for, as a number or by a date; None without a valid one."""
    response = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "litellm_response_headers", None) or {}
    asked = str(headers.get("retry-after")) if hasattr(headers, "get") else ""
    with suppress(ValueError):
        seconds = float(asked)
        return min(max(0.0, seconds), _LONGEST_ASKED_S) if math.isfinite(seconds) else None
    with suppress(ValueError, OverflowError):
        return min(max(0.0, parsedate_to_datetime(asked).timestamp() - time.time()), _LONGEST_ASKED_S)
    return None


_FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Longest wait before another try; if a provider asks for more, the call fails."""


def pause_before(tried: int, error: errors.ModelError) -> float:
    """Return the seconds until the next try: as the provider asks, or exponential with jitter; infinite if useless."""
    if not isinstance(error, TRANSIENT) or error.code in NO_CREDIT:
        return math.inf
    if error.retry_after_s is not None:
        return error.retry_after_s
    backoff = _FIRST_PAUSE_S * 2**tried * random.uniform(0.75, 1.25)  # noqa: S311 - jitter needs no secrecy
    return float(min(backoff, LONGEST_PAUSE_S))
