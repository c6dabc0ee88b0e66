"""Records of tool runs, by rule."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.chat.prompt import is_memory_tool
from chatbot.hooks.capture import LONGEST_OUTPUT, ToolRun
from chatbot.messages import ToolCall
from chatbot.operations import OPERATIONS
from chatbot.tools import ToolResult


def run(tool: str = "shell", output: str = "", /, *, error: bool = False, **arguments: Any) -> ToolRun:
    return ran(tool, output, arguments, error=error)


def ran(tool: str, output: str, arguments: dict[str, Any], *, error: bool = False) -> ToolRun:
    return ToolRun.of(ToolResult(ToolCall("c", tool, json.dumps(arguments)), output, is_error=error))


@pytest.mark.parametrize(
    ("tool", "arguments", "error", "type_"),
    [
        ("write_file", {"path": "a.txt"}, False, "change"),
        ("writeFile", {"path": "a.txt"}, False, "change"),
        ("write_file", {"path": "a.txt"}, True, "technical"),
        ("note", {"text": "We decided to use Postgres"}, False, "technical"),  # a tool decides nothing
        ("prefixed", {}, False, "technical"),
    ],
)
def test_the_type_tells_what_changes_files_and_is_never_a_decision(
    tool: str, arguments: dict[str, Any], *, error: bool, type_: str
) -> None:
    assert run(tool, "ok", error=error, **arguments).type == type_


def test_titles_tell_two_runs_of_one_tool_apart() -> None:
    titles = {
        run("read_file", "x", path="a.py").title,
        run("read_file", "x", path="b.py").title,
        run("search", "x", query="lock", path="src").title,
        run("search", "x", query="lock", path="tests").title,
        run("clock", "09:00 in Lisbon").title,
        run("clock", "10:00 in Lisbon").title,
    }
    assert len(titles) == 6
    assert "Tool run: read_file · a.py" in titles
    assert "Tool run: clock · 09:00 in Lisbon" in titles
    assert all(len(title) <= 120 for title in titles)


def test_titles_tell_how_a_run_ended() -> None:
    runs = [
        run("run_tests", "collected 9\n2 failed, 7 passed in 0.3s", suite="api"),
        run("run_tests", "collected 9\n0 failed, 9 passed in 0.3s", suite="api"),
        run("shell", "cc x.c\nok", command="make"),
        run("shell", "cc x.c", command="make", error=True),
        run("clock", "no clock", error=True),
        run("clock", "no clock"),
    ]
    assert [each.title.removeprefix("Tool run: ") for each in runs] == [
        "run_tests · api · 2 failed, 7 passed",
        "run_tests · api · 0 failed, 9 passed",
        "shell · make",
        "shell · make · failed",
        "clock · no clock · failed",
        "clock · no clock",
    ]


def test_the_shape_of_a_capture() -> None:
    it = ran("move_file", "moved\nall is well", {"from": "a.py", "to": "b.py"})
    assert it.facts == ("tool: move_file", "error: false")
    assert it.files == ("a.py", "b.py")
    assert it.writes
    assert it.subtitle == "moved"
    assert it.narrative == 'arguments: {"from": "a.py", "to": "b.py"}\n\noutput: moved\nall is well'
    failed = run("read_file", "no such file", error=True, file="x")
    assert failed.facts[1] == "error: true"
    assert failed.subtitle == "failed: no such file"
    assert (it.concepts, failed.concepts) == (("what-changed",), ("gotcha",))
    assert failed.importance > run("read_file", "no such file", file="x").importance


@pytest.mark.parametrize("key", ["path", "file", "target", "from", "to", "Path"])
def test_files_are_hinted_at_by_the_names_of_arguments(key: str) -> None:
    assert ran("shell", "", {key: "src/x.py"}).files == ("src/x.py",)
    assert ran("shell", "", {key: ["a", "b", 3, None, {"deep": 1}]}).files == ("a", "b")
    assert ran("shell", "", {f"{key}_count": "src/x.py"}).files == ()


def test_a_listing_of_names_has_no_substance() -> None:
    assert run("ls", "\n".join(f"file{number}.py" for number in range(99))).substance == ""


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
    ("it", "kinds"),
    [
        (run("shell", "===== 12 passed in 0.3s =====", command="pytest"), ["tests pass"]),
        (run("shell", "1 failed, 12 passed", command="pytest"), []),
        (run("shell", "Tests: 12 passed\nexit code 1", command="jest"), []),
        (run("shell", "5 passed\nERRORS: 2", command="x"), []),
        (run("shell", "5 passed\nFAIL src/a.test.ts", command="jest"), []),
        (run("shell", "ok 1 - 3 passed\nnot ok 2 - b", command="tap"), []),
        (run("shell", "12 passed, 0 FAILED, no errors", command="x"), ["tests pass"]),
        (run("shell", "test result: ok. 12 passed; 0 failed; failures: 0", command="cargo"), ["tests pass"]),
        (run("shell", "tests/errors/test_fail.py ....\n4 passed, 1 xfailed, exit code 0", command="x"), ["tests pass"]),
        (run("shell", "OK (7 tests)", command="x"), ["tests pass"]),
        (run("shell", "12 passed", error=True, command="pytest"), []),
        (run("write_file", "ok", path="a.py"), ["file saved"]),
        (run("write_file", "refused", error=True, path="a.py"), []),
        (run("read_file", "ok", path="a.py"), []),
        (run("task_update", '{"title": "Renew the passport"}', task_id="x", status="completed"), ["task done"]),
        (run("task_update", "{}", task_id="x", status="pending"), []),
    ],
)
def test_milestones(it: ToolRun, kinds: list[str]) -> None:
    assert [kind for kind, _ in it.milestones()] == kinds


@given(st.text(max_size=30), st.text(max_size=200), st.text(max_size=500), st.booleans())
def test_whatever_a_model_and_a_tool_say_is_read(name: str, arguments: str, output: str, error: bool) -> None:  # noqa: FBT001
    it = ToolRun.of(ToolResult(ToolCall("c", name, arguments), output, is_error=error))
    assert len(it.title) <= 120
    assert len(it.subtitle) <= 160
    assert 0 <= it.importance <= 1
    assert it.narrative
    assert it.type
    assert list(it.milestones()) is not None


def test_memory_tools_are_known_by_name_also_under_a_prefix() -> None:
    names = OPERATIONS.tools()
    assert len(names) >= 18
    for name in names:
        assert is_memory_tool(name)
        assert is_memory_tool(f"our_server__{name}")
        assert is_memory_tool(f"mcp.{name}")
    for name in ("shell", "memory", "in_memory_getter", "session_reader", "multitask_list"):
        assert not is_memory_tool(name)
