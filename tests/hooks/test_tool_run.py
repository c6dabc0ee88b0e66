"""Records of tool runs, by rule."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.chat.prompt import is_memory_tool
from chatbot.hooks.capture import LONGEST_OUTPUT, ToolRun
from chatbot.messages import ToolCall
from chatbot.operations import tool_names
from chatbot.tools import ToolResult


def run(
    tool: str = "shell", output: str = "", /, *, error: bool = False, writes: bool | None = False, **given: Any
) -> ToolRun:
    return ran(tool, output, given, error=error, writes=writes)


def ran(tool: str, output: str, given: dict[str, Any], *, error: bool = False, writes: bool | None = False) -> ToolRun:
    call = ToolCall("c", tool, json.dumps(given))
    return ToolRun.of(ToolResult(call, output, is_error=error, writes=writes))


def test_titles_tell_two_runs_of_one_tool_apart() -> None:
    titles = {
        run("read_file", "x", path="a.py").title, run("read_file", "x", path="b.py").title,
        run("search", "x", query="lock", path="src").title, run("search", "x", query="lock", path="tests").title,
        run("clock", "09:00 in Lisbon").title, run("clock", "10:00 in Lisbon").title,
        run("clock", "no clock", error=True).title, run("clock", "x" * 200, error=True).title,
        run("clock", error=True).title,
    }  # fmt: skip
    assert len(titles) == 9
    ends = ("read_file · a.py", "clock · 09:00 in Lisbon", "clock · no clock · failed", "clock · failed")
    assert {f"Tool run: {end}" for end in ends} < titles
    assert all(len(title) <= 120 for title in titles)


def test_the_shape_of_a_capture() -> None:
    it = ran("move_file", "moved\nall is well", {"from": "a.py", "to": "b.py"}, writes=True)
    assert it.facts == ("tool: move_file", "error: false")
    assert it.files == ("a.py", "b.py")
    assert it.subtitle == "moved"
    assert it.narrative == 'arguments: {"from": "a.py", "to": "b.py"}\n\noutput: moved\nall is well'
    failed = run("read_file", "no such file", error=True, file="x")
    assert failed.facts[1] == "error: true"
    assert failed.subtitle == "failed: no such file"
    assert (it.type, it.concepts, failed.concepts) == ("change", ("what-changed",), ("gotcha",))
    assert run("write_file", error=True, writes=True, path="a.txt").type == "technical"
    assert failed.importance > run("read_file", "no such file", file="x").importance
    assert run("ls", "\n".join(f"file{number}.py" for number in range(99))).substance == ""


@pytest.mark.parametrize("key", ["path", "file", "target", "from", "to", "Path"])
def test_files_are_hinted_at_by_the_names_of_arguments(key: str) -> None:
    assert ran("shell", "", {key: "src/x.py"}).files == ("src/x.py",)
    assert ran("shell", "", {key: ["a", "b", 3, None, {"deep": 1}]}).files == ("a", "b")
    assert ran("shell", "", {f"{key}_count": "src/x.py"}).files == ()


def test_secrets_go_before_anything_is_cut_and_memory_blocks_are_left_out() -> None:
    token = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for at in range(LONGEST_OUTPUT - 45, LONGEST_OUTPUT + 5, 7):
        it = run("shell", "x " * (at // 2) + token + " and more " * 2_000, command=f"export T={token}")
        assert "ghp_" not in it.narrative + it.title + it.subtitle
        assert len(it.output) <= LONGEST_OUTPUT
    block = '<memory-context nonce="0f9c0f9c">\n[1] note\n  text | the launch code\n</memory-context nonce="0f9c0f9c">'
    it = run("shell", f"before\n{block}\nafter", command=f"echo {block}")
    assert "launch code" not in it.narrative
    assert "before" in it.output
    assert "after" in it.output
    assert "launch code" not in run("shell", block.partition("</memory")[0]).narrative


@pytest.mark.parametrize(
    ("it", "milestone"),
    [
        (run("shell", "===== 12 passed in 0.3s =====", command="pytest"), None),
        (run("write_file", "ok", writes=True, path="a.py"), ("file saved", "a.py")),
        (run("write_file", "refused", error=True, writes=True, path="a.py"), None),
        (run("write_file", "ok", path="a.py"), None),
        (run("task_update", '{"task": {"title": "Call"}}', task="x", status="completed"), ("task done", "Call")),
        (run("task_update", "ok", task="x", status="completed"), ("task done", "x completed")),
        (run("task_update", "{}", task="x", status="pending"), None),
    ],
)
def test_a_finished_task_and_a_saved_file_are_milestones(it: ToolRun, milestone: tuple[str, str] | None) -> None:
    assert it.milestone == milestone


@given(st.text(max_size=30), st.text(max_size=200), st.text(max_size=500), st.booleans())
def test_whatever_a_model_and_a_tool_say_is_read(name: str, arguments: str, output: str, error: bool) -> None:  # noqa: FBT001
    it = ToolRun.of(ToolResult(ToolCall("c", name, arguments), output, is_error=error))
    assert len(it.title) <= 120
    assert len(it.subtitle) <= 160
    assert 0 <= it.importance <= 1
    assert it.narrative
    assert it.type
    assert it.milestone is None


def test_memory_tools_are_known_by_name_also_under_a_prefix() -> None:
    names = tool_names()
    assert len(names) >= 18
    for name in names:
        assert is_memory_tool(name)
        assert is_memory_tool(f"our_server__{name}")
        assert is_memory_tool(f"mcp.{name}")
    for name in ("shell", "memory", "in_memory_getter", "session_reader", "multitask_list"):
        assert not is_memory_tool(name)
