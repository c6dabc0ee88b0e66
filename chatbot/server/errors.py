"""Errors as HTTP answers, in the form that OpenAI clients understand, and their description in OpenAPI."""

import logging
import math
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse

from chatbot import errors
from chatbot.models.call import pause_before
from chatbot.server.callers import ServerCaller
from chatbot.stores import errors as store_errors

logger = logging.getLogger(__name__)

REQUEST: ContextVar[str] = ContextVar("request", default="")
"""Name of the request that is being answered, in the log: its id, method and path, in brackets."""

_TYPES = {
    401: "authentication_error",
    402: "budget_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    412: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "model_error",
    503: "server_error",
    504: "model_error",
}
"""The family of errors of each status; all others are invalid requests."""
OPENAI_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/models")
UNSUPPORTED = "unsupported_value"
"""Code for values that other servers support and this one does not."""


class Problem(errors.ChatbotError):
    """An error as sent to a client. Raised for requests that the server itself rejects."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers or {}

    @property
    def type(self) -> str:
        """The family of errors that it belongs to."""
        return _TYPES.get(self.status, "invalid_request_error")

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "code": self.code, "param": self.param}}

    def for_path(self, path: str) -> "Problem":
        """Return the problem for clients of that path: for OpenAI's, an invalid value is a 400."""
        if self.status != 422 or not path.startswith(OPENAI_PATHS):
            return self
        return Problem(400, self.code, self.message, self.param, self.headers)

    def response(self) -> JSONResponse:
        """Return the answer."""
        retry = {"x-should-retry": "false"} if self.status == 409 else {}  # OpenAI's clients would repeat the request
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **retry, **self.headers}
        return JSONResponse(self.as_json(), self.status, headers=headers)


class TurnGone(errors.ChatbotError):
    """A completed turn was undone meanwhile, or its message or reply was never stored."""


class TurnStopped(errors.ChatbotError):
    """Someone stopped a turn before its reply was complete."""


class TurnLost(errors.ChatbotError):
    """A turn at another server ended before its reply was complete."""


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> Problem:
    """Return the error for an invalid value; the message begins with the parameter's name."""
    return Problem(422, code, f"{param}: {message}" if param else message, param)


_KINDS: dict[type[Exception], tuple[int, str]] = {
    errors.ConfigError: (500, "configuration"),
    errors.IdentityError: (404, "identity_not_found"),
    errors.UnknownToken: (404, "token_not_found"),
    errors.SessionNotFound: (404, "session_not_found"),
    errors.SessionExpired: (404, "session_expired"),
    errors.AmbiguousSession: (409, "ambiguous_session"),
    errors.WrongAgent: (409, "wrong_agent"),
    errors.DamagedSession: (500, "damaged_session"),
    errors.SessionError: (409, "session"),
    errors.ContextTooLong: (400, "context_length_exceeded"),
    errors.RequestRefused: (400, "refused_by_provider"),
    errors.RateLimited: (429, "provider_rate_limited"),
    errors.ModelTimeout: (504, "model_timeout"),
    errors.MissingModel: (503, "missing_model"),
    errors.UnknownModel: (502, "unknown_model"),
    errors.KeyRefused: (502, "provider_denied_access"),
    errors.ProviderFailed: (502, "provider_failed"),
    errors.ModelError: (502, "model_failed"),
    errors.QuotaExceeded: (429, "quota_exceeded"),
    errors.BudgetExceeded: (402, "budget_exceeded"),
    errors.ToolError: (500, "tool_failed"),
    TurnStopped: (409, "turn_stopped"),
    TurnLost: (503, "turn_lost"),
    TurnGone: (409, "idempotency_answer_gone"),
    errors.ChatbotError: (500, "failed"),
    store_errors.UnsupportedOperation: (409, "unsupported_operation"),
    store_errors.UnknownStore: (500, "configuration"),
    store_errors.BrokenStore: (500, "configuration"),
    store_errors.InvalidSettings: (500, "configuration"),
    store_errors.OtherEmbedder: (500, "other_embedder"),
    store_errors.InvalidValue: (422, "invalid_value"),
    store_errors.UnsafePath: (404, "file_not_found"),
    store_errors.MissingFolder: (404, "gone"),
    store_errors.UnknownObservation: (404, "memory_not_found"),
    store_errors.UnknownProject: (404, "project_not_found"),
    store_errors.ChangedMeanwhile: (412, "changed_meanwhile"),
    store_errors.ConflictingChange: (409, "conflicting_change"),
    store_errors.AccessDenied: (403, "clearance"),
    store_errors.MissingRight: (403, "missing_right"),
    store_errors.StoreBusy: (503, "busy"),
    store_errors.DamagedFile: (500, "damaged_file"),
    store_errors.LaterFormat: (500, "later_format"),
    store_errors.StoreAway: (503, "storage_away"),
    store_errors.UnknownOutcome: (503, "outcome_unknown"),
    store_errors.ReadOnlyFolder: (503, "storage_read_only"),
    store_errors.FullDisk: (503, "storage_full"),
    store_errors.StoreError: (500, "storage_failed"),
}
_MAY_NAME_FILES = (errors.ConfigError, errors.DamagedSession, store_errors.StoreError)
_HARMLESS = (
    store_errors.InvalidValue,
    store_errors.UnsupportedOperation,
    store_errors.UnknownObservation,
    store_errors.UnknownProject,
    store_errors.ConflictingChange,
    store_errors.AccessDenied,
)
_RETRY_S = {
    store_errors.StoreBusy: 1,
    store_errors.StoreAway: 5,
    store_errors.ReadOnlyFolder: 30,
    store_errors.FullDisk: 30,
}
_LONGEST_WAIT_S = 60
"""Longest wait of OpenAI's clients."""


def no_such_page(cursor: str) -> Problem:
    """Return the problem for a cursor at which no page of a list begins."""
    why = f"no page begins at the cursor {cursor!r:.80}: start again with the first page"
    return Problem(404, "page_not_found", why, "cursor")


def _is_new(error: BaseException) -> bool:
    """Return whether the error is not in the log yet: that of a turn is answered each time somebody asks for it."""
    is_new = "_is_logged" not in vars(error)
    vars(error)["_is_logged"] = True  # no builtin exception can be in a WeakSet
    return is_new


def problem_of(error: BaseException, caller: ServerCaller | None = None) -> Problem:
    """Return the problem for an error, by its nearest class.

    Failures of the server or its model are logged, and errors of which the caller may not know all: only the owner and
    the log get the names of files on the server.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, OSError) and (kind := store_errors.kind_of(error)) is not store_errors.StoreFailed:
        error = kind(str(error))  # raised outside of the stores
    if not isinstance(error, errors.ChatbotError | store_errors.StoreError):
        if _is_new(error):
            logger.error("a request failed", exc_info=error)
        return Problem(500, "internal", "the server failed: see its log")
    status, code = next(_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)
    message = _message(error, code, caller)
    is_ours = status >= 500 or isinstance(error, errors.ModelError) or message != str(error)
    if is_ours and _is_new(error):
        logger.error("%d %s: %s", status, code, " ".join(str(error).split()))
    return Problem(status, code, message, headers=_retry(error, status))


def _message(error: Exception, code: str, caller: ServerCaller | None) -> str:
    if caller is not None and caller.is_owner:
        return str(error)
    if isinstance(error, errors.ModelError | errors.BudgetExceeded):
        return errors.without_folders(getattr(error, "in_public", "") or str(error))
    if not isinstance(error, _MAY_NAME_FILES) or isinstance(error, _HARMLESS):
        return str(error)
    if isinstance(error, store_errors.StoreError) and error.in_public:
        return error.in_public
    return f"the server failed ({code.replace('_', ' ')}): see its log"


def _retry(error: Exception, status: int) -> dict[str, str]:
    wait = getattr(error, "retry_after_s", None) or next(
        (_RETRY_S[kind] for kind in type(error).__mro__ if kind in _RETRY_S), None
    )
    later = {"retry-after": str(math.ceil(wait))} if wait is not None and status in {429, 503} else {}
    # OpenAI's clients would retry too early, ask a provider in vain, or repeat a write that may be done.
    no_retry = (
        isinstance(error, store_errors.UnknownOutcome)
        or (pause_before(0, error) if isinstance(error, errors.ModelError) else wait or 0) > _LONGEST_WAIT_S
    )
    return later | ({"x-should-retry": "false"} if no_retry else {})


Responses = dict[int | str, dict[str, Any]]


class ErrorDetail(BaseModel):
    """Error with its message and code."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    message: str
    """Message for people."""
    type: str
    """The family of errors, such as `invalid_request_error`."""
    code: str | None
    """Identifies the error, for programs."""
    param: str | None = None
    """The invalid parameter, if there is one."""


class Error(BaseModel):
    """The answer to a failed request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    error: ErrorDetail


_MEANINGS = {
    400: "The request header or address is invalid or too large.",
    401: "The token is missing or invalid.",
    402: "The call could exceed a limit of the budget, so it was not made.",
    403: "The request is from a page of another site, or a right or the clearance for it is missing.",
    404: "Not found, or hidden from you.",
    405: "The path does not support this method.",
    408: "The request did not arrive in time.",
    409: "Conflict with stored data.",
    412: "The memory's current version is not one that `If-Match` names.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The name in Host is not one of this server's.",
    422: "A value is invalid.",
    429: "Too many requests: wait for `Retry-After`.",
    500: "The server failed.",
    502: "The model failed.",
    503: "The server is busy, its storage does not answer, is full or read-only, or the model is missing.",
    504: "The model did not answer in time.",
}


_OF_A_MODEL = "The provider refuses the request, it exceeds the window, or the request header is invalid."


def _answers(*statuses: int) -> Responses:
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in statuses}


EVERYWHERE = _answers(400, 401, 403, 405, 408, 413, 421, 422, 429, 500, 503)
"""Statuses of every route: access, body and parameters."""
OF_IDENTITY = EVERYWHERE | _answers(404)
"""Statuses of routes that open an identity."""
OF_MEMORY = OF_IDENTITY | _answers(409)
"""Statuses of routes that need a memory."""
OF_CHANGES = OF_MEMORY | _answers(412)
"""Statuses of routes that change a memory of an expected version."""
OF_WRITES = _answers(409, 415)
"""Further statuses of writes."""
OF_MODELS = _answers(402, 502, 504) | {400: {"model": Error, "description": _OF_A_MODEL}}
"""Further statuses of routes that call a model."""
