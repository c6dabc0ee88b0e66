"""Parser of memories in Markdown: `CLAUDE.md`, `MEMORY.md`, a folder of notes.

A file whose front matter has a title or a description is one memory; any other file is one memory per section. A line
such as `@other.md` is text: no other file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath

from chatbot.memory.writing import Draft
from chatbot.stores.observation import TYPES
from chatbot.transfer.items import MemoryItem, key_of, moment_of

KIND = "markdown"
SUFFIXES = (".md", ".markdown")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TITLE = 300
_SHORTEST = 2

Fields = Mapping[str, str | list[str]]


def read(text: str, name: str) -> Iterator[MemoryItem]:
    """Yield the memories of one file; `name` is its path in the folder, with slashes."""
    fields, body = _front_matter(text.replace("\r\n", "\n"))
    made_at = _made_at(fields, name)
    tags = _listed(fields, "tags")
    given = _first(fields, "title", "name")
    if given or _first(fields, "description"):
        kind = _first(fields, "type")
        draft = Draft(
            title=(given or PurePosixPath(name).stem)[:_LONGEST_TITLE],
            subtitle=_first(fields, "description")[:_LONGEST_TITLE],
            narrative=body.strip(),
            type=kind if kind in TYPES else "note",
            tags=[*tags, *([kind] if kind and kind not in TYPES else [])],
            created_at=made_at,
        )
        yield MemoryItem(key_of(PurePosixPath(name).name), draft)
        return
    seen: dict[str, int] = {}
    for headings, section in _sections(body):
        title = " › ".join(headings) or PurePosixPath(name).stem
        seen[title] = seen.get(title, 0) + 1
        key = key_of(PurePosixPath(name).name, title, *([seen[title]] if seen[title] > 1 else []))
        yield MemoryItem(key, Draft(title=title[:_LONGEST_TITLE], narrative=section, tags=tags, created_at=made_at))


def _sections(body: str) -> Iterator[tuple[list[str], str]]:
    """Yield each section that has text, with its headings from the outermost to its own."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        if said := _said(lines):
            yield [title for _, title in headings], said
        lines = []
        level = len(heading[1])
        headings = [*[each for each in headings if each[0] < level], (level, heading[2])]
    if said := _said(lines):
        yield [title for _, title in headings], said


def _said(lines: list[str]) -> str:
    said = "\n".join(lines).strip()
    return said if len(said) >= _SHORTEST else ""


def _front_matter(text: str) -> tuple[Fields, str]:
    """Split front matter from text. Only names, texts and lists of texts are understood."""
    if not text.startswith("---\n"):
        return {}, text
    head, found, body = text[4:].partition("\n---")
    if not found or (body and not body.startswith("\n")):
        return {}, text
    fields: dict[str, str | list[str]] = {}
    last = ""
    for line in head.split("\n"):
        item = line.strip()
        if item.startswith("- ") and last:
            known = fields[last]
            fields[last] = [*(known if isinstance(known, list) else []), _plain(item[2:])]
        elif field := _FIELD.fullmatch(item):
            last = field[1].lower()
            fields[last] = _value(field[2])
    return fields, body.lstrip("\n")


def _value(text: str) -> str | list[str]:
    if text.startswith("[") and text.endswith("]"):
        return [_plain(each) for each in text[1:-1].split(",") if each.strip()]
    return _plain(text)


def _plain(text: str) -> str:
    return text.strip().strip("\"'").strip()


def _first(fields: Fields, *names: str) -> str:
    found = (fields.get(name) for name in names)
    return next((each for each in found if isinstance(each, str) and each), "")


def _listed(fields: Fields, name: str) -> list[str]:
    value = fields.get(name, [])
    return value if isinstance(value, list) else [each for each in re.split(r"[,\s]+", value) if each]


def _made_at(fields: Fields, name: str) -> datetime | None:
    """Return the date in the front matter or in the file's name, if there is one."""
    named = _DATE.search(PurePosixPath(name).name)
    for text in (_first(fields, "date", "created", "created_at"), named[0] if named else ""):
        if (moment := moment_of(text, _NO_TIME)) != _NO_TIME:
            return moment
    return None
