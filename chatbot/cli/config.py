"""`chatbot config`: the settings in force. Keys are never shown."""

from __future__ import annotations

import argparse
from typing import Any

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json
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
    settings = _without_key(setup.config.model_dump(mode="json"))
    if args.json:
        say_json(settings | {"paths": paths})
    else:
        say(f"# {paths['file'] or 'defaults'}, {paths['identity'] or 'default identity'}")
        say("\n".join(_lines(settings)))
    return Exit.OK


def _without_key(settings: dict[str, Any]) -> dict[str, Any]:
    key = settings["model"]["api_key"]
    if key and not key.startswith("env:"):
        settings["model"]["api_key"] = "(set)"
    return settings


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
