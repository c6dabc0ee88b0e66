"""Attacks and innocent look-alikes, as rows of somebody else, and a strict reader of memory blocks."""

from __future__ import annotations

import html
import re
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from chatbot.messages import INTRODUCTION
from chatbot.stores.access import View
from chatbot.stores.observation import TYPES, Observation, parse_observation

NONCE = "5f1e8a7c33b94d02"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
VIEW = View("full", NOW)
_FIELDS = {
    "fact": "facts",
    "tag": "tags",
    "person": "people",
    "file": "files_read",
    "import": "narrative",
    "preference": "facts",
}
_TYPES = {"user_text": "exchange", "preference": "preference"}
_LISTS = {"facts", "tags", "people", "files_read"}
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Attack:
    """One attack. `rule` is the reason for which its row is dropped; else it is shown without the marks in `gone`."""

    name: str
    places: tuple[str, ...]
    texts: tuple[str, ...]
    rule: str
    gone: tuple[str, ...] = ()

    @property
    def is_in_a_row(self) -> bool:
        return not {"transcript", "tool"} & set(self.places)


class Entry(NamedTuple):
    """An entry as it was read back: its number, its type, and its fields."""

    number: int
    type: str
    fields: tuple[tuple[str, str], ...]


def attacks(name: str = "attacks.toml") -> list[Attack]:
    written = tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))["attack"]
    return [
        Attack(
            each.get("name", ""),
            _tuple(each["where"]),
            _tuple(each["text"], with_nonce=True),
            each.get("rule", ""),
            tuple(each.get("gone", ())),
        )
        for each in written
    ]


def innocents(name: str = "innocent.toml") -> list[tuple[str, str]]:
    """Of each the place and the text."""
    written = tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
    return [(place, text) for place, texts in written.items() for text in texts]


def row_with(places: tuple[str, ...], texts: tuple[str, ...], number: int = 0, **others: Any) -> Observation:
    """A row that holds the texts, made as a tool or the chat would, or read as an import would."""
    given: dict[str, Any] = {"type": _TYPES.get(places[0], "note")}
    for place, text in zip(places, texts, strict=True):
        name = _FIELDS.get(place, place)
        given[name] = (*given.get(name, ()), text) if name in _LISTS else text
    if not set(given) & {"title", "narrative", "facts", "user_text", "assistant_text"}:
        given["title"] = "Lunch"
    row = Observation(**{**_frame(number), **given, **others})
    return parse_observation(row.as_json()) if "import" in places else row


def read_block(text: str, nonce: str | None = None) -> list[Entry]:
    """The entries of a block. Fails unless each line is one that only the block can have written."""
    if not text:
        return []
    introduction, opening, *lines, closing = text.split("\n")
    found = re.fullmatch(r'<memory-context nonce="([0-9A-Za-z]{8,64})">', opening)
    assert introduction == INTRODUCTION, introduction
    assert found, opening
    assert closing == f'</memory-context nonce="{found[1]}">'
    assert nonce in {None, found[1]}
    assert found[1].casefold() not in "\n".join(lines).casefold()
    assert all(line.splitlines() in ([line], []) for line in lines)
    entries: list[Entry] = []
    for line in lines:
        if head := _HEAD.fullmatch(line):
            assert int(head[1]) == len(entries) + 1
            entries.append(Entry(int(head[1]), head[2], ()))
            continue
        field = _FIELD.fullmatch(line)
        assert field, line
        assert not set("<>＜＞") & set(line)
        entries[-1] = _with_line(entries[-1], field[1], html.unescape(field[2] or ""))
    assert all(entry.fields for entry in entries)
    return entries


def _with_line(entry: Entry, label: str | None, said: str) -> Entry:
    if label:
        return entry._replace(fields=(*entry.fields, (label, said)))
    *others, (last, text) = entry.fields
    return entry._replace(fields=(*others, (last, f"{text}\n{said}")))


def _frame(number: int) -> dict[str, Any]:
    at = NOW - timedelta(days=3)
    return {
        "id": f"00000000-0000-7000-8000-{number:012d}",
        "created_at": at,
        "updated_at": at,
        "sensitivity": "public",
    }


def _tuple(value: str | list[str], *, with_nonce: bool = False) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    return tuple(text.replace("{nonce}", NONCE) for text in texts) if with_nonce else texts


_HEAD = re.compile(
    rf"\[(\d+)\] ({'|'.join(TYPES)}), importance [01]\.\d\d, "
    r"(?:just now|\d+ (?:minute|hour|day|week|month|year)s? ago) \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\)"
    r"(?:, quoted from [\w:. -]+)?"
)
_FIELD = re.compile(r"  (?:(title|subtitle|fact|text|person said|bot replied) )?\|(?: (.*))?")
