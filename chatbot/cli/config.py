"""`chatbot config`: show, check, trust and edit the configuration; `chatbot setup` also writes it through here."""

import argparse
import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import tomlkit
from msgspec import to_builtins
from platformdirs import user_cache_path, user_config_path, user_data_path

from chatbot.cli.from_arguments import setup_of
from chatbot.cli.output import ask_yes_or_no, check_can_ask, say, say_result, warn
from chatbot.cli.repl.editor import edit_text
from chatbot.config import without_keys
from chatbot.config_layers import FILE_NAME, Settings, find_file, read_toml, reading
from chatbot.errors import ConfigError, NotTrusted
from chatbot.identity import settings_of_identity
from chatbot.options import Options, Setup
from chatbot.stores.files import make_folder, open_folder, writing
from chatbot.stores.records import check_text, real_path
from chatbot.trust import SettingPath, is_trusted, trust

_PRIVATE = 0o600
HEADER = """\
# Settings that are not set here have their default: chatbot config shows all of them.
# identity.toml, CHATBOT_SECTION__KEY in the environment and flags override this file.

"""
"""The first lines of a new configuration file."""


def file_in_use(path: Path | None) -> Path:
    """Return the configuration file in use, or the user's own if there is none yet."""
    return find_file(path, os.environ) or user_config_path("chatbot") / FILE_NAME


def parse_key(key: str) -> SettingPath:
    """Split a dotted key such as `providers."my.box".api_base`. Raises `ConfigError`."""
    try:
        value: Any = tomllib.loads(f"{key} = 0")
        place: list[str] = []
        while isinstance(value, dict):
            [(part, value)] = value.items()
            place.append(part)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{key!r:.80} is not a setting: write it like model.name") from error
    return tuple(place)


def set_values(path: Path, values: Mapping[SettingPath, Any]) -> None:
    """Set values in the file, which is created if it is missing. Raises `ConfigError`."""
    with _alone(path):
        document = document_of(path)
        for place, value in values.items():
            _put(document, place, value)
        replace_text(path, tomlkit.dumps(document))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file of this folder meanwhile: one of the changes would be lost."""
    with writing(path):
        make_folder(path.parent)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def set_text(path: Path, key: str, text: str) -> None:
    """Set one value as typed: a TOML value if that is valid for the setting, else text. Raises `ConfigError`."""
    place = parse_key(key)
    try:
        [value] = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):  # no value, or more than one line
        value = text
    try:
        set_values(path, {place: value})
    except ConfigError:
        with suppress(ConfigError):  # the first error is about the value as typed
            set_values(path, {place: text})
            return
        raise


def unset(path: Path, key: str) -> None:
    """Remove a setting to use its default. Raises `ConfigError` if the file does not set it."""
    place = parse_key(key)
    with _alone(path):
        document = document_of(path)
        table: Any = document
        for part in place[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if not isinstance(table, dict) or place[-1] not in table:
            raise ConfigError(f"{path} does not set {key}: nothing was changed", at=path)
        del table[place[-1]]
        replace_text(path, tomlkit.dumps(document))


def replace_text(path: Path, text: str) -> None:
    """Check the text and write it in place of the file. Raises `ConfigError` and writes nothing.

    The file keeps its mode; if it contains a key, from then on only its owner may read it.
    """
    check_text(text, "the new text")
    trusted = False
    with suppress(ConfigError):  # a file that cannot be read is not trusted, but may be replaced
        trusted = path.is_file() and is_trusted(path, read_toml(path))
    write_atomically(path, text, is_secret=_checked(path, text).holds_key)
    if trusted:
        trust(path, read_toml(path))  # the user's own change keeps the trust


def _checked(path: Path, text: str) -> Settings:
    """Return the settings of the file with this text. Raises `ConfigError` if they would be invalid."""
    try:
        settings = Settings(path, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"nothing was written: {path} would not be valid TOML: {error}", at=path) from error
    try:
        Setup.resolve(Options(settings=settings)).check()
    except ConfigError as error:
        raise ConfigError(f"nothing was written: {error}", at=path) from error
    return settings


def write_atomically(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Replace or create a file; a new or secret one gets mode 0600. Links are followed. Raises `StoreFailed`."""
    target = real_path(path)
    with writing(path):
        make_folder(target.parent)
        mode = target.stat().st_mode & 0o777 if target.exists() else _PRIVATE
        if is_secret and mode & ~_PRIVATE:
            warn(f"{path} contains a key: now only you may read it (its mode changed from {mode:o} to 600)")
            mode = _PRIVATE
        with closing(open_folder(target.parent)) as folder:
            folder.put(target.name, text.encode(), mode)


def current_text(path: Path, new: str = HEADER) -> str:
    """Return the text of the file, or that of a `new` one. Raises `ConfigError`."""
    with reading(path):
        if path.exists():
            return path.read_text(encoding="utf-8-sig")
    return new


def document_of(path: Path, new: str = HEADER) -> tomlkit.TOMLDocument:
    """Return the file, or a `new` one, to be changed. Raises `ConfigError`."""
    try:
        return tomlkit.parse(current_text(path, new))
    except tomlkit.exceptions.TOMLKitError as error:
        raise ConfigError(f"{path} cannot be changed: {error}", at=path) from error


def _put(document: Any, place: SettingPath, value: Any) -> None:
    table = document
    for depth, part in enumerate(place[:-1]):
        if not isinstance(table.get(part), Mapping):
            table[part] = tomlkit.table(is_super_table=depth < len(place) - 2)
        table = table[part]
    table[place[-1]] = value


async def run(args: argparse.Namespace) -> None:
    """Print the settings or their paths, or change or trust a file."""
    if args.action in _CHANGES:
        await _CHANGES[args.action](args)
        return
    setup = setup_of(args)
    paths = {
        "file": str(setup.settings.path.resolve()) if setup.settings.path else None,
        "identity": str(setup.identity.file) if setup.identity.file.exists() else None,
        "memory": str(setup.home),
        "data": str(user_data_path("chatbot")),
        "cache": str(user_cache_path("chatbot")),
    }
    if args.action == "path":
        say_result(args, paths, "\n".join(f"{name:9} {path or '(none: defaults)'}" for name, path in paths.items()))
        return
    setup.check()
    settings = without_keys(to_builtins(setup.config))
    head = f"# {paths['file'] or 'defaults'}, {paths['identity'] or 'default identity'}"
    say_result(args, settings | {"paths": paths}, "\n".join([head, *_lines(settings)]))


async def _change(args: argparse.Namespace) -> None:
    path = file_in_use(args.config)
    if args.action == "set":
        set_text(path, args.key, args.value)
    else:
        unset(path, args.key)
    _report_written(args, path, f"{args.key} is {args.action}")


async def _edit(args: argparse.Namespace) -> None:
    """Edit a copy, and write it once it is valid."""
    check_can_ask("editing", "chatbot config set KEY VALUE")
    path = file_in_use(args.config)
    before = text = current_text(path)
    while True:
        text = await edit_text(text, suffix=".toml")
        if text.strip() == before.strip():
            say("nothing was changed")
            return
        try:
            with _alone(path):
                if (now := current_text(path)) != before:
                    before = now
                    raise ConfigError(f"{path} was changed by another program: saving again overwrites that", at=path)
                replace_text(path, text.rstrip("\n") + "\n")
        except ConfigError as error:
            warn(str(error))
            if not ask_yes_or_no("edit it again?"):
                raise
        else:
            _report_written(args, path, "changed")
            return


def _report_written(args: argparse.Namespace, path: Path, what: str) -> None:
    """Report the file, what overrides it, and whether the change needs trust."""
    needs_trust = False
    try:
        settings = Settings.read(args.config)
    except NotTrusted:  # as it is now, and it was only found
        settings, needs_trust = Settings.read(path), True
    overridden = settings.source(*parse_key(args.key)) if args.action == "set" else path
    written = {"file": str(path.resolve()), "overridden_by": None if overridden == path else str(overridden)}
    say_result(args, written, f"{what} in {path}")
    if overridden != path:
        warn(f"{overridden} overrides it")
    if needs_trust:
        warn("./config.toml has settings that need your trust: run chatbot config trust")


async def _trust(args: argparse.Namespace) -> None:
    """Trust `./config.toml`, or with `-i` an `identity.toml`, with the values that it has now."""
    file, table = _found_settings(args)
    Settings(file, table).combined()  # a mistake in it is reported first
    allowed = trust(file, table)
    names = [f"  {name} = {as_toml(value)}" for name, value in without_keys(allowed).items()]
    text = "\n".join([f"{file} may now set:", *names])
    message = text if names else f"{file} needs no trust: it sets nothing that requires it"
    say_result(args, {"file": str(file.resolve()), "allowed": without_keys(allowed)}, message)


def _found_settings(args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Return the file that the flags name, and the settings in it."""
    if args.identity is not None:
        settings = Settings.read(args.config)
        return settings_of_identity(settings.folder / settings.combined().identities, args.identity)
    file = find_file(args.config, os.environ)
    if file is None:
        raise ConfigError("no configuration file found: nothing to trust")
    return file, read_toml(file)


_CHANGES = {"set": _change, "unset": _change, "edit": _edit, "trust": _trust}


def _lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the settings as lines of TOML; a comment for one that has no value."""
    lines = []
    for key, value in table.items():
        name = f"{prefix}{tomlkit.key(key).as_string()}"
        if isinstance(value, dict) and value:
            lines += _lines(value, f"{name}.")
        else:
            lines.append(f"# {name} is not set" if value is None else f"{name} = {as_toml(value)}")
    return lines


def as_toml(value: Any) -> str:
    """Return the value as TOML on one line."""
    if isinstance(value, dict):
        given = {key: each for key, each in value.items() if each is not None}
        return f"{{{', '.join(_lines(given))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return str(tomlkit.item(value).as_string())
