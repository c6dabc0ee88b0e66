"""Parser of Memstore facts: a JSON list of rows, or an object with the list as `facts`.

Every store numbers its facts from 1, so a fact is known by its number and the time when it was made. Superseded facts
are skipped because their history is not in the export, and vectors because another model made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from chatbot.memory.tasks import KIND as TASK
from chatbot.memory.writing import Draft
from chatbot.stores.observation import TYPES
from chatbot.transfer.items import Item, MemoryItem, Skip, key_of, moment_of, text_of

KIND = "memstore"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_USUAL_NAMESPACE = "default"
_LONGEST_TITLE = 200
_SCOPES = {"user", "agent", "collaborative"}


def is_fact(value: object) -> bool:
    """Return True for a value with the shape of a fact."""
    return isinstance(value, dict) and isinstance(value.get("content"), str) and "subject" in value


def facts_of(value: Any) -> list[Any] | None:
    """Return the list of facts in an object; None if it has none."""
    listed = value.get("facts") if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else None


def read(value: Any, number: int) -> Iterator[Item]:
    """Parse one fact."""
    what = f"fact {number}"
    if not is_fact(value) or not value["content"].strip():
        yield Skip(what, "no content")
        return
    what = f"fact {value.get('id', number)}"
    if value.get("superseded_by") is not None:
        yield Skip(what, f"{text_of(str(value['superseded_by']))} replaced it")
        return
    namespace = text_of(value.get("namespace"))
    own = [value.get("id"), value.get("created_at")]
    key = key_of(namespace, *(own if all(own) else [text_of(value["content"])]))
    yield MemoryItem(key, _draft(value), "" if namespace == _USUAL_NAMESPACE else namespace)


def _draft(value: Mapping[str, Any]) -> Draft:
    content = text_of(value["content"]).strip()
    category = text_of(value.get("category"))
    metadata = _metadata(value.get("metadata"))
    is_task = metadata.get("kind") == TASK
    is_short = len(content) <= _LONGEST_TITLE and "\n" not in content
    created_at = moment_of(value.get("created_at"), _EPOCH)
    return Draft(
        title=content if is_short else content.splitlines()[0][:_LONGEST_TITLE],
        narrative="" if is_short else content,
        type="task" if is_task else category if category in TYPES else "note",
        subject=text_of(value.get("subject")),
        category=category,
        project=text_of(metadata.pop("project", "")) if is_task else "",
        metadata=_task(metadata) if is_task else metadata,
        created_at=created_at if created_at != _EPOCH else None,
    )


def _metadata(value: object) -> dict[str, Any]:
    """Return the metadata, which some exports hold as an object and some as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return dict(value) if isinstance(value, dict) else {}


def _task(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata of a task: a Memstore scope may be a person's name, which is not a scope here."""
    scope = metadata.get("scope")
    return metadata | {"scope": scope if scope in _SCOPES else "collaborative"}
