"""Errors above the stores: `ChatbotError` and its kinds. Those of stores are in `chatbot.stores.errors`.

Messages are lower case: what is wrong, then what to do or what exists. Each door maps the classes to its own codes.
"""

import re
from pathlib import Path
from typing import Self

from chatbot.stores import errors as store_errors

_FOLDERS = re.compile(r"post\w+://\S*?/|(?:(?<![\w./:~-])|(?<=\blocal/))(?:~|[A-Za-z]:)?/(?:[^/\n:'\"]*[^/\s:'\"]/)+")


class ChatbotError(Exception):
    """Root of everything that the app raises on purpose."""


class ConfigError(ChatbotError, ValueError):
    """A setting, a file of settings, or a target that the user named is wrong."""

    def __init__(self, message: str = "", *, at: Path | str = "") -> None:
        super().__init__(message)
        self.at = at
        """The file or environment variable to fix; else another source, if known."""


class NotTrusted(ConfigError):
    """A file that was found sets what needs the user's trust."""


class IdentityError(ChatbotError, LookupError):
    """An identity is missing, misnamed or malformed."""


class UnknownToken(ChatbotError, LookupError):
    """No token has that id or label, or several have that label."""


class SessionError(ChatbotError):
    """An error of one session."""


class SessionNotFound(SessionError, LookupError):
    """No session has that id, prefix or title."""

    @classmethod
    def of(cls, session_id: str) -> Self:
        """Return the error for an id that no session has, as far as the caller may know."""
        return cls(str(store_errors.MissingFolder.of(session_id)))


class AmbiguousSession(SessionError, LookupError):
    """More than one session matches; the message lists them."""


class WrongAgent(SessionError, PermissionError):
    """The session belongs to another agent."""


class SessionExpired(SessionError, LookupError):
    """The session's time to live is over."""


class DamagedSession(SessionError, ValueError):
    """The session's record cannot be parsed, and the index does not have it."""


class ModelError(ChatbotError):
    """A model could not answer; the provider's own message is kept, keys are not."""

    retry_after_s: float | None = None
    """Seconds to wait, if the provider stated them."""
    status: int | None = None
    """HTTP status of the provider's answer; 0 if no connection was made, None if that is unknown."""
    code: str = ""
    """The provider's own word for the error, such as `insufficient_quota`."""
    is_charged: bool = False
    """True if the provider may charge the call."""
    in_public: str = ""
    """The message for guests, without addresses and places of keys; empty if it is the same."""


class UnknownModel(ModelError, LookupError):
    """No model, or no provider, has that name."""


class MissingModel(ModelError, FileNotFoundError):
    """A model whose weights, engine or package are not installed."""


class KeyRefused(ModelError, PermissionError):
    """The provider refused the key, or it is missing."""


class RateLimited(ModelError, RuntimeError):
    """The provider asked to slow down, more often than we may retry."""


class ContextTooLong(ModelError, ValueError):
    """The prompt does not fit the model's context window."""


class RequestRefused(ModelError, ValueError):
    """The provider understood the request and refused it."""


class ModelTimeout(ModelError, TimeoutError):
    """No answer, or no next chunk, within the time limit."""

    is_charged = True


class ProviderFailed(ModelError, ConnectionError):
    """The provider could not be reached, failed, or broke off mid-stream."""


class BudgetExceeded(ChatbotError, RuntimeError):
    """The next model call could exceed a limit, so it was not made."""


class QuotaExceeded(BudgetExceeded):
    """The next call could exceed the daily limit of a token or a user, or any limit together with calls now running."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """Seconds until the next day, in UTC, or until the others may have ended."""


class ToolError(ChatbotError, RuntimeError):
    """A tool failed, or was called with the wrong arguments."""


def without_folders(text: str) -> str:
    """Return the text with only the names of files and databases, for readers who must not learn where they are."""
    return _FOLDERS.sub("", text)
