"""Arguments of operations as tools, checked by pydantic. Imported with the first call, as pydantic loads slowly."""

from __future__ import annotations

import inspect
from datetime import datetime
from functools import cache, lru_cache
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from chatbot import operation as kinds
from chatbot.operation import REQUIRED, Operation, Parameter
from chatbot.stores.fields import LONGEST_LINE
from chatbot.stores.observation import SUMMARIES, TYPES
from chatbot.stores.records import is_id, read_time
from chatbot.tools.function import Arguments


@lru_cache
def arguments_of(operation: Operation) -> Arguments:
    """Return the checker of an operation's arguments, which has their full schema."""
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=_default_of(each), annotation=_annotation(each)
        )
        for name, each in operation.at("tool").items()
    ]
    described = {name: each.about.words for name, each in operation.at("tool").items()}
    return Arguments(operation.tool, operation.brief, parameters, described)


def _default_of(parameter: Parameter) -> Any:
    """Return the default for the schema, which shows numbers and booleans only; None leaves it to the operation."""
    default = parameter.default_at("tool")
    return default if default is REQUIRED or isinstance(default, int) else None


_STRING = {"type": "string"}
_WRITABLE = [each for each in TYPES if each not in SUMMARIES | {"exchange", "task"}]
"""Types that this tool may write; tasks have a tool of their own, the others are written by the program."""


def _id_or_any(value: object) -> object:
    """Return an id in the case in which it is stored; any other value unchanged."""
    plain = value.strip().lower() if isinstance(value, str) else ""
    return plain if is_id(plain) else value


def _id(value: object) -> object:
    plain = _id_or_any(value)
    if isinstance(plain, str) and not is_id(plain):
        raise ValueError(f"{plain!r:.80} is not an id: use one exactly as another tool returned it")
    return plain


def _writable(kind: str) -> str:
    if kind in TYPES and kind not in _WRITABLE:
        raise ValueError(f"this tool cannot write a {kind}: choose from {', '.join(_WRITABLE)}")
    return kind


@cache
def _kinds() -> dict[Any, Any]:
    """Return the pydantic type of each kind. Lengths are checked, and left out of schemas: few calls come near them."""

    def text(longest: int, least: int = 0) -> Any:
        return Annotated[str, Field(min_length=least, max_length=longest), WithJsonSchema(_STRING)]

    line = text(LONGEST_LINE)
    an_id = Annotated[str, BeforeValidator(_id), WithJsonSchema(_STRING)]
    moment = Annotated[
        datetime,
        BeforeValidator(lambda value: read_time(str(value))),
        WithJsonSchema({"type": "string", "format": "date-time"}),
    ]
    return {
        **dict.fromkeys((kinds.SessionId, kinds.FactId, kinds.IdCursor), an_id),
        kinds.Id: Annotated[text(LONGEST_LINE, 1), BeforeValidator(_id_or_any)],
        **dict.fromkeys((kinds.Line, kinds.Query), line),
        **dict.fromkeys((kinds.Past, kinds.Future), moment),
        kinds.Name: text(LONGEST_LINE, 1),
        kinds.Text: text(20_000),
        kinds.Kind: Annotated[line, AfterValidator(_writable), WithJsonSchema({"type": "string", "enum": _WRITABLE})],
    }


def _annotation(parameter: Parameter) -> Any:
    about, item = parameter.about, parameter.item
    if get_args(item)[:1] == (int,):
        least = about.least or (1 if item == kinds.Tokens else 0)
        kind: Any = Annotated[int, Field(ge=least, le=about.most)]
    elif parameter.default is REQUIRED and item == kinds.Line:
        kind = _kinds()[kinds.Name]  # not empty
    else:
        kind = _kinds().get(item, item)
    if parameter.is_list:
        kind = Annotated[list[kind], Field(min_length=int(parameter.default is REQUIRED), max_length=50)]
        kind = Annotated[kind, WithJsonSchema(parameter.schema)]
    return kind | None if _default_of(parameter) is None else kind
