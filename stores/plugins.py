"""Stores by their name in the configuration.

A name is an entry point of the group `chatbot.stores`, or `package.module:Class`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chatbot.stores.base import Store, contracts_of
from chatbot.stores.errors import BrokenStore, InvalidSettings, StoreError, UnknownStore, UnsupportedOperation
from chatbot.stores.home import Address, Home
from chatbot.stores.plugin_point import PluginPoint, checked_settings, settings_of

__all__ = ["STORES", "check_settings", "load", "open_store", "settings_of"]

STORES = PluginPoint(
    group="chatbot.stores",
    own={
        "basic_session": "chatbot.stores.basic_session:BasicSessionStore",
        "in_memory": "chatbot.stores.in_memory:InMemoryStore",
        "observations": "chatbot.stores.observations.store:ObservationFileStore",
    },
    noun="store",
    unknown=UnknownStore,
    broken=BrokenStore,
)


_IN_A_DATABASE = {
    "basic_session": "chatbot.stores.postgres.sessions_store:PostgresSessionStore",
    "observations": "chatbot.stores.postgres.observations:PostgresObservations",
}
"""The stores that keep in a database what those of the same name keep in files; sessions name them alike."""


def load(name: str, *, beside: Path | None = None, home: Home | None = None) -> type[Store]:
    """Load the store class of that name; the folder `beside` is searched for modules that are not installed.

    Where `home` is an address, it is the class for a database. Raises `UnknownStore` or `BrokenStore`.
    """
    is_ours = isinstance(home, Address) and name in _IN_A_DATABASE
    store = STORES.load(_IN_A_DATABASE[name] if is_ours else name, beside=beside)
    if not (inspect.isclass(store) and issubclass(store, Store)):
        raise BrokenStore(f"the store {name!r} is {store!r}, not a class that inherits chatbot.stores.Store")
    if not contracts_of(store):
        raise BrokenStore(f"the store {name!r} keeps no contract: inherit KeyValueStore or TranscriptStore")
    if missing := sorted(getattr(store, "__abstractmethods__", ())):
        raise BrokenStore(f"the store {name!r} lacks {', '.join(missing)}: {_promise(store, missing[0])}")
    return store


def _promise(store: type[Store], method: str) -> str:
    """Return what a method has to do, as its contract says."""
    promise = getattr(store, method)
    return f"write `async def {method}({', '.join(inspect.signature(promise).parameters)})`. {inspect.getdoc(promise)}"


def open_store(name: str, home: Home, settings: Mapping[str, Any], *, beside: Path | None = None) -> Store:
    """Load the store `name` and construct it with its settings. Raises a `StoreError` that names the store."""
    store = load(name, beside=beside, home=home)
    if isinstance(home, Address) and store.keeps_files and name not in _IN_A_DATABASE:
        raise UnsupportedOperation(
            f"the store {name!r} keeps files, and this identity is in {home}: use {', '.join(_IN_A_DATABASE)}"
        )
    checked = check_settings(name, store, settings)
    try:
        opened = store(home, **checked)
    except StoreError as error:
        raise type(error)(f"[memory.{name}]: {error}") from error
    except Exception as error:
        raise BrokenStore(f"the store {name!r} could not be opened: {error}") from error
    opened.configured_as = name
    return opened


def check_settings(name: str, store: type[Store], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the settings to the types of the constructor's annotations. Raises `InvalidSettings`."""
    return checked_settings(f"[memory.{name}]", store, settings, invalid=InvalidSettings, broken=BrokenStore)
