"""The command line, run in this process: a process each would cost twenty times as much.

It sees what a process would, and leaves nothing behind; `surfaces/test_processes.py` holds that both are alike.
"""

import asyncio
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from chatbot.cli.main import main

ROOT = Path(__file__).parents[1]
_PROGRAM = ROOT / "chatbot" / "__main__.py"
_KEPT = tuple(str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix, ROOT))
"""Modules from here are the same for every run."""
_OF_A_PROCESS = ("PYTHON", "LANG", "LC_")
"""Variables that Python reads when it starts."""
_OF_THE_PROCESS = "LITELLM_"
"""Set for good with the first import of LiteLLM; see `chatbot.models.litellm_import`."""
_LOGGERS = ("chatbot", "stores", "opentelemetry")


def run(*arguments: str, stdin: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `chatbot` with these arguments to its end."""
    assert threading.current_thread() is threading.main_thread(), "signals need the main thread: use process.run"
    assert not [name for name in environment if name.startswith(_OF_A_PROCESS)], "use process.run"
    with ExitStack() as stack:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = (stack.enter_context(TemporaryFile()) for _ in range(2))
        with _streams(given, out, err), in_environment(environment), _logging(), _imports(arguments), _no_loop():
            code = Context().run(_main, arguments)
            _await_imports()
        told = [_read(file) for file in (out, err)]
    return subprocess.CompletedProcess(["chatbot", *arguments], code, *told)


def ok(*arguments: str, stdin: str | bytes = "", **environment: str) -> str:
    """Run it, check that it succeeds, and return its output."""
    done = run(*arguments, stdin=stdin, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def from_json(*arguments: str, stdin: str | bytes = "", **environment: str) -> Any:
    """Return the JSON that it prints."""
    return json.loads(ok(*arguments, "--json", stdin=stdin, **environment))


def fails(code: int, words: str, *arguments: str, stdin: str | bytes = "", **environment: str) -> None:
    """Check that it ends with this code and prints nothing but an error with these words."""
    done = run(*arguments, stdin=stdin, **environment)
    assert (done.returncode, done.stdout) == (code, ""), done.stdout
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 3_000  # a long argument is not repeated


def project(config: str, *names: str, identity: str = 'clearance = "full"') -> None:
    """Write a configuration into the current folder, and the identities of these names, or `ada`, each as `{name}`."""
    Path("config.toml").write_text(config, encoding="utf-8")
    for name in names or ("ada",):
        folder = Path("identities", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "identity.toml").write_text(identity.replace("{name}", name), encoding="utf-8")


_MADE: dict[Callable[[], object], Path] = {}


def fill(make: Callable[[], object], folders: pytest.TempPathFactory) -> None:
    """Fill the current folder as `make` does: it runs once in each worker, and then a copy is enough."""
    if make in _MADE:
        shutil.copytree(_MADE[make], ".", dirs_exist_ok=True)
    else:
        make()
        _MADE[make] = Path(shutil.copytree(".", folders.mktemp("made"), dirs_exist_ok=True))


def _main(arguments: tuple[str, ...]) -> int:
    """Its exit code, as Python makes it."""
    try:
        code: object = main(arguments)
    except SystemExit as left:
        code = left.code
    except Exception:  # noqa: BLE001 - as Python itself ends
        traceback.print_exc()
        return 1
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)  # noqa: T201 - as Python itself does
    return 1


@contextmanager
def _streams(stdin: bytes, out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Standard streams that are files, for Python, for libraries in C and for child processes."""
    outer = sys.stdin, sys.stdout, sys.stderr
    saved = [os.dup(number) for number in range(3)]
    try:
        with TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            for number, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), number)
        streams = [_text(number) for number in range(3)]
        sys.stdin, sys.stdout, sys.stderr = streams
        try:
            yield
        finally:
            for stream in streams:
                stream.close()
    finally:
        sys.stdin, sys.stdout, sys.stderr = outer
        for number, each in enumerate(saved):
            os.dup2(each, number)
            os.close(each)


def _text(number: int) -> IO[str]:
    """As Python opens it."""
    usual = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    assert usual is not None
    mode, newline, buffering = ("r", None, -1) if number == 0 else ("w", "\n", 1 if number == 2 else -1)
    return open(number, mode, buffering, encoding=usual.encoding, errors=usual.errors, newline=newline, closefd=False)


@contextmanager
def in_environment(more: dict[str, str]) -> Iterator[None]:
    """Run a block with more variables, of which `TZ` is the zone of the machine."""
    before = dict(os.environ)
    os.environ.update(more)
    if "TZ" in more:
        time.tzset()
    try:
        yield
    finally:
        kept = {name: value for name, value in os.environ.items() if name.startswith(_OF_THE_PROCESS)}
        os.environ.clear()
        os.environ.update(before | kept)
        if "TZ" in more:
            time.tzset()


@contextmanager
def _logging() -> Iterator[None]:
    """No handlers but those of the command; what nobody handles goes to standard error, as it does in a process."""
    root, usual = logging.getLogger(), logging.lastResort
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    handlers, level = root.handlers[:], root.level
    before = {logger: (logger.handlers[:], logger.level) for logger in _own_loggers()}
    root.handlers[:] = []
    logging.lastResort = _LastResort(others)
    try:
        yield
    finally:
        logging.lastResort = usual
        root.handlers[:] = handlers
        for logger in _own_loggers():
            logger.handlers[:], own = before.get(logger, ([], logging.NOTSET))
            if logger.level != own:  # to set a level goes through all loggers of the process
                logger.setLevel(own)
        if root.level != level:
            root.setLevel(level)


def _own_loggers() -> list[logging.Logger]:
    known = logging.getLogger().manager.loggerDict
    loggers = [each for each in known.values() if isinstance(each, logging.Logger)]
    return [each for each in loggers if each.name.partition(".")[0] in _LOGGERS]


class _LastResort(logging.StreamHandler[IO[str]]):
    """Print records that nobody handles, as Python does; not those of the servers of a test."""

    def __init__(self, others: set[int | None]) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.WARNING)
        self.addFilter(lambda record: record.thread not in others)


@contextmanager
def _imports(arguments: tuple[str, ...]) -> Iterator[None]:
    """Imports also from the current folder, as `python -m` does; a plug-in is imported anew by each run."""
    argv, path, known = sys.argv, sys.path[:], set(sys.modules)
    sys.argv = [str(_PROGRAM), *arguments]
    sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        for name in sys.modules.keys() - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not str(Path(file).resolve()).startswith(_KEPT):  # it is the test's
                del sys.modules[name]


@contextmanager
def _no_loop() -> Iterator[None]:
    """Also within a coroutine, which waits, as it would for a process."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def _await_imports() -> None:
    """An import that goes on when its command has ended would run in the next test."""
    for thread in threading.enumerate():
        if thread.name == "import litellm":
            thread.join()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
