"""Operation: one typed function that declares its descriptions, parameters, effect and doors. Imports nothing heavy."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, field

from chatbot.stores.access import GivenSensitivity, Sensitivity
from chatbot.stores.query import check_limit

Door = Literal["cli", "http", "tool"]
"""The command line, HTTP, and tools, which models call here and through MCP."""
OperationEffect = Literal["reads", "adds", "changes", "destroys"]

Line = Annotated[str, "Line"]
Name = Annotated[str, "Name"]
"""Non-empty text on one line."""
Title = Annotated[str, "Title"]
Text = Annotated[str, "Text"]
Query = Annotated[str, "Query"]
Id = Annotated[str, "Id"]
"""The id of a memory. On the command line its beginning is enough."""
FactId = Annotated[str, "FactId"]
LineKey = Annotated[str, "LineKey"]
"""A key of the profile, or the id of one value; on the command line also the beginning of the id."""
SessionId = Annotated[str, "SessionId"]
"""The id of a session; on the command line its beginning, or the title."""
Limit = Annotated[int, "Limit"]
Count = Annotated[int, "Count"]
RankCursor = Annotated[str, "RankCursor"]
"""Number of items to skip."""
IdCursor = Annotated[str, "IdCursor"]
"""The last id of the previous page."""
Tokens = Annotated[int, "Tokens"]
Kind = Annotated[str, "Kind"]
"""A type of memory to write; an unknown one becomes a note."""
Share = Annotated[float, "Share"]
"""A number from 0 to 1."""
Past = Annotated[datetime, "Past"]
"""A time; on the command line also a duration before now."""
Future = Annotated[datetime, "Future"]
"""A time; on the command line also a duration from now."""
Metadata = Annotated[dict[str, Any], "Metadata"]

ItemT = TypeVar("ItemT")


class ListPage(Struct, Generic[ItemT], frozen=True):
    """One page of a list."""

    rows: Sequence[ItemT]
    next_cursor: str | None = None
    """Cursor of the next page; None at the end."""
    total: int | None = None

    @classmethod
    def by_rank(
        cls, found: Sequence[ItemT], limit: int, cursor: str | None, *, total: int | None = None
    ) -> "ListPage[ItemT]":
        """Return the page of `limit` items after the number in the cursor; a limit of 0 takes all."""
        begin = int(cursor or 0)
        end = begin + limit if check_limit(limit) else len(found)
        return cls(found[begin:end], str(end) if end < len(found) else None, total)


REQUIRED: Any = inspect.Parameter.empty
_JSON = {int: "integer", float: "number", bool: "boolean"}
LEFT_OUT: Any = object()
"""The default of a field that is unchanged unless it is given."""


class About(Struct, frozen=True):
    """Description of a parameter, its bounds, and the differences between doors.

    `cli`, `http` and `tool` rename the parameter at that door; None hides it there. `brief` describes it to models, if
    its name is not enough.
    """

    words: str
    brief: str = ""
    cli: str | None = ""
    http: str | None = ""
    tool: str | None = ""
    usual: Mapping[Door, Any] = field(default_factory=dict)
    """The default at doors that have one of their own."""
    least: int = 0
    most: int = 0
    """Maximum of a number when a model asks: a higher one is reduced to it."""


class Parameter(Struct, frozen=True):
    """One parameter of an operation."""

    name: str
    kind: Any
    """Its type: one of the types above, a literal, a flag, or a sequence of them."""
    default: Any
    about: About
    is_nullable: bool = False
    is_positional: bool = False

    @property
    def is_list(self) -> bool:
        """True if it takes several values."""
        return get_origin(self.kind) is Sequence

    @property
    def item(self) -> Any:
        """The type of one value; without the sensitivity `unknown`, as such rows are never shown."""
        item = get_args(self.kind)[0] if self.is_list else self.kind
        return GivenSensitivity if item == Sensitivity else item

    @property
    def noun(self) -> str:
        """The kind of thing that an id names: a memory, unless the parameter's name says otherwise."""
        return {"fact_id": "fact", "task_id": "task", "proposal_id": "proposal"}.get(self.name, "memory")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words to choose from, if there are any."""
        return get_args(self.item) if get_origin(self.item) is Literal else ()

    @property
    def schema(self) -> dict[str, Any]:
        """Short JSON schema of its values: the full one needs pydantic, whose import takes 0.1 s."""
        if self.is_list:
            choices = self.choices
            return {"type": "array", "items": {"type": "string"} | ({"enum": [*choices]} if choices else {})}
        kind = (*get_args(self.item), self.item)[0]  # of `Annotated` its type, of `Literal` its first word
        return {"type": _JSON.get(kind, "string")}

    def at(self, door: Door) -> str | None:
        """Return its name at a door; None if it is hidden there."""
        name: str | None = getattr(self.about, door)
        return self.name if name == "" else name

    def default_at(self, door: Door) -> Any:
        """Return its default at a door."""
        return self.about.usual.get(door, self.default)


class Operation(Struct, frozen=True):
    """One thing that can be done with memory or sessions."""

    function: Callable[..., Awaitable[Any]]
    effect: OperationEffect
    cli: str = ""
    """The verb, such as `memory tasks add`."""
    http: str = ""
    tool: str = ""
    model: bool = True
    """True if the chat's own model may call the tool; otherwise only MCP clients may."""
    first: bool = False
    """True if every prompt describes the tool itself; the others are named and called through one common tool."""
    gives: str = ""
    """The key of the result in JSON; for an operation that returns nothing, the word for what it did to each id."""
    brief: str = ""
    """Description for models; by default the summary."""
    examples: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """The first line of the docstring, without its full stop."""
        return _summary(self.function)

    @property
    def description(self) -> str:
        """The docstring after its first line, or the first line if there is no more."""
        whole = inspect.getdoc(self.function) or ""
        return whole.partition("\n\n")[2] or whole

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters in the order of the signature; fields come last."""
        return _parameters_of(self.function)

    def as_line(self) -> str:
        """Return the tool for models in one line: name, arguments, required ones first, and description."""
        parameters = self.at("tool")
        given = [name for name, each in parameters.items() if each.default is REQUIRED]
        if rest := named_for_models({name: each for name, each in parameters.items() if name not in given}):
            given.append(f"[{rest}]")
        return f"{self.tool}({', '.join(given)}): {self.brief}"

    def at(self, door: Door) -> dict[str, Parameter]:
        """Return the parameters that a door offers, by the names that they have there."""
        return {name: each for each in self.parameters if (name := each.at(door)) is not None}

    @property
    def returned(self) -> Any:
        """The type of its result; this imports the type."""
        return _hints_of(self.function, {"return": self.function.__annotations__["return"]})["return"]

    async def run(self, context: Any, door: Door, given: Mapping[str, Any]) -> Any:
        """Call it with values by the names of its parameters; the others keep the defaults of that door."""
        usual = {each.name: each.about.usual[door] for each in self.parameters if door in each.about.usual}
        return await self.function(context, **{**usual, **given})


def named_for_models(parameters: Mapping[str, Parameter], *, most_choices: int = 0) -> str:
    """Return the names of parameters, each with its brief, or its choices if they are few: models invent others."""
    described = {
        name: each.about.brief or ", ".join(each.choices if len(each.choices) <= most_choices else ())
        for name, each in parameters.items()
    }
    return ", ".join(f"{name} ({words})" if words else name for name, words in described.items())


FunctionT = TypeVar("FunctionT", bound=Callable[..., Awaitable[Any]])


def declare(table: dict[str, Operation], effect: OperationEffect, **doors: Any) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds a function to the table as an operation. Keywords are the fields of `Operation`."""

    def add(function: FunctionT) -> FunctionT:
        operation = Operation(function, effect, **{"brief": _summary(function), **doors})
        table[operation.name] = operation
        return function

    return add


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").partition("\n")[0].removesuffix(".")


def declared_parameters(fields: type) -> list[Parameter]:
    """Return the parameters that a `TypedDict` declares."""
    return [_parameter(name, hint, LEFT_OUT) for name, hint in get_type_hints(fields, include_extras=True).items()]


@lru_cache
def _parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    _, *signature = inspect.signature(function).parameters.values()
    shown = {each.name: each.annotation for each in signature}
    hints = _hints_of(function, shown)
    found: list[Parameter] = []
    for each in signature:
        if each.kind is each.VAR_KEYWORD:
            found += declared_parameters(get_args(hints[each.name])[0])
        else:
            positional = each.kind is each.POSITIONAL_OR_KEYWORD
            found.append(_parameter(each.name, hints[each.name], each.default, is_positional=positional))
    return tuple(found)


def _hints_of(function: Callable[..., Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    return get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True)


def _parameter(name: str, hint: Any, default: Any, *, is_positional: bool = False) -> Parameter:
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    about = next((each for each in marks if isinstance(each, About)), About(""))
    others = tuple(each for each in marks if each is not about)
    kind = Annotated[(kind, *others)] if others else kind
    is_nullable = get_origin(kind) in {Union, UnionType}
    kinds = [each for each in get_args(kind) if each is not type(None)] if is_nullable else [kind]
    return Parameter(name, kinds[0], default, about, is_nullable, is_positional)
