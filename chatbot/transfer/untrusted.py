"""Receipts, calls and times from elsewhere: checked before they are shown, billed or hold against what comes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypedDict

import msgspec

from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import format_time, parse_time

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""Dollars, tokens or seconds of one call: less would lift a budget, and more exceed every one."""


class _Call(TypedDict, total=False):
    """The form of a call: on a bill it has all of this."""

    at: str
    session: str
    purpose: str
    model: str
    input_tokens: _Tokens
    output_tokens: _Tokens
    cached_tokens: _Tokens
    cost_usd: _Amount | None
    estimated: bool
    seconds: _Amount


class _Considered(TypedDict):
    id: str
    score: float
    parts: dict[str, float]
    verdict: str


class _LeftOut(TypedDict):
    id: str
    why: str


class _Memory(TypedDict, total=False):
    query: list[str]
    looked_back: int
    considered: list[_Considered]
    left_out: list[_LeftOut]
    injected: list[str]


class _Receipt(TypedDict, total=False):
    """The form of a receipt, as far as it is shown and billed."""

    at: str
    turn: str
    model: str
    finish: str
    calls: list[_Call]
    tools: list[dict[str, Any]]
    tokens: dict[str, int]
    window: dict[str, Any]
    memory: _Memory
    notices: list[str]


def past(at: datetime | str, until: datetime) -> datetime:
    """Return a time. Raises `InvalidValue` for one after `until`: it would hold against all that comes."""
    moment = parse_time(at) if isinstance(at, str) else at
    if moment > until:
        raise InvalidValue(f"something is dated {format_time(moment)}, which is to come")
    return moment


def checked_call(call: Mapping[str, Any], until: datetime) -> None:
    """Raise `ValueError` for a call that cannot be billed."""
    msgspec.convert(call, _Call)
    if missing := _Call.__annotations__.keys() - call.keys():
        raise InvalidValue(f"a call lacks {missing.pop()}")
    past(call["at"], until)


def checked_receipt(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a receipt that can be shown and billed. Raises `ValueError`."""
    msgspec.convert(receipt, _Receipt)
    return dict(receipt)
