"""Plug-ins by their name in the configuration, and the backend of an identity by its address.

A name is that of an entry point in the group of the plug-in, such as `chatbot.stores`, or `package.module:Class`.
"""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from msgspec import Struct, ValidationError, convert

from chatbot.stores import errors
from chatbot.stores.backend import Backend, Place
from chatbot.stores.base import Store, contracts_of
from chatbot.stores.fields import in_words
from chatbot.stores.home import Address, Home, without_password
from chatbot.stores.on_disk.place import FileBackend, FilePlace
from chatbot.stores.records import reason_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Plugin = TypeVar("Plugin")
GREATEST = 10**12
"""Greatest number allowed in a configuration."""
SECRET = frozenset({"api_key", "env", "headers", "password", "secret", "token"})
"""Settings that hold keys, in any table; never printed."""
_IMPORTING = threading.RLock()  # of two threads the second would put back the standard output that the first has set


class PluginPoint(Struct, frozen=True):
    """One kind of plug-in: the group of its entry points, and its errors."""

    group: str
    own: Mapping[str, str]
    """Our own entry points, as `pyproject.toml` has them."""
    noun: str
    """Word for one plug-in: "store", "tools"."""
    unknown: type[Exception]
    """Raised for an unknown name."""
    broken: type[Exception]
    """Raised if the plug-in cannot be imported or used."""
    invalid: type[Exception]
    """Raised for a wrong setting."""

    def installed(self) -> "dict[str, EntryPoint]":
        """Return every installed plug-in by name, without importing any."""
        from importlib.metadata import EntryPoint, entry_points

        found = {point.name: point for point in entry_points(group=self.group)}
        found |= {name: EntryPoint(name, where, self.group) for name, where in self.own.items()}
        return dict(sorted(found.items()))

    def load(self, name: str, *, beside: Path | None = None) -> object:
        """Load the plug-in of that name; `beside`, a folder with modules that are not installed, joins `sys.path`."""
        where = self.find(name)
        if where == name and beside is not None and str(beside) not in sys.path:
            sys.path.append(str(beside))
        try:
            module, _, names = where.partition("[")[0].partition(":")  # an entry point may name extras in brackets
            with _IMPORTING, redirect_stdout(sys.stderr):  # ours may be the protocol, or JSON
                return attrgetter(names.strip())(importlib.import_module(module.strip()))
        except (Exception, SystemExit) as error:  # a plug-in may raise anything
            module = name.partition(":")[0]
            if where == name and isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                hint = f"not found: save it in {beside or 'a folder of sys.path'}, or install it"
                raise self.unknown(f"module {module!r:.80} of the {self.noun} {name!r:.80} {hint}") from error
            named = repr(name) if where == name else f"{name!r} ({where})"
            raise self.broken(f"the {self.noun} {named} cannot be loaded: {reason_of(error)}") from error

    def find(self, name: str) -> str:
        """Return the `module:attribute` of a plug-in, without importing it. Raises `unknown` for another name."""
        if ":" in name or name in self.own:
            return self.own.get(name, name)
        from importlib.metadata import entry_points

        offered = sorted({point.value for point in entry_points(group=self.group, name=name)})
        if not offered:
            raise self.unknown(f"unknown {self.noun} {name!r:.80}{errors.did_you_mean(name, self.installed())}")
        if len(offered) > 1:
            raise self.broken(f"several packages offer the {self.noun} {name!r}: name one as {' or '.join(offered)}")
        return offered[0]

    def load_class(self, name: str, root: type[Plugin], *, beside: Path | None = None) -> type[Plugin]:
        """Load a class that inherits `root`. Raises `broken` unless its methods fit the contracts of that module."""
        plugin, what = self.load(name, beside=beside), f"the {self.noun} {name!r}"
        if not (inspect.isclass(plugin) and issubclass(plugin, root)):
            raise self.broken(f"{what} is {plugin!r:.80}, not a class that inherits {root.__name__}")
        if name in self.own:
            return plugin
        if missing := sorted(getattr(plugin, "__abstractmethods__", ())):
            raise self.broken(f"{what} lacks {', '.join(missing)}: {_promise(getattr(plugin, missing[0]))}")
        for contract in [each for each in plugin.__mro__ if each.__module__ == root.__module__]:
            for method, promised in inspect.getmembers(contract, inspect.iscoroutinefunction):
                if fault := _fault(getattr(plugin, method), promised):
                    raise self.broken(f"{what} has {method}, which {fault}: {_promise(promised)}")
        return plugin

    def convert_settings(self, table: str, classes: Sequence[type], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the settings to the types of the classes' annotations; `table` is their place in error messages.

        Raises `invalid` for an unknown, missing or invalid setting, `broken` if an annotation cannot be evaluated.
        """
        known = {name: (found, each) for each in classes for name, found in settings_of(each).items()}
        for key in settings:
            if key not in known:
                raise self.invalid(f"{table} has no setting {key!r}{errors.did_you_mean(key, known)}")
        for key, (found, _) in known.items():
            if found.default is found.empty and key not in settings:
                raise self.invalid(f"{table} needs the setting {key!r}, which has no default")
        checked, kind = {}, None
        for key, value in settings.items():
            try:
                kind = _kind_of(*known[key])
                checked[key] = convert(value, kind, strict=False)
                if not all(abs(number) <= GREATEST for number in _numbers_in(checked[key])):
                    raise ValidationError("the number is out of range")
            except ValidationError as error:
                shown = "" if key in SECRET or isinstance(value, dict | list) else f" = {without_password(repr(value))}"
                raise self.invalid(f"{table} {key}{shown}: {in_words(error, kind)}") from error
            except (NameError, TypeError) as error:
                raise self.broken(f"the annotation of {key} in {table} cannot be used: {error}") from error
        return checked


def _promise(method: Callable[..., Any]) -> str:
    """Return the signature and the contract of a method."""
    parameters = ", ".join(inspect.signature(method).parameters)
    return f"write `async def {method.__name__}({parameters})`. {inspect.getdoc(method)}"


def _fault(written: Callable[..., Any], promised: Callable[..., Any]) -> str:
    """Return why a method cannot be called like the promised one; empty if it can."""
    if not inspect.iscoroutinefunction(written):
        return "is not async"
    parameters = inspect.signature(promised).parameters.values()
    by_place = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    by_name = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(written).bind(*by_place, **by_name)
    except TypeError:
        return "takes other arguments"
    return ""


def _numbers_in(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers_in(each)


def _kind_of(setting: inspect.Parameter, plugin: type) -> Any:
    """Evaluate the annotation of a setting. Those of other parameters may name what only a type checker imports."""
    names = getattr(inspect.unwrap(plugin.__init__), "__globals__", {})  # type: ignore[misc]
    written = {} if setting.annotation is setting.empty else {"": setting.annotation}
    return get_type_hints(SimpleNamespace(__annotations__=written), names, include_extras=True).get("", Any)


@cache
def settings_of(plugin: type) -> Mapping[str, inspect.Parameter]:
    """Return the settings of a plug-in, by name."""
    parameters = inspect.signature(plugin).parameters.values()
    return {found.name: found for found in parameters if found.kind is found.KEYWORD_ONLY}


STORES = PluginPoint(
    group="chatbot.stores",
    own={
        "basic_session": "chatbot.stores.basic_session:BasicSessionStore",
        "in_memory": "chatbot.stores.in_memory:InMemoryStore",
        "observations": "chatbot.stores.observations.store:ObservationFileStore",
    },
    noun="store",
    unknown=errors.UnknownStore,
    broken=errors.BrokenStore,
    invalid=errors.InvalidSettings,
)

_IN_A_DATABASE = {
    "basic_session": "chatbot.stores.postgres.sessions_store:PostgresSessionStore",
    "observations": "chatbot.stores.postgres.observations:PostgresObservations",
}
"""Stores for a database, by the name that they share with the store for files."""


def load(name: str, *, beside: Path | None = None, home: Home | None = None) -> type[Store]:
    """Load the store class of that name; `beside` is a folder to search for modules that are not installed.

    If `home` is an address, return the class for a database. Raises `UnknownStore` or `BrokenStore`.
    """
    is_ours = isinstance(home, Address) and name in _IN_A_DATABASE
    store = STORES.load_class(_IN_A_DATABASE[name] if is_ours else name, Store, beside=beside)
    if not contracts_of(store):
        raise errors.BrokenStore(f"the store {name!r} implements no contract: inherit KeyValueStore or TranscriptStore")
    return store


def open_store(name: str, home: Home, settings: Mapping[str, Any], *, beside: Path | None = None) -> Store:
    """Load the store `name` and construct it with its settings. Raises a `StoreError` that names the store."""
    store = load(name, beside=beside, home=home)
    if isinstance(home, Address) and store.is_durable and name not in _IN_A_DATABASE:
        raise errors.UnsupportedOperation(
            f"the store {name!r} keeps files, and this identity is in {home}: use {', '.join(_IN_A_DATABASE)}"
        )
    checked = convert_store_settings(name, store, settings)
    try:
        opened = store(home, **checked)
    except errors.StoreError as error:
        raise type(error)(f"{table_name('memory', name)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise errors.BrokenStore(f"the store {name!r} could not be opened: {reason_of(error)}") from error
    opened.configured_as = name
    return opened


def convert_store_settings(name: str, store: type[Store], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the settings to the types of the constructor's annotations. Raises `InvalidSettings`."""
    return STORES.convert_settings(table_name("memory", name), (store,), settings)


def table_name(section: str, name: str) -> str:
    """Return the name of a plug-in's table as TOML writes it, such as `[hooks."my_hooks:Mine"]`."""
    return f'[{section}."{name}"]' if ":" in name else f"[{section}.{name}]"


def open_backend(home: Home | None) -> Backend:
    """Return the backend of an identity: files, a database, or memory for None. Raises `BrokenStore`."""
    if home is None:
        from chatbot.stores.in_memory import MemoryBackend

        return MemoryBackend()
    if isinstance(home, Path):
        return FileBackend(home)
    with _driver():
        from chatbot.stores.postgres.backend import PostgresBackend
    return PostgresBackend(home)


def open_place(place: Place | Home | None) -> Place:
    """Return the place itself, the place of a folder or an address, or one in memory for None."""
    if place is None or isinstance(place, Address):
        return open_backend(place)
    return FilePlace(place) if isinstance(place, Path) else place


def create_tables(address: Address, *, role: str = "") -> Literal["created", "unchanged"]:
    """Create the tables of a database, for `role` too; return what was done. Raises a `StoreError`."""
    with _driver():
        from chatbot.stores.postgres import schema
    return schema.create(address.url, role=role)


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chatbot"):
            raise
        raise errors.BrokenStore(
            f"PostgreSQL needs the package {error.name}: pip install 'chatbot-runtime[postgres]'"
        ) from error
