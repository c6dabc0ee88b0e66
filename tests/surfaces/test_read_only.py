"""A memory that can only be read, as on a backup or a read-only mount: reads answer as ever, writes name the folder."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command import fails, from_json, ok, run
from tests.terminal import Terminal

HOME = Path("identities/ada/memory")


def _lines(text: str) -> list[str]:
    return [" ".join(each.split()) for each in text.split(";")]


READS = _lines("""
    sessions list; sessions show {first}; sessions show {second} --json; sessions search bicycle;
    sessions search Norway --json; sessions export {first} -o -; memory list;
    memory list --json; memory search stamps; memory timeline {row}; memory history {row}; memory get {row};
    memory people; memory tasks; memory facts; memory stats; memory export -o -; why --session {first};
    prompt --dry-run stamps; usage; doctor; stores; config --json;
    backup ../kept.chatbot --force
""")
WRITES = _lines("""
    ask hello; sessions rename {first} other; sessions delete {first} --with-memory --yes; sessions archive {first};
    sessions fork {first}; sessions pin {first}; sessions mark {first} private; memory add something;
    memory forget {row} --yes; memory purge {row} --yes; memory confirm {row}
""")


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
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two sessions and some rows; the names of their folder, of both sessions and of one row."""
    folder = tmp_path / "project"
    (folder / "identities/ada").mkdir(parents=True, mode=0o700)
    (folder / "identities").chmod(0o700)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CHATBOT_CONFIG", str(folder / "config.toml"))
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    Path("identities/ada/identity.toml").touch(0o600)
    said = {"first": "My sister Ida collects stamps from Norway.", "second": "My bicycle is red."}
    names = {name: from_json("ask", text)["session"] for name, text in said.items()}
    ok("memory", "add", "Ida wants stamps")
    return names | {"folder": str(folder), "row": from_json("memory", "list")[0]["id"]}


def answers(names: dict[str, str]) -> dict[str, tuple[int, str, str]]:
    done = {line: run(*line.format(**names).split()) for line in READS}
    return {line: (each.returncode, _without_what_differs(each.stdout), each.stderr) for line, each in done.items()}


def _without_what_differs(out: str) -> str:
    """Without the nonce of a memory block and what that weighs, and what doctor says of a folder it cannot write to."""
    out = re.sub('nonce="\\w+"', "", re.sub(r"memory \d+ ·", "", out))
    return re.sub(r"^· places .*\n +→ ls .*\n", "", out, flags=re.MULTILINE)


@pytest.mark.parametrize("is_bare", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_every_read_answers_on_a_read_only_mount_as_on_a_writable_one(names: dict[str, str], *, is_bare: bool) -> None:
    folder = Path(names["folder"])
    if is_bare:  # as a backup without hidden files and caches
        for path in folder.rglob("*"):
            if path.name.startswith((".", "sessions.j")) and path.is_file():
                path.unlink()
        shutil.rmtree(os.environ["XDG_CACHE_HOME"])
    before = files(folder)
    with read_only(folder):
        there = answers(names)
    assert files(folder) == before
    assert there == answers(names)
    assert {(code, err) for code, _, err in there.values()} == {(0, "")}


def test_every_write_on_a_read_only_mount_names_the_folder(names: dict[str, str]) -> None:
    with read_only(Path(names["folder"])):
        for line in WRITES:
            fails(7, "cannot be written: Read-only file system", *line.format(**names).split())
            assert f"{Path(names['folder']) / HOME}" in run(*line.format(**names).split()).stderr
        said = run("ask", "--json", "-r", names["first"], "hello")
        assert "\nYou said: hello\nchatbot: " in Terminal("ask", "-c", "hello", columns=200).ended(7)
        assert "cannot be written: Read-only file system" in Terminal(columns=200).ended(7)
    receipt = json.loads(said.stdout)
    assert (said.returncode, receipt["reply"], receipt["kept"]) == (7, "You said: hello", False)


def test_what_cannot_be_read_is_never_empty(names: dict[str, str]) -> None:
    for name in ("first", "second"):
        path = HOME / "sessions" / names[name] / "transcript.md"
        path.unlink()
        path.mkdir()
    for line in ("sessions search bicycle", "sessions show {first}", "sessions export {first} -o -"):
        done = run(*line.format(**names).split())
        assert (done.returncode != 0, "transcript.md" in done.stderr) == (True, True), line
