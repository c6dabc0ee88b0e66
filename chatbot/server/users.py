"""The end user that a request names: a label that the holder of the token vouches for, not a login.

The header `X-Chatbot-User` names one with any request; the fields `user` and `safety_identifier` do so in the bodies
of OpenAI's routes.
"""

from __future__ import annotations

import json

from starlette.datastructures import Headers
from starlette.types import Scope

from chatbot.server.callers import Caller
from chatbot.server.errors import ProblemError, invalid
from chatbot.stores.errors import InvalidValue

HEADER = "x-chatbot-user"
FIELDS = ("user", "safety_identifier")
_PATHS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/embeddings"})


def named_in_headers(caller: Caller, headers: Headers) -> Caller:
    """The caller as they speak for the user that the header names. Raises `ProblemError` for more than one, or none."""
    values = headers.getlist(HEADER)
    if not values:
        return caller
    try:
        labels = [value.encode("latin-1").decode() for value in values]
    except UnicodeError:
        raise ProblemError(invalid("not valid UTF-8", "X-Chatbot-User")) from None
    for label in labels:
        caller = _named(caller, label, "X-Chatbot-User")
    return caller


def named_in(caller: Caller, **fields: str | None) -> Caller:
    """The caller as they speak for the user that one of these fields names. Raises `ProblemError` for more than one."""
    for name, label in fields.items():
        if label is not None:
            caller = _named(caller, label, name)
    return caller


def _named(caller: Caller, label: str, param: str) -> Caller:
    try:
        return caller.for_user(label)
    except InvalidValue as error:
        raise ProblemError(invalid(str(error), param)) from None


def named_in_body(caller: Caller, scope: Scope) -> Caller:
    """Return the caller with the user named in the body, before the route parses it; unchanged if in doubt."""
    if scope["path"].rstrip("/") not in _PATHS:
        return caller
    try:
        body = json.loads(scope["state"]["body"])
        return named_in(caller, **{name: body.get(name) for name in FIELDS})
    except (ValueError, AttributeError, TypeError, RecursionError, ProblemError):
        return caller  # the route reports the error
