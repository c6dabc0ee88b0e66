"""A memory that can only be read, as on a backup or a read-only mount: reads answer as ever, writes name the folder."""

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chatbot.cli.main import main
from chatbot.memory import MemorySystem
from chatbot.stores.errors import ReadOnlyFolder

CONFIG = """
[model]
name = "scripted"
[agents.chat]
memory = ["basic_session", "observations"]
"""
HOME = Path("identities/ada/memory")
READS = [
    "sessions list",
    "sessions show {first}",
    "sessions show {second} --json",
    "sessions search bicycle",
    "sessions search Norway --json",
    "sessions compare {first} {second}",
    "sessions export {first} -o -",
    "memory list",
    "memory list --json",
    "memory search stamps",
    "memory timeline {row}",
    "memory history {row}",
    "memory get {row}",
    "memory people",
    "memory tasks",
    "memory facts",
    "memory stats",
    "memory export -o -",
    "why --session {first}",
    "prompt --dry-run stamps",
    "usage",
    "doctor",
    "stores",
    "config --json",
]
COUNTING = ("memory search", "memory get", "prompt")
"""Reads that count how often a row was of use."""
WRITES = [
    "ask hello",
    "sessions rename {first} other",
    "sessions delete {first} --with-memory --yes",
    "sessions archive {first}",
    "sessions fork {first}",
    "sessions pin {first}",
    "sessions mark {first} private",
    "memory add something",
    "memory forget {row} --yes",
    "memory purge {row} --yes",
    "memory confirm {row}",
]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A mount that not even root may write to."""
    before = Path.cwd()
    os.chdir("/")
    for options in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, str(folder)], check=False, capture_output=True).returncode:
            os.chdir(before)
            pytest.skip("only root may mount a folder read-only, and not on every system")
    try:
        os.chdir(folder)
        yield
    finally:
        os.chdir("/")
        subprocess.run(["umount", str(folder)], check=True)
        os.chdir(before)


def files(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that a write would change."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Two sessions and some rows; the names of one row and of both sessions."""
    folder = tmp_path / "project"
    (folder / "identities/ada").mkdir(parents=True, mode=0o700)
    (folder / "identities").chmod(0o700)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setenv("CHATBOT_CONFIG", str(folder / "config.toml"))
    Path("config.toml").write_text(CONFIG, encoding="utf-8")
    Path("identities/ada/identity.toml").touch(0o600)
    names = {"folder": str(folder)}
    for name, said in {"first": "My sister Ida collects stamps from Norway.", "second": "My bicycle is red."}.items():
        assert main(["ask", "--json", said]) == 0
        names[name] = json.loads(capsys.readouterr().out)["session"]
    assert main(["memory", "add", "Ida wants stamps", "--json"]) == 0
    capsys.readouterr()
    assert main(["memory", "list", "--json"]) == 0
    names["row"] = json.loads(capsys.readouterr().out)[0]["id"]
    return names


def answers(project: dict[str, str], capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, str, str]]:
    found = {}
    for command in READS:
        code = main(command.format(**project).split())
        out, err = capsys.readouterr()
        found[command] = (code, _without_what_differs(out), err)
    return found


def _without_what_differs(out: str) -> str:
    """Without the nonce of a memory block and what that weighs, and what doctor says of a folder it cannot write to."""
    out = re.sub('nonce="\\w+"', "", re.sub(r"memory \d+ ·", "", out))
    return re.sub(r"^· places .*\n +→ ls .*\n", "", out, flags=re.MULTILINE)


def forget_caches(folder: Path) -> None:
    """Leave what a backup without hidden files and caches holds."""
    for path in folder.rglob("*"):
        if path.name.startswith((".", "sessions.j")) and path.is_file():
            path.unlink()
    shutil.rmtree(os.environ["XDG_CACHE_HOME"])


@pytest.mark.parametrize("is_bare", [False, True])
def test_every_read_answers_on_a_read_only_mount_as_on_a_writable_one(
    project: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    is_bare: bool,  # noqa: FBT001
) -> None:
    folder = Path(project["folder"])
    if is_bare:
        forget_caches(folder)
    before = files(folder)
    with read_only(folder):
        there = answers(project, capsys)
    assert files(folder) == before
    here = answers(project, capsys)
    for command in READS:
        assert there[command] == here[command], command
        assert there[command][0] == 0, there[command]
        assert there[command][2] == "", command


def test_reading_writes_nothing_though_it_could(project: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(project["folder"])
    forget_caches(folder)
    before = files(folder)
    for command in [each for each in READS if not each.startswith(COUNTING)]:
        assert main(command.format(**project).split()) == 0
        assert files(folder) == before, command
    assert capsys.readouterr().err == ""


def test_a_session_that_would_live_longer_when_used_is_shown_where_it_cannot(
    project: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATBOT_SESSIONS__TTL_DAYS", "30")
    with read_only(Path(project["folder"])):
        assert main(["sessions", "show", project["first"]]) == 0
    assert "Norway" in capsys.readouterr().out


def test_every_write_on_a_read_only_mount_names_the_folder(
    project: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with read_only(Path(project["folder"])):
        for command in WRITES:
            assert main(command.format(**project).split()) == 7, command
            out, err = capsys.readouterr()
            assert out == ""
            assert f"{Path(project['folder']) / HOME}" in err
            assert "cannot be written (Read-only file system)" in err


def test_the_library_reads_all_and_refuses_each_write_with_one_error(project: dict[str, str]) -> None:
    async def use() -> None:
        async with MemorySystem(HOME) as memory:
            session = await memory.load_session(project["first"], "chat")
            said = await session.transcript_read_all()
            assert len(said) == await session.transcript_count() == len(await session.transcript_read_last()) == 2
            assert await session.kv_entries() == []
            assert len(await session.receipts()) == 1
            assert len(await memory.list_sessions()) == 2
            assert (await memory.find_session("my bicycle is red.")).id == project["second"]
            assert await session.memory.search("stamps")
            assert [file.name for file in await session.list_files()]
            for refused in (
                lambda: session.transcript_append("user", "no"),
                lambda: session.transcript_drop_last(1),
                lambda: session.kv_set("key", "no"),
                lambda: session.kv_delete("key"),
                lambda: session.rename("no"),
                lambda: session.receipt_append({}),
                lambda: session.memory.remember("no"),
                lambda: memory.create_session(["basic_session"], "chat"),
                lambda: memory.delete_session(session.id),
                memory.maintain,
            ):
                with pytest.raises(ReadOnlyFolder, match="memory"):
                    await refused()

    with read_only(Path(project["folder"])):
        asyncio.run(use())


def test_what_cannot_be_read_is_never_empty(project: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "second"):
        path = HOME / "sessions" / project[name] / "transcript.md"
        path.unlink()
        path.mkdir()
    for command in ("sessions search bicycle", "sessions show {first}", "sessions export {first} -o -"):
        assert main(command.format(**project).split()) != 0, command
        assert "transcript.md" in capsys.readouterr().err
