"""The shape of each tool's answer, which `chatbot.chat.memory_tools` makes; clients check answers against it."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from chatbot.chat.memory_tools import FRAME
from chatbot.operation import Operation

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_ANY: Schema = {"type": "object"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": dict.fromkeys(required, _TEXT) | properties, "required": [*required]}


_NAMED = _object("id", "title")
_ROW = _object("id", "type", "title", "created_at", token_count=_COUNT)
_ITEMS = {
    "Hit": _ROW | {"properties": _ROW["properties"] | {"score": {"type": "number"}}},
    "Observation": _ROW,
    "Person": _object("name", aliases=_TEXTS, facts=_TEXTS, mention_count=_COUNT),
    "ProfileLine": _object("id", "slot", "value", holds={"type": "boolean"}),
    "SessionHit": _object("session_id", "title", "used_at", "line"),
    "Task": _object("id"),
    "Triple": _object("subject", "predicate", "object", confidence={"type": "number"}),
    "Version": _object("id", "status", events={"type": "array", "items": {"type": "object"}}),
}
"""One thing in an answer; it may say more."""


@lru_cache
def answer_schema(operation: Operation) -> Schema:
    """The JSON schema of what the operation's tool answers where it succeeds."""
    kind, item = _result_of(operation)
    name = operation.gives
    if kind == "AddResult":
        parts: dict[str, Schema] = {"outcome": _TEXT, "id": _TEXT}
    elif kind == "Entries":
        parts = {name: _listed(_object("role", "at", "content")), "session_id": _TEXT, "title": _TEXT}
    elif kind == "None":
        words = name.split()
        parts = {name: _listed(_NAMED)} if len(words) == 1 else dict.fromkeys(words, _NAMED)
    elif item or kind == "Read":
        parts = {name: _listed(_ITEMS.get(item, _ANY))}
    else:
        parts = {name or "result": _ITEMS.get(kind, {})}
    said = {"about": {"type": "string", "const": FRAME}, **parts}
    return {
        "type": "object",
        "properties": {**said, "notes": _TEXTS, "next_cursor": _TEXT, "total": _COUNT},
        "required": [*said],
    }


def _result_of(operation: Operation) -> tuple[str, str]:
    """The names of what it returns and, of a list, of each thing; as it is written, for not all is imported there."""
    written = inspect.signature(operation.function).return_annotation
    kind, _, item = str(getattr(written, "__name__", written)).partition("[")
    return kind, item.removesuffix("]")


def _listed(item: Schema) -> Schema:
    return {"type": "array", "items": item}
