"""An identity: a folder with a persona and the memory that belongs to it. Nothing crosses from one to another.

identities/<name>/identity.toml     description, persona, clearance, and settings that hold for this identity alone
identities/<name>/memory/           see `chatbot.memory`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from chatbot.config import OF_IDENTITY, Config, Table, read_toml
from chatbot.errors import ConfigError, IdentityError
from stores.errors import UnsafePath, did_you_mean
from stores.files import contained

FILE_NAME = "identity.toml"
DEFAULT_PERSONA = "You are a helpful AI assistant. You answer briefly and in plain words."
_FORBIDDEN = frozenset({"identity", "identities", "mcp", "telemetry"})
"""What of a configuration no identity may set."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Clearance = Literal["full", "inner", "familiar", "public"]
"""What the one who talks may see, most first."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answers. `overrides` are its own settings, in the form of the configuration file."""

    name: str
    folder: Path
    persona: str = DEFAULT_PERSONA
    description: str = ""
    clearance: Clearance = "full"
    overrides: Table = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where it is written down."""
        return self.folder / FILE_NAME

    @property
    def memory(self) -> Path:
        """The folder of everything that it remembers."""
        return self.folder / "memory"


def load_identity(root: Path, name: str) -> Identity:
    """Read the identity `name` in the folder `root`.

    The default identity needs no file: its folder is made, with its memory, when something is remembered. Raises
    `IdentityError` naming those that exist, or `ConfigError` for a malformed file.
    """
    check_name(name)
    try:
        folder = contained(root, name)
    except UnsafePath as error:
        raise IdentityError(str(error)) from error
    if not (folder / FILE_NAME).is_file():
        if name == Config().identity:
            return Identity(name, folder)
        raise IdentityError(f"{root} has no identity {name!r}{did_you_mean(name, list_identities(root))}")
    return _parse(name, folder, read_toml(folder / FILE_NAME))


def check_name(name: str) -> None:
    """Raise `IdentityError` for a name that no identity can have."""
    if not _NAME.fullmatch(name):
        raise IdentityError(f"{name!r} cannot be an identity: use lower-case letters, digits, - and _")


def list_identities(root: Path) -> list[str]:
    """The names of all identities in `root`."""
    return sorted(path.parent.name for path in root.glob(f"*/{FILE_NAME}")) if root.is_dir() else []


def _parse(name: str, folder: Path, table: Table) -> Identity:
    table = dict(table)
    own = {key: table.pop(key) for key in OF_IDENTITY if key in table}
    for key, value in own.items():
        if not isinstance(value, str):
            raise _error(folder, f"{key} = {value!r} should be text")
    clearances = get_args(Clearance)
    if own.get("clearance", "full") not in clearances:
        raise _error(folder, f"clearance = {own['clearance']!r}{did_you_mean(own['clearance'], clearances)}")
    if isinstance(table.get("model"), str):
        table["model"] = {"name": table["model"]}
    if forbidden := next(_reaching_out(table), ""):
        raise _error(folder, f"an identity cannot set {forbidden}: do that in config.toml")
    known = (OF_IDENTITY | set(Config.__struct_fields__)) - _FORBIDDEN
    if unknown := next((key for key in table if key not in known), ""):
        raise _error(folder, f"there is no setting {unknown!r}{did_you_mean(unknown, known)}")
    if not own.get("persona", DEFAULT_PERSONA).strip():
        del own["persona"]
    return Identity(name, folder, overrides=table, **own)


def _error(folder: Path, message: str) -> ConfigError:
    return ConfigError(f"{folder / FILE_NAME}: {message}", at=folder / FILE_NAME)


def _reaching_out(table: Table) -> Iterator[str]:
    """What only the owner may decide, for an identity may come from a stranger: which code runs, and who gets a key."""
    yield from (repr(key) for key in sorted(_FORBIDDEN) if key in table)
    for section in ("hooks", "memory"):
        yield from (repr(name) for name in _table(table, section) if ":" in name)
    for agent in _table(table, "agents").values():
        for key in ("memory", "tools"):
            named = agent.get(key) if isinstance(agent, dict) else None
            yield from (repr(name) for name in named or () if isinstance(name, str) and ":" in name)
    for section in ("model", "embedding", "extraction"):
        yield from (f"{key!r} in [{section}]" for key in ("api_key", "api_base") if key in _table(table, section))


def _table(table: Table, key: str) -> Table:
    """The table of that name; an empty one where it is none, which whoever combines the layers will tell."""
    found = table.get(key)
    return found if isinstance(found, dict) else {}
