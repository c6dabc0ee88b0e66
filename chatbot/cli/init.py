"""`chatbot init`: create a configuration and an identity; `chatbot personas`: list and choose personas.

`init` overwrites no file. A persona of your own is a file `personas/NAME.md` in the configuration folder: a line that
describes it, an empty line, and the text that the model is given.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import tomlkit
from msgspec.structs import asdict
from platformdirs import user_config_path

from chatbot.cli.config import HEADER, toml_text, write_atomically
from chatbot.cli.output import ask_line, say, say_json, say_result, say_table
from chatbot.cli.setup import problem_of
from chatbot.config import Config, ModelSettings
from chatbot.config_layers import FILE_NAME, FILE_VARIABLE, Settings, own_identities
from chatbot.errors import ConfigError
from chatbot.identity import DEFAULT_PERSONA, Identity, Persona, check_name, persona_folder, personas
from chatbot.identity import FILE_NAME as IDENTITY_NAME
from chatbot.models.catalog import SUGGESTED
from chatbot.models.provider import key_place
from chatbot.options import Options, Setup
from chatbot.stores.errors import did_you_mean

_CONFIG = """\
identity = {identity}
{identities}
[model]
name = {model}  # or any LiteLLM model; its key comes from the provider's usual variable
"""
_IDENTITY = """\
# Settings in this file apply only to this identity.
persona = {persona}

# Clearance of the user: full, inner, familiar or public.
clearance = "full"
"""


async def run(args: argparse.Namespace) -> None:
    """Ask for values that no flag gives, if there is a terminal, and write the missing files."""
    own, variable = user_config_path("chatbot") / FILE_NAME, os.environ.get(FILE_VARIABLE)
    file = args.config or (Path.cwd() / FILE_NAME if args.here else Path(variable) if variable else own)
    may_ask = sys.stdin.isatty() and sys.stdout.isatty() and not args.json
    name, model = args.name, args.model
    if not file.exists():
        name = name or _ask("name of the identity", Config().identity, may_ask)
        model = model or _ask("model: local/smollm2-135m, or any LiteLLM name", await _likely_model(), may_ask)
    check_name(name or Config().identity)
    wrote = []
    if not file.exists():
        identities = own_identities() if file == own else ""  # or next to the file
        await asyncio.to_thread(write_atomically, file, _config(name, model, identities))
        wrote.append(file)
    config = Settings.read(file, environ={})
    outline = config.combined()
    home = config.folder / outline.identities / (name or outline.identity)
    if not (home / IDENTITY_NAME).exists():
        persona = args.persona or _ask("persona, in one sentence", DEFAULT_PERSONA, may_ask)
        await asyncio.to_thread(write_atomically, home / IDENTITY_NAME, _IDENTITY.format(persona=toml_text(persona)))
        wrote.append(home / IDENTITY_NAME)
    await _report(args, wrote, (file, home / IDENTITY_NAME), outline=outline, model=model)


async def _report(
    args: argparse.Namespace, wrote: list[Path], files: tuple[Path, Path], *, outline: Config, model: str | None
) -> None:
    """Report the files written and kept, and the next command."""
    file, identity = files
    name = identity.parent.name
    command = "chatbot" if name == outline.identity else f"chatbot -i {name}"
    if args.config or (args.here and os.environ.get(FILE_VARIABLE)):
        command += f" --config {file}"
    problem = await problem_of(outline.model, outline.providers)
    if args.json:
        kept = [path for path in files if path not in wrote]
        both: dict[str, Any] = {"wrote": wrote, "kept": kept}
        texts = {key: [str(path) for path in paths] for key, paths in both.items()}
        say_json(texts | {"run": command, "model": outline.model.name, "problem": problem})
        return
    for path in files:
        say(f"wrote {path}" if path in wrote else f"already exists, unchanged: {path}")
    if model and model != outline.model.name:
        say(f"the model is still {outline.model.name}: set [model] name = {model} in {file} to change it")
    if problem:
        say(f"{outline.model.name} cannot be used yet: {problem}")
    say(f"now run: {command}")


async def _likely_model() -> str:
    """Return the embedded model if it is installed, else a model whose key is set."""
    embedded = ModelSettings()
    if not await problem_of(embedded, {}):
        return embedded.name
    return next((SUGGESTED[provider] for provider in SUGGESTED if key_place(provider)), embedded.name)


def _ask(what: str, default: str, may_ask: bool) -> str:  # noqa: FBT001 - three plain words
    return (ask_line(f"{what} [{default}]: ") or default) if may_ask else default


def _config(name: str, model: str, identities: str) -> str:
    place = f"identities = {toml_text(identities)}\n" if identities else ""
    return HEADER + _CONFIG.format(identity=toml_text(name), identities=place, model=toml_text(model))


async def run_personas(args: argparse.Namespace) -> None:
    """List, show or choose a persona."""
    known = personas()
    if args.action == "list":
        _list(known, as_json=args.json)
        return
    if args.name not in known:
        raise ConfigError(f"no persona is called {args.name!r}{did_you_mean(args.name, known)}")
    persona = known[args.name]
    persona.check()
    if args.action == "show":
        say_result(args, asdict(persona), persona.text)
        return
    setup = Setup.resolve(Options(config=args.config, identity=args.identity))
    file = set_persona(setup.identity, persona.text)
    value = {"identity": setup.identity.name, "persona": persona.name, "file": str(file)}
    say_result(args, value, f"{setup.identity.name} is now {persona.name}: {file}")


def _list(known: dict[str, Persona], *, as_json: bool) -> None:
    if as_json:
        say_json([asdict(each) for each in known.values()])
        return
    own = persona_folder()
    say_table(
        ("persona", "from", "about"),
        [
            [each.name, "you" if Path(each.file).is_relative_to(own) else "chatbot", each.summary]
            for each in known.values()
        ],
    )
    say(f"files of your own: {own}/NAME.md")


def set_persona(identity: Identity, text: str) -> Path:
    """Set the persona in `identity.toml`, keeping its comments and other settings. Raises `ConfigError`."""
    path = identity.folder / IDENTITY_NAME
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    except (OSError, UnicodeDecodeError, tomlkit.exceptions.TOMLKitError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}", at=path) from error
    document["persona"] = text
    write_atomically(path, tomlkit.dumps(document))
    return path
