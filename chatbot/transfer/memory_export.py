"""Export of memories without their sessions: JSON lines that can be imported again, or Markdown to read.

    {"kind": "memories", "format": 1}
    {"kind": "observation", …}            a row in its current state, oldest first
    {"kind": "fact", …}

Superseded, archived and hidden rows are not exported, nor are rows that the caller may not see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chatbot.memory.memory import Memory
from chatbot.stores.access import Sensitivity
from chatbot.stores.errors import LaterFormat
from chatbot.stores.observation import Observation, Triple, parse_observation, parse_triple
from chatbot.stores.query import EVERY
from chatbot.stores.records import format_time
from chatbot.transfer.earlier_imports import without_places

KIND = "memories"
FORMATS = ("jsonl", "markdown")
VERSION = 1
_BATCH = 100
_LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True)
class MemoryExport:
    """Memories, oldest first; `broken` counts the lines of a file that could not be parsed."""

    observations: tuple[Observation, ...]
    facts: tuple[Triple, ...]
    broken: int = 0


async def export_memories(memories: Memory, ask: Collection[Sensitivity], **wanted: Any) -> MemoryExport:
    """Return the current rows that match, with the facts taken from them; without a filter, also facts of no source."""
    rows = await memories.every(ask=ask, **wanted)
    found: dict[str, Triple] = {}
    for begin in range(0, len(rows), _BATCH):
        sources = frozenset(row.id for row in rows[begin : begin + _BATCH])
        taken = await memories.query_facts(ask=ask, sources=sources, limit=EVERY)
        found |= {fact.id: fact for fact in taken}
    if not any(wanted.values()):
        stated = await memories.query_facts(ask=ask, limit=EVERY)
        found |= {fact.id: fact for fact in stated if fact.source is None}
    return MemoryExport(tuple(rows[::-1]), tuple(sorted(found.values(), key=lambda fact: (fact.created_at, fact.id))))


def render(remembered: MemoryExport, form: str) -> str:
    """Render the memories in one of `FORMATS`."""
    return {"jsonl": _jsonl, "markdown": _markdown}[form](remembered)


def read(text: str) -> MemoryExport:
    """Parse the lines of a file. Raises `LaterFormat`."""
    parsed: dict[str, list[Any]] = {"observation": [], "fact": []}
    broken = 0
    for line in filter(str.strip, text.split("\n")):
        try:
            fields = json.loads(line)
            kind = fields.pop("kind")
            if kind != KIND:
                parsed[kind].append(_PARSERS[kind](fields))
            elif fields["format"] > VERSION:
                raise LaterFormat(
                    f"these memories were written by a later release (format {fields['format']}): upgrade chatbot"
                )
        except LaterFormat:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            broken += 1
    return MemoryExport(tuple(parsed["observation"]), tuple(parsed["fact"]), broken)


def is_memory_export(text: str) -> bool:
    """Return True if the first line is the header of this format."""
    try:
        head = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(head, dict) and head.get("kind") == KIND


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {"observation": parse_observation, "fact": parse_triple}


def _jsonl(remembered: MemoryExport) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(remembered))


def _lines(remembered: MemoryExport) -> Iterator[dict[str, Any]]:
    yield {"kind": KIND, "format": VERSION}
    for row in remembered.observations:
        yield {"kind": "observation", **replace(row, metadata=without_places(row.metadata)).as_json()}
    for fact in remembered.facts:
        yield {"kind": "fact", **fact.as_json()}


def _markdown(remembered: MemoryExport) -> str:
    """Render a section for each memory: its text and a line about it."""
    notes = "\n".join(_note(row) for row in remembered.observations)
    stated = "\n".join(f"- {fact.subject} · {fact.predicate} · {fact.object}" for fact in remembered.facts)
    return notes + (f"\n# Facts\n\n{stated}\n" if stated else "")


def _note(row: Observation) -> str:
    said = list(row.said())
    title = row.title or said[0][:_LONGEST_TITLE]
    about = ", ".join((row.type, format_time(row.created_at)[:10], *row.tags))
    body = "".join(f"{_unheaded(text)}\n\n" for text in said if text != title)
    return f"# {' '.join(title.split())}\n\n{body}*{about}*\n"


def _unheaded(text: str) -> str:
    """Escape lines that would be headings and start another note."""
    return "\n".join(f"\\{line}" if line.startswith("#") else line for line in text.split("\n"))
