"""What a configuration may do that was only found in the folder at hand: nothing that runs a stranger's code.

A file that is asked for, by flag or variable, or that stands in the user's own folder, is the user's word. One that
`chatbot` came upon because it was started in a folder may have come with that folder, from anybody. So what it names
that runs code or leads out of this machine has to be allowed once, by `chatbot config trust`; what is allowed is those
values, so that other settings change freely.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from chatbot.errors import ConfigError
from stores.files import locked, make_folder, opened

NAME = "trusted.json"
_EMBEDDED = frozenset({"local/smollm2-135m", "local/minilm"})
_SHOWN = 4


def reaching(table: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration runs code, reads a model file, or leads elsewhere, by its dotted name. Pure."""
    return {".".join(place): value for place, value in _leaves(table) if _reaches(place, value)}


def check(path: Path, table: Mapping[str, Any]) -> None:
    """Raise `ConfigError`, saying what to do, where a file that was only found names what nobody has allowed."""
    found = reaching(table)
    if not found or _known().get(_place(path)) == _digest(found):
        return
    names = list(found)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise ConfigError(
        f"{path} was found here and not asked for, and it names code to run or a place to send to: "
        f"{', '.join(names[:_SHOWN])}{more}. look at it: then chatbot config trust allows it, "
        f"or --config {path} asks for it"
    )


def allow(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Allow what the file names now, and nothing that it names later; returns it."""
    found = reaching(table)
    folder = user_data_path("chatbot")
    make_folder(folder)
    with locked(folder) as place:
        known = _known() | {_place(path): _digest(found)}
        place.replace(NAME, (json.dumps(known, indent=2, ensure_ascii=False) + "\n").encode())
    return found


def _known() -> dict[str, str]:
    """The files that were allowed. What cannot be read allows nothing."""
    try:
        with opened(user_data_path("chatbot")) as folder:
            known = json.loads(folder.read(NAME))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(found: Mapping[str, Any]) -> str:
    return sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()


def _place(path: Path) -> str:
    """Where the file stands, be it a link or not: what it names is looked for beside it."""
    return str(path.parent.resolve() / path.name)


def _leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _reaches(place: tuple[str, ...], value: Any) -> bool:
    match place:
        case ("agents", _, "memory" | "tools"):
            return not isinstance(value, list) or any(":" in str(each) for each in value)
        case ("hooks" | "memory", plug_in, *_) if ":" in plug_in:
            return True
        case ("memory", _, "cache") | ("mcp", "servers", *_):
            return True  # a cache holds pickles, sealed with a key that stands beside them
        case (
            (_, "api_base")
            | ("telemetry", "endpoint" | "headers", *_)
            | ("server", "allowed_hosts" | "allowed_origins")
        ):
            return bool(value)
        case ("model", "name") | ("extraction" | "embedding", "model"):
            return "://" in str(value) or (str(value).startswith("local/") and value not in _EMBEDDED)
    return False
