"""Keys that the user stored for providers: in the system's keyring where there is one, else in a file of mode 0600.

`keys.json` in the user's data folder lists the providers, so that no keyring is asked for a provider without a key.
The environment and the configuration have priority; see `chatbot.models.provider`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from chatbot.errors import ConfigError, KeyRefused
from chatbot.stores.errors import InvalidValue
from chatbot.stores.files import locked, make_folder, opened

NAME = "keys.json"
SERVICE = "chatbot-runtime"
"""Name of our entries in the keyring; the user name of each is the provider."""
_KEYRING = "keyring"
_OTHERS = 0o077
_SHORTEST = 8

Entries = dict[str, dict[str, Any]]


def stored_keys() -> dict[str, str]:
    """Return the providers with a stored key, each with its place: `keyring`, or `keys.json`."""
    return {name: _KEYRING if _KEYRING in entry else NAME for name, entry in sorted(_read().items())}


def stored_key(provider: str) -> str:
    """Return the key stored for a provider; empty if there is none. Raises `KeyRefused` if it cannot be read."""
    entry = _read().get(provider)
    if entry is None:
        return ""
    return str(entry["key"]) if "key" in entry else _from_keyring(provider)


def parsed_key(text: str) -> str:
    """Return the key that was typed. Raises `InvalidValue` for a text that is none."""
    key = text.strip()
    if len(key) < _SHORTEST or not key.isprintable() or " " in key:
        raise InvalidValue("invalid key: nothing was stored")
    return key


def store_key(provider: str, key: str) -> str:
    """Store a key in place of any former one and return its place, as in `stored_keys`."""
    keyring = _keyring()
    entry: dict[str, Any] = {"key": key}
    if keyring is not None:
        keyring.set_password(SERVICE, provider, key)
        entry = {_KEYRING: True}
    _change(lambda known: known | {provider: entry})
    return stored_keys()[provider]


def remove_key(provider: str) -> bool:
    """Remove the key of a provider; False if none was stored."""
    entry = _read().get(provider)
    if entry is None:
        return False
    keyring = _keyring()
    if _KEYRING in entry and keyring is not None and keyring.get_password(SERVICE, provider) is not None:
        keyring.delete_password(SERVICE, provider)
    _change(lambda known: {name: each for name, each in known.items() if name != provider})
    return True


def keys_in_file() -> list[str]:
    """Return the keys in the file and those read from the keyring so far, to remove them from messages."""
    try:
        return [*(str(entry["key"]) for entry in _read().values() if "key" in entry), *_read_from_keyring.values()]
    except (KeyRefused, ConfigError):
        return []


_read_from_keyring: dict[str, str] = {}


def _from_keyring(provider: str) -> str:
    if provider not in _read_from_keyring:
        keyring = _keyring()
        found = keyring.get_password(SERVICE, provider) if keyring is not None else None
        if not found:
            raise KeyRefused(f"the key of {provider} is not in the keyring: run `chatbot keys set {provider}`")
        _read_from_keyring[provider] = found
    return _read_from_keyring[provider]


def _keyring() -> Any:
    """Return the system's keyring; None without one, or without the package `keyring`."""
    if find_spec("keyring") is None:
        return None
    import keyring
    from keyring.backends import fail, null

    backend = keyring.get_keyring()
    return None if isinstance(backend, fail.Keyring | null.Keyring) else backend


def _file() -> Path:
    return user_data_path("chatbot") / NAME


def _read() -> Entries:
    stamp = _stamp()
    return {} if stamp is None else dict(_parsed(stamp))


def _stamp() -> tuple[str, int, int, int] | None:
    try:
        status = _file().lstat()
    except OSError:
        return None
    if status.st_mode & _OTHERS:
        raise KeyRefused(f"{_file()} is readable by other users, so its keys are not used: run chmod 600 {_file()}")
    return str(_file()), status.st_mtime_ns, status.st_size, status.st_ino


@cache
def _parsed(stamp: tuple[str, int, int, int]) -> dict[str, dict[str, Any]]:
    path = Path(stamp[0])
    try:
        with opened(path.parent) as folder:
            found = dict(json.loads(folder.read(path.name)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged: remove it, then store the keys again", at=path) from error
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def _change(change: Callable[[Entries], Entries]) -> None:
    """Change the file as it is by now: another process may have written to it meanwhile."""
    folder = _file().parent
    make_folder(folder)
    _read_from_keyring.clear()
    with locked(folder) as place:
        place.replace(NAME, (json.dumps(change(_read()), indent=2) + "\n").encode())
