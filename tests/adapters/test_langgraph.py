"""The adapters of LangGraph and LangChain, with the packages themselves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompt_values import StringPromptValue
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from chatbot.adapters.langchain import MemoryHistory, recalling, tools
from chatbot.adapters.langgraph import MemoryStore
from chatbot.embed import AgentMemory, Portal, open_memory

pytestmark = pytest.mark.nightly


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as opened:
        yield opened


@pytest.fixture
def memory(tmp_path: Path, portal: Portal) -> Iterator[AgentMemory]:
    opened = open_memory(tmp_path, user="ada")
    yield opened
    portal.run(opened.aclose())


@pytest.fixture(params=["ours", "theirs"])
def store(request: pytest.FixtureRequest, memory: AgentMemory, portal: Portal) -> BaseStore:
    """Every test of the contract is also passed by LangGraph's own store, so it asks for nothing of ours."""
    return MemoryStore(memory, portal) if request.param == "ours" else InMemoryStore()


def test_an_item_is_put_changed_and_deleted(store: BaseStore) -> None:
    store.put(("users", "ada"), "likes", {"food": "figs", "deep": {"a": [1, 2.5, None, True]}})
    first = store.get(("users", "ada"), "likes")
    assert first is not None
    assert (first.key, first.namespace) == ("likes", ("users", "ada"))
    assert first.value == {"food": "figs", "deep": {"a": [1, 2.5, None, True]}}
    store.put(("users", "ada"), "likes", {"food": "dates"})
    second = store.get(("users", "ada"), "likes")
    assert second is not None
    assert second.value == {"food": "dates"}
    assert second.updated_at >= first.updated_at
    assert store.get(("users", "bob"), "likes") is None
    assert store.get(("users",), "likes") is None
    for value in ({"food": "Dates"}, {"food": "Dates  "}, {"Food": "Dates  "}):
        store.put(("users", "ada"), "likes", value)
        assert [item.value for item in store.search(("users",))] == [value]
    store.delete(("users", "ada"), "likes")
    assert store.get(("users", "ada"), "likes") is None
    store.delete(("users", "ada"), "likes")


def test_keys_that_look_alike_are_apart(store: BaseStore) -> None:
    places = [
        (("a", "b"), "c"), (("a",), "b/c"), (("A", "b"), "c"), (("a",), "b  c"), (("a",), "b c"), (("a",), "x" * 5_000),
    ]  # fmt: skip
    for path, key in places:
        store.put(path, key, {"text": "the same"})
    assert [item and (item.namespace, item.key) for item in (store.get(path, key) for path, key in places)] == places
    assert len(store.search((), limit=100)) == len(places)


def test_a_deletion_erases_all_versions_and_of_two_at_once_none_fails(
    tmp_path: Path, memory: AgentMemory, portal: Portal
) -> None:
    store = MemoryStore(memory, portal)
    for text in ("tulips", "roses"):
        store.put(("a",), "k", {"text": text})

    async def delete() -> None:
        await asyncio.gather(*(store.adelete(("a",), "k") for _ in range(2)))

    portal.run(delete())
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [each for each in (b"tulips", b"roses") if each in kept]
    with pytest.raises(ValueError, match="value is 'text': it must be Mapping"):
        store.put(("a",), "k", "text")  # type: ignore[arg-type]


SECRETS = (
    {"password": 12345678, "after": 1},
    {"password": 'hunter2!"x\\', "after": 1},
    {"deep": [{"password": {"v": ["hunter2!x"]}}], "after": 1},
    {"text": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAzK9f8sPq7mX2vB3n", "after": 1},
    {"headers": {"Authorization": "Bearer abcdef0123456789ABCDEF"}, "after": 1},
    {"url": "postgres://u:s3cretpw77@db/x", "after": 1},
)


@pytest.mark.parametrize("value", SECRETS)
def test_values_lose_their_secrets(tmp_path: Path, memory: AgentMemory, portal: Portal, value: dict[str, Any]) -> None:
    store = MemoryStore(memory, portal)
    store.put(("keys",), "one", value)
    [item] = store.search(("keys",), filter={"after": 1})
    assert item.value.keys() == value.keys()
    assert "[redacted" in str(item.value)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [each for each in ("12345678", "hunter2", "MIIEow", "abcdef01", "s3cretpw") if each.encode() in kept]


def test_rows_of_others_with_metadata_of_items_are_no_items(memory: AgentMemory, portal: Portal) -> None:
    store = MemoryStore(memory, portal)
    store.put(("a",), "k", {"v": 1, "text": "foreign"})
    item: dict[str, Any] = {"kind": "langgraph", "namespace": ["a"], "namespace0": "a", "item": "y", "made": "never"}
    others: list[dict[str, Any]] = [{"namespace": 5}, {"namespace": [{}]}, {"item": None}, {"made": None}]
    for number, other in enumerate(others):
        portal.run(memory.remember(f"foreign {number}", metadata=item | other))
    portal.run(memory.remember("by hand", narrative="not JSON", metadata=item))
    held = {"k": {"v": 1, "text": "foreign"}, "y": {"text": "not JSON"}}
    assert {item.key: item.value for item in store.search(("a",))} == held
    assert store.list_namespaces() == [("a",)]
    assert [item.key for item in store.search((), query="foreign", filter={"v": {"$gt": 0}})] == ["k"]


def test_namespaces_are_found_by_prefix(store: BaseStore) -> None:
    for path in [("users", "ada"), ("users", "ada", "work"), ("users", "bob"), ("users2",), ("docs", "v1")]:
        store.put(path, "k", {"at": "/".join(path)})
    assert len(store.search(())) == 5
    below = {("users", "ada"), ("users", "ada", "work"), ("users", "bob")}
    assert {item.namespace for item in store.search(("users",))} == below
    assert {item.namespace for item in store.search(("users", "ada"))} == {("users", "ada"), ("users", "ada", "work")}
    assert store.list_namespaces(prefix=("users",), max_depth=2) == [("users", "ada"), ("users", "bob")]
    assert store.list_namespaces(suffix=("v1",)) == [("docs", "v1")]
    assert store.list_namespaces(prefix=("*", "ada")) == [("users", "ada"), ("users", "ada", "work")]
    assert len(store.list_namespaces(limit=2, offset=1)) == 2


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"kind": "tea"}, {"a", "b"}), ({"kind": "tea", "stars": 5}, {"b"}), ({"stars": {"$gt": 3}}, {"b", "c"}),
        ({"stars": {"$gte": 3, "$lt": 5}}, {"a", "c"}), ({"kind": {"$ne": "tea"}}, {"c"}), ({"kind": "juice"}, set()),
    ],
)  # fmt: skip
def test_items_are_filtered_by_their_values(store: BaseStore, wanted: dict[str, object], keys: set[str]) -> None:
    for key, kind, stars in [("a", "tea", 3), ("b", "tea", 5), ("c", "coffee", 4)]:
        store.put(("drinks",), key, {"kind": kind, "stars": stars})
    assert {item.key for item in store.search(("drinks",), filter=wanted)} == keys
    assert len(store.search(("drinks",), limit=2)) == 2
    assert len(store.search(("drinks",), limit=2, offset=2)) == 1
    if isinstance(store, MemoryStore):  # the other one needs an embedder
        [found] = store.search((), query="who makes coffee?", limit=1)
        assert (found.key, bool(found.score)) == ("c", True)


ASKED = "Where does Anna live?"
SAID: list[BaseMessage] = [
    SystemMessage("Be kind."),
    HumanMessage("My sister Anna lives in Lisbon."),
    AIMessage("", tool_calls=[{"name": "look", "args": {"a": 1}, "id": "c"}]),
    ToolMessage("found", tool_call_id="c"),
    AIMessage("Noted.", id="m1", additional_kwargs={"x": "y"}),
]


def test_a_history_gives_back_every_message_as_it_was(memory: AgentMemory, portal: Portal) -> None:
    history = MemoryHistory(memory, portal, "thread")
    history.add_messages(SAID[:2])
    history.add_messages(SAID[2:])
    assert MemoryHistory(memory, portal, "thread").messages == SAID
    assert asyncio.run(history.aget_messages()) == SAID
    [exchange] = portal.run(memory.every(types=["exchange"]))
    assert exchange.user_text == "My sister Anna lives in Lisbon."
    history.clear()
    assert history.messages == []
    for key, link, why in ((None, portal, "session_id is None"), ("x", None, "portal is None: it must be Portal")):
        with pytest.raises(ValueError, match=why):
            MemoryHistory(memory, link, key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        ToolMessage("found", tool_call_id="c", artifact=object()),
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "Noted."}]),
        HumanMessage([{"type": "of a provider", "value": 1}, {"type": "text", "text": "Look."}]),
    ],
    ids=["artifact", "thinking", "unknown"],
)
def test_a_message_of_any_shape_is_kept(memory: AgentMemory, portal: Portal, message: BaseMessage) -> None:
    history = MemoryHistory(memory, portal, "thread")
    history.add_messages([HumanMessage("hi"), message])
    assert [each.content for each in history.messages] == ["hi", message.content]
    assert portal.run(recalling(memory)([message, HumanMessage("Where?")]))[-1].content == "Where?"


@pytest.mark.parametrize(
    "entry", ['{"langchain": "x"}', '{"langchain": {"type": "nope", "data": {}}}', "{", '{"role": []}']
)
def test_what_was_written_by_hand_is_shown_and_breaks_nothing(memory: AgentMemory, portal: Portal, entry: str) -> None:
    history = MemoryHistory(memory, portal, "thread")
    history.add_messages([HumanMessage("hi")])
    session = portal.run(memory.session("thread"))
    portal.run(session.transcript_append("item", entry))
    portal.run(session.transcript_append("user", "typed by hand"))
    history.add_messages([AIMessage("ok")])
    said = [each.content for each in history.messages]
    assert (said[0], said[-2:]) == ("hi", ["typed by hand", "ok"])


@pytest.mark.parametrize(
    "prompt",
    [ASKED, [ASKED], [("user", ASKED)], [{"role": "user", "content": ASKED}], StringPromptValue(text=ASKED)],
    ids=["text", "texts", "pairs", "mappings", "template"],
)
def test_a_prompt_in_any_form_gets_memories(memory: AgentMemory, portal: Portal, prompt: LanguageModelInput) -> None:
    portal.run(memory.remember("Anna lives in Lisbon"))
    block, question = portal.run(recalling(memory)(prompt))
    assert "Anna lives in Lisbon" in str(block.content)
    assert question == HumanMessage(ASKED)


def test_the_tools_are_called_as_langchain_calls_them(memory: AgentMemory, portal: Portal) -> None:
    portal.run(memory.remember("Anna lives in Lisbon"))
    offered = {tool.name: tool for tool in tools(memory, portal)}
    assert offered.keys() == {each.name for each in memory.tools()}
    search = offered["memory_search"]
    call = {"name": "memory_search", "args": {"query": "Lisbon"}, "id": "c", "type": "tool_call"}
    for answer in (search.invoke(call), asyncio.run(search.ainvoke(call))):
        assert isinstance(answer, ToolMessage)
        assert (answer.tool_call_id, "Anna lives in Lisbon" in str(answer.content)) == ("c", True)
    assert "query" in search.args
