"""OpenAPI documentation of errors: one form, and the possible statuses of each route."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Responses = dict[int | str, dict[str, Any]]


class ErrorDetail(BaseModel):
    """Error with its message and code."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    message: str
    """Message for people."""
    type: str
    """The family of errors, such as `invalid_request_error`."""
    code: str | None
    """The one error, for programs."""
    param: str | None = None
    """The parameter that is wrong, where it is one."""


class Error(BaseModel):
    """The one shape of all errors."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    error: ErrorDetail
    """The error."""


_MEANINGS = {
    400: "The request header is invalid or too large.",
    401: "The token is missing or invalid.",
    402: "The call could pass a limit of the budget, so it was not made.",
    403: "A page of another site asks, or the clearance does not allow it.",
    404: "Not found, or hidden from you.",
    408: "The request did not arrive in time.",
    409: "Conflict with stored data.",
    412: "The memory is not in a version that `If-Match` names.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The server does not go by the name in Host.",
    422: "A value cannot be used.",
    429: "Too many requests: wait for `Retry-After`.",
    500: "The server failed.",
    502: "The model failed.",
    503: "The server is busy, its storage does not answer just now, or the model is missing.",
    504: "The model did not answer in time.",
}


_OF_A_MODEL = "The provider refuses the request, it exceeds the window, or the request header is invalid."


def _answers(*statuses: int) -> Responses:
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in statuses}


EVERYWHERE = _answers(400, 401, 403, 408, 413, 421, 422, 429, 500, 503)
"""Statuses of every route: access, body and parameters."""
OF_STORAGE = _answers(503)
"""Statuses of a route that needs nothing but the storage."""
OF_IDENTITY = EVERYWHERE | _answers(404)
"""Statuses of routes that open an identity."""
OF_MEMORY = OF_IDENTITY | _answers(409)
"""Statuses of routes that need a memory."""
OF_VERSIONED = OF_MEMORY | {304: {"description": "Unchanged: the version is one that `If-None-Match` names."}}
"""Statuses of routes that read one memory with its version."""
OF_CHANGES = OF_MEMORY | _answers(412)
"""Statuses of routes that change a memory of an expected version."""
OF_WRITES = _answers(409, 415)
"""Further statuses of writes."""
OF_MODELS = _answers(402, 502, 504) | {400: {"model": Error, "description": _OF_A_MODEL}}
"""Further statuses of routes that call a model."""
