"""LangGraph: a `BaseStore` over memories; `langchain` has the chat history and what adds memories to messages."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langgraph.store import base

from chatbot.embed import AgentMemory, Portal, checked
from chatbot.messages import json_in
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.fields import LONGEST_LINE
from chatbot.stores.observation import STATUSES, Observation, Status
from chatbot.stores.query import EVERY, MISSING, check_conditions, passes, tests_of
from chatbot.stores.records import check_type, format_time, parse_time
from chatbot.stores.text.redaction import redact_all

_KIND = "langgraph"
_CREATED_AT = "made"
"""Metadata key of the time at which an item was first put: each change makes a new row."""


class MemoryStore(base.BaseStore):
    """LangGraph's store over memories: each item is a memory, searched by words and meaning, with its history.

    Secrets in a value are redacted by field, and deletion erases all versions. `portal` runs the synchronous methods.
    """

    def __init__(self, memory: AgentMemory, portal: Portal) -> None:
        self._memory = checked(memory)
        self._portal = check_type(portal, Portal, "portal")

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run operations in order."""
        return self._portal.run(self.abatch(ops))

    async def abatch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run operations in order. Each change is durable on return."""
        return [await self._run(each) for each in ops]

    async def _run(self, op: base.Op) -> base.Result:
        match op:
            case base.GetOp(namespace, key):
                row = await self._row(namespace, key)
                return None if row is None else base.Item(**_fields(row))
            case base.PutOp(namespace, key, value):
                await self._put(namespace, key, value)
                return None
            case base.SearchOp():
                return await self._search(op)
            case base.ListNamespacesOp():
                return await self._namespaces(op)

    async def _row(self, namespace: tuple[str, ...], key: str) -> Observation | None:
        return next(iter(await self._items({"key": _key(namespace, key)})), None)

    async def _items(self, metadata: Mapping[str, Any], statuses: Sequence[Status] = ("active",)) -> list[Observation]:
        found = await self._memory.every(metadata=metadata, statuses=statuses, sensitivities=SENSITIVITIES)
        return list(filter(_is_item, found))

    async def _put(self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            if versions := await self._items({"key": _key(namespace, key)}, STATUSES):
                with suppress(UnknownObservation):  # another call was faster
                    await self._memory.purge(*(row.id for row in versions))
            return
        old = await self._row(namespace, key)
        created_at = old.metadata[_CREATED_AT] if old else format_time(self._memory.scope.clock())
        metadata = {**_prefix(namespace), "namespace": list(namespace), "item": key, _CREATED_AT: created_at}
        narrative = json.dumps(redact_all(check_type(value, Mapping, "value"))[0], ensure_ascii=False)
        title = "/".join([*namespace, key])[:LONGEST_LINE]
        await self._memory.upsert(_key(namespace, key), title, narrative=narrative, metadata=metadata, source=_KIND)

    async def _search(self, op: base.SearchOp) -> list[base.SearchItem]:
        check_conditions(op.filter or {})
        metadata = _prefix(op.namespace_prefix)
        found: list[tuple[Observation, float | None]]
        if op.query:
            hits = await self._memory.search(op.query, limit=EVERY, metadata=metadata, sensitivities=SENSITIVITIES)
            found = [(hit.observation, hit.score) for hit in hits if _is_item(hit.observation)]
        else:
            found = [(row, None) for row in await self._items(metadata)]
        fitting = [(row, score) for row, score in found if _fits(_value(row), op.filter or {})]
        return [
            base.SearchItem(**_fields(row), score=score) for row, score in fitting[op.offset : op.offset + op.limit]
        ]

    async def _namespaces(self, op: base.ListNamespacesOp) -> list[tuple[str, ...]]:
        paths = {tuple(row.metadata["namespace"]) for row in await self._items(_prefix(()))}
        chosen = {
            path[: op.max_depth] for path in paths if all(_matches(path, each) for each in op.match_conditions or ())
        }
        return sorted(chosen)[op.offset : op.offset + op.limit]


def _key(namespace: tuple[str, ...], key: str) -> str:
    """Return a digest, so that keys that differ only in white space stay apart and none is too long."""
    return f"{_KIND}:{hashlib.sha256(json.dumps([*namespace, key]).encode()).hexdigest()}"


def _is_item(row: Observation) -> bool:
    """Return whether a row is an item of this store: other rows may share part of its metadata."""
    namespace, *others = map(row.metadata.get, ("namespace", "item", _CREATED_AT))
    return isinstance(namespace, list) and all(isinstance(part, str) for part in (*namespace, *others))


def _value(row: Observation) -> dict[str, Any]:
    """Return the value of an item; if somebody replaced it by a plain text, that is its `text`."""
    value = json_in(row.narrative)
    return value if isinstance(value, dict) else {"text": row.narrative}


def _prefix(namespace: Sequence[str]) -> dict[str, Any]:
    """Return metadata that all items below a namespace have: each part of it under its own name."""
    return {"kind": _KIND, **{f"namespace{at}": part for at, part in enumerate(namespace)}}


def _fields(row: Observation) -> dict[str, Any]:
    metadata, created_at = row.metadata, row.created_at
    with suppress(ValueError):  # another program wrote it
        created_at = parse_time(metadata[_CREATED_AT])
    times = {"created_at": created_at, "updated_at": row.updated_at}
    return {"value": _value(row), "key": metadata["item"], "namespace": tuple(metadata["namespace"]), **times}


def _fits(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether each wanted field of a value is equal to what was asked for, or passes its comparisons."""
    return all(
        value.get(name) == asked if (tests := tests_of(asked)) is None else passes(value.get(name, MISSING), tests)
        for name, asked in wanted.items()
    )


def _matches(path: tuple[str, ...], wanted: base.MatchCondition) -> bool:
    if len(path) < len(wanted.path):
        return False
    part = path[: len(wanted.path)] if wanted.match_type == "prefix" else path[len(path) - len(wanted.path) :]
    return all(asked in {"*", each} for each, asked in zip(part, wanted.path, strict=True))
