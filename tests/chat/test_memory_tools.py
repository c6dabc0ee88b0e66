"""The tools by which a model reads and writes memory: what they answer, and what they never let through."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatbot.chat.memory_tools import FRAME, LONGEST_ANSWER, ToolContext, agent_context, agent_tools, session_tools
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.models.model import estimate
from chatbot.operations import OPERATIONS
from chatbot.stores.access import Sensitivity
from chatbot.tools import Toolbox
from tests.effort import examples
from tests.talk import chat_of

STORES = ["basic_session", "observations"]
NO_ID = "01990000-0000-7000-8000-000000000000"

Use = Callable[..., Awaitable[Any]]


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    return await memory.create_session(STORES, "chat")


@pytest.fixture
def use(session: SessionHandle, memory: MemorySystem) -> Use:
    return _use(session, memory)


def _use(session: SessionHandle, memory: MemorySystem) -> Use:
    """Call a tool as the model does, and read its answer."""
    toolbox = Toolbox(session_tools(ToolContext(session, memory, session.agent_id, "ada")))

    async def use(name: str, **arguments: Any) -> Any:
        [result] = await toolbox.run([ToolCall("c", name, json.dumps(arguments))])
        answer = json.loads(result.content)
        assert result.is_error == ("error" in answer)
        assert result.is_error or answer["about"] == FRAME
        return answer

    return use


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


async def test_one_call_changes_a_memory_or_replaces_it_and_names_its_subject_and_project(memory: MemorySystem) -> None:
    use = _use(await memory.cleared_for(project="moves").create_session(STORES, "chat"), memory)
    first = await use("memory_write", title="Sam moved to Oslo", subject="home", project="moves")
    changed = await use("memory_write", title="Sam moved to Bergen", id=first["id"])
    assert (changed["outcome"], changed["id"]) == ("updated", first["id"])
    [row] = await memory.memory("chat").get([first["id"]])
    assert (row.title, row.subject, row.project) == ("Sam moved to Bergen", "home", "moves")
    later = await use("memory_write", title="Sam moved to Turku", supersedes=first["id"])
    assert _ids((await use("memory_search", query="Sam", project="moves"))["hits"]) == [later["id"]]
    both = await use("memory_write", title="x", id=later["id"], supersedes=first["id"])
    assert "no memory has the id" in both["error"]
    assert "give one of them" in (await use("memory_write", title="x", id=later["id"], supersedes=later["id"]))["error"]


async def test_a_text_for_an_id_is_the_one_memory_that_it_quotes_but_not_in_a_list(use: Use) -> None:
    tea = await use("memory_write", title="The tea is in the blue tin")
    await use("memory_write", title="The tin is blue", narrative="tin")
    await use("memory_write", title="Another tin", narrative="tin")
    for text in ("blue tin", "tin"):  # a part of a memory, and the whole text of two
        assert "is not the id of a memory: search" in (await use("memory_write", title="x", id=text))["error"]
    assert "search for it" in (await use("memory_forget", ids=["The tea is in the blue tin"]))["error"]
    assert len((await use("memory_search", query="tin"))["hits"]) == 3
    changed = await use("memory_write", title="No tea", id="2 Jan 2026: the tea is in the blue tin.")
    assert (changed["outcome"], changed["id"]) == ("updated", tea["id"])


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("memory_search", {"querry": "tea"}, "no argument 'querry': did you mean 'query'?"),
        ("memory_search", {"limit": 9_999}, "limit: input should be less than or equal to 50"),
        ("memory_search", {"limit": "ten"}, "limit: input should be a valid integer"),
        ("memory_search", {"limit": -1}, "limit: input should be greater than or equal to 0"),
        ("memory_search", {"types": ["nope"]}, "types.0: input should be 'bugfix'"),
        ("memory_search", {"after": "yesterday"}, "after: invalid time 'yesterday'"),
        ("memory_search", {"query": "x" * 1_001}, "query: string should have at most 1000"),
        ("memory_search", {"query": "\ud800"}, "the arguments: invalid JSON"),
        ("memory_get", {"ids": []}, "ids: list should have at least 1"),
        ("memory_get", {"ids": ["1"]}, "'1' is not the id of a memory: search for it first"),
        ("task_update", {"task": "tea", "status": "completed"}, "is not the id of a task: search for it"),
        ("memory_write", {"title": ""}, "title: string should have at least 1"),
        (
            "memory_write",
            {"title": "x", "expires_at": "2020-01-01T00:00:00Z"},
            "the expiry time 2020-01-01T00:00:00.000000Z is in the past",
        ),
        ("memory_write", {"title": "x", "sensitivity": "unknown"}, "sensitivity: input should be 'public'"),
        ("memory_timeline", {"anchor": NO_ID}, "no memory has the id"),
        ("task_update", {"task": NO_ID, "status": "completed"}, "no task has the id"),
        ("task_update", {"task": NO_ID}, "no change given: give one of priority"),
        ("session_read", {"session_id": NO_ID}, "no session has the id"),
        ("memory_serch", {}, "did you mean 'memory_search'?"),
    ],
)
async def test_a_wrong_call_is_a_readable_error(use: Use, name: str, arguments: dict[str, Any], words: str) -> None:
    assert words in (await use(name, **arguments))["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_whatever_a_model_sends_is_answered_in_json(data: st.DataObject) -> None:
    async with MemorySystem(None) as memory:
        session = await memory.create_session(["in_memory"], "chat")
        tools = session_tools(ToolContext(session, memory, session.agent_id, "ada"))
        toolbox = Toolbox(tools)
        wholes = {
            tool.spec.name: tool.spec.parameters["properties"] for tool in agent_tools(agent_context(memory, "chat"))
        }
        for tool in tools:
            names = st.sampled_from([*wholes.get(tool.spec.name, ("tool", "arguments"))])
            arguments = data.draw(st.dictionaries(names, JSON, max_size=4))
            [result] = await toolbox.run([ToolCall("c", tool.spec.name, json.dumps(arguments))])
            answer = json.loads(result.content)
            assert answer.get("about") == FRAME or "failed:" not in answer["error"]


async def test_every_schema_is_strict(memory: MemorySystem) -> None:
    tools = agent_tools(agent_context(memory, "chat"))
    assert len(tools) == 21
    for tool in tools:
        schema = tool.spec.parameters
        assert tool.spec.description
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert all(each["type"] and each["description"] for each in schema["properties"].values())
        hidden = {"session", "agent", "agent_id", "of_agent", "clearance", "namespace", "sensitivities"}
        assert hidden.isdisjoint(schema["properties"])


async def test_the_schemas_take_little_of_every_prompt(session: SessionHandle, memory: MemorySystem) -> None:
    assert estimate([], Toolbox(session_tools(ToolContext(session, memory, session.agent_id, "ada"))).specs) <= 900


async def test_a_short_schema_reaches_every_argument_of_the_whole(session: SessionHandle, memory: MemorySystem) -> None:
    wholes = {tool.spec.name: tool.spec.parameters for tool in agent_tools(agent_context(memory, "chat"))}
    *tools, others = session_tools(ToolContext(session, memory, session.agent_id, "ada"))
    for tool in filter(lambda each: each.is_offered, tools):
        short, whole = tool.spec.parameters, wholes[tool.spec.name]
        named, rest = short["properties"], tool.spec.description.partition("If asked for, also: ")[2]
        assert {*named, *re.findall(r"(\w+)(?: \([^)]*\))?(?:, |\.$)", rest)} == {*whole["properties"]}
        assert all(kind.items() <= whole["properties"][name].items() for name, kind in named.items())
        assert short.get("required") == whole.get("required")
    for tool in tools:
        if not tool.is_offered:
            [listed] = re.findall(rf"\b{tool.spec.name}\((.*?)\): ", others.spec.description)
            words = re.findall(r"\w+", re.sub(r"\([^)]*\)", "", listed))
            assert {*words} == {*wholes[tool.spec.name]["properties"]}
    assert [tool.spec.name for tool in tools] == [each.tool for each in OPERATIONS.values() if each.tool and each.model]


async def test_a_model_finds_writes_corrects_and_forgets_as_told(session: SessionHandle, memory: MemorySystem) -> None:
    """Only tools of the prompt are called, with arguments as careless models send them."""
    old = await session.memory.remember("Sam's locker is 12", people=["Sam"])
    model = ScriptedModel()
    chat = chat_of(model, session, memory.home, *session_tools(ToolContext(session, memory, session.agent_id, "ada")))

    async def ask(*calls: ToolCall) -> list[Any]:
        asked = model.prompts[:]
        model._replies = [*([""] * len(asked)), list(calls), "done"]
        receipt = await chat.turn("go on")
        assert not [tool for tool in receipt.tools if tool["error"]]
        offered = {spec.name for spec in model.tools[-1]}
        assert {call.name for call in calls} <= offered
        return [json.loads(message.content) for message in model.prompts[-1] if message.role == "tool"][-len(calls) :]

    more: dict[str, Any] = {
        "importance": "0.9", "concepts": "gotcha", "facts": "Sam moved", "related_files": "gym.md", "project": None,
    }  # fmt: skip
    [written] = await ask(_call("memory_write", title="Sam's locker is 47", supersedes=old.id, **more))
    [found] = await ask(_call("memory_search", query="locker", limit="5"))
    assert found["hits"][0]["title"].startswith("Sam's locker")
    [row] = await session.memory.get([written["id"]])
    assert (row.importance, row.concepts, row.facts, row.files_read) == (0.9, ("gotcha",), ("Sam moved",), ("gym.md",))
    by_file, by_concept, history, around = await ask(
        _call("memory_search", id="f", query="", files="gym.md"),
        _call("memory_search", id="c", query="", concepts=["gotcha"]),
        _call("memory_more", id="h", tool="memory_history", arguments={"observation_id": old.id}),
        _call("memory_more", id="t", tool="memory_timeline", anchor=old.id, after=0),
    )
    assert [row["status"] for row in around["timeline"]] == ["superseded"]
    assert _ids(by_file["hits"]) == _ids(by_concept["hits"]) == [written["id"]]
    assert {version["status"] for version in history["versions"]} == {"active", "superseded"}
    await ask(_call("memory_more", tool="memory_state", subject="Sam", predicate="has", object="locker 47"))
    [facts] = await ask(_call("memory_more", tool="memory_facts", arguments='{"subject": "Sam"}'))
    assert [fact["object"] for fact in facts["facts"]] == ["locker 47"]
    await ask(_call("memory_forget", ids=written["id"]))
    assert not [hit for hit in await session.memory.search("locker") if hit.observation.id == written["id"]]
    assert {receipt["tools"][0]["name"] for receipt in await session.receipts() if receipt["tools"]} >= {
        *("memory_write", "memory_state", "memory_facts", "memory_forget")
    }


async def test_without_observations_there_are_no_tools(memory: MemorySystem) -> None:
    session = await memory.create_session(["basic_session"], "chat")
    assert session_tools(ToolContext(session, memory, "chat", "ada")) == []


@pytest.mark.parametrize("sensitivity", ["private", "secret", "unknown"])
async def test_no_delicate_row_is_read_or_changed(use: Use, session: SessionHandle, sensitivity: Sensitivity) -> None:
    delicate = (await session.memory.remember("the diagnosis of Kim", people=["Kim"], sensitivity=sensitivity)).id
    task = await session.memory.add_task("see the doctor")
    await session.memory.update(task.id, sensitivity=sensitivity)
    await session.memory.store_fact("Kim", "has", "a cold", sensitivity=sensitivity)
    plain = (await use("memory_write", title="plain"))["id"]
    answers = [
        await use("memory_search", query="diagnosis Kim doctor"), await use("memory_search"),
        await use("memory_get", ids=[delicate]), await use("memory_timeline", anchor=plain),
        await use("memory_people", query="kim"), await use("memory_facts", subject="Kim"), await use("task_list"),
        await use("session_search", query="diagnosis"), await use("memory_timeline", anchor=delicate),
        await use("memory_history", observation_id=delicate), await use("memory_forget", ids=[plain, delicate]),
        await use("memory_supersede", old=delicate, new=plain), await use("memory_supersede", old=plain, new=delicate),
        await use("task_update", task=task.id, status="completed"),
    ]  # fmt: skip
    assert [name for name in ("diagnosis", "cold", "doctor", "Kim") if name in json.dumps(answers)] == []
    assert all("error" in answer for answer in answers[8:])
    assert _ids((await use("memory_search"))["hits"]) == [plain]


async def test_an_answer_says_how_many_facts_of_a_person_it_leaves_out(use: Use, session: SessionHandle) -> None:
    await session.memory.remember("Kim came by", people=["Kim"])
    for number in range(21):
        await session.memory.store_fact("Kim", "has", f"cat {number}")
    [kim] = (await use("memory_people", query="kim"))["people"]
    assert (len(kim["facts"]), kim["facts_left_out"]) == (20, 1)


async def test_a_history_tells_nothing_of_versions_that_are_delicate(use: Use, session: SessionHandle) -> None:
    before = (await session.memory.remember("once", sensitivity="private")).id
    plain = (await session.memory.remember("then", supersedes=before)).id
    after = (await session.memory.remember("now", sensitivity="private", supersedes=plain)).id
    told = await use("memory_history", observation_id=plain)
    assert _ids(told["versions"]) == [plain]
    assert not any(each in json.dumps(told) for each in (before, after))


async def test_what_is_said_again_more_openly_stays_as_delicate_as_it_was(use: Use) -> None:
    first = await use("memory_write", title="the code of the door", sensitivity="private")
    again = await use("memory_write", title="the code of the door", sensitivity="public")
    assert (again["outcome"], again["id"]) == ("exact_dup", first["id"])
    assert (await use("memory_search", query="door"))["hits"] == []


async def test_an_answer_fits_a_prompt_and_says_what_is_missing(use: Use, session: SessionHandle) -> None:
    ids = [(await session.memory.remember(f"long {n}", narrative=f"{n} " * 9_000)).id for n in range(12)]
    answer = await use("memory_get", ids=ids)
    assert 0 < len(answer["observations"]) < len(ids)
    assert len(json.dumps(answer)) < LONGEST_ANSWER + 1_000
    assert f"{len(ids) - len(answer['observations'])} more did not fit" in answer["notes"][0]
    assert answer["observations"][0]["narrative"].endswith("12,000 characters more]")


async def _said(memory: MemorySystem, question: str, reply: str, agent: str = "chat", **options: Any) -> SessionHandle:
    session = await memory.create_session(STORES, agent, title=question, **options)
    await session.transcript_append("user", question)
    await session.transcript_append("assistant", reply)
    await session.memory.remember(type="exchange", user_text=question, assistant_text=reply)
    return session


async def test_no_secret_of_a_past_session_is_told(use: Use, memory: MemorySystem) -> None:
    shed = await _said(memory, "the shed", f"{'Well, ' * 60}its password: hunter2!x opens the lock.")
    [found] = (await use("session_search", query="lock"))["sessions"]
    assert found["session_id"] == shed.id
    read = await use("session_read", session_id=shed.id)
    assert "hunter" not in f"{found}{read}"
    assert "opens the lock" in read["entries"][-1]["content"]


async def test_the_end_of_a_long_session_is_what_is_read(use: Use, memory: MemorySystem) -> None:
    long = await _said(memory, "begin", "ok")
    for n in range(60):
        await long.transcript_append("user", f"{n} " + "word " * 200)
    entries = (await use("session_read", session_id=long.id, last=100))["entries"]
    assert [entry["content"].split()[0] for entry in entries] == [str(n) for n in range(60 - len(entries), 60)]
    assert 5 < len(entries) < 60


async def test_the_running_session_can_be_read_and_is_not_among_those_found(use: Use, session: SessionHandle) -> None:
    await session.transcript_append("user", "about bicycles")
    await session.memory.remember(type="exchange", user_text="about bicycles")
    assert (await use("session_search", query="bicycles"))["sessions"] == []
    assert len((await use("session_read", session_id=session.id))["entries"]) == 1


async def test_sessions_of_other_agents_and_deleted_ones_do_not_exist(use: Use, memory: MemorySystem) -> None:
    other = await _said(memory, "bicycle of another agent", "no", agent="other")
    gone = await _said(memory, "bicycle of the past", "no")
    await memory.delete_session(gone.id)
    assert (await use("session_search", query="bicycle"))["sessions"] == []
    told = [(await use("session_read", session_id=each.id))["error"].replace(each.id, "") for each in (other, gone)]
    assert told == ["no session has the id : it was deleted, or never existed"] * 2


def _call(name: str, *, id: str = "c1", **arguments: Any) -> ToolCall:  # noqa: A002
    return ToolCall(id, name, json.dumps(arguments))
