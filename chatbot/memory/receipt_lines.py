"""The lines of `receipts.jsonl`: what each turn of a session did, and what was done beside turns.

A receipt tells what its turn was asked, and what it called the session. Where that is taken back or erased, its line
stays, for what it cost, and tells none of it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from stores import json_lines
from stores.errors import InvalidValue, StoreError
from stores.files import locked, opened
from stores.records import format_time

RECEIPTS_NAME = "receipts.jsonl"
Receipt = dict[str, Any]


def append(path: Path, receipt: Receipt) -> None:
    """Add a line to the receipts in a session's folder. Durable on return."""
    with locked(path) as folder:
        folder.append(RECEIPTS_NAME, json_lines.encode(receipt))


def read(path: Path) -> list[Receipt]:
    """Every receipt in a session's folder, oldest first."""
    with opened(path) as folder:
        return json_lines.read(folder, RECEIPTS_NAME)


def read_since(path: Path, moment: datetime) -> list[Receipt]:
    """Every receipt from `moment` on, newest first; reads no further back."""
    with opened(path) as folder:
        return list(takewhile(since(moment), json_lines.read_backwards(folder, RECEIPTS_NAME)))


def remembers(path: Path, ids: Collection[str]) -> bool:
    """Whether what was said in a session is remembered under one of these ids; not where that cannot be read."""
    try:
        with opened(path) as folder:
            data = folder.read(RECEIPTS_NAME) if folder.stamp(RECEIPTS_NAME) else b""
    except StoreError:
        return False
    return any(f'"remembered":"{each}"'.encode() in data for each in ids)


def rewrite(path: Path, change: Callable[[Receipt], Receipt], *, holding: str = "") -> None:
    """Change receipts, of the lines that hold a text those that can be read."""
    with locked(path) as folder:
        old = folder.read(RECEIPTS_NAME).split(b"\n") if folder.stamp(RECEIPTS_NAME) else []
        new = [_rewritten(line, change) if line and holding.encode() in line else line for line in old]
        if new != old:
            folder.replace(RECEIPTS_NAME, b"\n".join(new))


@dataclass(frozen=True, slots=True)
class Told:
    """What receipts tell of some turns: what was said in them, and what they called the session."""

    said: frozenset[str]
    titles: frozenset[str]

    def taken_from(self, receipt: Receipt) -> Receipt:
        """A receipt, of these turns or of others that looked back at them, that tells none of it."""
        if receipt.get("title") in self.titles:
            receipt = {**receipt, "title": ""}
        asked = _asked(receipt)
        if self.said.isdisjoint(asked):
            return receipt
        return {**receipt, "memory": {**receipt["memory"], "query": [each for each in asked if each not in self.said]}}


def told_of(receipts: Iterable[Receipt], ids: Collection[str]) -> Told:
    """What the receipts tell of the turns that were remembered under these ids."""
    those = [receipt for receipt in receipts if receipt.get("remembered") in ids]
    said = frozenset(text for receipt in those for text in _asked(receipt)[-1:])
    return Told(said, frozenset(str(receipt["title"]) for receipt in those if receipt.get("title")))


def is_of(receipt: Receipt, at: datetime) -> bool:
    """Whether it is that of the turn that began then."""
    return receipt.get("at") == format_time(at) and "kind" not in receipt


def withdrawn(receipt: Receipt) -> Receipt:
    """A receipt without what the user said."""
    memory = {name: value for name, value in (receipt.get("memory") or {}).items() if name != "query"}
    return {**receipt, "memory": memory, "taken_back": True} | ({"title": ""} if "title" in receipt else {})


def since(moment: datetime) -> Callable[[Receipt], bool]:
    """Whether a receipt is of that moment or later: times in UTC sort as they are written."""
    earliest = format_time(moment)
    return lambda receipt: str(receipt.get("at", "")) >= earliest


def _rewritten(line: bytes, change: Callable[[Receipt], Receipt]) -> bytes:
    with suppress(InvalidValue):
        receipt = json_lines.record_of(line)
        if (changed := change(receipt)) != receipt:
            return json_lines.encode(changed).rstrip(b"\n")
    return line


def _asked(receipt: Receipt) -> list[str]:
    """What memory was asked about: what was said lately, that of the turn itself at last."""
    return list((receipt.get("memory") or {}).get("query") or ())
