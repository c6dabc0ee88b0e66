"""The OpenAPI document: FastAPI's, with common parts added."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from fastapi import FastAPI

from chatbot.messages import Priority, TaskScope, TaskStatus
from chatbot.server.doors import OPEN_PATHS
from chatbot.server.errors import OF_WRITES
from chatbot.server.idempotency import HEADER, KEY_PATTERN, LONGEST_KEY
from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES
from chatbot.stores.observation import STATUSES, TYPES

_API = "/v1/"
_WRITES = frozenset({"post", "put", "patch", "delete"})
_KEY = "IdempotencyKey"
_TAGS = {
    "openai": "Endpoints for OpenAI clients.",
    "sessions": "Conversations: to begin, find, rename, fork and erase.",
    "conversation": "Messages of a session, and chatting.",
    "users": "End users that requests name: list, export and delete.",
    "memory": "Memories, people, tasks and facts.",
    "machines": "Backup, and sync with other machines.",
    "server": "The server itself.",
}


class DocumentedApi(FastAPI):
    """App whose document includes tokens and `Idempotency-Key`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._making = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The document, made once. The first time takes a good part of a second."""
        with self._making:
            if self.openapi_schema is None:
                self.openapi_schema = _completed(super().openapi())
            return self.openapi_schema


async def parameters_of(app: FastAPI, path: str, method: str) -> frozenset[str]:
    """The names that the document knows in the query of that route."""
    operation = (await asyncio.to_thread(app.openapi))["paths"][path][method.lower()]
    return frozenset(each["name"] for each in operation.get("parameters", ()) if each.get("in") == "query")


async def methods_of(app: FastAPI, path: str) -> list[str]:
    """Return the operations of a path; empty for an unknown one."""
    return sorted(map(str.upper, (await asyncio.to_thread(app.openapi))["paths"].get(path, ())))


def _name(paths: dict[str, dict[str, Any]]) -> None:
    """Name each operation by its function alone: generated clients name theirs by it."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            place = re.sub(r"\W", "_", f"{path}_{method}")
            operation["operationId"] = operation["operationId"].removesuffix(place).strip("_")


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    _name(document["paths"])
    document = with_readable_names(document)
    components = document["components"]
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "From `chatbot token add`. While no tokens exist, everyone on this machine needs none.",
        }
    }
    components["parameters"] = {
        _KEY: {
            "name": HEADER,
            "in": "header",
            "description": "A request with the same key is done once and gets the same answer.",
            "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": KEY_PATTERN},
        }
    }
    document["security"] = [{"token": []}, {}]
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    for path, method, operation in _operations(document):
        if path.startswith(_API) and method in _WRITES:
            operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{_KEY}"})
            for status, answer in OF_WRITES.items():
                operation["responses"].setdefault(str(status), _as_schema(answer))
    for path in OPEN_PATHS & document["paths"].keys():
        document["paths"][path]["get"]["security"] = []
    return document


def _as_schema(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": answer["description"],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer['model'].__name__}"}}},
    }


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


_REF = "#/components/schemas/"
_PAGE = re.compile(r"Page_(\w+)_")
_WORDS: Mapping[tuple[str, ...], tuple[str, str]] = {
    tuple(CLEARANCES): ("Clearance", "What a caller may see, the most first."),
    tuple(VISIBILITIES): ("Visibility", "Who a memory is for, the fewest first."),
    tuple(SENSITIVITIES): ("Sensitivity", "How delicate a memory is."),
    tuple(TYPES): ("MemoryType", "What kind of thing a memory is."),
    tuple(STATUSES): ("MemoryStatus", "Whether a memory is current."),
    get_args(TaskStatus): ("TaskStatus", "How far a task is."),
    get_args(TaskScope): ("TaskScope", "Whose task it is."),
    get_args(Priority): ("Priority", "How urgent a task is."),
}
"""Names and descriptions of the words of the product, by their values."""
_OBJECT = "JsonObject"
_RENAMED = {"Page_dict_str__Any__": "RecordPage", "Alias-Input": "AliasBody", "Alias-Output": "Alias"}


def with_readable_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with names that read well in generated clients.

    A page of sessions is a `SessionPage`; the words of the product are schemas of their own, such as `Sensitivity`, so
    that a client has one class for each; any other choice has a title.
    """
    schemas = {
        _readable(name): {**_named(schema, _readable(name)), "title": _readable(name)}
        for name, schema in document["components"]["schemas"].items()
    }
    for values, (name, about) in _WORDS.items():
        schemas[name] = {"type": "string", "enum": list(values), "title": name, "description": about}
    schemas[_OBJECT] = {
        "type": "object",
        "additionalProperties": True,
        "title": _OBJECT,
        "description": "Any JSON object.",
    }
    paths = {
        path: {method: _named(operation, _camel(operation["operationId"])) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    return {
        **document,
        "paths": paths,
        "components": {**document["components"], "schemas": dict(sorted(schemas.items()))},
    }


def _named(part: Any, place: str) -> Any:
    """Return a part of the document; `place` is the name that a choice in it would get."""
    if isinstance(part, list):
        return [_named(each, place) for each in part]
    if not isinstance(part, dict):
        return _REF + _readable(part.removeprefix(_REF)) if isinstance(part, str) and part.startswith(_REF) else part
    if isinstance(part.get("enum"), list):
        return _choice(part, place)
    if part.get("type") == "object" and part.get("additionalProperties") is True and "properties" not in part:
        return {"$ref": f"{_REF}{_OBJECT}", **{key: part[key] for key in ("description", "default") if key in part}}
    if part.get("type") == "object" and "additionalProperties" in part:
        part = {"title": place, **part}
    if "in" in part and isinstance(part.get("name"), str):
        place += _camel(part["name"])
    properties = part.get("properties")
    return {
        key: {name: _named(each, place + _camel(name)) for name, each in value.items()}
        if key == "properties" and value is properties and isinstance(value, dict)
        else _named(value, place)
        for key, value in part.items()
    }


def _choice(part: dict[str, Any], place: str) -> dict[str, Any]:
    word = _WORDS.get(tuple(part["enum"]))
    if word is None:
        return {**part, "title": place}
    rest = {key: value for key, value in part.items() if key not in {"enum", "type", "title"}}
    return {"$ref": _REF + word[0], **rest}


def _readable(name: str) -> str:
    if name in _RENAMED:
        return _RENAMED[name]
    return f"{page[1]}Page" if (page := _PAGE.fullmatch(name)) else name


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", name))
