"""Tools made of plain async functions: the signature is the schema, checked strictly; the docstring describes them."""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_type_hints

from msgspec import to_builtins
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from chatbot.errors import ToolError
from chatbot.messages import ToolSpec
from chatbot.stores.errors import did_you_mean
from chatbot.tools.toolbox import Effect, Tool, coerce, result_text

_ARGUMENTS = re.compile(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s+(\w+)(?: \([^)]*\))?: (.+)")
_SHOWN_MISTAKES = 3


class FunctionTool(Tool):
    """Tool made of an async function.

    Its name is the function's. The docstring describes it; a line `name: text` under `Args:` describes an argument,
    and so does `Annotated[..., Field(description=...)]`. The result goes to the model as text, or as JSON if msgspec or
    pydantic can write it so. Raises `TypeError` if it is not async, or its signature cannot be a schema.
    """

    def __init__(
        self, function: Callable[..., Awaitable[Any]], effect: Effect | None = None, *, asks_first: bool = False
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r:.80} is neither a tool nor an async function: write `async def`")
        self.effect, self.asks_first = effect or Effect(), asks_first
        self._function = function
        try:
            self._arguments = _arguments_of(function)
        except (NameError, ValueError, PydanticUserError) as error:
            why = str(error).partition("\n")[0]
            raise TypeError(
                f"the signature of {function.__name__} cannot be made a schema: {why.rstrip('.')}; "
                "a tool that needs the session is returned by a function of its context"
            ) from error
        self.spec = self._arguments.spec

    async def run(self, arguments: dict[str, Any]) -> str:
        """Check the arguments and call the function. Raises `ToolError` for invalid arguments."""
        answer = await self._function(**self._arguments.check(arguments))
        return result_text(answer, lambda each: to_builtins(each, enc_hook=to_jsonable_python))


class Arguments:
    """Checks a tool's arguments by its parameters; `described` has descriptions of some."""

    def __init__(
        self, name: str, about: str, parameters: Sequence[inspect.Parameter], described: Mapping[str, str]
    ) -> None:
        self._name = name
        self._parameters = {each.name: each for each in parameters}

        def echo_arguments(**given: Any) -> dict[str, Any]:
            return given

        # pydantic checks the arguments of a call against this signature; the call returns them, checked
        echo: Any = echo_arguments
        echo.__signature__ = inspect.Signature(parameters)
        echo.__annotations__ = {each.name: each.annotation for each in parameters}
        self._checked: TypeAdapter[Any] = TypeAdapter(echo, config=ConfigDict(strict=True))
        self.spec = ToolSpec(name, about, _simplified(self._checked.json_schema(), described))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked arguments. Raises `ToolError`."""
        schemas = self.spec.parameters["properties"]
        given = {name: coerce(value, schemas[name].get("type")) for name, value in self._known(arguments).items()}
        try:
            checked: dict[str, Any] = self._checked.validate_json(json.dumps(given))
        except ValidationError as error:
            raise ToolError(f"{self._name}: {_explain(error)}") from error
        return checked

    def _known(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Drop arguments that are null, which means not given. Raises `ToolError` for an unknown one."""
        for name in arguments:
            if name not in self._parameters:
                raise ToolError(f"{self._name} has no argument {name!r:.80}{did_you_mean(name, self._parameters)}")
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or self._parameters[name].default is inspect.Parameter.empty
        }


def _arguments_of(function: Callable[..., Any]) -> Arguments:
    name, hints = function.__name__, get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise TypeError(f"the argument {parameter} of {name} has no name that a model could use")
        if parameter.name not in hints:
            raise TypeError(f"the argument {parameter.name!r} of {name} has no annotation")
    about, described = _parse_docstring(inspect.getdoc(function) or "")
    return Arguments(name, about, [each.replace(annotation=hints[each.name]) for each in parameters], described)


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Parse the descriptions of a function and its arguments from its docstring."""
    found = _ARGUMENTS.search(text)
    if not found:
        return text, {}
    arguments: dict[str, str] = {}
    for line in found[1].splitlines():
        if named := _ARGUMENT.match(line):
            arguments[named[1]] = named[2].strip()
        elif arguments and line.strip():
            arguments[list(arguments)[-1]] += f" {line.strip()}"
    return text[: found.start()].strip(), arguments


def _simplified(schema: dict[str, Any], arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema in a form that all providers accept: no titles, no empty defaults, described arguments."""
    properties = {name: _property(each) for name, each in schema.get("properties", {}).items()}
    for name in properties.keys() & arguments:
        properties[name].setdefault("description", arguments[name])
    return {"type": "object", **schema, "properties": properties, "additionalProperties": False}


def _property(schema: dict[str, Any]) -> dict[str, Any]:
    schema = {key: value for key, value in schema.items() if key != "title"}
    if schema.get("default", ...) in (None, ""):
        del schema["default"]
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del schema["anyOf"]
        return {**options[0], **schema}
    return schema


def _explain(error: ValidationError) -> str:
    mistakes = []
    for mistake in error.errors(include_url=False)[:_SHOWN_MISTAKES]:
        place = ".".join(map(str, mistake["loc"])) or "the arguments"
        why = mistake["msg"].removeprefix("Value error, ")
        mistakes.append(f"{place}: {why[:1].lower()}{why[1:]}")
    return "; ".join(mistakes)
