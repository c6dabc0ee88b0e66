"""First steps: `chatbot init`, `chatbot setup` and `chatbot personas`.

`init` creates a configuration and an identity, and overwrites no file. `setup` finds keys and model servers, and writes
the chosen model into the configuration: nothing is searched without the user's consent, and then only the environment,
stored keys and loopback addresses.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from msgspec import Struct, structs
from platformdirs import user_config_path

from chatbot.cli.config import HEADER, as_toml, document_of, file_in_use, set_values, write_atomically
from chatbot.cli.models import ModelServer, ask_servers, cells, read_key
from chatbot.cli.output import ask_line, ask_yes_or_no, say, say_json, say_result, say_table, warn, wrapped
from chatbot.config import Config, ModelSettings, ProviderSettings
from chatbot.config_layers import FILE_NAME, FILE_VARIABLE, Settings
from chatbot.errors import ConfigError, ModelError
from chatbot.identity import DEFAULT_PERSONA, Identity, check_name, persona_folder, personas
from chatbot.identity import FILE_NAME as IDENTITY_NAME
from chatbot.models import open_model
from chatbot.models.call import unknown_provider
from chatbot.models.catalog import SUGGESTED, TINY, CatalogModel, describe_model
from chatbot.models.provider import Provider, key_place, store_key
from chatbot.models.weights import SMOLLM2
from chatbot.options import Options, Setup
from chatbot.providers import OURS, known_providers, provider_of
from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.trust import SettingPath

_CONFIG = """\
identity = {identity}

[model]
name = {model}  # or any LiteLLM model; its key comes from the provider's usual variable
"""
_IDENTITY = """\
# Settings in this file apply only to this identity.
persona = {persona}

# Clearance of the user: full, inner, familiar, or public, which remembers nothing.
clearance = "full"
"""


async def run_init(args: argparse.Namespace) -> None:
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
        text = HEADER + _CONFIG.format(identity=as_toml(name), model=as_toml(model))
        await asyncio.to_thread(write_atomically, file, text)
        wrote.append(file)
    config = Settings.read(file, environ={})
    outline = config.combined()
    home = config.folder / outline.identities / (name or outline.identity)
    if not (home / IDENTITY_NAME).exists():
        persona = args.persona or _ask("persona, in one sentence", DEFAULT_PERSONA, may_ask)
        await asyncio.to_thread(write_atomically, home / IDENTITY_NAME, _IDENTITY.format(persona=as_toml(persona)))
        wrote.append(home / IDENTITY_NAME)
    await _report_files(args, wrote, (file, home / IDENTITY_NAME), outline=outline, model=model)


async def _report_files(
    args: argparse.Namespace, wrote: list[Path], files: tuple[Path, Path], *, outline: Config, model: str | None
) -> None:
    file, identity = files
    name = identity.parent.name
    command = "chatbot" if name == outline.identity else f"chatbot -i {name}"
    if args.config or (args.here and os.environ.get(FILE_VARIABLE)):
        command += f" --config {file}"
    problem = await why_not_callable(outline.model, outline.providers)
    if args.json:
        listed = {"wrote": [*map(str, wrote)], "kept": [str(path) for path in files if path not in wrote]}
        say_json({**listed, "run": command, "model": outline.model.name, "problem": problem})
        return
    for path in files:
        say(f"wrote {path}" if path in wrote else f"already exists, unchanged: {path}")
    if model and model != outline.model.name:
        say(f"the model is still {outline.model.name}: set [model] name = {model} in {file} to change it")
    if problem:
        say(f"{outline.model.name} cannot be used yet: {problem}")
    used = sorted(each.parent.name for each in identity.parents[1].glob("*/memory") if each.parent != identity.parent)
    if used and file in wrote:
        say(f"chatbot opens {name} from now on: -i {used[0]} opens the identity with the memory so far")
    say(f"now run: {command}")


async def _likely_model() -> str:
    """Return the embedded model if it is installed, else a model whose key is set."""
    embedded = ModelSettings()
    if not await why_not_callable(embedded, {}):
        return embedded.name
    return next((SUGGESTED[provider] for provider in SUGGESTED if key_place(provider)), embedded.name)


def _ask(what: str, default: str, may_ask: bool) -> str:  # noqa: FBT001 - three plain words
    return (ask_line(f"{what} [{default}]: ") or default) if may_ask else default


async def run_personas(args: argparse.Namespace) -> None:
    """List, show or choose a persona."""
    known = personas()
    if args.action == "list":
        if args.json:
            say_json([structs.asdict(each) for each in known.values()])
            return
        own = persona_folder()
        origins = {each.name: "you" if Path(each.file).is_relative_to(own) else "chatbot" for each in known.values()}
        say_table(("persona", "from", "about"), [[name, origins[name], known[name].summary] for name in known])
        say(f"files of your own: {own}/NAME.md")
        return
    if args.name not in known:
        raise ConfigError(f"no persona is called {args.name!r}{did_you_mean(args.name, known)}")
    persona = known[args.name]
    persona.check()
    if args.action == "show":
        say_result(args, structs.asdict(persona), persona.text)
        return
    setup = Setup.resolve(Options(config=args.config, identity=args.identity))
    file = set_persona(setup.identity, persona.text)
    value = {"identity": setup.identity.name, "persona": persona.name, "file": str(file)}
    say_result(args, value, f"{setup.identity.name} is now {persona.name}: {file}")


def set_persona(identity: Identity, text: str) -> Path:
    """Set the persona in `identity.toml`, keeping its comments and other settings. Raises `ConfigError`."""
    path = identity.folder / IDENTITY_NAME
    document = document_of(path, new="")
    document["persona"] = tomlkit.string(text, multiline="\n" in text)
    write_atomically(path, tomlkit.dumps(document))
    return path


_SCOPE = "keys in the environment, and Ollama, LM Studio, vLLM and llama.cpp on this machine"


class ModelChoice(Struct, frozen=True):
    """A model that can be chosen, where it was found, and the settings to write for it."""

    model: CatalogModel
    found: str
    settings: dict[SettingPath, Any]


async def run(args: argparse.Namespace) -> None:
    """Find models, let the user choose one, and write it into the configuration."""
    can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not args.json
    choices = await _find(args, can_ask=can_ask)
    if args.json and not args.model:
        say_json([structs.asdict(each.model) | {"found": each.found} for each in choices])
        return
    if not (args.model or can_ask):
        raise InvalidValue("setup needs a terminal, or --model NAME")
    name = args.model or _choose(choices)
    if not name:
        say("nothing was changed")
        return
    known = next((each for each in choices if each.model.name == name), None)
    is_named = args.config or os.environ.get(FILE_VARIABLE)  # one that was only found is not written to
    path = file_in_use(args.config) if is_named else user_config_path("chatbot") / FILE_NAME
    set_values(path, {("model", "name"): name, **(known.settings if known else {})})
    problem = await _why_unusable(args, name, can_ask=can_ask)
    _report(args, name, path, problem)


async def _find(args: argparse.Namespace, *, can_ask: bool) -> list[ModelChoice]:
    is_allowed = args.yes or args.at or (can_ask and not args.model and ask_yes_or_no(f"look for {_SCOPE}?"))
    if not is_allowed:
        return _ready_to_use({})
    servers = await ask_servers(args.at)
    own = Settings.read(args.config).combined().providers
    places = {provider: key_place(provider, own) for provider in SUGGESTED}
    return [*_of_servers(servers), *_ready_to_use(places)]


def _of_servers(servers: Sequence[ModelServer]) -> list[ModelChoice]:
    found = []
    for server in servers:
        place = ("providers", server.provider)
        settings: dict[SettingPath, Any] = {(*place, key): value for key, value in server.settings.items()}
        where = server.api_base if server.title in server.api_base else f"{server.title} at {server.api_base}"
        found += [ModelChoice(model, where, settings) for model in server.catalog()]
    return found


def _ready_to_use(places: Mapping[str, str]) -> list[ModelChoice]:
    found = [
        ModelChoice(describe_model(SUGGESTED[each]), f"key in {place}", {}) for each, place in places.items() if place
    ]
    if SMOLLM2.folder() is not None:
        found.append(ModelChoice(TINY, "installed; tiny", {}))
    return found


def _choose(choices: Sequence[ModelChoice]) -> str:
    """Return the model that the user names by number or by name; empty if none."""
    head = ("#", "model", "window", "$ per 1M in/out", "tools", "images", "found")
    if choices:
        say_table(head, [[str(at), *cells(each.model), each.found] for at, each in enumerate(choices, 1)])
    else:
        say(wrapped(f"nothing was found; name any model, such as {', '.join(SUGGESTED.values())}"))
    default = choices[0].model.name if choices else ""
    typed = ask_line(f"number or name of a model [{default or 'none'}]: ")
    if typed.isdecimal():
        if not 0 < int(typed) <= len(choices):
            raise InvalidValue(f"{typed} is not in the list: nothing was changed")
        return choices[int(typed) - 1].model.name
    return typed or default


async def _why_unusable(args: argparse.Namespace, name: str, *, can_ask: bool) -> str:
    """Return why the model cannot be used yet; empty if it can. Asks for a missing key."""
    settings = Settings.read(args.config)
    config, provider = settings.combined(), provider_of(name)
    if config.model.name != name:
        return f"{settings.source('model', 'name')} sets another model, {config.model.name}"
    needs_key = provider in SUGGESTED and not key_place(provider, config.providers)
    if needs_key and can_ask and ask_yes_or_no(f"{provider} needs a key; store one now?"):
        store_key(provider, read_key(provider))
    return await why_not_callable(config.model, config.providers)


async def why_not_callable(settings: ModelSettings, providers: Mapping[str, ProviderSettings]) -> str:
    """Return why the model cannot be called; empty if nothing is known against it. Loads no LiteLLM."""
    provider = Provider(settings.name, providers)
    try:
        if provider.name in OURS:
            async with open_model(settings, providers) as model:
                await model.check()
        elif provider.kind not in known_providers():
            raise unknown_provider(settings.name, providers)
        else:
            provider.check_before_call()
            provider.address()
    except ModelError as error:
        return str(error)
    return ""


def _report(args: argparse.Namespace, name: str, path: Path, problem: str) -> None:
    if args.json:
        say_json({"model": name, "file": str(path.resolve()), "problem": problem})
        return
    cost = describe_model(name).price
    say(f"the model is {name}{f' ($ per 1M tokens: {cost})' if '/' in cost else ''}, written to {path}")
    if problem:
        warn(f"it cannot be used yet: {problem}")
    else:
        say('now run: chatbot, or chatbot ask "hello"')
