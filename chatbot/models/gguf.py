"""Finding and checking the file of a local model, before a native library gets to see it."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

from chatbot.errors import MissingModel, RequestRefused, UnknownModel
from chatbot.models.weights import SMOLLM2

PREFIX = "local/"
EMBEDDED = "smollm2-135m"
_ENGINE = "pip install cyllama"
_WEIGHTS = "chatbot models get smollm2"
_OR = "; or choose another model with chatbot setup"
_MAGIC = b"GGUF"
_VERSIONS = range(2, 4)
_HEADER = struct.Struct("<4sIQQ")
_MOST = 1 << 20


def find_model(name: str) -> Path:
    """Return the file of the local model `name`: `smollm2-135m`, or the path of a GGUF file.

    Raises `MissingModel` with how to get it, `UnknownModel`, or `RequestRefused` for a file that is not a model.
    """
    if name == EMBEDDED:
        return _embedded()
    path = Path(name).expanduser()
    if not name.endswith(".gguf") and not path.exists():
        raise UnknownModel(f"unknown local model {name!r}: use {EMBEDDED} or the path of a .gguf file")
    if not path.is_file():
        raise MissingModel(f"model file not found: {path.absolute()}")
    check_gguf(path)
    return path.resolve()


def check_gguf(path: Path) -> None:
    """Refuse input that is unsafe for a native parser: another format, an unknown version, an implausible header."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        raise MissingModel(f"{path} cannot be read: {error.strerror}") from error
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise RequestRefused(f"{path} is not a GGUF model file")
    _, version, tensors, entries = _HEADER.unpack(header)
    if version not in _VERSIONS:
        raise RequestRefused(f"{path} has the unsupported GGUF version {version}")
    if not (0 < tensors < _MOST and 0 < entries < _MOST):
        raise RequestRefused(f"{path} is damaged: its header names {tensors} tensors and {entries} metadata entries")


def missing_engine() -> MissingModel:
    """The error for a machine without llama.cpp."""
    bring = _ENGINE if _has_weights() else f"{_ENGINE} && {_WEIGHTS}"
    return MissingModel(f"the engine for local models is not installed: {bring}{_OR}")


def has_engine() -> bool:
    """Return whether llama.cpp is installed."""
    return importlib.util.find_spec("cyllama") is not None


def _has_weights() -> bool:
    folder = SMOLLM2.folder()
    return folder is not None and any(folder.glob("*.gguf"))


def _embedded() -> Path:
    # The package is found, not imported: it holds the weights, and code for a stack that we do not use.
    folder = SMOLLM2.folder()
    files = list(folder.glob("*.gguf")) if folder else []
    if not files:
        bring = _WEIGHTS if has_engine() else f"{_ENGINE} && {_WEIGHTS}"
        raise MissingModel(f"the weights of {PREFIX}{EMBEDDED} are not installed: {bring}{_OR}")
    return files[0]
