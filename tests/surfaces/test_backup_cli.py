"""`chatbot backup`, `restore` and `sync` on the command line."""

import asyncio
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from zipfile import ZipFile

import pytest

from chatbot.stores.on_disk.examination import unwritable
from tests.command import fails, fill, from_json, ok, project, run
from tests.disk import ENDLESS, Put
from tests.effort import share
from tests.patience import PATIENCE_S

CONFIG = """
[model]
name = "scripted"
script = ["Noted.", "You keep bees."]
[embedding]
model = ""
[sync]
places = ["place"]
"""


@pytest.fixture(autouse=True)
def ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A project with an identity that remembers something, and a new one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHATBOT_CONFIG", str(tmp_path / "config.toml"))
    fill(_make, tmp_path_factory)


def _make() -> None:
    project(CONFIG, "ada", "bo")
    ok("ask", "--new", "I keep bees in the garden")
    ok("memory", "profile", "set", "city", "Bern")
    Path("place").mkdir()


def _digest(identity: str = "ada") -> str:
    findings = from_json("doctor", "-i", identity)
    return str(next(each["message"] for each in findings if each["subject"] == "digest")).partition(":")[0]


def test_a_backup_and_a_sync_name_the_stores_that_they_do_not_copy() -> None:
    stores = '[agents.chat]\nmemory = ["chatbot.stores.in_memory:InMemoryStore", "observations"]\n'
    Path("config.toml").write_text(CONFIG + stores, encoding="utf-8")
    ok("ask", "--new", "I like figs")
    for command in (("backup", "ada.chatbot"), ("sync",), ("restore", "ada.chatbot", "-i", "copy")):
        done = run(*command)
        named = "store chatbot.stores.in_memory:InMemoryStore: only basic_session and observations are copied"
        assert (done.returncode, named in done.stderr, "all of ada" in done.stdout) == (1, True, False)


@pytest.mark.parametrize("settings", ['persona = "You are Ada."\n', ""])
def test_a_restored_identity_is_identical(settings: str) -> None:
    Path("identities/ada/identity.toml").write_text(settings)
    told = ok("backup", "ada.chatbot")
    assert f"digest {_digest()}" in told
    assert f"digest {_digest()}" in ok("restore", "ada.chatbot", "-i", "copy")
    assert _digest("copy") == _digest()
    assert Path("identities/copy/identity.toml").read_text() == settings
    for command in (("memory", "profile"), ("sessions", "list"), ("usage", "--json"), ("memory", "list")):
        assert ok(*command, "-i", "copy") == ok(*command, "-i", "ada")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_terminated_leaves_no_file(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def half(_: object, file: IO[bytes], **__: object) -> None:
        file.write(b"I keep bees")
        os.kill(os.getpid(), number)
        await asyncio.sleep(PATIENCE_S)

    monkeypatch.setattr("chatbot.cli.storage.backup", half)
    assert run("backup", "ada.chatbot").returncode == 143
    assert not [*Path().glob("*ada.chatbot*")]


def test_a_restore_that_a_full_disk_broke_off_is_continued() -> None:
    Path("bees.txt").write_text("bees " * 20_000)
    assert run("ask", "--new", "--attach", "bees.txt", "What is this?").returncode == 0
    ok("backup", "ada.chatbot")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    try:
        told = run("restore", "ada.chatbot", "--as", "bo").stderr
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        assert unwritable(Path("identities"))  # as `doctor` asks
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "had been written: repeat the command to continue" in told
    assert Path("identities/bo/memory/observations.jsonl").exists()
    for command in (("doctor", "-i", "bo"), ("backup", "bo.chatbot", "-i", "bo")):
        done = run(*command)
        assert (done.returncode, "only a part of ada.chatbot was restored" in done.stdout + done.stderr) == (1, True)
    assert f"digest {_digest()}" in ok("restore", "ada.chatbot", "--as", "bo")
    assert run("doctor", "-i", "bo").returncode == 0


def test_a_copy_names_the_folder_for_temporary_files_if_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(TemporaryFile=partial(Path("/dev/full").open, "w+b"))
    monkeypatch.setattr("chatbot.transfer.backups.tempfile", full)
    fails(7, "the folder for temporary files cannot be written", "storage", "copy", "identities/ada/memory", "copy")


def test_settings_that_need_trust_are_restored_once_they_are_trusted() -> None:
    Path("identities/ada/identity.toml").write_text('[memory.observations]\ncache = "caches"\n')
    ok("config", "trust", "-i", "ada")
    ok("backup", "ada.chatbot")
    told = run("restore", "ada.chatbot", "--as", "copy").stderr
    assert "run `chatbot config trust -i copy`, or set that in config.toml. Then restore again" in told
    ok("config", "trust", "-i", "copy")
    ok("restore", "ada.chatbot", "--as", "copy")
    assert _digest("copy") == _digest()


def test_a_backup_is_not_overwritten_and_a_full_identity_not_restored_into() -> None:
    ok("backup", "ada.chatbot")
    assert "already exists" in run("backup", "ada.chatbot").stderr
    assert "is not written to standard output" in run("backup", "-").stderr
    Path("identities/ada").rename("identities/old")
    for name in ("bo", "ada"):
        ok("memory", "add", "Something else", "-i", name)
        told = run("restore", "ada.chatbot", "--as", name).stderr
        assert "nothing was changed; choose an empty target, with `chatbot restore --as" in told
    assert not Path("identities/ada/identity.toml").exists(), "no settings are left of what was not restored"


@pytest.mark.parametrize("at", [40, -30, -3])
def test_a_damaged_backup_is_refused_before_anything_is_written(at: int) -> None:
    ok("backup", "ada.chatbot")
    data = bytearray(Path("ada.chatbot").read_bytes())
    data[at] ^= 1
    Path("ada.chatbot").write_bytes(data)
    assert run("restore", "ada.chatbot", "--as", "copy").returncode != 0
    assert not Path("identities/copy").exists()


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_has_no_end_is_neither_a_backup_nor_imported(kind: str, put_in_place: Put) -> None:
    put_in_place(Path("endless"), kind)
    for command in (("restore", "endless", "--as", "copy"), ("sessions", "import", "endless")):
        done = run(*command)
        assert done.returncode != 0
        assert "endless" in done.stderr
        assert "Traceback" not in done.stderr
    assert not Path("identities/copy").exists()


def test_a_backup_that_turns_out_to_be_wrong_leaves_no_identity_behind() -> None:
    ok("backup", "ada.chatbot")
    with ZipFile("ada.chatbot") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(members["backup.json"])
    heads = ({"settings": "persona = "}, {"settings": "[providers.a]\nkind = 'b'"}, {"digest": "0" * 32})
    changed = {
        name: gzip.compress(gzip.decompress(data).replace(b"bees", b"wasp"))
        for name, data in members.items()
        if name.endswith(".gz")
    }
    for wrong in (changed, *({"backup.json": json.dumps(head | each).encode()} for each in heads)):
        with ZipFile("wrong.chatbot", "w") as archive:
            for name, data in (members | wrong).items():
                archive.writestr(name, data)
        done = run("restore", "wrong.chatbot", "--as", "copy")
        assert (done.returncode != 0, "its digest differs" in done.stderr) == (True, wrong is changed)
        assert not Path("identities/copy").exists()


def test_two_identities_sync_through_the_places_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("sync", "-i", "ada")
    assert done.returncode == 0
    assert "shows its readers all that is synced" in done.stderr
    assert "1 session" in done.stdout
    assert ok("sync", "-i", "bo") == done.stdout.replace("sent", "received")
    assert _digest("bo") == _digest()
    with monkeypatch.context() as elsewhere:  # a relative place starts from the file's folder
        elsewhere.chdir("identities")
        assert ok("sync", "-i", "bo") == f"{Path('../place').resolve()}: nothing new\n"
    for _ in range(2):  # the second time only counts
        ok("memory", "add", "Bo keeps goats", "-i", "bo")
    assert ok("sync", "--dry-run", "-i", "bo") == "would send 1 memory\n"
    ok("sync", "-i", "bo")
    assert ok("sync", "place") == "received 1 memory\n"
    ok("sessions", "rename", "I keep bees in the garden", "Hives")
    ok("sync", "place")
    assert ok("sync", "-i", "bo") == "received 1 session\n"
    ok("memory", "add", "Ada keeps hens")
    Path("config.toml").write_text(CONFIG.replace('["place"]', '["place", "nowhere"]'))
    done = run("sync")
    assert (done.returncode != 0, done.stdout) == (True, "sent 1 memory\n"), "it was done before the failure"


def _first_bytes(listener: socket.socket) -> bytes:
    listener.settimeout(PATIENCE_S)
    with listener.accept()[0] as asking:
        return asking.recv(65_536)


@pytest.mark.parametrize("listed", ["http://{}", "https://{}", "http://127.0.0.1:9"])
def test_the_token_is_sent_to_servers_of_the_configuration_alone(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("CHATBOT_SYNC__TOKEN", "cbt_secret")
        monkeypatch.setenv("CHATBOT_SYNC__PLACES", json.dumps([listed.format(server)]))
        listening = threads.submit(_first_bytes, listener)
        assert run("sync", f"http://{server}").returncode != 0
        head = listening.result()
    assert (b"cbt_secret" in head) is (listed == "http://{}")


def test_a_place_that_is_none_or_empty_is_refused() -> None:
    assert "is not there" in run("sync", "nowhere").stderr
    for url in ("ftp://example.org", "http://[::1", "http://me:***@example.org"):
        assert f"{url} is neither a folder nor the address of a server" in run("sync", url.replace("***", "k")).stderr
    for host, warns in (("127.0.0.1", False), ("0.0.0.0", True)):
        refused = run("sync", f"http://{host}:9?identity=ada").stderr
        assert ("identity=ada: Connection refused\n" in refused, "is not encrypted" in refused) == (True, warns)
    assert "toml is not a complete backup of chatbot: config.toml is not a" in run("restore", "config.toml").stderr
    assert "holds no memory" in run("storage", "copy", "place", "copy").stderr
    for command in ("sync", "backup", "restore", "storage copy place", "memory import", "sessions export --all -o"):
        done = run(*command.split(), "")
        assert (done.returncode, "the path is empty" in done.stderr) == (2, True), command


@pytest.mark.parametrize("after_s", share([0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3], of="killed syncs"))
def test_a_sync_that_is_killed_is_simply_done_again(after_s: float) -> None:
    assert run("sync").returncode == 0
    Path("bees.md").write_text("".join(f"# Day {number}\n\nAda saw {number} bees.\n\n" for number in range(30)))
    assert "30 memories imported" in ok("memory", "import", "bees.md")
    for identity in ("ada", "bo"):
        sync = subprocess.Popen([sys.executable, "-m", "chatbot", "sync", "-i", identity], stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            sync.wait(after_s)
        sync.kill()
        sync.wait()
    for identity in ("ada", "bo", "ada", "bo"):
        assert run("sync", "-i", identity).returncode == 0
    assert _digest("bo") == _digest()
