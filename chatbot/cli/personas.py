"""`chatbot personas`: shipped personas, and one's own as files `personas/NAME.md` in the configuration folder.

A file is a line that describes it, an empty line, and the text that the model is given.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import tomlkit

from chatbot.cli.config import write_atomically
from chatbot.cli.exits import Exit
from chatbot.cli.output import printable, say, say_json, say_table
from chatbot.errors import ConfigError
from chatbot.identity import FILE_NAME, Identity, Persona, own_personas, personas
from chatbot.runtime import Options, Setup
from chatbot.stores.errors import did_you_mean


async def run(args: argparse.Namespace) -> Exit:
    """List, show or choose a persona."""
    known = personas()
    if args.action == "list":
        return _list(known, as_json=args.json)
    if args.name not in known:
        raise ConfigError(f"no persona is called {args.name!r}{did_you_mean(args.name, known)}")
    persona = known[args.name]
    if args.action == "use":
        return _use(args, persona)
    if args.json:
        say_json(asdict(persona))
    else:
        say(printable(persona.text))
    return Exit.OK


def _list(known: dict[str, Persona], *, as_json: bool) -> Exit:
    if as_json:
        say_json([asdict(each) for each in known.values()])
        return Exit.OK
    own = own_personas()
    say_table(
        ("persona", "from", "about"),
        [
            [each.name, "you" if Path(each.file).is_relative_to(own) else "chatbot", each.summary]
            for each in known.values()
        ],
    )
    say(f"files of your own: {own}/NAME.md")
    return Exit.OK


def _use(args: argparse.Namespace, persona: Persona) -> Exit:
    setup = Setup.resolve(Options(config=args.config, identity=args.identity))
    file = set_persona(setup.identity, persona.text)
    if args.json:
        say_json({"identity": setup.identity.name, "persona": persona.name, "file": str(file)})
    else:
        say(f"{setup.identity.name} is now {persona.name}: {file}")
    return Exit.OK


def set_persona(identity: Identity, text: str) -> Path:
    """Write the persona into the identity's `identity.toml`, whose comments and settings stay. Raises `ConfigError`."""
    path = identity.folder / FILE_NAME
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    except (OSError, UnicodeDecodeError, tomlkit.exceptions.TOMLKitError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}", at=path) from error
    document["persona"] = text
    write_atomically(path, tomlkit.dumps(document))
    return path
