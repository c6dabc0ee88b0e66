"""A configuration that names a database: everything works as with files, and other lines stay as they are."""

import gzip
import json
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.runtime import Options
from chatbot.server.callers import Tokens
from chatbot.server.identities import Identities
from chatbot.stores.errors import DamagedFile, ReadOnlyFolder, StoreFailed
from chatbot.stores.home import parse_address
from chatbot.stores.postgres.schema import TABLES
from chatbot.transfer.backups import backup, copy_storage, restore
from tests.command import fails, from_json, ok, project, run
from tests.postgres import ROLE, address, fresh_database, owner_url

pytestmark = pytest.mark.usefixtures("postgres")

CONFIG = """
[storage]
url = "{url}"
[model]
name = "scripted"
script = ["Noted.", "You keep bees."]
[embedding]
model = ""
"""


@pytest.fixture
def name(tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project in a folder of its own, with an identity that nobody else has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHATBOT_CONFIG", str(tmp_path / "config.toml"))
    name = address(tmp_path).identity
    project(CONFIG.format(url=postgres), name)
    monkeypatch.setenv("CHATBOT_IDENTITY", name)
    return name


def test_the_command_line_works_on_a_database_whatever_its_formats(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATESTYLE", "SQL, DMY")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGTZ", "<+0345>-03:45")
    assert ok("ask", "--new", "I keep bees in the garden 🐝") == "Noted.\n"
    ok("memory", "add", "Milk is in aisle 4")
    assert "Milk is in aisle 4" in ok("memory", "search", "milk")
    ok("memory", "edit", "--first", "milk", "--title", "Milk is out")
    assert "Milk is out" in ok("memory", "purge", "--text", "AISLE 4", "--dry-run")
    assert "purged " in ok("memory", "purge", "--text", "AISLE 4", "--yes")
    assert "Milk" not in ok("memory", "list")
    assert "I keep bees in the garden" in ok("sessions", "list")
    assert "chat     1 " in ok("usage")
    assert ok("why")
    assert "PostgreSQL" in ok("doctor")
    assert not list(tmp_path.glob("identities/*/memory"))


def test_doctor_suggests_an_upgrade_for_sessions_and_memories_of_a_later_release(name: str) -> None:
    ok("ask", "--new", "I keep bees in the garden")
    with psycopg.connect(owner_url()) as owner:
        later = "SET record = replace(record, '\"version\": 1', '\"version\": 9')"
        owner.execute(f"UPDATE chatbot.session {later} WHERE identity = %s", [name])
        owner.execute("UPDATE chatbot.event SET line = replace(line, '\"v\":1', '\"v\":9') WHERE identity = %s", [name])
    found = run("doctor").stdout
    assert found.count("→ uv tool upgrade chatbot-runtime") == 2, found
    assert "damaged" not in found


async def test_a_server_refuses_a_role_that_could_see_every_identity_and_is_not_ready_where_it_may_only_read(
    name: str, postgres: str
) -> None:
    async with Identities(Options()) as served:
        assert await served.storage.error() is None
    Path("config.toml").write_text(CONFIG.format(url=f"{postgres}&options=-c%20default_transaction_read_only%3Don"))
    async with Identities(Options()) as served:
        assert isinstance(await served.storage.error(), ReadOnlyFolder)
    Path("config.toml").write_text(CONFIG.format(url=owner_url()))
    with pytest.raises(ConfigError, match="its role is a superuser, so the database would not keep identities apart"):
        async with Identities(Options()):
            pass


def test_creating_the_tables_is_a_command(name: str) -> None:
    assert ok("storage", "create", "--url", owner_url()) == "the tables already exist\n"
    told = run("storage", "create", "--role", ROLE).stderr
    assert "run `chatbot storage create --role NAME` as the owner of the tables" in told
    Path("config.toml").write_text("")
    assert "memory is stored in files, which need no tables" in run("storage", "create").stderr


async def test_a_copy_to_a_database_and_back_says_the_same(name: str, tmp_path: Path, postgres: str) -> None:
    where = f"{postgres}#{name}"
    async with MemorySystem(tmp_path / "one") as memory:
        for number in range(3):
            session = await memory.create_session(["basic_session", "observations"], "chat", title=f"no {number} \0")
            await session.transcript_append("user", f"I keep {number} bees \0 in the garden")
            await session.kv_set("hives", str(number))
        kept = await memory.memory("chat").remember("Ada keeps bees in the garden")
        await memory.memory("chat").confirm(kept.id)
    first, counts = await copy_storage(tmp_path / "one", parse_address(where))
    assert (counts["sessions"], counts["memories"]) == (3, 1)
    again, counts = await copy_storage(tmp_path / "one", parse_address(where))
    assert (counts["sessions"], counts["memories"]) == (0, 0)
    back, _ = await copy_storage(parse_address(where), tmp_path / "two")
    assert first.digest == again.digest == back.digest
    async with MemorySystem(where) as there, MemorySystem(tmp_path / "two") as here:
        found = [await each.memory("chat").search("bees") for each in (there, here)]
        assert [hit.observation for hit in found[0]] == [hit.observation for hit in found[1]] != []
        assert [each.title for each in await there.list_sessions()] == [
            each.title for each in await here.list_sessions()
        ]
        await here.memory("chat").remember("Something else")
        await there.memory("chat").remember("And something other")
    with pytest.raises(ConfigError, match="the target has data that the source lacks: nothing was written"):
        await copy_storage(parse_address(where), tmp_path / "two")
    assert "copied 3 sessions" in ok("storage", "copy", "env:PLACE", str(tmp_path / "three"), PLACE=where)


def test_tokens_move_to_a_database_as_they_are_and_replace_no_others(name: str) -> None:
    Path("config.toml").write_text("")
    made, where = from_json("token", "add", "sam", "--clearance", "full"), f"{fresh_database('moved')}#.server"
    fails(2, "no tokens and no limits of users: nothing was copied", "storage", "copy", "identities/.serve", where)
    for _ in range(2):
        assert ok("storage", "copy", "identities/.server", where) == "copied the tokens and the limits of users\n"
    [moved] = Tokens(parse_address(where)).all()
    assert (moved.id, Tokens(parse_address(where)).find(made["token"])) == (made["id"], moved)
    from_json("token", "add", "bo", "--clearance", "full")
    fails(3, "has a tokens.json of its own, which is not replaced", "storage", "copy", "identities/.server", where)


def _with_an_invalid_line(backup: Path, wrong: Path) -> None:
    with ZipFile(backup) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    head = json.loads(members.pop("backup.json"))
    [part] = [each for each in members if each.endswith(".gz")]
    line = b'\n{"k": "lines", "name": "usage", "v": [{"cost_usd": -1}]}'
    data = gzip.compress(gzip.decompress(members.pop(part)) + line)
    members[f"{part.rpartition('-')[0]}-{sha256(data).hexdigest()[:32]}.gz"] = data
    members["backup.json"] = json.dumps(head | {"files": [*members]}).encode()
    with ZipFile(wrong, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)


async def test_a_failed_restore_says_what_it_left_and_is_repeatable(name: str, tmp_path: Path, postgres: str) -> None:
    target = parse_address(f"{postgres}#{name}")
    async with MemorySystem(tmp_path / "one") as memory:
        for number in range(3):
            await memory.create_session(["basic_session"], "chat", title=str(number))
        await memory.memory("chat").remember("Ada keeps bees")
    with (tmp_path / "whole").open("w+b") as file:
        made = await backup(tmp_path / "one", file, name="one")
    _with_an_invalid_line(tmp_path / "whole", tmp_path / "wrong")
    with (tmp_path / "wrong").open("rb") as wrong, pytest.raises(DamagedFile, match="Nothing was written"):
        await restore(wrong, "wrong", target)
    with psycopg.connect(owner_url()) as owner:
        for table in TABLES:
            count = SQL("SELECT count(*) FROM chatbot.{} WHERE identity = %s").format(Identifier(table))
            assert owner.execute(count, [name]).fetchone() == (0,), table

    def breaking(done: int, total: int) -> None:
        if (done, total) == (2, 3):
            raise StoreFailed("the disk is full")

    with (tmp_path / "whole").open("rb") as whole:
        with pytest.raises(StoreFailed, match=r"is full\. 1 memory, 2 sessions, .* had been written"):
            await restore(whole, "whole", target, breaking)
        await restore(whole, "whole", target)
    with (tmp_path / "back").open("w+b") as file:
        assert (await backup(target, file, name="one")).digest == made.digest
        await restore(file, "back", tmp_path / "two")
