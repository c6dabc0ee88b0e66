"""Conditions on the metadata of rows: exact values, comparisons, and their combinations. Pure.

    {"status": "open"}                                   exactly that
    {"stars": {"$gte": 3, "$lt": 5}, "path": {"$prefix": "docs/"}}
    {"$or": [{"status": "open"}, {"$not": {"owner": {"$exists": True}}}]}

Fields beside each other must all hold. Values of two kinds are never less or greater than each other. `$ne` and `$not`
hold of a row that has no such field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chatbot.stores.errors import InvalidValue, did_you_mean

_MOST_DEEP = 20
_MISSING: Any = object()
_NOT = "$not"
_JOINED = ("$and", "$or", _NOT)


def _is_ordered(value: Any, other: Any) -> bool:
    """Return whether two values can be compared: two numbers or two texts."""
    if isinstance(value, str) or isinstance(other, str):
        return isinstance(value, str) and isinstance(other, str)
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in (value, other))


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, other: value is not _MISSING and written(value) == written(other),
    "$ne": lambda value, other: value is _MISSING or written(value) != written(other),
    "$gt": lambda value, other: _is_ordered(value, other) and bool(value > other),
    "$gte": lambda value, other: _is_ordered(value, other) and bool(value >= other),
    "$lt": lambda value, other: _is_ordered(value, other) and bool(value < other),
    "$lte": lambda value, other: _is_ordered(value, other) and bool(value <= other),
    "$in": lambda value, others: value is not _MISSING and written(value) in map(written, others),
    "$prefix": lambda value, other: isinstance(value, str) and value.startswith(other),
    "$exists": lambda value, other: (value is not _MISSING) is bool(other),
}
_KINDS: Mapping[str, type] = {"$in": list, "$prefix": str, "$exists": bool}


def written(value: object) -> str:
    """A value of the metadata as text, so that 1, 1.0 and true are three different ones."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def tests_of(asked: object) -> Mapping[str, Any] | None:
    """The comparisons that a field is asked for; None where it is asked for a value."""
    if isinstance(asked, Mapping) and asked and all(str(name).startswith("$") for name in asked):
        return asked
    return None


def holds(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a row's metadata meets the conditions."""
    return all(_holds(metadata, name, asked) for name, asked in wanted.items())


def passes(value: Any, tests: Mapping[str, Any]) -> bool:
    """Return whether an existing value passes all comparisons."""
    return all(_TESTS[name](value, other) for name, other in tests.items())


def takes_missing(tests: Mapping[str, Any]) -> bool:
    """Return whether the comparisons hold for a missing value."""
    return passes(_MISSING, tests)


def check_conditions(wanted: Mapping[str, Any], depth: int = 0) -> None:
    """Raise `InvalidValue` for conditions that cannot be asked."""
    if depth > _MOST_DEEP:
        raise InvalidValue(f"metadata: conditions can be nested at most {_MOST_DEEP} levels deep")
    for name, asked in wanted.items():
        if name in _JOINED:
            for each in _parts(name, asked):
                check_conditions(each, depth + 1)
        elif name.startswith("$"):
            raise InvalidValue(f"metadata: unknown operator {name!r:.80}{did_you_mean(name, _JOINED)}")
        else:
            _check_tests(tests_of(asked) or {})


def _check_tests(tests: Mapping[str, Any]) -> None:
    for name, other in tests.items():
        if name not in _TESTS:
            raise InvalidValue(f"metadata: unknown comparison {name!r:.80}{did_you_mean(name, _TESTS)}")
        if not isinstance(other, kind := _KINDS.get(name, object)):
            raise InvalidValue(f"metadata: {name} takes a {kind.__name__}")


def _parts(name: str, asked: Any) -> Sequence[Mapping[str, Any]]:
    """The conditions that are joined. Raises `InvalidValue`."""
    parts = [asked] if name == _NOT else asked
    if not isinstance(parts, list | tuple) or not all(isinstance(each, Mapping) for each in parts):
        raise InvalidValue(f"metadata: {name} takes {'conditions' if name == _NOT else 'a list of conditions'}")
    return parts


def _holds(metadata: Mapping[str, Any], name: str, asked: Any) -> bool:
    if name == "$and":
        return all(holds(metadata, each) for each in asked)
    if name == "$or":
        return any(holds(metadata, each) for each in asked)
    if name == _NOT:
        return not holds(metadata, asked)
    return passes(metadata.get(name, _MISSING), tests_of(asked) or {"$eq": asked})
