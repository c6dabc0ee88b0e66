"""Strict values of requests: mistakes are reported, never corrected. Pydantic alone would accept "yes" as true."""

import json
import re
from datetime import datetime
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers
from starlette.types import Scope

from chatbot.messages import json_in
from chatbot.server.callers import ServerCaller
from chatbot.server.errors import UNSUPPORTED, Problem, invalid
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import LONGEST_LINE, LONGEST_TEXT
from chatbot.stores.records import read_time

_MOST_TOKENS = 1_000_000_000
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
VISIBLE = r"[^\s\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Text with a visible character: control and direction marks do not count."""
ID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def _moment(value: object) -> object:
    if isinstance(value, str):
        return read_time(value)
    if isinstance(value, datetime) or value is None:
        return value
    raise PydanticCustomError("moment", "a time must be text, such as 2026-01-31 or 2026-01-31T15:00:00Z")


def _whole_in_body(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_in_query(value: object) -> object:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise PydanticCustomError("whole", "it must be a whole number")
    return value


def _true_or_false(value: object) -> object:
    if isinstance(value, str) and value not in {"true", "false"}:
        raise PydanticCustomError("switch", "it must be true or false")
    return value


def _conditions(value: str) -> Any:
    if not isinstance(found := json_in(value), dict):
        raise PydanticCustomError("conditions", 'it must be a JSON object, such as {"status": "open"}')
    return found


def only(*known: object, otherwise: str) -> BeforeValidator:
    """Accept None and these values, or report `otherwise`."""

    def check(value: object) -> object:
        if value is not None and value not in known:
            raise PydanticCustomError(UNSUPPORTED, otherwise)
        return value

    return BeforeValidator(check)


def only_types(*known: str, of: str, default: str = "") -> BeforeValidator:
    """Accept lists of items of these types; `default` is the type of an untyped item."""

    def check(value: object) -> object:
        for each in value if isinstance(value, list) else ():
            kind = each.get("type") or default if isinstance(each, dict) else default
            if kind not in known:
                raise PydanticCustomError(
                    UNSUPPORTED,
                    "{of} of the type {kind} are not supported: use {known}",
                    {"of": of, "kind": repr(kind)[:80], "known": ", ".join(known)},
                )
        return value

    return BeforeValidator(check)


Conditions = Annotated[str, Field(max_length=10_000), AfterValidator(_conditions)]
"""Conditions on metadata in a query parameter, as JSON."""
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema(
        {"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}], "pattern": "^[1-9][0-9]{3}-"}
    ),
]
"""A time; without a zone it is UTC, and a date means its first moment."""
Tokens = Annotated[int, Interval(ge=1, le=_MOST_TOKENS), Strict(), BeforeValidator(_whole_in_body)]
TokensOrNone = Annotated[int, Interval(ge=0, le=2**53), Strict(), BeforeValidator(_whole_in_body)]
"""A limit of tokens in a body; 0 for none."""
Share = Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]
MOST_ITEMS = 200
TokensInQuery = Annotated[int, Interval(ge=1, le=_MOST_TOKENS), BeforeValidator(_whole_in_query)]
Limit = Annotated[int, Interval(ge=1, le=MOST_ITEMS), BeforeValidator(_whole_in_query)]
LimitOrNone = Annotated[int, Interval(ge=0, le=MOST_ITEMS), BeforeValidator(_whole_in_query)]
FlagInQuery = Annotated[bool, BeforeValidator(_true_or_false)]
Line = Annotated[str, Field(max_length=LONGEST_LINE)]
Named = Annotated[str, Field(max_length=LONGEST_LINE, pattern=VISIBLE)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


USER_HEADER = "x-chatbot-user"
"""Names the end user of any request: a label that the holder of the token vouches for, not a login."""
PROJECT_HEADER = "x-chatbot-project"
"""Names the project of any request; `-` for none."""
USER_FIELDS = ("user", "safety_identifier")
"""Fields that name the user in the bodies of OpenAI's routes."""
_PATHS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/embeddings"})


def named_in_headers(caller: ServerCaller, headers: Headers) -> ServerCaller:
    """Return the caller acting for the user, and in the project, that headers name.

    Raises `Problem` for an invalid name and for several users, `AccessDenied` for another project than theirs.
    """
    for label in _values_of(headers, USER_HEADER):
        caller = _caller_for_user(caller, label, "X-Chatbot-User")
    for name in _values_of(headers, PROJECT_HEADER):
        caller = caller.in_project(name)
    return caller


def _values_of(headers: Headers, name: str) -> list[str]:
    try:
        values = headers.getlist(name)  # which HTTP decodes as Latin-1
        return [value.strip(" \t").encode("latin-1").decode() for value in values]
    except UnicodeError:
        raise invalid("not valid UTF-8", name.title()) from None


def named_in(caller: ServerCaller, **fields: str | None) -> ServerCaller:
    """Return the caller acting for the user that one of these fields names. Raises `Problem` for more than one."""
    for name, label in fields.items():
        if label is not None:
            caller = _caller_for_user(caller, label, name)
    return caller


def _caller_for_user(caller: ServerCaller, label: str, param: str) -> ServerCaller:
    try:
        return caller.for_user(label)
    except InvalidValue as error:
        raise invalid(str(error), param) from None


def named_in_body(caller: ServerCaller, scope: Scope) -> ServerCaller:
    """Return the caller with the user named in the body, before the route parses it; unchanged if that is invalid."""
    if scope["path"] not in _PATHS:
        return caller
    try:
        body = json.loads(scope["state"]["body"])
        return named_in(caller, **{name: body.get(name) for name in USER_FIELDS})
    except (ValueError, AttributeError, TypeError, RecursionError, Problem):
        return caller  # the route reports the error
