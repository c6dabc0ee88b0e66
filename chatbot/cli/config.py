"""`chatbot config`: the settings in force. Keys are never shown."""

from __future__ import annotations

import argparse
from typing import Any

from msgspec import to_builtins

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json
from chatbot.config import SECRET
from chatbot.runtime import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Print the settings, or where they come from."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    paths = {
        "file": str(setup.settings.path.resolve()) if setup.settings.path else None,
        "identity": str(setup.identity.file) if setup.identity.file.exists() else None,
        "memory": str(setup.identity.memory),
    }
    if args.what == "path":
        if args.json:
            say_json(paths)
        else:
            say("\n".join(f"{name:9} {path or '(none: defaults)'}" for name, path in paths.items()))
        return Exit.OK
    setup.check_stores()
    settings = _without_keys(to_builtins(setup.config))
    if args.json:
        say_json(settings | {"paths": paths})
    else:
        say(f"# {paths['file'] or 'defaults'}, {paths['identity'] or 'default identity'}")
        say("\n".join(_lines(settings)))
    return Exit.OK


def _without_keys(table: dict[str, Any], *, is_secret: bool = False) -> dict[str, Any]:
    """The settings with no key in them; what names a variable of the environment is no key."""
    return {name: _shown_of(value, is_secret=is_secret or name in SECRET) for name, value in table.items()}


def _shown_of(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, dict):
        return _without_keys(value, is_secret=is_secret)
    return "(set)" if is_secret and value and not str(value).startswith("env:") else value


def _lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    """`section.key = value`, one a line: made to be read and grepped."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key} = {_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "(default)"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)
