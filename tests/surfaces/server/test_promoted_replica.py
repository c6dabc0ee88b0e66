"""Two servers go on by themselves when their database dies and its standby is promoted."""

import asyncio
import time
from pathlib import Path

import psycopg
import pytest

from chatbot.stores.postgres import schema
from tests.command import project
from tests.postgres import ROLE
from tests.postgres_pair import pair, several
from tests.servers import many_users
from tests.servers.many_users import Crowd
from tests.servers.server_process import ServerProcess, new_token

pytestmark = pytest.mark.nightly
USERS, TURNS = 8, 4
CONFIG = """
[model]
name = "scripted"
[embedding]
model = ""
[storage]
url = "{url}"
"""


def test_users_are_answered_whole_while_a_standby_takes_the_place_of_a_killed_primary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHATBOT_CONFIG", str(tmp_path / "config.toml"))
    with pair() as (primary, standby):
        primary.tell(f"CREATE ROLE {ROLE} LOGIN")
        schema.create(primary.url, role=ROLE)
        project(CONFIG.format(url=several(primary, standby, role=ROLE)))
        token = new_token("crowd", rate=1_000_000)
        servers = [ServerProcess(tmp_path, tmp_path / f"cache-{number}") for number in range(2)]

        def fail_over() -> None:
            primary.kill()
            time.sleep(1)  # some are refused meanwhile
            standby.promote()

        async def talk() -> Crowd:
            async with (
                many_users.client(servers[0].url, token) as one,
                many_users.client(servers[1].url, token) as other,
            ):
                crowd = Crowd([one, other], USERS, TURNS)
                await crowd.talk(fail_over, at=USERS)
            return crowd

        try:
            crowd = asyncio.run(talk())
        finally:
            for each in servers:
                each.kill()
        with psycopg.connect(standby.url) as connection:
            row = connection.execute("SELECT count(*) FROM chatbot.message").fetchone()
    assert row == (2 * USERS * TURNS,)
    assert not crowd.dead
    assert "done" in crowd.endings  # and whether anyone was caught in the middle of a commit is chance
    print(dict(crowd.endings))  # noqa: T201 - with -s
