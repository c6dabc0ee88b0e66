"""From what LiteLLM and its providers raise to our own errors. The provider's message is kept, keys are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chatbot.errors import (
    AccessDenied,
    ContextTooLong,
    ModelError,
    ModelTimeout,
    ProviderFailed,
    RateLimited,
    RequestRefused,
    UnknownModel,
)
from chatbot.models.redaction import redact

TRANSIENT = (RateLimited, ModelTimeout, ProviderFailed)
"""Worth another try, as long as nothing has arrived."""

_TOO_LONG = ("context length", "context window", "context_length", "maximum context", "too many tokens")
_BY_NAME: dict[str, type[ModelError]] = {
    "AuthenticationError": AccessDenied,
    "PermissionDeniedError": AccessDenied,
    "RateLimitError": RateLimited,
    "ContextWindowExceededError": ContextTooLong,
    "Timeout": ModelTimeout,
    "APITimeoutError": ModelTimeout,
    "NotFoundError": UnknownModel,
    "LiteLLMUnknownProvider": UnknownModel,
    "BadRequestError": RequestRefused,
    "UnprocessableEntityError": RequestRefused,
    "PaymentRequiredError": RequestRefused,
}
_LONGEST_MESSAGE = 1000


def translate(error: Exception, model: str, secrets: Iterable[str]) -> ModelError:
    """Our error for what a call to `model` raised."""
    if isinstance(error, ModelError):
        return error
    own = _own_cause(error)
    if own is not None:
        return own
    message = redact(_message(error), secrets)[:_LONGEST_MESSAGE]
    kind = _kind(error, message)
    return kind(f"{model}: {message}")


def retry_after(error: BaseException | None) -> float | None:
    """The seconds that the provider asked to wait, if it said so."""
    response = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "litellm_response_headers", None) or {}
    try:
        return float(headers.get("retry-after"))
    except (TypeError, ValueError, AttributeError):
        return None


def _kind(error: Exception, message: str) -> type[ModelError]:
    if "Provider NOT provided" in message:
        return UnknownModel
    for parent in type(error).__mro__:
        kind = _BY_NAME.get(parent.__name__)
        if kind is RequestRefused and any(words in message.lower() for words in _TOO_LONG):
            return ContextTooLong
        if kind is not None:
            return kind
    return ProviderFailed


def _own_cause(error: BaseException) -> ModelError | None:
    """LiteLLM wraps what our own provider for local models raises."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ModelError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _message(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    while text.startswith("litellm."):
        _, _, rest = text.partition(": ")
        if not rest:
            break
        text = rest
    return text.strip()
