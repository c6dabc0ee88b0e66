"""Shared fixtures. Every test runs in an empty home, with no configuration and no provider's key."""

import ast
import atexit
import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

# Hundreds of processes are started, and a large library takes longer to compile than a test takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores Ctrl-C
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what `nohup` runs the end of its terminal
os.environ["CHATBOT_EMBEDDING__MODEL"] = ""  # for fixtures of modules, which begin before those of tests
os.environ["TZ"] = "UTC"  # days are those of the machine
time.tzset()
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # last of all: to take apart what was imported takes each worker seconds

from hypothesis import settings  # noqa: E402 - here, for pytest rewrites the whole package, and now keeps what it made

from chatbot.memory import MemorySystem, SessionHandle  # noqa: E402
from chatbot.stores.files import erase  # noqa: E402
from tests.clock import Clock  # noqa: E402
from tests.disk import ENDLESS, Put  # noqa: E402
from tests.effort import NIGHTLY  # noqa: E402

settings.load_profile("nightly" if NIGHTLY else "usual")

if sys.version_info < (3, 12):
    # pytest parses a failed test for its report. Garbage that is collected meanwhile may parse as well, when Python
    # shows where a warning came from; before 3.12 that ends the run: "AST constructor recursion depth mismatch".
    def _parse(*arguments: Any, _parse: Callable[..., ast.AST] = ast.parse, **options: Any) -> ast.AST:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return _parse(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    ast.parse = _parse  # type: ignore[assignment]

_NUMBERS = count()
_AS_MADE: list[list[list[str]]] = [[[], []], [["chatbot"], []], [["encoders"], []]]
_UNTOUCHED: list[tuple[Path, Path]] = []
"""Homes and caches of tests that left them empty, for the next ones."""
FIRST = (
    "tests/models/", "tests/hooks/test_after_turn.py", "tests/hooks/test_extraction.py",
    "tests/surfaces/test_doctor.py", "tests/surfaces/test_maintain_cli.py::test_what_cannot_be_done_is_said",
    "tests/surfaces/test_new_user.py", "tests/surfaces/test_receipts_agree.py", "tests/surfaces/test_providers_cli.py",
    "tests/telemetry/", "tests/surfaces/page/", "tests/surfaces/server/test_document.py",
    "tests/surfaces/test_import_package.py", "tests/memory/test_crashes.py",
    "tests/stores/test_observation_processes.py",
)  # fmt: skip
"""Files that run first: what needs LiteLLM, that one worker alone imports it, and what takes long, that none idles."""
_ALL_NIGHTLY = re.compile(r"^pytestmark = \[?pytest\.mark\.nightly\b", re.MULTILINE)


def pytest_report_header() -> str:
    """Say how much is tried, and what is left out."""
    if NIGHTLY:
        return "effort: nightly, everything runs"
    return "effort: usual, a share of the rounds and examples, without tests marked nightly; all: CHATBOT_NIGHTLY=1"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file by day of which all is marked nightly: half of collecting was their frameworks."""
    if NIGHTLY or "nightly" in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return _ALL_NIGHTLY.search(collection_path.read_text(encoding="utf-8")) is not None or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put `FIRST` first, and leave to the night what is marked so, unless it was asked for by its mark."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if NIGHTLY or "nightly" in config.option.markexpr:
        return
    left_out = {item: None for item in items if item.get_closest_marker("nightly")}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage among what is made to stay."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the collector pass over ten thousand tests and the libraries that they import."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # to look for garbage 140 times as often costs a twentieth of the run
    gc.enable()


def _new_home(base: Path) -> tuple[Path, Path]:
    # Not by `mktemp`, which looks at all folders that it ever made to number the next one.
    home, cache = (base / kind / str(next(_NUMBERS)) for kind in ("homes", "caches"))
    home.mkdir(parents=True)
    (cache / "chatbot").mkdir(parents=True, mode=0o700)
    # Encoders are unpacked once for all workers, not by each test.
    encoders = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "encoders"
    encoders.mkdir(exist_ok=True)
    (cache / "chatbot" / "encoders").symlink_to(encoders)
    return home, cache


@pytest.fixture(autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home, cache = _UNTOUCHED.pop() if _UNTOUCHED else _new_home(tmp_path_factory.getbasetemp())
    for name in list(os.environ):
        if name.startswith(("CHATBOT_", "XDG_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    # Words alone, so that what a test recalls does not hang on an encoder; `with_encoders` brings them back.
    monkeypatch.setenv("CHATBOT_EMBEDDING__MODEL", "")
    monkeypatch.setattr("chatbot.models.call._FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.chdir(home)
    known = [*sys.modules]
    yield
    if [found for _, *found in chain(os.walk(home), os.walk(cache))] == _AS_MADE:
        _UNTOUCHED.append((home, cache))
    if [*sys.modules] == known:
        return
    made = str(tmp_path_factory.getbasetemp())
    for name in {*sys.modules}.difference(known):  # a plug-in of the same name in another test is another plug-in
        if str(getattr(sys.modules[name], "__file__", "")).startswith(made):
            del sys.modules[name]


@pytest.fixture
def config_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`./config.toml` is the user's word, and may name code and servers; see `chatbot.trust`."""
    monkeypatch.setenv("CHATBOT_CONFIG", str(Path.cwd() / "config.toml"))


@pytest.fixture
def with_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as they are by default: memory is searched by meaning too."""
    monkeypatch.delenv("CHATBOT_EMBEDDING__MODEL")
    monkeypatch.setattr("chatbot.memory.meaning._QUIET_S", 60.0)  # a busy machine takes long to close


@pytest.fixture
def memory_home(tmp_path: Path) -> Path:
    """Where an identity's memory shall be; made when first needed."""
    return tmp_path / "memory"


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    """A memory on files, which is closed after the test."""
    async with MemorySystem(memory_home) as opened:
        yield opened


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    """A session with a transcript."""
    return await memory.create_session(["basic_session"], "chat")


@pytest.fixture
def clock() -> Clock:
    """A clock that goes on by a second whenever it is looked at."""
    return Clock(step=timedelta(seconds=1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system that is small enough to fill")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("this system lets not even root mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def put_in_place() -> Iterator[Put]:
    """A function that puts one of `ENDLESS` into the place of a file, until the test ends: pytest cannot erase them."""
    paths: list[Path] = []

    def put(path: Path, kind: str) -> None:
        erase(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        ENDLESS[kind](path)
        path.chmod(0o700 if path.is_dir() else 0o600)
        paths.append(path.absolute())

    yield put
    for path in paths:
        erase(path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL, begun for the first test that asks for it."""
    from tests.postgres import running

    yield from running()
