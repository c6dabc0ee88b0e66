"""`chatbot config`: show, set and edit settings, trust a configuration file. Keys are never shown."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from chatbot.allowed import allow, is_allowed, needing_trust
from chatbot.cli.exits import Exit
from chatbot.cli.output import check_can_ask, is_sure, say, say_json, warn
from chatbot.config import FILE_NAME, SECRET, Settings, find_file, read_toml
from chatbot.errors import ConfigError
from chatbot.identity import allow_identity
from chatbot.runtime import Options, Setup
from chatbot.stores.home import without_password


async def run(args: argparse.Namespace) -> Exit:
    """Print the settings or their paths, or change or trust a file."""
    if args.what in _CHANGES:
        return await _CHANGES[args.what](args)
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    paths = {
        "file": str(setup.settings.path.resolve()) if setup.settings.path else None,
        "identity": str(setup.identity.file) if setup.identity.file.exists() else None,
        "memory": str(setup.home),
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


async def _set(args: argparse.Namespace) -> Exit:
    from chatbot.cli.config_editing import file_in_force, set_text

    path = file_in_force(args.config)
    set_text(path, args.key, args.value)
    return _tell_written(args, path, f"{args.key} is set")


async def _unset(args: argparse.Namespace) -> Exit:
    from chatbot.cli.config_editing import file_in_force, unset

    path = file_in_force(args.config)
    unset(path, args.key)
    return _tell_written(args, path, f"{args.key} has its default again")


async def _edit(args: argparse.Namespace) -> Exit:
    """Edit a copy, and write it once it is valid."""
    from chatbot.cli.config_editing import current_text, file_in_force, replace_text
    from chatbot.cli.repl.editor import edited

    check_can_ask("editing", "chatbot config set KEY VALUE")
    path = file_in_force(args.config)
    before = text = current_text(path)
    while True:
        text = await asyncio.to_thread(edited, text, suffix=".toml")
        if text.strip() == before.strip():
            say("nothing was changed")
            return Exit.OK
        try:
            replace_text(path, text.rstrip("\n") + "\n")
        except ConfigError as error:
            warn(str(error))
            if not is_sure("edit it again?"):
                raise
        else:
            return _tell_written(args, path, "changed")


def _tell_written(args: argparse.Namespace, path: Path, what: str) -> Exit:
    """Report the file, what overrides it, and whether the change needs trust."""
    from chatbot.cli.config_editing import place_of

    settings = Settings.read(path)
    overridden = settings.source(*place_of(args.key)) if args.what == "set" else path
    if args.json:
        say_json({"file": str(path.resolve()), "overridden_by": None if overridden == path else str(overridden)})
        return Exit.OK
    say(f"{what} in {path}")
    if overridden != path:
        warn(f"{overridden} overrides it")
    if path == Path(FILE_NAME) and not _is_trusted(path):
        warn("./config.toml sets what needs your trust: run chatbot config trust")
    return Exit.OK


def _is_trusted(path: Path) -> bool:
    table = read_toml(path)
    return not needing_trust(table) or is_allowed(path, table)


async def _trust(args: argparse.Namespace) -> Exit:
    """Trust `./config.toml`, or with `-i` an `identity.toml`, with the values that it has now."""
    file, allowed = _allowed(args)
    if args.json:
        say_json({"file": str(file.resolve()), "allowed": _without_keys(allowed)})
    else:
        names = [f"  {line}" for line in _lines(_without_keys(allowed))]
        say(
            "\n".join([f"{file} may now set:", *names])
            if names
            else f"{file} needs no trust: it sets nothing that requires it"
        )
    return Exit.OK


def _allowed(args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    if args.identity is not None:
        settings = Settings.read(args.config)
        return allow_identity(settings.folder / settings.combined().identities, args.identity)
    file = find_file(args.config, os.environ)
    if file is None:
        raise ConfigError("no configuration file found: nothing to trust")
    return file, allow(file, read_toml(file))


_CHANGES = {"set": _set, "unset": _unset, "edit": _edit, "trust": _trust}


def _without_keys(table: dict[str, Any], *, is_secret: bool = False) -> dict[str, Any]:
    """Mask keys in the settings; a reference to an environment variable is shown."""
    return {
        name: _shown_of(value, is_secret=is_secret or not SECRET.isdisjoint(name.split(".")))
        for name, value in table.items()
    }


def _shown_of(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, dict):
        return _without_keys(value, is_secret=is_secret)
    if is_secret and value and not str(value).startswith("env:"):
        return "(set)"
    return without_password(value) if isinstance(value, str) else value


def _lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    """Render `section.key = value` lines, which can be grepped."""
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
