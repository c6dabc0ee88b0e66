"""Columns of the table: numbers that are kept for every row, and digests of its content and text."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from chatbot.stores.access import OWNER
from chatbot.stores.fields import Field, Form, InTable
from chatbot.stores.observation import FIELDS, Observation, searched_of
from chatbot.stores.records import micros


class Column(NamedTuple):
    """A number that is kept for each row."""

    code: str
    """Its type code in an `array`."""
    of: Callable[[Observation], float] | None = None
    """From a row to its number, when it is added or changed; None if the table sets it by other means."""
    blank: float = 0
    """The number of a row that was erased before it was read."""
    value: Callable[[Any], Any] | None = None
    """From a number to the value of the row's field."""


def _column_of(field: Field, mark: InTable) -> Column:
    """The column of a field of a row, under the field's name."""
    form = field.form or Form()
    value_of, number, value = attrgetter(field.name), form.number, form.value
    if field.default is not None:
        return Column(form.code, lambda row: number(value_of(row)), mark.blank, value)
    none = mark.none
    return Column(
        form.code,
        lambda row: none if (found := value_of(row)) is None else number(found),
        mark.blank,
        lambda kept: None if kept == none else value(kept) if value else kept,
    )


COLUMNS: Mapping[str, Column] = {
    "class_of": Column("H"),
    "starts": Column("Q"),
    "lengths": Column("I"),
    "session_of": Column("I"),
    "texts": Column("q", lambda row: text_digest(row) if row.status == "active" else 0),
    "quiet": Column("q", lambda row: micros(row.quiet_since)),
    **{name: _column_of(each, mark) for name, each in FIELDS.items() if (mark := each.mark(InTable))},
}
"""All columns."""
OF_A_ROW = {name: column.of for name, column in COLUMNS.items() if column.of is not None}
COUNTS = ("use_count", "last_used_at", "quiet", "strength", "consolidated_at", "consolidated_touches")


def twin_key(row: Observation) -> bytes:
    """Return 16 bytes that are equal for rows with the same content, agent, namespace, visibility and principal."""
    what = f"{row.hash}\0{row.agent_id}\0{row.namespace}\0{row.visibility}"
    if row.principal != OWNER:  # rows of the owner keep the keys of snapshots made before there were others
        what += f"\0{row.principal}"
    return hashlib.blake2b(what.encode(), digest_size=16).digest()


def text_digest(row: Observation) -> int:
    """Return a number that changes with the searched text; never 0, which means no text."""
    said = "\0".join([part if isinstance(part, str) else "\1".join(part) for part in searched_of(row)])
    said += f"\0{row.created_at.date()}"
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little") >> 1 or 1


def numbers(code: str, part: bytes | memoryview) -> array[Any]:
    """Return the numbers in a part of a snapshot."""
    found = array(code)
    found.frombytes(part)
    return found


def column_names() -> list[list[str]]:
    """Return the columns as a snapshot names them, to detect one of another release."""
    return [[name, column.code] for name, column in COLUMNS.items()]
