"""Anthropic's memory tool over memories: the commands as Claude calls them, through the SDK's own dispatch."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from anthropic.lib.tools import ToolError

from chatbot.adapters.anthropic import MemoryFiles
from chatbot.embed import AgentMemory
from tests.adapters.poisoned import ATTACKS, assert_inside

pytestmark = pytest.mark.nightly


async def run(memory: AgentMemory, command: str, **given: Any) -> str:
    return str(await MemoryFiles(memory).call({"command": command, **given}))


async def test_a_file_is_made_read_and_changed(memory: AgentMemory) -> None:
    path = "/memories/people/anna.md"
    assert "created" in await run(memory, "create", path=path, file_text="Anna\nlives in Lisbon")
    assert "     2\tlives in Lisbon" in await run(memory, "view", path=path)
    await run(memory, "str_replace", path=path, old_str="Lisbon", new_str="Porto")
    await run(memory, "insert", path=path, insert_line=1, insert_text="<keeps> bees & figs\n")
    shown = await run(memory, "view", path=path)
    lines = ["Anna", "<keeps> bees & figs", "lives in Porto"]
    assert [line.split("\t")[1] for line in shown.splitlines() if "\t" in line] == lines
    assert "Anna" not in await run(memory, "view", path=path, view_range=[3, -1])
    assert [hit.observation.title for hit in await memory.search("who keeps bees?")] == ["/memories/people/anna.md"]
    assert path in await run(memory, "view", path="/memories")


async def test_files_and_folders_are_renamed_and_deleted(memory: AgentMemory) -> None:
    for name in ("a/one.md", "a/two.md", "b.md", "d/one.md"):
        await run(memory, "create", path=f"/memories/{name}", file_text="this is it")
    await run(memory, "rename", old_path="/memories/a", new_path="/memories/c")
    assert "this is it" in await run(memory, "view", path="/memories/c/one.md")
    await run(memory, "delete", path="/memories/c")
    listed = await run(memory, "view", path="/memories")
    assert "/memories/b.md" in listed
    assert "/memories/d/one.md" in listed
    assert "/memories/c" not in listed


@pytest.mark.parametrize(
    ("command", "given", "error"),
    [
        ("view", {"path": "/memories/none"}, "does not exist"),
        ("view", {"path": "/etc/passwd"}, "must start with /memories"),
        ("view", {"path": "/memories/../etc"}, "must start with /memories"),
        ("create", {"path": "/memories/a.md", "file_text": "again"}, "already exists"),
        ("str_replace", {"path": "/memories/a.md", "old_str": "x", "new_str": "y"}, "did not appear"),
        ("str_replace", {"path": "/memories/a.md", "old_str": "tea", "new_str": "y"}, "occurs 2 times"),
        ("insert", {"path": "/memories/a.md", "insert_line": 9, "insert_text": "y"}, "Invalid `insert_line`"),
        ("delete", {"path": "/memories"}, "Cannot delete"),
        ("rename", {"old_path": "/memories/none", "new_path": "/memories/b.md"}, "does not exist"),
        ("rename", {"old_path": "/memories/a.md", "new_path": "/memories"}, "The path /memories already exists"),
        ("view", {"path": "/memories/a.md", "view_range": [0, 1]}, "Invalid `view_range` parameter: .0, 1."),
        ("view", {"path": "/memories/a.md", "view_range": [1]}, "Invalid `view_range`"),
        ("view", {}, "path: Field required"),
        ("erase", {}, "'view', 'create'"),
    ],
)
async def test_a_wrong_command_says_so(memory: AgentMemory, command: str, given: dict[str, Any], error: str) -> None:
    await run(memory, "create", path="/memories/a.md", file_text="tea and tea")
    with pytest.raises(ToolError, match=error):
        await run(memory, command, **given)


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("create", {"path": "/memories/one.md", "file_text": "text {}"}),
        ("rename", {"old_path": "/memories/{}.md", "new_path": "/memories/one.md"}),
        ("str_replace", {"path": "/memories/all.md", "old_str": "all", "new_str": "text {}"}),
        ("insert", {"path": "/memories/all.md", "insert_line": 1, "insert_text": "text {}"}),
    ],
)
async def test_commands_at_once_on_a_file_all_count(memory: AgentMemory, command: str, given: dict[str, Any]) -> None:
    await run(memory, "create", path="/memories/all.md", file_text="all")
    for number in range(8) if command == "rename" else ():
        await run(memory, "create", path=f"/memories/{number}.md", file_text=f"text {number}")

    async def won(number: int) -> bool:
        filled = {name: each.format(number) if isinstance(each, str) else each for name, each in given.items()}
        with suppress(ToolError):
            await run(memory, command, **filled)
            return True
        return False

    done = await asyncio.gather(*map(won, range(8)))
    rows = {row.title: row.narrative for row in await memory.every(metadata={"kind": "anthropic"})}
    changed = rows[str(given.get("new_path") or given["path"])]
    assert 1 <= sum(done) <= (8 if command == "insert" else 1)
    assert [f"text {number}" in changed for number in range(8)] == done
    assert "".join(rows.values()).count("text") == (8 if command == "rename" else sum(done))


async def test_an_edit_of_the_case_alone_is_one(memory: AgentMemory) -> None:
    await run(memory, "create", path="/memories/a.md", file_text="anna")
    await run(memory, "str_replace", path="/memories/a.md", old_str="anna", new_str="Anna")
    assert "\tAnna" in await run(memory, "view", path="/memories/a.md")


@pytest.mark.parametrize("name", ["a\n### system", "a  b", "<|im_start|>", "a\x1b[2J", "\u202ea", "x" * 2_000])
async def test_a_name_that_could_look_like_another_is_refused_and_not_listed(memory: AgentMemory, name: str) -> None:
    with pytest.raises(ToolError, match="one short line"):
        await run(memory, "create", path=f"/memories/{name}", file_text="x")
    for path in (f"/memories/{name}", 5, None):
        await memory.remember("of another", narrative=str(path), metadata={"kind": "anthropic", "path": path})
    assert (await run(memory, "view", path="/memories")).endswith("/memories:\n")


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_poisoned_file_stays_inside_the_fence(memory: AgentMemory, attack: str) -> None:
    await run(memory, "create", path="/memories/door.md", file_text=attack)
    try:
        shown = await run(memory, "view", path="/memories/door.md")
    except ToolError as error:
        shown = str(error)
    assert_inside(shown, attack)
