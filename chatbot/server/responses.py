"""How errors are documented: one shape for all, and for each route the statuses that it may answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Responses = dict[int | str, dict[str, Any]]


class ErrorDetail(BaseModel):
    """What went wrong, and what to do."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    message: str
    """In words, for people."""
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
    """What went wrong."""


_MEANINGS = {
    400: "The head of the request cannot be read, or is too large.",
    401: "There is no token, or not a valid one.",
    402: "The call could pass a limit of the budget, so it was not made.",
    403: "A page of another site asks, or the clearance does not allow it.",
    404: "There is no such thing, or none that you may know of.",
    408: "The request did not arrive in time.",
    409: "What is kept rules that out.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The server does not go by the name in Host.",
    422: "A value cannot be used.",
    429: "Too many requests; `Retry-After` says when to try again.",
    500: "The server failed.",
    502: "The model failed.",
    503: "The server is busy, or the model is missing.",
    504: "The model did not answer in time.",
}


_OF_A_MODEL = (
    "The provider of the model refuses the request, or it does not fit the window; or its head cannot be read."
)


def _answers(*statuses: int) -> Responses:
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in statuses}


EVERYWHERE = _answers(400, 401, 403, 408, 413, 421, 422, 429, 500, 503)
"""What any route may answer: the doors, the body and the parameters come before everything else."""
OF_IDENTITY = EVERYWHERE | _answers(404)
"""What a route may answer that opens an identity."""
OF_MEMORY = OF_IDENTITY | _answers(409)
"""What a route may answer that needs a memory, which not every agent keeps."""
OF_WRITES = _answers(409, 415)
"""What a route that changes something may answer beside."""
OF_MODELS = _answers(402, 502, 504) | {400: {"model": Error, "description": _OF_A_MODEL}}
"""What a route that calls a model may answer beside."""
