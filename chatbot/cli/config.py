"""`chatbot config`: the settings in force. Keys are never shown."""

from __future__ import annotations

import argparse
import os
from typing import Any

from msgspec import to_builtins

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json
from chatbot.config import SECRET, find_file, read_toml
from chatbot.errors import ConfigError
from chatbot.setup import Options, Setup
from chatbot.trust import allow


async def run(args: argparse.Namespace) -> Exit:
    """Print the settings, or where they come from; or allow what the file names."""
    if args.what == "trust":
        return _trust(args)
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


def _trust(args: argparse.Namespace) -> Exit:
    file = find_file(args.config, os.environ)
    if file is None:
        raise ConfigError("there is no configuration file here to allow anything of")
    allowed = allow(file, read_toml(file))
    if args.json:
        say_json({"file": str(file.resolve()), "allowed": _without_keys(allowed)})
    else:
        names = [f"  {line}" for line in _lines(_without_keys(allowed))]
        say("\n".join([f"{file} may now do this:", *names]) if names else f"{file} needs no leave for what it says")
    return Exit.OK


def _without_keys(table: dict[str, Any], *, is_secret: bool = False) -> dict[str, Any]:
    """The settings with no key in them; what names a variable of the environment is no key."""
    return {
        name: _shown_of(value, is_secret=is_secret or not SECRET.isdisjoint(name.split(".")))
        for name, value in table.items()
    }


def _shown_of(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, dict):
        return _without_keys(value, is_secret=is_secret)
    return "(set)" if is_secret and value and not str(value).startswith("env:") else value


def _lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    """`section.key = value`, one a line: made to be read and grepped."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict) and value:
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
