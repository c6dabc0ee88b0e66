"""Routes that operations declare, with versions of memories (ETag, If-Match)."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Response
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ConfigDict, Field, create_model

from chatbot import operation as kinds
from chatbot.operation import LEFT_OUT, REQUIRED, ListPage, Operation, Parameter
from chatbot.operations import Context
from chatbot.server import request_values
from chatbot.server.dependencies import RANK, AccessHere, Page
from chatbot.server.errors import OF_CHANGES, OF_IDENTITY, OF_MEMORY
from chatbot.server.idempotency import IdempotentWrite, WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.shapes import SHAPES, AddResult, MemoryRecord, RequestBody, Shape
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import version_of
from chatbot.stores.records import is_id

_ANY = "*"
_OWN_NAME = re.compile(r"{(key|project)}")
"""A name of the caller's own in a path: it may have slashes, so it is tried after longer paths."""
_TAG = re.compile(r'(W/)?"([^"*]*)"')


class IfMatch(Struct, frozen=True):
    """The accepted versions of a memory to change; None accepts any, also a missing memory."""

    versions: frozenset[str] | None
    response: Response
    new_versions: dict[str, str] = {}
    """The versions that the request created, by the ids of their memories."""

    def within(self, context: Context) -> Context:
        """Return the context in which only these versions can be changed."""
        return replace(context, memories_of=lambda: context.memories.expecting(self.versions, self.new_versions))

    def send(self, version: str | None) -> None:
        """Send the version as `ETag`, if there is one."""
        if version:
            self.response.headers["etag"] = f'"{version}"'


async def _any_version(response: Response) -> IfMatch:
    return IfMatch(None, response)


async def _parse_if_match(
    response: Response,
    if_match: Annotated[str | None, Header(description="Change only the version with this `ETag`.")] = None,
) -> IfMatch:
    if if_match is None:
        return IfMatch(None, response)
    tags = [("", _ANY)] if if_match.strip() == _ANY else _TAG.findall(if_match)
    return IfMatch(frozenset(tag for weak, tag in tags if not weak), response)


IfMatchHere = Annotated[IfMatch, Depends(_parse_if_match)]
AnyVersionHere = Annotated[IfMatch, Depends(_any_version)]
"""For reads, and for writes that create a memory: no version can be expected."""


_SESSIONS = ("/v1/sessions", "/v1/projects")
_PAGE: Any = Page
_LIST: Any = list
_ID: Any = Annotated[str, Field(max_length=100)]
_ANYWHERE: dict[Any, Any] = {
    **dict.fromkeys((kinds.Id, kinds.FactId, kinds.SessionId), _ID),
    **dict.fromkeys((kinds.Past, kinds.Future), request_values.Moment),
    **dict.fromkeys((kinds.Line, kinds.LineKey, kinds.Kind, kinds.Title), request_values.Line),
    kinds.Query: Annotated[str, Field(max_length=10_000)],
    kinds.Name: request_values.Named,
    kinds.Text: request_values.Text,
    kinds.Metadata: dict[str, Any],
    kinds.RankCursor: Annotated[str, Field(pattern=RANK)],
    kinds.IdCursor: Annotated[str, Field(pattern=request_values.ID)],
}
_IN_QUERY = {
    **_ANYWHERE,
    bool: request_values.FlagInQuery,
    kinds.Metadata: request_values.Conditions,
    kinds.Tokens: request_values.TokensInQuery,
    kinds.Count: request_values.LimitOrNone,
    kinds.Limit: request_values.LimitOrNone,
}
_IN_BODY = {
    **_ANYWHERE,
    kinds.SessionId: Annotated[str, Field(max_length=100, pattern=request_values.VISIBLE)],
    bool: request_values.Flag,
    kinds.Share: request_values.Share,
    kinds.Tokens: request_values.Tokens,
}


@cache
def body_of(operation: Operation) -> type[RequestBody]:
    """Return the model of an operation's body, the same one for all routes that take it."""
    title = re.sub("(?:^|_)(.)", lambda match: match[1].upper(), operation.name)
    given = {name: each for name, each in operation.at("http").items() if f"{{{name}}}" not in operation.http}
    fields: dict[str, Any] = {name: _field(operation, each) for name, each in given.items()}
    return create_model(title, __base__=_OperationBody, __doc__=_sentence(operation.summary), **fields)


def given_in(operation: Operation, body: RequestBody) -> dict[str, Any]:
    """Return the arguments of an operation that a body gives, by the names of its parameters."""
    offered = operation.at("http")
    return _by_parameter(offered, _given_fields(body, offered))


def _by_parameter(offered: Mapping[str, Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, checked, by the names of their parameters instead of those at the door."""
    return {offered[name].name: check_value(offered[name], value) for name, value in values.items()}


def router_of(operations: Iterable[Operation]) -> APIRouter:
    """Return the routes of all operations that have one."""
    router = APIRouter()
    routed = (operation for operation in operations if operation.http)
    for operation in sorted(routed, key=lambda each: ("{" in each.http, each.http.endswith("{key}"))):
        method, path = operation.http.split()
        is_of_sessions = path.startswith(_SESSIONS)
        form = _AnswerForm(operation)
        router.add_api_route(
            _OWN_NAME.sub(r"{\1:path}", path),
            _endpoint(operation, form),
            methods=[method],
            name=operation.name,
            summary=operation.summary,
            description=operation.description,
            tags=["sessions" if is_of_sessions else "memory"],
            responses=OF_CHANGES if _expects_version(operation) else OF_IDENTITY if is_of_sessions else OF_MEMORY,
            response_model=form.model,
            status_code=204 if form.model is None else 201 if method == "POST" and operation.effect == "adds" else 200,
        )
    return router


def _expects_version(operation: Operation) -> bool:
    """Return True if the operation changes one memory, whose version the caller may expect."""
    method, path = operation.http.split()
    return method != "GET" and path.startswith(("/v1/memories/{memory_id}", "/v1/memories/by-key/"))


class _AnswerForm:
    """Form of the answer to an operation: a model of its type, or a page; one item if the path names one."""

    def __init__(self, operation: Operation) -> None:
        is_list = get_origin(operation.returned) in {ListPage, list, Sequence}
        item = get_args(operation.returned)[0] if is_list else operation.returned
        path = operation.at("http").items()
        self._shape = SHAPES.get(item)
        if self._shape is None and isinstance(item, type) and issubclass(item, Struct):
            raise TypeError(f"{operation.name} returns {item.__name__}: name its fields in chatbot/server/shapes.py")
        self._is_page = is_list and not any(each.is_list and f"{{{name}}}" in operation.http for name, each in path)
        one: Any = None if item is type(None) else self._shape or item
        self.model = _PAGE[one] if self._is_page else one

    def answer(self, result: Any) -> Any:
        """Return the JSON of a result."""
        if self._is_page:
            rows, following = (result.rows, result.next_cursor) if isinstance(result, ListPage) else (result, None)
            return Page(data=[self._one(row) for row in rows], next_cursor=following)
        return self._one(result[0] if isinstance(result, list | tuple) else result)

    async def again(self, context: Context, writing: IdempotentWrite) -> Any:
        """Return the answer to a request that was done before."""
        assert self._shape is not None  # noqa: S101 - only shapes are noted
        return await self._shape.again(context, writing.before or {})

    def _one(self, item: Any) -> Any:
        return self._shape.of(item) if self._shape else item


def _endpoint(operation: Operation, form: _AnswerForm) -> Callable[..., Any]:
    offered, (in_path, in_body, _) = operation.at("http"), _by_place(operation)

    async def endpoint(
        access: IdentityAccess,
        writing: IdempotentWrite | None = None,
        body: RequestBody | None = None,
        expected: IfMatch | None = None,
        **asked: Any,
    ) -> Any:
        context = access.context if expected is None else expected.within(access.context)
        if writing is not None and writing.before is not None and form.model is not None:
            return await form.again(context, writing)
        sent = _given_fields(body, in_body) if body is not None else {}
        asked = {name: value for name, value in asked.items() if value is not None}
        given = _by_parameter(offered, {**asked, **sent})
        given |= {each.name: [given[each.name]] for each in in_path.values() if each.is_list}
        result = await operation.run(context, "http", given)
        answer = form.answer(result)
        if writing is not None and isinstance(answer, Shape) and (stored := answer.stored_parts()) is not None:
            writing.note(**stored)
        if expected is not None:
            changed = expected.new_versions.get(
                (answer.id or "") if isinstance(answer, AddResult) else asked["memory_id"]
            )
            expected.send(version_of(result[0]) if isinstance(answer, MemoryRecord) else changed)
        return answer

    endpoint.__signature__ = inspect.Signature(_request_parameters(operation, form))  # type: ignore[attr-defined]
    return endpoint


def _by_place(operation: Operation) -> tuple[dict[str, Parameter], dict[str, Parameter], dict[str, Parameter]]:
    """Return the parameters in the path, in the body and in the query, by the names that they have there."""
    method, path = operation.http.split()
    offered = operation.at("http").items()
    in_path = {name: each for name, each in offered if f"{{{name}}}" in path}
    others = {name: each for name, each in offered if name not in in_path}
    return (in_path, others, {}) if method in {"POST", "PUT", "PATCH"} else (in_path, {}, others)


def _request_parameters(operation: Operation, form: _AnswerForm) -> list[inspect.Parameter]:
    """Return the parameters of the endpoint, from which FastAPI reads a request."""
    in_path, in_body, in_query = _by_place(operation)
    parameters = [_parameter("access", AccessHere)]
    if not operation.http.startswith("GET "):
        parameters.append(_parameter("writing", WritingHere))
    if _expects_version(operation):
        parameters.append(_parameter("expected", IfMatchHere))
    elif form.model in {AddResult, MemoryRecord}:
        parameters.append(_parameter("expected", AnyVersionHere))
    for name, each in in_path.items():
        described = Path(description=_sentence(each.about.words))
        parameters.append(_parameter(name, Annotated[_ANYWHERE[each.item], described]))
    if in_body:
        model = body_of(operation)
        needed = any(each.default_at("http") in {REQUIRED, LEFT_OUT} for each in in_body.values())
        is_optional = operation.effect == "adds" and not needed
        kind = Annotated[model | None, Body()] if is_optional else Annotated[model, Body()]
        parameters.append(_parameter("body", kind, None if is_optional else REQUIRED))
    return [*parameters, *(_in_query(name, each) for name, each in in_query.items())]


def _parameter(name: str, annotation: Any, default: Any = REQUIRED) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _in_query(name: str, parameter: Parameter) -> inspect.Parameter:
    kind = _IN_QUERY.get(parameter.item, parameter.item)
    if parameter.item == kinds.Limit and parameter.about.least:
        kind = request_values.Limit
    default = parameter.default_at("http")
    described = Query(description=_sentence(parameter.about.words))
    if parameter.is_list:
        return _parameter(name, Annotated[_LIST[kind], described], [] if default is LEFT_OUT else [*default])
    default = None if default is LEFT_OUT else default
    return _parameter(name, Annotated[kind | None if default is None else kind, described], default)


class _OperationBody(RequestBody):
    """A body made from an operation: it has no source in which pydantic could look for docstrings."""

    model_config = ConfigDict(use_attribute_docstrings=False)


def _field(operation: Operation, parameter: Parameter) -> tuple[Any, Any]:
    kind = _IN_BODY.get(parameter.item, parameter.item)
    if parameter.is_list:
        kind = _LIST[kind]
    default = parameter.default_at("http")
    described: dict[str, Any] = {"description": _sentence(parameter.about.words)}
    if default is REQUIRED:
        return kind, Field(**described)
    if parameter.is_nullable or operation.effect == "changes":
        return kind | None, Field(None, **described)
    if default is LEFT_OUT:
        return kind, Field(None, json_schema_extra=_without_default, **described)
    return kind, Field([*default] if parameter.is_list else default, **described)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _given_fields(body: RequestBody, parameters: dict[str, Parameter]) -> dict[str, Any]:
    """Return the given fields. Null leaves a field unchanged, but removes a time."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    return {name: value for name, value in given.items() if value is not None or parameters[name].item == kinds.Future}


def check_value(parameter: Parameter, value: Any) -> Any:
    """Return the value. A malformed id raises the same error as a missing one."""
    names_row = parameter.item in {kinds.Id, kinds.FactId}
    for each in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        if names_row and each is not None and not is_id(each):
            raise UnknownObservation.of([each], parameter.noun)
    return value
