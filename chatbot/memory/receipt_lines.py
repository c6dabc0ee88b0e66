"""Receipts of a session: what each turn did, and what was done beside turns, one record each.

A receipt tells what its turn was asked, and what it called the session. Where that is taken back or erased, its line
stays, for what it cost, and tells none of it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chatbot.stores.records import format_time

LINES = "receipts"
Receipt = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QuotedTexts:
    """Texts that the receipts of some turns quote: what was said in them, and their titles of the session."""

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


def told_of(receipts: Iterable[Receipt], ids: Collection[str]) -> QuotedTexts:
    """Return the texts in the receipts of the turns that were remembered under these ids."""
    those = [receipt for receipt in receipts if receipt.get("remembered") in ids]
    said = frozenset(text for receipt in those for text in _asked(receipt)[-1:])
    return QuotedTexts(said, frozenset(str(receipt["title"]) for receipt in those if receipt.get("title")))


def is_of(receipt: Receipt, at: datetime) -> bool:
    """Return whether the receipt is of the turn that began then."""
    return receipt.get("at") == format_time(at) and "kind" not in receipt


def withdrawn(receipt: Receipt) -> Receipt:
    """A receipt without what the user said, attached and allowed."""
    receipt = {name: value for name, value in receipt.items() if name != "attachments"}
    if any("arguments" in tool for tool in receipt.get("tools") or ()):
        tools = [{name: value for name, value in tool.items() if name != "arguments"} for tool in receipt["tools"]]
        receipt = {**receipt, "tools": tools}
    memory = {name: value for name, value in (receipt.get("memory") or {}).items() if name != "query"}
    return {**receipt, "memory": memory, "taken_back": True} | ({"title": ""} if "title" in receipt else {})


def since(moment: datetime) -> Callable[[Receipt], bool]:
    """Return a test for receipts of that moment or later: times in UTC sort as text."""
    earliest = format_time(moment)
    return lambda receipt: str(receipt.get("at", "")) >= earliest


def _asked(receipt: Receipt) -> list[str]:
    """Return the queries to memory: recent messages, with that of the turn itself last."""
    return list((receipt.get("memory") or {}).get("query") or ())
