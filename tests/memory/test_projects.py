"""Projects: sessions and memories of one are kept apart from those of others, at every way in."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from chatbot.chat.memory_tools import ToolContext, session_tools
from chatbot.embed import open_memory
from chatbot.errors import SessionNotFound
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.users_and_projects import Project, erase_project, export_user, projects_in, rename_project
from chatbot.messages import ToolCall
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import AccessDenied, UnknownProject
from chatbot.tools import Toolbox
from tests.clock import Clock
from tests.command import run
from tests.postgres import address
from tests.servers.http_server import serving

STORES = ["basic_session", "observations"]
BOILER = "The boiler was serviced in May"


@pytest.fixture(params=["files", "postgres"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemorySystem]:
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    async with MemorySystem(address(tmp_path) if request.param == "postgres" else tmp_path / "memory") as memory:
        yield memory


async def _session(memory: MemorySystem, project: str) -> SessionHandle:
    return await memory.cleared_for(project=project).create_session(STORES, "chat", title=project)


async def _found(session: SessionHandle) -> set[str]:
    return {hit.observation.title for hit in await session.memory.search("boiler chess", limit=50)}


async def test_a_session_recalls_its_project_and_none_and_keeps_what_is_said_there(memory: MemorySystem) -> None:
    house, boat, none = [await _session(memory, name) for name in ("House", "boat", "-")]
    same = await _session(memory, "ＨＯＵＳＥ")  # of another width and case
    await house.memory.remember(BOILER)
    await none.memory.remember("Sam likes chess")
    assert await _found(house) == await _found(same) == {BOILER, "Sam likes chess"}
    assert await _found(boat) == await _found(none) == {"Sam likes chess"}
    assert (await boat.memory.remember(BOILER)).outcome == "added"  # it would not be found there otherwise
    assert (await house.memory.remember(BOILER)).outcome == "exact_dup"
    for outcome in ("added", "exact_dup"):  # in no project, by a caller who sees those of all projects
        assert (await memory.memory().remember(BOILER)).outcome == outcome
    assert await _found(none) == {BOILER, "Sam likes chess"}
    kept = await house.memory.remember("Sam likes tea", project="-")
    assert [row.project for row in await none.memory.get([kept.id])] == [""]
    await house.memory.forget(kept.id)
    with pytest.raises(AccessDenied, match="no project may not write in the project 'boat': name none"):
        await none.memory.remember("The mast is high", project="boat")
    fact = await house.memory.store_fact("boiler", "made by", "Vaillant")
    assert [each.id for each in await house.memory.query_facts()] == [fact.id]
    assert await boat.memory.query_facts() == await none.memory.query_facts() == []
    shared = await house.memory.store_fact("Sam", "likes", "tea", project="-")
    assert [each.id for each in await none.memory.query_facts()] == [shared.id]
    fork = await memory.fork_session(house.id)
    assert (fork.record.project, await _found(fork)) == ("House", await _found(house))


async def test_what_replaces_a_memory_is_in_its_project(memory: MemorySystem) -> None:
    house, none = await _session(memory, "house"), await _session(memory, "-")
    old = await none.memory.remember("Sam likes chess")
    new = await house.memory.remember("Sam likes go, and chess no more", supersedes=old.id)
    assert [row.id for row in await none.memory.get([new.id])] == [new.id]
    own = await house.memory.remember(BOILER)
    with pytest.raises(AccessDenied, match="may not enter"):
        house.confined(memory).cleared_for(project="boat")
    assert (await memory.memory().row((await memory.memory().remember("x", supersedes=own.id)).id)).project == "house"


async def test_what_is_derived_from_a_project_is_not_seen_outside_of_it(memory: MemorySystem) -> None:
    house, none = await _session(memory, "house"), await _session(memory, "-")
    sources = [(await each.memory.remember(said)).id for each, said in ((none, "Sam likes chess"), (house, BOILER))]
    made = await memory.memory().remember("Sam plays chess beside the boiler", derived_from=sources)
    assert [row.project for row in await house.memory.get([made.id])] == ["house"]
    assert await none.memory.get([made.id]) == []


async def test_the_last_session_is_that_of_the_project(memory: MemorySystem) -> None:
    house, none = await _session(memory, "house"), await _session(memory, "-")
    there = memory.cleared_for(project="HOUSE")
    latest = await there.latest_session("chat")
    assert (latest and latest.id) == house.id
    assert [each.id for each in await there.list_sessions()] == [house.id]
    with pytest.raises(SessionNotFound):
        await there.load_session(none.id, "chat")


async def test_a_project_is_moved_renamed_exported_and_erased(memory: MemorySystem) -> None:
    house, none = await _session(memory, "house"), await _session(memory, "-")
    said = await house.memory.remember(BOILER)
    await house.memory.store_fact("boiler", "made by", "Vaillant")
    await house.memory.store_fact("boiler", "serviced in", "May", source=said.id)
    await house.memory.forget((await house.memory.remember("It is loud")).id)
    await none.memory.remember("Sam likes chess")
    moved = await rename_project(memory, "HOUSE", "home")
    assert (moved.sessions, moved.memories) == (1, 3)
    [home] = await projects_in(memory)
    assert home == Project("home", 3, 1, home.used_at)
    again = await memory.load_session(house.id, "chat")
    assert (again.record.project, len(await again.memory.query_facts())) == ("home", 2)
    exported = await export_user(memory, "home")
    assert [len(exported[each]) for each in ("memories", "facts", "sessions")] == [2, 2, 1]
    assert await again.move("-") == 3
    assert (await projects_in(memory), await _found(none)) == ([], {BOILER, "Sam likes chess"})
    await again.move("home")
    assert (await erase_project(memory, "home", dry_run=True)).memories == 4
    assert (await erase_project(memory, "home")).sessions == 1
    assert await _found(none) == {"Sam likes chess"}
    assert [each.id for each in await memory.list_sessions()] == [none.id]
    with pytest.raises(UnknownProject, match="nothing belongs"):
        await erase_project(memory, "home")


async def test_a_project_is_renamed_although_one_of_its_sessions_has_expired(memory_home: Path) -> None:
    clock = Clock()
    async with MemorySystem(memory_home, ttl=timedelta(days=10), clock=clock) as memory:
        await _session(memory, "house")
        clock.move(days=11)
        kept = [await _session(memory, name) for name in ("house", "ＨＯＵＳＥ")]
        await kept[0].memory.remember(BOILER)
        moved = await rename_project(memory, "house", "home")
        assert (moved.sessions, moved.memories) == (2, 1)
        assert {each.project for each in await memory.list_sessions()} == {"home"}
        with pytest.raises(UnknownProject):
            await rename_project(memory, "house", "home")


async def test_what_another_process_moves_or_marks_is_so_in_the_next_turn(memory: MemorySystem) -> None:
    bound = await _session(memory, "house")
    own, idle = [await memory.load_session(bound.id, "chat") for _ in range(2)]
    tools = Toolbox(session_tools(ToolContext(own.for_tools(), memory, "chat", "ada")))
    async with MemorySystem(memory.where) as elsewhere:
        other = await elsewhere.load_session(bound.id, "chat")
        await other.move("boat")
        await other.mark("private")
    async with own.hold_turn():
        await own.memory.remember("The mast is high")
        await tools.run([ToolCall("c", "memory_write", '{"title": "The mast is of spruce"}')])
    kept = await memory.memory().every(sensitivities=SENSITIVITIES)
    assert [(row.project, row.sensitivity) for row in kept] == [("boat", "private")] * 2
    marked = await idle.memory.remember("The sail is red"), await idle.memory.store_fact("sail", "is", "red")
    assert [*await memory.memory().get([marked[0].id]), *await memory.memory().query_facts()] == []  # not public
    with pytest.raises(SessionNotFound):
        async with bound.hold_turn():
            pass
    async with own.hold_turn():  # which was let go of
        assert own.record.project == "boat"


async def test_the_options_and_the_configuration_choose_the_project(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[model]\nname = "scripted"\n[agents.chat]\nproject = "house"\n')
    begun = {}
    for asked in (None, "boat", "-"):
        async with Runtime(Options(config=config, project=asked)) as runtime:
            session = await runtime.new_session()
            assert session is not None
            begun[asked] = (session.record.project, session.id)
            await session.transcript_append("user", "hello")
    assert [project for project, _ in begun.values()] == ["house", "boat", ""]
    async with Runtime(Options(config=config, project="boat")) as runtime:
        assert (await runtime.latest_session()).id == begun["boat"][1]  # type: ignore[union-attr]
        with pytest.raises(SessionNotFound):
            await runtime.resume(begun[None][1])


async def test_a_header_and_a_token_choose_the_project(tmp_path: Path) -> None:
    with serving(tokens=True) as served:
        tokens = {each: served.token("ada", clearance="full", project=each, memory="on") for each in (None, "house")}
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:

            async def ask(
                method: str, path: str, token: str | None, project: str | None = None, **sent: object
            ) -> httpx.Response:
                headers = {"Authorization": f"Bearer {tokens[token]}"}
                headers |= {"X-Chatbot-Project": project} if project else {}
                return await client.request(method, path, headers=headers, **sent)  # type: ignore[arg-type]

            kept = await ask("POST", "/v1/memories", "house", json={"title": BOILER})
            assert kept.status_code == 201
            row = (await ask("GET", f"/v1/memories/{kept.json()['id']}", None, "HOUSE")).json()
            assert row["project"] == "house"
            assert (await ask("GET", f"/v1/memories/{row['id']}", None, "boat")).status_code == 404
            assert (await ask("GET", "/v1/memories", "house", "boat")).status_code == 403
            said = {"model": "ada", "messages": [{"role": "user", "content": "hello there"}]}
            for project in ("boat", "-"):
                assert (await ask("POST", "/v1/chat/completions", None, project, json=said)).status_code == 200
            listed = (await ask("GET", "/v1/sessions", None)).json()["data"]
            assert sorted(each["project"] for each in listed) == ["", "boat"]
            costs = [(await ask("GET", "/i/ada/cost", each)).text for each in (None, "house")]
            assert ["2 model calls" in each and "per day" in each for each in costs] == [True, False]


async def test_an_embedded_memory_has_projects(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[embedding]\nmodel = ""\n')  # words find it
    async with open_memory(tmp_path) as memory:
        boat = memory.for_project("boat")
        await boat.record(user="The mast of my boat is 12 metres high.", assistant="Noted.")
        session = await boat.session("talk")
        assert session.record.project == "boat"
        assert (await boat.context("How high is the mast of my boat?")).memories
        assert not (await memory.context("How high is the mast of my boat?")).memories
        assert await memory.search("mast")  # who looks sees all


def test_a_bundle_of_a_project_takes_its_sessions_and_memories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text('[model]\nname = "scripted"\n')
    monkeypatch.chdir(tmp_path / "here")
    assert run("ask", "--project", "house", "My boiler is a Vaillant and was serviced in May.").returncode == 0
    assert run("ask", "My name is Sam and I like chess.").returncode == 0
    run("memory", "add", "The lamp is in the cellar", "--project", "house")
    run("sessions", "export", "--project", "house", "-o", "../house.jsonl")
    monkeypatch.chdir(tmp_path / "there")
    assert run("sessions", "import", "../house.jsonl").returncode == 0
    assert [each["project"] for each in json.loads(run("sessions", "list", "--json").stdout)] == ["house"]
    assert {each["project"] for each in json.loads(run("memory", "list", "--json").stdout)} == {"house"}
    assert json.loads(run("projects", "list", "--json").stdout)[0]["memories"] == 2
