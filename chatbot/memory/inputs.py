"""Typed parameters of the operations on memory, derived from the classes that declare them.

A parameter is a field of a class: those of `remember` are the fields of `Draft`, which are those of a row. Type
checkers, editors and `inspect.signature` see each by name; a misspelt one is an `InvalidValue` with a suggestion.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import NODEFAULT, Struct

from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.stores.records import check_text

P = ParamSpec("P")
Self = TypeVar("Self")
Inputs = TypeVar("Inputs")
Answer = TypeVar("Answer")

_POSITIONAL_OR_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD
_ANNOTATED = re.compile(r"Annotated\[((?:[^][,]|\[[^]]*\])+), .*\]")

Method = Callable[P, Coroutine[Any, Any, Answer]]


def list_of(value: object, name: str) -> tuple[Any, ...]:
    """Return the texts of a list. Raises `InvalidValue` for a single text, or for other items."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidValue(f"{name} is {value!r:.80}: it must be a list of texts")
    items = tuple(value)
    for item in items:
        if not isinstance(item, str):
            raise InvalidValue(f"{name}: {item!r:.80} is not text")
        if not item.isascii():
            check_text(item, name)
    return items


def takes(
    inputs: Callable[P, Inputs], refusal: str
) -> Callable[[Callable[[Self, Inputs], Awaitable[Answer]]], Method[Concatenate[Self, P], Answer]]:
    """Give an operation the fields of its argument as parameters; `refusal` begins the error about an unknown one."""
    known = _parameters(inputs)
    unnamed = [name for name, each in known.items() if each.kind is _POSITIONAL_OR_KEYWORD]

    def decorate(operation: Callable[[Self, Inputs], Awaitable[Answer]]) -> Method[Concatenate[Self, P], Answer]:
        @wraps(operation)
        async def taking(self: Self, /, *args: P.args, **named: P.kwargs) -> Answer:
            _check_names(named, known, refusal)
            if len(args) > len(unnamed):
                shown = ", ".join([*unnamed, "*", "…"])
                raise TypeError(f"{operation.__name__}({shown}): the arguments after * need names")
            return await operation(self, inputs(*args, **named))

        return _signed(taking, known.values())

    return decorate


def sets(
    inputs: Callable[P, object], refusal: str
) -> Callable[[Callable[Concatenate[Self, str, ...], Awaitable[Answer]]], Method[Concatenate[Self, str, P], Answer]]:
    """Give an operation optional parameters, the fields of `inputs`; only given ones are passed on."""
    known = _parameters(inputs)

    def decorate(
        operation: Callable[Concatenate[Self, str, ...], Awaitable[Answer]],
    ) -> Method[Concatenate[Self, str, P], Answer]:
        @wraps(operation)
        async def setting(self: Self, observation_id: str, /, *args: P.args, **named: P.kwargs) -> Answer:
            _check_names(named, known, refusal)
            return await operation(self, observation_id, *args, **named)

        first = inspect.Parameter("observation_id", inspect.Parameter.POSITIONAL_ONLY, annotation="str")
        return _signed(setting, [first, *known.values()])

    return decorate


def _parameters(inputs: Callable[..., object]) -> dict[str, inspect.Parameter]:
    if not (isinstance(inputs, type) and issubclass(inputs, Struct)):
        return dict(inspect.signature(inputs).parameters)
    hints: dict[str, str] = {}  # as text: evaluating them, as `inspect` does, takes longer than the rest
    for each in reversed(inputs.__mro__):
        hints |= vars(each).get("__annotations__", {})
    names, defaults = inputs.__struct_fields__, inputs.__struct_defaults__
    values = [*[inspect.Parameter.empty] * (len(names) - len(defaults)), *defaults]
    found: dict[str, inspect.Parameter] = {}
    for name, value in zip(names, values, strict=True):
        kind = _POSITIONAL_OR_KEYWORD if name in inputs.__match_args__ else inspect.Parameter.KEYWORD_ONLY
        default = inspect.Parameter.empty if value is NODEFAULT else value
        found[name] = inspect.Parameter(name, kind, default=default, annotation=hints[name])
    return found


def _signed(operation: Method[P, Answer], known: Iterable[inspect.Parameter]) -> Method[P, Answer]:
    """Return the operation with a signature of its parameters, for `help` and editors: plain types."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    plain = (each.replace(annotation=_ANNOTATED.sub(r"\1", each.annotation)) for each in known)
    answer = inspect.signature(operation).return_annotation
    operation.__signature__ = inspect.Signature([own, *plain], return_annotation=answer)  # type: ignore[attr-defined]
    return operation


def _check_names(named: Collection[str], known: Collection[str], refusal: str) -> None:
    for name in named:
        if name not in known:
            raise InvalidValue(f"{refusal} {name!r:.80}{did_you_mean(name, known)}")
