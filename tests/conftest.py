"""Shared fixtures. Every test runs in an empty home, with no configuration and no provider's key."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Hundreds of processes are started, and a large library takes longer to compile than a test takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("CHATBOT_", "XDG_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.chdir(home)


@pytest.fixture
def config_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`./config.toml` is the user's word, and may name code and servers; see `chatbot.trust`."""
    monkeypatch.setenv("CHATBOT_CONFIG", str(Path.cwd() / "config.toml"))


@pytest.fixture
def memory_home(tmp_path: Path) -> Path:
    """Where an identity's memory shall be; made when first needed."""
    return tmp_path / "memory"


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
