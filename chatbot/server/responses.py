"""How errors are documented: the same for every route."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """What went wrong, and what to do."""

    message: str
    type: str = Field(description="The family of errors, such as `invalid_request_error`.")
    code: str | None = Field(description="The one error, for programs.")
    param: str | None = Field(None, description="The parameter that is wrong, where it is one.")


class Error(BaseModel):
    """The one shape of all errors."""

    error: ErrorDetail


_MEANINGS = {
    400: "The provider of the model refuses the request, or it does not fit the model's window.",
    401: "There is no token, or not a valid one.",
    402: "The call could pass a limit of the budget, so it was not made.",
    403: "A page of another site asks, or the clearance does not allow to write that.",
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
    503: "The server is busy, or its model is missing.",
    504: "The model did not answer in time.",
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": meaning} for status, meaning in _MEANINGS.items()
}
"""What any route may answer when something goes wrong."""
