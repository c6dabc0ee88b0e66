"""Untrusted JSON, read one element at a time because a list can have hundreds of megabytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from chatbot.stores.errors import DamagedFile

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
