"""Errors of providers in our words, without keys and other secrets."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from chatbot.errors import (
    ContextTooLong,
    KeyRefused,
    ModelError,
    ModelTimeout,
    ProviderFailed,
    RateLimited,
    RequestRefused,
    UnknownModel,
)
from chatbot.providers import known_providers, nearest_to
from chatbot.redaction import without_secrets

TRANSIENT = (RateLimited, ModelTimeout, ProviderFailed)
"""Worth another try, as long as nothing has arrived."""

# LiteLLM gives its exceptions the names that the SDK of OpenAI gave them; importing them here would cost seconds.
_BY_NAME: dict[str, type[ModelError]] = {
    "AuthenticationError": KeyRefused,
    "PermissionDeniedError": KeyRefused,
    "RateLimitError": RateLimited,
    "ContextWindowExceededError": ContextTooLong,
    "Timeout": ModelTimeout,
    "APITimeoutError": ModelTimeout,
    "NotFoundError": UnknownModel,
    "LiteLLMUnknownProvider": UnknownModel,
    "BadRequestError": RequestRefused,
    "UnprocessableEntityError": RequestRefused,
}
_BY_STATUS: dict[int, type[ModelError]] = {
    401: KeyRefused,
    403: KeyRefused,
    404: UnknownModel,
    408: ModelTimeout,
    413: ContextTooLong,
    429: RateLimited,
}
_TOO_LONG = ("context length", "context window", "context_length", "maximum context", "too many tokens", "too long")
_NAMES_IN_FRONT = re.compile(r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?::| -) )+")
_LONGEST_MESSAGE = 300


def translate(error: Exception, model: str, secrets: Iterable[str] = ()) -> ModelError:
    """Return the error for an exception of a call to `model`."""
    chain = list(_chain(error))
    if own := next((each for each in chain if isinstance(each, ModelError)), None):
        return own
    # A stream that broke off is reported as a failure of LiteLLM's own, with the provider's inside.
    original = getattr(error, "original_exception", None) or error
    message = _message(original)
    if "Provider NOT provided" in message or "LiteLLMUnknownProvider" in message:
        return unknown_provider(model)
    refused = next((each for each in chain if isinstance(each, OSError)), None)
    if refused is not None:
        message = f"no connection: {refused.strerror or refused}"
    if malformed := next((each for each in chain if type(each).__name__ == "ValidationError"), None):
        # Pydantic's message quotes the answer in pieces, in which a key would no longer be recognised.
        message = f"the answer is not a valid {getattr(malformed, 'title', '')}".rstrip()
    failure = _kind(original, message)(f"{model}: {_quoted(without_secrets(message, secrets))}")
    failure.retry_after_s = _retry_after(original)
    failure.status = 0 if refused is not None else getattr(original, "status_code", None)
    codes = (str(getattr(each, "code", None) or "") for each in chain)
    failure.code = next((code for code in codes if code and not code.isdecimal()), "")
    return failure


def unknown_provider(model: str) -> UnknownModel:
    """Return the error for a name without a provider, or with one that LiteLLM does not know."""
    name, slash, _ = model.partition("/")
    nearest = nearest_to(name) if slash and name not in known_providers() else ""
    return UnknownModel(
        f"no provider is known for the model {model!r}{nearest}: write provider/model as LiteLLM does, "
        "such as anthropic/…, openai/… or ollama_chat/…, or local/smollm2-135m"
    )


def _kind(error: Exception, message: str) -> type[ModelError]:
    kind = next((_BY_NAME[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _BY_NAME), None)
    if kind is None:
        status = getattr(error, "status_code", 0)
        kind = _BY_STATUS.get(status, RequestRefused if status in range(400, 500) else ProviderFailed)
    if kind is RequestRefused and any(words in message.lower() for words in _TOO_LONG):
        return ContextTooLong
    return kind


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _message(error: Exception) -> str:
    """The provider's own words, without the names of exceptions that each layer put in front."""
    text = str(getattr(error, "message", None) or error).strip()
    return _NAMES_IN_FRONT.sub("", text) or type(error).__name__


def _quoted(text: str) -> str:
    """The text on one line, cut to a length that fits into a notice."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def _retry_after(error: Exception) -> float | None:
    """Return the seconds to wait that the provider asked for, as a number or by a date; None if it did not."""
    response = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "litellm_response_headers", None) or {}
    asked = headers.get("retry-after") if hasattr(headers, "get") else None
    with suppress(TypeError, ValueError):
        return float(asked)
    with suppress(TypeError, ValueError):
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    return None


FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Longest wait that is accepted."""


def pause_before(tried: int, error: ModelError, first_pause_s: float = FIRST_PAUSE_S) -> float:
    """Return the seconds until the next try: as the provider asks, or exponential back-off with jitter."""
    if error.retry_after_s is not None:
        return error.retry_after_s
    backoff = first_pause_s * 2**tried * random.uniform(0.75, 1.25)  # noqa: S311 - jitter needs no secrecy
    return float(min(backoff, LONGEST_PAUSE_S))
