"""An identity: a folder with a persona and the memory that belongs to it. Nothing crosses from one to another.

identities/<name>/identity.toml     description, persona, clearance, sensitivity, and settings for this identity
identities/<name>/memory/           see docs/memory.md
"""

import re
import shlex
from pathlib import Path

from msgspec import Struct, field
from platformdirs import user_config_path

from chatbot import trust
from chatbot.config import Config, Table
from chatbot.config_layers import OF_IDENTITY, check_found, is_there, read_toml
from chatbot.errors import ConfigError, IdentityError
from chatbot.stores.access import CLEARANCES, SENSITIVITIES, Clearance, Sensitivity
from chatbot.stores.errors import UnsafePath, did_you_mean
from chatbot.stores.files import path_inside

FILE_NAME = "identity.toml"
DEFAULT_PERSONA = "You are a helpful AI assistant. You answer briefly and in plain words."
_SHIPPED_PERSONAS = Path(__file__).with_name("persona_files")
_LARGEST_PERSONA = 100_000
_FORBIDDEN = frozenset({"aliases", "identity", "identities", "mcp", "providers", "server", "telemetry"})
"""Settings that an identity cannot override: they apply to the whole process."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Identity(Struct, frozen=True):
    """An identity. `overrides` are its own settings, in the form of the configuration file."""

    name: str
    folder: Path
    persona: str = DEFAULT_PERSONA
    description: str = ""
    clearance: Clearance = "full"
    sensitivity: Sensitivity = "public"
    overrides: Table = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Path of its `identity.toml`."""
        return self.folder / FILE_NAME

    @property
    def memory(self) -> Path:
        """The folder of its memory."""
        return self.folder / "memory"


class Persona(Struct, frozen=True):
    """A persona to choose: `summary` for people, `text` for the model, which is empty if the file cannot be used."""

    name: str
    summary: str
    text: str
    file: str

    def check(self) -> None:
        """Raise `ConfigError` if the file cannot be used."""
        if not self.text:
            raise ConfigError(f"{self.file} {self.summary}", at=Path(self.file))


def personas() -> dict[str, Persona]:
    """Return all personas, the user's own in place of shipped ones; an unusable one says why in its summary."""
    files = [*sorted(_SHIPPED_PERSONAS.glob("*.md")), *sorted(persona_folder().glob("*.md"))]
    return {path.stem: _read_persona(path) for path in files}


def persona_folder() -> Path:
    """Return the folder of the user's own personas."""
    return user_config_path("chatbot") / "personas"


def _read_persona(path: Path) -> Persona:
    try:
        with path.open(encoding="utf-8-sig") as file:
            whole = file.read(_LARGEST_PERSONA + 1)
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        why = "it is not valid UTF-8"
    else:
        head, _, text = whole.partition("\n\n")
        if text.strip() and len(whole) <= _LARGEST_PERSONA:
            return Persona(path.stem, head.strip(), text.strip(), str(path))
        is_long = len(whole) > _LARGEST_PERSONA
        why = f"it is longer than {_LARGEST_PERSONA:,} characters" if is_long else "it has no text after an empty line"
    return Persona(path.stem, f"cannot be used: {why}", "", str(path))


def load_identity(
    root: Path, name: str, providers: frozenset[str] = trust.PROVIDERS, file: Path | None = None
) -> Identity:
    """Read the identity `name` in `root`, a folder that `file` configures; it may name models of `providers`.

    The built-in default identity needs no file: its folder is made, with its memory, when something is remembered.
    Raises `IdentityError` naming those that exist, or `ConfigError` for a file that is malformed or not trusted: see
    `allowed`.
    """
    folder = _folder(root, name)
    if not is_there(folder / FILE_NAME):
        if name == Config().identity:
            return Identity(name, folder)
        raise _unknown_identity(root, name, file)
    return parse_identity(name, folder, read_toml(folder / FILE_NAME), providers)


def settings_of_identity(root: Path, name: str) -> tuple[Path, Table]:
    """Return the file of an identity, and its settings. Raises `IdentityError` without a file, or `ConfigError`."""
    file = _folder(root, name) / FILE_NAME
    if not is_there(file):
        raise _unknown_identity(root, name)
    return file, _settings(read_toml(file))


def _unknown_identity(root: Path, name: str, file: Path | None = None) -> IdentityError:
    hint = did_you_mean(name, {Config().identity, *list_identities(root)})
    config = f" --config {shlex.quote(str(file))}" if file and file.parent != user_config_path("chatbot") else ""
    return IdentityError(f"{root} has no identity {name!r}{hint} (`chatbot init --name {name}{config}` creates it)")


def _folder(root: Path, name: str) -> Path:
    check_name(name)
    try:
        return path_inside(root, name)
    except UnsafePath as error:
        raise IdentityError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot read {root}: {error.strerror}", at=root) from error


def is_name(text: str) -> bool:
    """Return whether an identity can have this name."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Raise `IdentityError` for a name that no identity can have."""
    if not is_name(name):
        raise IdentityError(f"{name!r:.80} cannot be an identity: use lower-case letters, digits, - and _")


def list_identities(root: Path) -> list[str]:
    """Return the names of all identities in `root`."""
    return sorted(path.name for path in root.glob("*") if is_name(path.name) and is_identity(path))


def is_identity(folder: Path) -> bool:
    """Return whether a folder is an identity: it has the file, or is the built-in one's, which needs none."""
    return (folder / FILE_NAME).is_file() or (folder.name == Config().identity and folder.is_dir())


def parse_identity(name: str, folder: Path, table: Table, providers: frozenset[str]) -> Identity:
    """Return the identity of a table in the form of `identity.toml`. Raises `ConfigError`."""
    own = {key: table[key] for key in OF_IDENTITY if key in table}
    table = _settings(table)
    for key, value in own.items():
        if not isinstance(value, str):
            raise _error(folder, f"{key} = {value!r} should be text")
    for key, words in (("clearance", CLEARANCES), ("sensitivity", SENSITIVITIES[:-1])):
        if key in own and own[key] not in words:
            raise _error(folder, f"{key} = {own[key]!r}{did_you_mean(own[key], words)}")
    if forbidden := next((key for key in sorted(_FORBIDDEN) if key in table), ""):
        raise _error(folder, f"an identity cannot set {forbidden!r}: do that in config.toml")
    known = (OF_IDENTITY | set(Config.__struct_fields__)) - _FORBIDDEN
    if unknown := next((key for key in table if key not in known), ""):
        raise _error(folder, f"unknown setting {unknown!r}{did_you_mean(unknown, known)}")
    remedy = f"review it, then run `chatbot config trust -i {name}`, or set that in config.toml"
    check_found(folder / FILE_NAME, table, remedy, providers=providers)
    if not own.get("persona", DEFAULT_PERSONA).strip():
        del own["persona"]
    return Identity(name, folder, overrides=table, **own)


def _error(folder: Path, message: str) -> ConfigError:
    return ConfigError(f"{folder / FILE_NAME}: {message}", at=folder / FILE_NAME)


def _settings(table: Table) -> Table:
    """Return the part of an `identity.toml` that has the form of the configuration file."""
    return {key: value for key, value in table.items() if key not in OF_IDENTITY}
