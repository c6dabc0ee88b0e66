"""From a name in the configuration to an opened store.

A name is that of an entry point in the group `chatbot.stores`, or `package.module:Class`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from stores.base import Store, contracts_of
from stores.errors import BrokenStore, InvalidSettings, StoreError, UnknownStore, did_you_mean
from stores.plugin_point import PluginPoint

STORES = PluginPoint(
    group="chatbot.stores",
    own={
        "basic_session": "stores.basic_session:BasicSessionStore",
        "in_memory": "stores.in_memory:InMemoryStore",
        "observations": "stores.observations.store:ObservationFileStore",
    },
    noun="store",
    unknown=UnknownStore,
    broken=BrokenStore,
)


def load(name: str, *, beside: Path | None = None) -> type[Store]:
    """The store class of that name. Modules that are not installed are also looked for in the folder `beside`.

    Raises `UnknownStore` or `BrokenStore`.
    """
    store = STORES.load(name, beside=beside)
    if not (inspect.isclass(store) and issubclass(store, Store)):
        raise BrokenStore(f"the store {name!r} is {store!r}, not a class that inherits stores.Store")
    if not contracts_of(store):
        raise BrokenStore(f"the store {name!r} keeps no contract: inherit KeyValueStore or TranscriptStore")
    return store


def open_store(name: str, home: Path, settings: Mapping[str, Any], *, beside: Path | None = None) -> Store:
    """Load the store `name` and construct it with its settings. Raises a `StoreError` that names the store."""
    store = load(name, beside=beside)
    checked = check_settings(name, store, settings)
    try:
        return store(home, **checked)
    except StoreError as error:
        raise type(error)(f"[memory.{name}]: {error}") from error
    except (TypeError, ValueError) as error:
        raise BrokenStore(f"the store {name!r} could not be opened: {error}") from error


def settings_of(store: type[Store]) -> dict[str, inspect.Parameter]:
    """The settings of a store: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(store).parameters.values()
    return {found.name: found for found in parameters if found.kind is found.KEYWORD_ONLY}


def check_settings(name: str, store: type[Store], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, converted to what the constructor's annotations ask for. Raises `InvalidSettings`."""
    if not settings:
        return {}
    known = settings_of(store)
    for key in settings:
        if key not in known:
            raise InvalidSettings(f"[memory.{name}] has no setting {key!r}{did_you_mean(key, known)}")
    from pydantic import TypeAdapter, ValidationError

    hints = _annotations(name, store)
    checked = {}
    for key, value in settings.items():
        try:
            checked[key] = TypeAdapter(hints.get(key, Any)).validate_python(value)
        except ValidationError as error:
            raise InvalidSettings(f"[memory.{name}] {key} = {value!r}: {error.errors()[0]['msg']}") from error
    return checked


def _annotations(name: str, store: type[Store]) -> dict[str, Any]:
    try:
        return get_type_hints(store.__init__, include_extras=True)
    except NameError as error:
        raise BrokenStore(f"the settings of the store {name!r} cannot be read from its annotations: {error}") from error
