"""A configuration that names a database: everything works as with files, and other lines stay as they are."""

from pathlib import Path

import pytest

from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.runtime import Options, Runtime
from chatbot.server.house import House
from tests.command import ok, project, run
from tests.postgres import address, owner_url, postgres

__all__ = ["postgres"]

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


def test_the_command_line_works_on_a_database(name: str, tmp_path: Path) -> None:
    assert ok("ask", "--new", "I keep bees in the garden") == "Noted.\n"
    ok("memory", "add", "Milk is in aisle 4")
    assert "Milk is in aisle 4" in ok("memory", "search", "milk")
    assert "I keep bees in the garden" in ok("sessions", "list")
    assert "chat     1 " in ok("usage")
    assert ok("why")
    assert "PostgreSQL" in ok("doctor")
    assert not list(tmp_path.glob("identities/*/memory"))


async def test_a_second_server_knows_what_the_first_one_was_told(name: str, postgres: str) -> None:
    where = f"{postgres}#{name}"
    async with Runtime(Options()) as runtime, MemorySystem(where) as elsewhere:
        session = await runtime.new_session()
        assert session is not None
        await runtime.chat(session).turn("I keep bees in the garden")
        assert [each.id for each in await elsewhere.list_sessions()] == [session.id]
        same = await elsewhere.load_session(session.id, "chat")
        assert [each.content for each in await same.transcript_read_all()] == ["I keep bees in the garden", "Noted."]
        found = await elsewhere.memories("chat").search("bees")
        assert [hit.observation.type for hit in found] == ["exchange"]
        await elsewhere.delete_session(session.id)
        assert await runtime.memory.list_sessions() == []
        assert await runtime.memories().search("bees") == []


async def test_a_server_refuses_a_role_that_could_see_every_identity(name: str) -> None:
    async with House(Options()):
        pass
    Path("config.toml").write_text(CONFIG.format(url=owner_url()))
    with pytest.raises(ConfigError, match="its role is a superuser, so the database would not keep identities apart"):
        async with House(Options()):
            pass


def test_migrating_is_a_command(name: str) -> None:
    assert ok("storage", "migrate", "--url", owner_url()) == "the tables are up to date\n"
    assert "run `chatbot storage migrate --role NAME` as the owner" in run("storage", "migrate").stderr
    assert "create_distributed_table('chatbot.session', 'identity')" in ok("storage", "migrate", "--citus")
    Path("config.toml").write_text("")
    assert "memories are kept in files, which need no tables" in run("storage", "migrate").stderr
