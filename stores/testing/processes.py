"""Helpers of the contract kit: run async tests on an open store, start processes and kill them.

An engine is named as `package.module:function`, so that other processes can open it too; the function takes a folder.
"""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from chatbot.stores.testing import Contract

Result = TypeVar("Result")

PATIENCE_S = 200.0
"""Time limit of waits, long enough for a busy machine."""
_RUN = """
import sys
from pathlib import Path
from chatbot.stores.testing.processes import opened
import {module} as worker
worker.{name}(opened(sys.argv[1], Path(sys.argv[2])), *sys.argv[3:])
"""


class OpenerTests(Contract):
    """Tests of what `opener` opens, in processes too."""

    opener: ClassVar[str]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """The folder in which it is opened; not created yet."""
        return tmp_path / "memory"


class StoreTests(Contract):
    """Tests of a store. An async test is given an open `store`, in an event loop of its own."""

    folder: ClassVar[str] = "tmp_path"
    """Name of the fixture of the folder in which stores are opened."""

    def __init_subclass__(cls, **options: Any) -> None:
        for name, test in [*vars(cls).items()]:
            if name.startswith("test_") and iscoroutinefunction(test):
                setattr(cls, name, _in_a_loop(test, cls.folder))
        super().__init_subclass__(**options)

    def open_store(self, home: Path) -> Any:
        """Return the store under test, which keeps its files below `home`. Called again to see what survived."""
        raise NotImplementedError

    def given(self, store: Any, home: Path) -> tuple[Any, ...]:  # noqa: ARG002 - for tests that are given more
        """Return the arguments of tests, in the order of `_GIVEN`."""
        return (store,)

    def run(self, home: Path, check: Callable[..., Awaitable[Result]]) -> Result:
        """Open the store, run `check` on it, and close it."""

        async def checked() -> Result:
            async with self.open_store(home) as store:
                return await check(*self.given(store, home))

        return asyncio.run(checked())

    def survives(
        self, home: Path, write: Callable[..., Awaitable[object]], check: Callable[..., Awaitable[object]]
    ) -> None:
        """Run `write`, and then `check` on the store opened again; on the same one if it keeps no files."""

        async def written(store: Any, *given: Any) -> bool:
            await write(store, *given)
            if not store.is_durable:
                await check(store, *given)
            return bool(store.is_durable)

        if self.run(home, written):
            self.run(home, check)


_GIVEN = ("store", "session")


def _in_a_loop(test: Callable[..., Awaitable[None]], folder: str) -> Callable[..., None]:
    """Wrap an async test for pytest; its other parameters are fixtures."""
    asked = signature(test).parameters
    names = [name for name in asked if name not in _GIVEN]  # `self`, then fixtures

    @wraps(test)
    def run(self: StoreTests, **fixtures: Any) -> None:
        async def check(*given: Any) -> None:
            own = {name: fixtures[name] for name in names[1:]}
            await test(self, **own, **{name: each for name, each in zip(_GIVEN, given, strict=False) if name in asked})

        self.run(fixtures[folder], check)

    wanted = dict.fromkeys([*names, folder])
    run.__dict__["__signature__"] = Signature([Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in wanted])
    return run


def opened(opener: str, folder: Path) -> Any:
    """Call the function of that name with the folder, and return its result."""
    module, _, name = opener.partition(":")
    return getattr(importlib.import_module(module), name)(folder)


def start(worker: str, opener: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that calls `worker` (`package.module:function`) with what `opener` opens, and the arguments."""
    module, _, name = worker.partition(":")
    command = [sys.executable, "-c", _RUN.format(module=module, name=name), opener, str(folder), *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def run_together(worker: str, opener: str, folder: Path, calls: Iterable[Sequence[object]]) -> None:
    """Run a process for each call of `worker`, all at once; `calls` are its arguments. Fails if one of them did."""
    for process in [start(worker, opener, folder, *arguments) for arguments in calls]:
        lines_of(process)


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines printed by a process that ends by itself. Fails if the process did."""
    printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"a process of the test ended with {process.returncode}"
    return printed.splitlines()


def kill_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill a process once it has printed that many lines; return all complete lines that it printed."""
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    printed += process.stdout.readlines()
    process.communicate(timeout=PATIENCE_S)
    return [line.rstrip("\n") for line in printed if line.endswith("\n")]
