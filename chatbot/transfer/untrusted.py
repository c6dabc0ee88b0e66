"""Untrusted files: members of a zip file, read within bounds and never unpacked to disk; lists of JSON; receipts."""

from __future__ import annotations

import json
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypedDict

import msgspec

from chatbot.stores.errors import DamagedFile, InvalidValue, UnsafePath
from chatbot.stores.records import format_time, parse_time

LARGEST_MEMBER = 1 << 30
MOST_SQUEEZED = 400
"""Highest compression ratio that is read: text stays below it, a zip bomb does not."""
_SMALL = 4 << 20
"""The ratio of a member up to this size is not checked."""


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file. Raises `DamagedFile` if it is not one."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DamagedFile(f"{path} is not a readable zip file: {error}") from error
    with archive:
        yield archive


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """Return the text of a member of a zip file. Raises `DamagedFile` or `UnsafePath`."""
    name = f"{archive.filename}: {member.filename!r}"
    if stat.S_ISLNK(member.external_attr >> 16):
        raise UnsafePath(f"{name} is a symbolic link, which is refused")
    squeezed = member.file_size > _SMALL and member.file_size > MOST_SQUEEZED * max(1, member.compress_size)
    if member.file_size > LARGEST_MEMBER or squeezed:
        raise DamagedFile(f"{name} would unpack to {member.file_size:,} bytes, which is refused")
    try:
        return decoded(archive.read(member), name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise DamagedFile(f"{name} cannot be read: {error}") from error


_SPACE = re.compile(r"[ \t\r\n]*")


def decoded(data: bytes, name: str) -> str:
    """Decode UTF-8. Raises `DamagedFile` for anything else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{name} is not valid UTF-8: {error.reason} at byte {error.start:,}") from error


def elements(text: str, name: str) -> Iterator[Any]:
    """Yield the elements of a JSON list, or the single value. Raises `DamagedFile` where the text is invalid."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        value, end = _value(decoder, text, at, name)
        _end(text, end, name)
        yield value
        return
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value(decoder, text, at, name)
        yield value
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            _broken(name, text, at)
    _end(text, at + 1, name)


def _value(decoder: json.JSONDecoder, text: str, at: int, name: str) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        _broken(name, text, error.pos)
    except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
        _broken(name, text, at)


def _end(text: str, at: int, name: str) -> None:
    if _skip(text, at) != len(text):
        _broken(name, text, at)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _broken(name: str, text: str, at: int) -> NoReturn:
    why = "it ends early: check that the download is complete" if at >= len(text) else f"error at character {at:,}"
    raise DamagedFile(f"{name} is not valid JSON: {why}")


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
