"""`chatbot config migrate`: move keys and addresses of older configurations into `[providers]`. Comments are kept.

Every model is called with the same key as before: if two sections call one provider differently, one of them gets a
provider name of its own, such as `openai-model`. The embedding model keeps its name because vectors are stored by it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from chatbot.cli.config_editing import write_atomically
from chatbot.config import FORMER, NAMED_BY, ModelSettings
from chatbot.errors import ConfigError
from chatbot.providers import OURS, known_providers, provider_of, variables_of

_ORDER = ("embedding", "model", "extraction")
"""Priority of sections: the first with a key gives key and address to the provider itself."""
_DEFAULT = {"model": ModelSettings().name}


@dataclass(slots=True)
class ConfigMigration:
    """The new text of a configuration and its changes in words."""

    text: str
    changes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Settings that are not moved, with the reason."""


@dataclass(slots=True)
class _Use:
    """A section that calls a provider, with its key and address."""

    section: str
    table: Any
    model: str
    given: dict[str, str]

    @property
    def provider(self) -> str:
        return provider_of(self.model)


def migrate_text(text: str) -> ConfigMigration:
    """Move keys and addresses into `[providers]`. A second run changes nothing. Pure.

    Raises `ConfigError` for invalid TOML.
    """
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ConfigError(f"the configuration is not valid TOML: {error}") from error
    done = ConfigMigration(text)
    uses = list(_uses(document))
    for use in uses:
        if use.given and (why := _stays(use)):
            done.left.append(f"{' and '.join(use.given)} in [{use.section}]: {why}")
    named = [use for use in uses if use.model and not _stays(use)]
    for provider in dict.fromkeys(use.provider for use in named):
        together = [use for use in named if use.provider == provider]
        if any(use.given for use in together):
            _move(document, provider, together, done)
    done.text = tomlkit.dumps(document) if done.changes else text
    return done


def migrate_file(path: Path, *, dry_run: bool) -> tuple[ConfigMigration, Path | None]:
    """Rewrite the file and return the path of its backup, if it changed. Raises `ConfigError`."""
    path = path.resolve()
    try:
        done = migrate_text(path.read_text(encoding="utf-8"))
        if dry_run or not done.changes:
            return done, None
        backup = _free(path)
        shutil.copy2(path, backup)
        write_atomically(path, done.text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be migrated: {error}", at=path) from error
    return done, backup


def _uses(document: Any) -> Iterator[_Use]:
    memory = document.get("memory")
    for section in _ORDER:
        places = [document.get(section)]
        if section == "extraction" and isinstance(memory, Mapping):
            places.append(memory.get(section))
        for table in places:
            if isinstance(table, Mapping):
                model = table.get(NAMED_BY[section], _DEFAULT.get(section, ""))
                given = {key: str(table[key]) for key in FORMER if isinstance(table.get(key), str) and table[key]}
                yield _Use(section, table, str(model), given)


def _stays(use: _Use) -> str:
    """Return why a section's key is not moved; empty if it is."""
    if not use.model:
        return f"[{use.section}] names no model"
    if use.provider in OURS:
        return f"{use.model} runs in this process and needs no key"
    if "://" in use.model:
        return f"the model {use.model} is an address, and they belong to it"
    if use.provider not in known_providers():
        return f"unknown provider of {use.model}"
    return ""


def _move(document: Any, provider: str, uses: list[_Use], done: ConfigMigration) -> None:
    providers = document.get("providers")
    configured = providers.get(provider) if isinstance(providers, Mapping) else None
    if isinstance(configured, Mapping):
        holder = {key: str(configured[key]) for key in FORMER if configured.get(key)}
    else:
        holder = uses[0].given
    for use in uses:
        if use.given == holder:
            if use.given and configured is None:
                configured = _table(document, provider)
                _put(configured, use)
            if use.given:
                done.changes.append(f"{' and '.join(use.given)} of [{use.section}] → [providers.{provider}]")
        elif use.given or holder:
            _rename(document, provider, use, done)
        for key in use.given:
            use.table.pop(key, None)


def _rename(document: Any, provider: str, use: _Use, done: ConfigMigration) -> None:
    """Give a section a provider name of its own."""
    name = f"{provider}-{use.section}"
    table = _table(document, name)
    table["kind"] = provider
    _put(table, use)
    if not use.given and (variables := variables_of(provider)):
        table["api_key"] = f"env:{next(filter(os.environ.get, variables), variables[0])}"
    model = f"{name}/{use.model.partition('/')[2] or use.model}"
    use.table[NAMED_BY[use.section]] = model
    done.changes.append(
        f"[{use.section}] calls {provider} with another key or address → [providers.{name}], and its model is {model}"
    )


def _put(table: Table, use: _Use) -> None:
    """Copy key and address of the section, with their comments."""
    for key, text in use.given.items():
        value = tomlkit.string(text)
        if comment := getattr(getattr(use.table[key], "trivia", None), "comment", ""):
            value.comment(comment)
        table[key] = value


def _table(document: Any, name: str) -> Table:
    """Return the table of a provider; create it if missing."""
    if "providers" not in document:
        document.append("providers", tomlkit.table(is_super_table=True))
    if name not in document["providers"]:
        table = tomlkit.table()
        document["providers"].append(name, table)
    found: Table = document["providers"][name]
    return found


def _free(path: Path) -> Path:
    """Return a free file name for the backup."""
    names = (path.with_name(f"{path.name}.bak{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())
