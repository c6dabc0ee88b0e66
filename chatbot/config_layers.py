"""Settings: the layers of the configuration, read from its files and the environment.

In ascending priority: the configuration file, `identity.toml`, `CHATBOT_SECTION__KEY` in the environment, flags.
An unknown key anywhere is an error that names the nearest known one.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

from msgspec import ValidationError, convert
from msgspec.structs import fields, replace
from platformdirs import user_config_path, user_data_path

from chatbot import trust
from chatbot.config import Config, ProviderSettings, Section, Table, without_keys
from chatbot.errors import ConfigError
from chatbot.stores.errors import InvalidValue, did_you_mean
from chatbot.stores.fields import check_depth, in_words, texts_in
from chatbot.stores.home import without_password
from chatbot.stores.plugins import SECRET
from chatbot.stores.records import check_path, expand_home

FILE_NAME = "config.toml"
FILE_VARIABLE = "CHATBOT_CONFIG"
OF_IDENTITY = frozenset({"persona", "description", "clearance", "sensitivity"})
"""Keys of `identity.toml` that are not settings."""
_APPLY_BELOW = ("model", "providers", "aliases", "budget")
"""Tables of the user's own file that apply below a file found in the current folder, which overrides them.

An untrusted one lifts no limit of [budget].
"""
_PREFIX = "CHATBOT_"
_DEPTH = 3
"""Length of the path to a provider's setting: `providers`, the provider, the setting."""
_LARGEST = 1_000_000
"""Maximum characters of a file of settings."""
_Layer = tuple[Path | str, Table]
"""A file or other source, and its settings."""
_Layers = dict[str, _Layer]
_Place = Sequence[str | int]
"""Keys, and indexes of lists, that lead to a setting."""
NAMED_BY = {"model": "name", "embedding": "model", "extraction": "model"}
"""Sections that name a model, with the key that does."""
_LIMITS = frozenset({"session_usd", "day_usd", "session_tokens", "day_tokens", "budget_usd"})
_DEFAULTS: Table = {"agents": {"chat": {}}}
"""The lowest layer: tables with free names that exist by default."""


class Settings:
    """The layers of a configuration, read once; `combined` merges them."""

    def __init__(
        self,
        path: Path | None,
        file: Table,
        environment: Mapping[str, Table] = MappingProxyType({}),
        *,
        is_chosen: bool = True,
        own: _Layer = (Path(), {}),
    ) -> None:
        own_folder, usual = user_config_path("chatbot"), Config().identities
        if path and path.resolve() == (own_folder / FILE_NAME).resolve() and not (own_folder / usual).exists():
            file = {"identities": str(user_data_path("chatbot") / usual), **file}  # as without a file
        self.path = path
        self.folder = path.parent.resolve() if path else user_data_path("chatbot")
        """Base of relative paths: the file's folder, or the user's data folder without a file."""
        self.is_chosen = is_chosen
        """True if the user named, owns or trusts the file; a file that was only found is untrusted."""
        self.layers: _Layers = {
            "defaults": ("", _DEFAULTS),
            "own": own,  # settings of the user's own file that apply below a file found in the current folder
            "file": (path or "defaults", file),
            "identity": ("identity", {}),
            **{variable: (variable, table) for variable, table in environment.items()},
            "flags": ("the flags", {}),
        }
        """All layers, in ascending priority."""

    @classmethod
    def read(cls, path: Path | str | None = None, *, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read the file at `path`, or the first one found, and the environment. Raises `ConfigError`.

        Also raises it for an untrusted file in the current folder that names code or a place (see `allowed`).
        """
        found = find_file(path, environ)
        file = read_toml(found) if found else {}
        own, below = user_config_path("chatbot") / FILE_NAME, {}
        is_asked_for = path is not None or bool(environ.get(FILE_VARIABLE))
        is_chosen = True
        if found == Path(FILE_NAME) and not is_asked_for and Path.cwd() != own.parent.resolve():
            check_found(found, file, f"review it, then run `chatbot config trust`, or pass --config {found}")
            is_chosen = trust.is_trusted(found, file)
            mine = read_toml(own) if is_there(own) else {}
            below = {name: mine[name] for name in _APPLY_BELOW if name in mine}
            file = file if is_chosen else _within_limits(file, below)
        return cls(found, file, _from_environment(environ), is_chosen=is_chosen, own=(own, below))

    def with_flags(self, flags: Table) -> "Settings":
        """Return the same files and environment with other flags, and without an identity."""
        return self._with(identity=("identity", {}), flags=("the flags", flags))

    def with_identity(self, table: Table, path: Path) -> "Settings":
        """Return the settings with those of an identity, which its file at `path` sets."""
        (_, own), (_, file) = self.layers["own"], self.layers["file"]
        return self._with(identity=(path, _within_limits(table, merge(own, file))))

    def _with(self, **layers: _Layer) -> "Settings":
        other = copy(self)  # keeps the folder, even if the process has left it
        other.layers = self.layers | layers
        return other

    @property
    def plugins_beside(self) -> Path | None:
        """Folder of plug-ins that are not installed; None for an untrusted file."""
        return self.folder if self.is_chosen else None

    @property
    def holds_key(self) -> bool:
        """True if the file itself contains a key, not only the name of a variable."""
        table = self.layers["file"][1]
        return bool(without_keys(table) != table)

    def combined(self) -> Config:
        """Merge all layers. Raises `ConfigError` that names the wrong setting."""
        merged: Table = reduce(merge, (table for _, table in self.layers.values()), {})
        merged = reduce(merge, self._whole_paths(merged), merged)
        try:
            config = convert(merged, Config, strict=False)
        except ValidationError as error:
            raise (_mistake(Config, merged, (), self.layers) or ConfigError(str(error))) from error
        for source, table in self.layers.values():
            for place in _replaced(table, merged):
                if self.source(*place) == source:  # else a stronger layer replaced it
                    raise _error(self.layers, place, f"{_place_name(place)} is a table, and a value in a weaker source")
        for section, key in NAMED_BY.items():
            part: Any = getattr(config, section)
            if name := config.aliases.get(getattr(part, key)):
                config = replace(config, **{section: replace(part, **{key: name})})
        return config

    def _whole_paths(self, table: Table) -> Iterator[Table]:
        """Yield, for each setting that is a path, a table that sets the whole path. Raises `ConfigError`."""
        folders = [("identities",), ("memory", "observations", "cache"), ("files", "folder")]
        servers = _value_at(table, ("mcp", "servers"))
        programs = [("mcp", "servers", name, "command") for name in servers] if isinstance(servers, dict) else []
        for place in [*folders, *programs]:
            path = _value_at(table, place)
            if isinstance(path, str) and path and (place in folders or "/" in path or path.startswith("~")):
                try:
                    yield _nested(place, str(self.folder / expand_home(path)))
                except InvalidValue as error:
                    raise _error(self.layers, place, f"{_place_name(place)} = {error}") from error

    def source(self, *place: str) -> Path | str:
        """Return the file or variable that sets the value at `place`; empty if none does."""
        return _source(self.layers, place)

    def error_for(self, table: tuple[str, ...], message: str) -> ConfigError:
        """Return the error for a table such as `("memory", "observations")`, with the source of the setting."""
        found = [_value_at(layer, table) for _, layer in self.layers.values()]
        inner = [key for each in found if isinstance(each, dict) for key in each]
        named = [key for key in inner if repr(key) in message or f" {key} = " in message]
        return _error(self.layers, (*table, *named[:1]), message)


def find_file(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the given file, `$CHATBOT_CONFIG`, `./config.toml`, or the user's; None if there is none."""
    if named := path or environ.get(FILE_VARIABLE):
        asked = check_path(named, "the configuration file")
        if not is_there(asked):
            raise ConfigError(f"configuration file not found: {asked} (`chatbot --config FILE init` creates one)")
        return asked
    return next(filter(is_there, (Path(FILE_NAME), user_config_path("chatbot") / FILE_NAME)), None)


def is_there(path: Path) -> bool:
    """Return whether there is a file of settings. Raises `ConfigError` for anything else in its place."""
    try:
        path.lstat()
        if not path.is_file():
            raise ConfigError(f"{path} is not a regular file: move it away, or put the settings in a file", at=path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", at=path) from error
    return True


def check_found(path: Path, table: Table, remedy: str, *, providers: frozenset[str] = trust.PROVIDERS) -> None:
    """Raise `ConfigError` if a found file needs trust that it does not have; a mistake in it is reported first."""
    if trust.needing_trust(table, providers=providers):
        Settings(path, table).combined()
        trust.check(path, table, remedy, providers=providers)


def read_toml(path: Path) -> Table:
    """Read a TOML file. Raises `ConfigError` with file, line and column."""
    with reading(path), path.open(encoding="utf-8") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ConfigError(f"{path} is longer than {_LARGEST:,} characters", at=path)
    return parse_toml(text, path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise `ConfigError` if the file of settings cannot be read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid UTF-8: save it as UTF-8", at=path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", at=path) from error


def parse_toml(text: str, path: Path) -> Table:
    """Read the text of a TOML file. Raises `ConfigError` with file, line and column."""
    try:
        table = tomllib.loads(text.removeprefix("\ufeff"))  # the byte order mark of some editors
        check_depth(table, "it")
    except (ValueError, RecursionError) as error:  # `ValueError` also for a number with thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}", at=path) from error
    if any("\0" in each for each in texts_in(table)):
        name = next(name for name, *held in trust.leaves(table) if any("\0" in each for each in texts_in(held)))
        raise ConfigError(f"{path} holds a NUL character in {name}: remove it", at=path)
    return table


def merge(weaker: Table, stronger: Table) -> Table:
    """Merge two tables key by key; the stronger wins, but a table hides no other value: that is a mistake to report."""
    merged = dict(weaker)
    for key, value in stronger.items():
        below = merged.get(key, {})
        if not isinstance(value, dict):
            merged[key] = value
        elif isinstance(below, dict):
            merged[key] = merge(below, value)
    return merged


def _replaced(table: Table, merged: Table, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the places of tables where the merged settings have another value."""
    for key, value in table.items():
        if isinstance(value, dict):
            there = merged[key]
            yield from _replaced(value, there, (*place, key)) if isinstance(there, dict) else [(*place, key)]


def _within_limits(found: Table, owners: Table) -> Table:
    """Drop settings of a found file that would raise or remove a limit of the owner's."""
    kept = dict(found)
    for section in {"budget", "extraction"} & found.keys() & owners.keys():
        own, limits = found[section], owners[section]
        if isinstance(own, dict) and isinstance(limits, dict):
            kept[section] = {
                key: value for key, value in own.items() if key not in _LIMITS or not _lifts(value, limits.get(key))
            }
    return kept


def _lifts(value: Any, limit: Any) -> bool:
    """Return True if the value raises or removes the limit; 0 means no limit. Both may be written as text."""
    try:
        own, most = (convert(each, float, strict=False) for each in (value, limit))
    except ValidationError:
        return False  # the setting itself is refused
    return most > 0 and not 0 < own <= most


def _from_environment(environ: Mapping[str, str]) -> dict[str, Table]:
    """Return the table that each of our variables sets, by the variable."""
    return {
        variable: _nested(variable.removeprefix(_PREFIX).lower().split("__"), _value(variable, text))
        for variable, text in environ.items()
        if variable.startswith(_PREFIX) and variable != FILE_VARIABLE
    }


def _nested(place: Sequence[str], value: Any) -> Any:
    return reduce(lambda inner, key: {key: inner}, reversed(place), value)


def _value(variable: str, text: str) -> Any:
    """Parse a variable: lists and tables are TOML, everything else is text that is converted later."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError) as error:
        shown = "" if _may_hold_key(variable.lower().split("__")) else f"={without_password(text)}"
        raise ConfigError(f"{variable}{shown} is not valid TOML: {error}", at=variable) from error


def _may_hold_key(place: _Place) -> bool:
    """Return True if an invalid value may be a key, also in a wrong place such as `[providers] openai = "sk-…"`."""
    is_provider = place[0] in {"providers", f"{_PREFIX.lower()}providers"}
    return bool(SECRET & set(place)) or (is_provider and len(place) < _DEPTH)


def _mistake(kind: Any, value: Any, place: _Place, layers: _Layers) -> ConfigError | None:
    """Return the error of the first invalid setting at or below `place`; None if there is none."""
    try:
        convert(value, kind, strict=False)
    except ValidationError as error:
        what = in_words(error, kind)
    else:
        return None
    for key, inner, kind_of_inner in _parts(kind, value):
        here = (*place, key)
        if kind_of_inner is None:
            return _unknown(here, [each.name for each in fields(kind)], layers)
        if found := _mistake(kind_of_inner, inner, here, layers):
            return found
    if what.endswith("got a table") and any(map(_is_section, get_args(kind))):
        what += f": write [[{'.'.join(map(str, place))}]]"
    elif what.startswith("expected a table") and _is_section(kind):
        name = ".".join(map(str, place))
        what += f": set {name}.{NAMED_BY[name]}" if name in NAMED_BY and isinstance(value, str) else f": write [{name}]"
    is_key = bool(place) and value == place[-1]
    shown = "" if is_key or isinstance(value, dict | list) or _may_hold_key(place) else f" = {value!r}"
    return _error(layers, place, f"{_place_name(place)}{without_password(shown)}: {what}")


def _parts(kind: Any, value: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the key, the value and the type of each part of a table or of a list; None for an unknown key."""
    within = get_args(kind)
    if isinstance(value, dict) and _is_section(kind):
        kinds = {each.name: each.type for each in fields(kind)}
        yield from ((key, inner, kinds.get(key)) for key, inner in value.items())
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for key, inner in value.items():
            yield key, key, within[0]
            yield key, inner, within[1]
    elif isinstance(value, list) and within:
        yield from ((number, inner, within[0]) for number, inner in enumerate(value))


def _unknown(place: _Place, known: Sequence[str], layers: _Layers) -> ConfigError:
    hint = did_you_mean(str(place[-1]), known)
    if place[0] in OF_IDENTITY:
        hint = ": it belongs in an identity.toml"
    elif place[0] in NAMED_BY and place[-1] in ProviderSettings.__struct_fields__:
        hint = ": it belongs in [providers.NAME], the table of the model's provider"
    return _error(layers, place, f"unknown setting {_place_name(place)}{hint}")


def _error(layers: _Layers, place: _Place, message: str) -> ConfigError:
    """Prefix the message with the file or environment variable that set `place`, if known."""
    at = _source(layers, place) or layers["file"][0]
    shown = f"{at} in the environment" if isinstance(at, str) and at.startswith(_PREFIX) else at
    return ConfigError(f"{shown}: {message}", at=at)


def _source(layers: _Layers, place: _Place) -> Path | str:
    """Return the source of the setting at `place`: a file, a variable, or another layer; empty if none."""
    return next((source for source, table in reversed(layers.values()) if _holds(table, place)), "")


def _value_at(value: Any, place: Iterable[str]) -> Any:
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _place_name(place: _Place) -> str:
    *table, last = place
    if isinstance(last, int):
        return f"entry {last + 1} of {_place_name(table)}"
    if table and isinstance(table[-1], int):
        return f"{last!r} in {_place_name(table)}"
    return f"{last!r} in [{'.'.join(map(str, table))}]" if table else f"{last!r}"


def _holds(layer: Any, place: Iterable[str | int]) -> bool:
    for part in place:
        if isinstance(layer, dict) and part in layer:
            layer = layer[part]
        else:
            return not isinstance(layer, dict)  # a value in the place of a table sets all of it
    return True


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
