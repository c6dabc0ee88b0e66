"""Names in the OpenAPI document that read well in generated clients.

A page of sessions is a `SessionPage`; the words of the product are schemas of their own, such as `Sensitivity`, so that
a client has one class for each; any other choice has a title.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES
from chatbot.stores.observation import STATUSES, TYPES
from chatbot.words import Priority, TaskScope, TaskStatus

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
_RENAMED = {"Page_dict_str__Any__": "RecordPage", "Alias-Input": "AliasBody", "Alias-Output": "Alias"}


def with_readable_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with these names."""
    schemas = {
        _readable(name): {**_named(schema, _readable(name)), "title": _readable(name)}
        for name, schema in document["components"]["schemas"].items()
    }
    for values, (name, about) in _WORDS.items():
        schemas[name] = {"type": "string", "enum": list(values), "title": name, "description": about}
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
