"""Attacks and innocent look-alikes, as rows of somebody else, and a strict reader of memory blocks."""

import html
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from chatbot.chat.governor import judge, labelled_texts
from chatbot.messages import without_blocks
from chatbot.stores.access import View
from chatbot.stores.observation import Observation, parse_observation

NONCE = "5f1e8a7c33b94d02"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
VIEW = View("full", NOW)
_FIELDS = {
    "fact": "facts", "tag": "tags", "person": "people", "file": "files_read", "import": "narrative",
    "preference": "facts",
}  # fmt: skip
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


class Note(NamedTuple):
    """A note as it was read back: its day, what stands behind that, and what it tells, without escapes."""

    day: str
    kind: str
    text: str


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


def read_block(text: str, nonce: str | None = None) -> list[Note]:
    """The notes of a block. Fails unless each line is one that only the block can have written."""
    if not text:
        return []
    opening, *lines, closing = text.split("\n")
    found = re.fullmatch(r'<memory-context nonce="([0-9A-Za-z]{8,64})">', opening)
    assert found, opening
    assert closing == f'</memory-context nonce="{found[1]}">'
    assert nonce in {None, found[1]}
    assert found[1].casefold() not in "\n".join(lines).casefold()
    assert without_blocks(f"{text}\n\nWhy?") == "Why?"
    return [_read_line(line) for line in lines]


def _read_line(line: str) -> Note:
    assert line.splitlines() == [line]
    assert not _ANGLES & set(line)
    assert not _UNESCAPED.search(line), line
    note = _NOTE.fullmatch(line)
    assert note, line
    day, kind, told = note.groups()
    if kind.startswith(", quoted from "):
        quotation = re.fullmatch('"([^"]+)"', told)
        assert quotation, line
        told = quotation[1]
    return Note(day, kind, html.unescape(told))


def note_of(row: Observation, part: Collection[str] | None = None, *, order_level: int = 0) -> Note:
    """The note that a row, or that part of its texts, must become; of an exchange what the person said."""
    of_a_person = row.type == "exchange" and row.user_text
    part = part or (["person said"] if of_a_person else [label for label, _ in labelled_texts(row)])
    verdict = judge(row, VIEW, [each for each in labelled_texts(row) if each[0] in part], order_level=order_level)
    assert verdict.ok, verdict.reason
    kind = f", quoted from {verdict.quoted}" if verdict.quoted else _KINDS.get(row.type, "")
    said = {label: _in_one_line(text) for label, text in verdict.texts}
    told = [_as_told(_in_one_line(text)) for label, text in verdict.texts if label not in _OF_THE_BOT]
    told += [form.format(said[label]) for label, form in _OF_THE_BOT.items() if label in said]
    days = [f"{at.day} {at:%b %Y}" for at in (row.created_at, row.last_mentioned_at) if at and at <= NOW]
    return Note(", again ".join(days) or "undated", kind, " ".join(told))


def _as_told(line: str) -> str:
    return line if line.endswith((".", "!", "?", "。", ")")) else f"{line}."


def _in_one_line(text: str) -> str:
    return " ".join(part for line in text.splitlines() if (part := line.strip()))


def _frame(number: int) -> dict[str, Any]:
    at = NOW - timedelta(days=3)
    return {"id": f"00000000-0000-7000-8000-{number:012d}", "created_at": at, "updated_at": at, "sensitivity": "public"}


def _tuple(value: str | list[str], *, with_nonce: bool = False) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    return tuple(text.replace("{nonce}", NONCE) for text in texts) if with_nonce else texts


_OF_THE_BOT = {"bot asked": '(the answer to "{}")', "bot replied": "(you replied: {})"}
_KINDS = {"task": ", open task", "session_summary": ", summary"}
_ANGLES = set("<>＜＞﹤﹥˂˃ᐸᐳ‹›❮❯⟨⟩〈〉")
_UNESCAPED = re.compile(r"&(?!(?:amp|lt|gt|quot|#x[0-9a-f]+);)")
_DAY = r"[1-9]\d? [A-Z][a-z]{2} \d{4}"
_NOTE = re.compile(
    rf"- ({_DAY}(?:, again {_DAY})?|undated)((?:, open task|, summary|, quoted from [\w:. -]+)?): (\S(?:.*\S)?)"
)
