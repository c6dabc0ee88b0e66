"""mypy, and so an editor, knows the parameters of every operation on memory."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from chatbot.memory import Change, Draft, MemorySystem
from chatbot.memory.memory import Memory
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import CONTENT

_ROOT = Path(__file__).parents[2]
_HEAD = """
from datetime import UTC, datetime
from chatbot.memory import AddResult, Draft, Hit, Observation, Page, Triple
from chatbot.memory.memory import Memory
"""
_RIGHT = """
    became: AddResult = await memory.remember("tea", narrative="green", tags=["a"], facts=("one", "two"))
    await memory.remember(title="tea", type="preference", importance=0.9, visibility="shared", metadata={"kind": 1})
    await memory.remember_all([Draft("tea", expires_at=datetime(2030, 1, 1, tzinfo=UTC))])
    became = await memory.update("id", title="t", people=["Ada"], metadata={"kind": None}, sensitivity="private")
    hits: list[Hit] = await memory.search("tea", limit=3, types=("decision",), tags="a", people=["Ada"])
    batch: list[list[Hit]] = await memory.search_batch(["tea", "milk"], max_tokens=100, ask=("private",))
    recalled = await memory.recall(["hello", "tea?"], profile="inject", exclude={"id"}, project="home")
    titles: list[str] = [each.observation.title for each in recalled.hits if each.observation]
    page: Page = await memory.list_observations(order="created", statuses=("active", "deleted"), cursor=None)
    rows: list[Observation] = await memory.timeline("id", before=2, after=3, files=["a.py"])
    tags: tuple[str, ...] = rows[0].tags
    rows = await memory.every(after=datetime(2030, 1, 1, tzinfo=UTC), min_importance=0.5)
    facts: list[Triple] = await memory.query_facts(subject="Ada", min_confidence=0.5, limit=3)
"""
_WRONG = {
    'remember("x", tagz=["a"])': "tagz",
    'remember("x", importance="very")': "importance",
    'remember("x", facts="no")': "facts",
    'remember("x", type="decisionn")': "type",
    'remember("x", visibility="secret")': "visibility",
    'remember("x", "y")': "positional",
    'remember(["x"])': "str",
    'update("id", titel="t")': "title",
    'update("id", supersedes="id")': "supersedes",
    'update("id", "t")': "positional",
    "update(5)": "str",
    'search("x", typ="decision")': "typ",
    'search("x", limit="3")': "limit",
    'search("x", types=("decisionn",))': "types",
    'search_batch("x", ask="public")': "ask",
    "recall()": "texts",
    'recall("x", profil="inject")': "profile",
    'list_observations(statuss=("active",))': "statuses",
    'list_observations(order="newest")': "order",
    'timeline("id", after=datetime(2030, 1, 1, tzinfo=UTC))': "after",
    'timeline("id", befor=2)': "before",
    'every(after="yesterday")': "after",
    'query_facts(subjekt="Ada")': "subject",
    "query_facts(min_confidence='much')": "min_confidence",
}


@pytest.mark.nightly
def test_mypy_finds_every_wrong_call_and_no_right_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_ROOT)  # where the cache of `.ci/check` is
    file = tmp_path / "calls.py"
    expected: dict[int, str] = {}
    lines = [*_HEAD.splitlines(), "async def calls(memory: Memory) -> None:", *_RIGHT.strip("\n").splitlines()]
    for call, blamed in _WRONG.items():
        lines.append(f"    await memory.{call}")
        expected[len(lines)] = blamed
    file.write_text("\n".join(lines) + "\n")
    said, trouble, _ = api.run(["--no-error-summary", str(file)])
    assert not trouble
    errors: dict[int, str] = {}
    for number, message in re.findall(r"calls\.py:(\d+): error: (.*)", said):
        errors[int(number)] = errors.get(int(number), "") + message
    assert {lines[number - 1]: errors[number] for number in errors.keys() - expected.keys()} == {}
    assert [lines[number - 1] for number, blamed in expected.items() if blamed not in errors.get(number, "")] == []


@pytest.mark.nightly
def test_an_operation_shows_its_parameters_to_whoever_inspects_it() -> None:
    remember, update, search, timeline = (
        inspect.signature(getattr(Memory, name)).parameters for name in ("remember", "update", "search", "timeline")
    )
    assert {*CONTENT, "supersedes"} < remember.keys()
    assert {*CONTENT, "visibility"} < update.keys()
    assert "supersedes" not in update
    assert {"text", "limit", "tags", "after"} < search.keys()
    assert timeline["before"].default == 5


@pytest.mark.nightly
async def test_a_misspelt_parameter_is_refused_with_the_one_that_is_meant() -> None:
    async with MemorySystem(None) as memory:
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("remember", {"tagz": ["a"]}, "did you mean 'tags'"),
            ("update", {"titel": "t"}, "did you mean 'title'"),
            ("search", {"typs": ("note",)}, "did you mean 'types'"),
            ("list_observations", {"statuss": ("active",)}, "did you mean 'statuses'"),
            ("query_facts", {"subjekt": "Ada"}, "did you mean 'subject'"),
        ]
        for operation, given, meant in calls:
            named = ("x",) if operation in {"remember", "update", "search"} else ()
            with pytest.raises(InvalidValue, match=meant):
                await getattr(memory.memory(), operation)(*named, **given)


@pytest.mark.nightly
def test_a_draft_and_a_change_have_the_fields_of_what_a_row_says() -> None:
    drafted, changed = (set(inspect.signature(each).parameters) for each in (Draft, Change))
    assert set(CONTENT) < changed < drafted
    assert changed - set(CONTENT) == {"visibility", "sensitivity", "min_clearance"}
