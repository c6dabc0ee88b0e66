"""`chatbot sessions` as people and scripts use it: what it prints, asks and refuses, and its exit codes."""

import asyncio
import json
import os
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from chatbot.memory import MemorySystem
from tests import command
from tests.effort import by_day
from tests.terminal import Terminal
from tests.transfer import exports

CONFIG = """
[model]
name = "scripted"
[agents.other]
memory = ["basic_session"]
"""
NOW = datetime.now(UTC)
HOME = Path("identities/ada/memory")


@pytest.fixture(autouse=True)
def _project() -> None:
    Path("config.toml").write_text(CONFIG, encoding="utf-8")


run = partial(command.run, "sessions")
ok = partial(command.ok, "sessions")
from_json = partial(command.from_json, "sessions")


def fails(code: int, words: str, *arguments: str) -> None:
    command.fails(code, words, "sessions", *arguments)


def make(*titles: str, agent: str = "chat", days_ago: int = 0, said: int = 2) -> list[str]:
    """Sessions with some messages, used last some days ago."""
    return asyncio.run(_make(titles, agent, NOW - timedelta(days=days_ago), said))


async def _make(titles: tuple[str, ...], agent: str, now: datetime, said: int) -> list[str]:
    made = []
    async with MemorySystem(HOME, clock=lambda: now, ttl=timedelta(days=365)) as memory:
        for title in titles:
            session = await memory.create_session(["basic_session", "observations"], agent, title=title)
            for number in range(said):
                await session.transcript_append("assistant" if number % 2 else "user", f"{title} says {number}")
            made.append(session.id)
    return made


def titles(*arguments: str) -> list[str]:
    return [record["title"] for record in from_json(*arguments)]


def terminal(*arguments: str, columns: int = 80) -> Terminal:
    return Terminal("sessions", *arguments, columns=columns)


def test_one_grammar_of_filters_chooses_sessions_everywhere() -> None:
    make("old tax", days_ago=30)
    make("new tax", "long talk", said=4)
    make("café", agent="other")
    assert set(titles("list")) == {"old tax", "new tax", "long talk", "café"}
    assert titles("list", "--title", "CAFE\u0301") == ["café"]
    assert "café says 1" in ok("show", "cafe\u0301")
    assert titles("list", "--before", "7d") == ["old tax"]
    assert set(titles("list", "--after", "7d", "--title", "TAX")) == {"new tax"}
    assert titles("list", "--agent", "other") == ["café"]
    assert set(titles("list", "--min-messages", "3")) == {"new tax", "long talk"}
    assert titles("list", "--before", "2001-02-03") == []
    assert [hit["session"]["title"] for hit in from_json("search", "tax", "--before", "7d")] == ["old tax"]
    for action in ("archive", "delete"):
        told = from_json(action, "--before", "7d", "--dry-run")
        assert (len(told.pop("deleted", told.get("archived"))), told["dry_run"]) == (1, True)
    assert len(from_json("export", "--before", "7d", "--dry-run")["sessions"]) == 1
    assert len(titles("list")) == 4


def test_pages_can_be_asked_for_one_by_one() -> None:
    make(*(f"s{number}" for number in range(5)))
    make("by a wrong clock", days_ago=-31)
    assert "  in 30 d  " in ok("list", "--limit", "1")
    first = ok("list", "--limit", "2")
    after = first.rpartition("--page-after ")[2].strip()
    following = titles("list", "--limit", "2", "--page-after", after)
    assert len(following) == 2
    assert "no more results" in ok("list", "--page-after", from_json("list")[-1]["id"])
    fails(4, "no session", "list", "--page-after", "nothing")


def test_what_erases_many_needs_a_yes_and_a_word_of_which() -> None:
    make("one", "two")
    fails(2, "--yes", "delete", "--title", "one")
    fails(2, "--yes", "archive", "one", "two")
    for every in ((), ("--title", " ")):
        fails(2, "name sessions", "delete", *every, "--yes")
    for more in (("--title", "two"), ("--limit", "1")):
        fails(2, "sessions and a filter are both given", "delete", "one", "two", *more, "--yes")
    fails(4, "no session", "delete", "one", "three", "--yes")
    assert len(titles("list")) == 2
    fails(2, "--with-memory", "delete", "--all", "--yes")
    command.ok("ask", "-r", "two", "My heron is called Bert")
    assert ok("delete", "two", "--dry-run").endswith("would be deleted with them: 1 memory\n"), "and no facts"
    (typed := HOME / "prompt_history").write_text("+hello\n")
    done = ok("delete", "--all", "--with-memory", "--yes")
    assert "deleted with them: 1 memory\nlines typed in the chat stay in " in done
    typed.unlink()
    typed.symlink_to("/dev/null")
    make("three", "four")
    ok("delete", "three", "--with-memory", "--yes")
    typed.unlink()
    ok("delete", "four", "--with-memory", "--yes")
    assert not typed.exists()
    assert titles("list") == []


@pytest.mark.parametrize(
    ("action", "option"), [("archive", "--json"), ("delete", "--keep-memory"), ("delete", "--with-memory")]
)
def test_a_failure_midway_does_not_hide_what_was_done_before(action: str, option: str) -> None:
    gone, stuck = make("one", "two")
    lock = HOME / "sessions" / stuck / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to("elsewhere")
    done = run(action, gone, stuck, "--yes", "--json", option)
    assert (done.returncode, json.loads(done.stdout)[f"{action}d"]) == (7, [gone])
    *warned, error = done.stderr.splitlines()
    assert json.loads(error)["error"]["type"] == "UnsafePath"
    assert ("repeat the command" in " ".join(warned)) is (option == "--with-memory")


def test_the_empty_and_the_old_can_be_deleted() -> None:
    make("empty", days_ago=9, said=0)
    make("old", days_ago=90)
    make("new")
    assert "would be deleted" in ok("delete", "--empty", "--dry-run")
    assert len(from_json("delete", "--empty", "--before", "7d", "--yes")["deleted"]) == 1
    assert titles("list") == ["new", "old"]
    assert len(from_json("delete", "--before", "30d", "--keep-memory", "--yes")["deleted"]) == 1
    [expired] = make("expired", days_ago=400)
    assert ok("prune", "--dry-run") == f"would be deleted {expired}\n"
    assert "deleted 1 expired session" in command.run("maintain", CHATBOT_SESSIONS__TTL_DAYS="365").stderr
    assert ok("prune") == "nothing to delete\n"


def test_archived_sessions_are_out_of_the_way_and_come_back() -> None:
    [old] = make("old")
    fails(4, "no session matches 'OL': did you mean 'old'?", "archive", "OL")
    assert ok("archive", "old") == f"archived {old}\n"
    assert titles("list") == []
    assert titles("list", "--archived") == titles("list", "--all") == ["old"]
    assert from_json("search", "old") == []
    assert len(from_json("search", "old", "--all")) == 1
    assert "old says 0" in ok("show", "old")
    assert ok("archive", "--all") == "nothing to change\n"
    assert ok("archive", "old", "--undo") == f"restored {old}\n"
    assert titles("list") == ["old"]


def test_what_is_closed_to_the_identity_does_not_exist() -> None:
    [session] = make("tax return")
    Path("identities/ada/identity.toml").write_text('clearance = "inner"\n', encoding="utf-8")
    assert titles("list", "--all") == []
    assert from_json("search", "word") == []
    for action in ("show", "export", "archive", "delete", "fork"):
        fails(4, "no session has the id", action, session)
        fails(4, "no session matches", action, session[:12])
        fails(4, "no session matches", action, "tax return")
    fails(4, "no session has the id", "rename", session, "mine")
    for words in (("why", session), ("usage", session), ("ask", "-r", session, "And?")):
        assert command.run(*words).returncode == 4
    assert ok("delete", "--all", "--yes") == "nothing to delete\n"
    Path("identities/ada/identity.toml").write_text('clearance = "full"\n', encoding="utf-8")
    assert titles("list") == ["tax return"]


@pytest.mark.parametrize(
    "edited",
    [
        *({"memory": 3}, {"memory": {"considered": [{"id": "a"}]}}, {"tokens": {"window": "x"}}),
        *({"window": [], "calls": 3}, {"window": {"entries": "x"}}, {"window": {"cut": [3]}}, {"attachments": [{}]}),
    ],
)
def test_an_edited_receipt_ends_in_no_traceback(edited: dict[str, object]) -> None:
    command.ok("ask", "hello")
    [file] = HOME.glob("sessions/*/receipts.jsonl")
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | edited) + "\n", encoding="utf-8")
    done = command.run("why")
    assert (done.returncode, "a receipt was edited or damaged: " in done.stderr) == (7, True)
    assert command.from_json("why").items() >= edited.items()
    command.fails(4, "for another session add --session", "why", file.parent.name)
    assert command.run("usage", "hello").returncode == 0


def test_what_a_search_finds_goes_where_it_is_sent_while_the_terminal_shows_a_bar() -> None:
    make(*(f"giraffe {number}" for number in range(101)), said=1)
    searching = Terminal(command=["/bin/sh", "-c", f"{sys.executable} -m chatbot sessions search giraffe > found"])
    assert "reading" in searching.ended()
    assert "giraffe" not in searching.text
    assert Path("found").read_text(encoding="utf-8").count("chatbot -r") == 10


def test_a_fork_ends_where_it_is_told_to() -> None:
    make("source", said=4)
    fork = from_json("fork", "source", "--at", "2", "--title", "fork")
    assert len(from_json("show", "fork")["entries"]) == 2
    assert ok("show", "fork", "--last", "1").count("###") == 1
    assert "now called 'spoon'" in ok("rename", "fork", "spoon")
    assert ok("rename", "spoon", "") == f"{fork['id']} has no title\n"
    assert fork["parent"]
    fails(2, "has 4", "fork", "source", "--at", "5")
    assert from_json("show", from_json("fork", "source", "--at", "0")["id"])["entries"] == []


def test_exports_are_files_that_only_we_can_read() -> None:
    make("Tea / ünï: القدّيس, लड़का ပင် ខ្មែរ", "two")
    ok("export", "two", "-o", "two.md")
    fails(2, "already exists", "export", "two", "-o", "two.md")
    ok("export", "two", "-o", "two.md", "--force")
    assert "skipped two.md: it is a conversation: export it as a bundle" in ok("import", "two.md")
    Path("note.md").write_text(f"How we write:\n\n{Path('two.md').read_text()}")
    assert "skipped" not in ok("import", "note.md")
    assert ok("export", "two", "-o", "\udcff\x1b.md") == "wrote ��.md\n"
    assert ok("export", "two").startswith("# two\n")
    assert ok("export", "two", "--format", "jsonl").count("\n") == 4
    assert ok("export", "two", "-o", "-") == ok("export", "two")
    assert [part["kind"] for part in from_json("export", "two")] == ["session", "entry", "entry", "end"]
    assert not Path("-").exists()
    files = from_json("export", "--all", "-o", "folder")["files"]
    assert [Path(path).stat().st_mode & 0o077 for path in ("two.md", "folder", *files)] == [0] * 4
    assert sorted(Path(file).name[11:].rpartition("-")[0] for file in files) == ["Tea-ünï-القدّيس-लड़का-ပင်-ខ្មែរ", "two"]
    assert {Path(file).parent.name for file in files} == {"folder"}
    os.mkfifo("pipe.md")
    fails(2, "is not a file", "export", "two", "-o", "pipe.md", "--force")
    fails(2, "name a folder", "export", "--all")
    fails(2, "no sessions match", "export", "--title", "nothing")
    fails(7, "cannot be written", "export", "two", "-o", "nowhere/two.md")
    assert not list(Path().glob(".*.tmp"))


def test_a_bundle_brings_sessions_back() -> None:
    [session, *_] = make("one", "two", days_ago=3)
    ok("export", "--all", "-o", "all.jsonl")
    ok("delete", "--all", "--keep-memory", "--yes")
    assert "2 sessions would be imported" in ok("import", "all.jsonl", "--dry-run")
    assert titles("list") == []
    [report] = from_json("import", "all.jsonl")
    assert session in {each["id"] for each in report["sessions"]}
    assert titles("list") == ["two", "one"]
    Path("light.txt").touch()
    done = command.run("sessions", "import", "light.txt", "all.jsonl")
    assert "2 items already here, or given twice" in done.stdout
    assert (done.returncode, "light.txt is neither a bundle" in done.stderr) == (2, True)
    assert "one says 1" in ok("show", session[:23])


def test_an_export_of_chatgpt_comes_in_and_what_is_broken_does_not() -> None:
    value = [exports.chatgpt(exports.chatgpt_message("user", "why a timeout?")), {"mapping": {}}]
    with zipfile.ZipFile("export.zip", "w") as archive:
        archive.writestr("conversations.json", exports.as_bytes(value))
    told = ok("import", "export.zip")
    assert ("1 session imported" in told, "skipped conversation 2: no id" in told) == (True, True)
    Path("empty").mkdir()
    assert ok("import", "empty") == "empty: markdown, with nothing to import\n"
    assert len(titles("list", "--source", "import:chatgpt")) == 1
    assert ok("delete", "--source", "import:claude", "--yes") == "nothing to delete\n"


@pytest.mark.parametrize("answer", by_day(["yes\n", "y\n", "\x04", "\x03"], "yes\n", "y\n"))
def test_a_question_takes_a_plain_yes_and_ctrl_c_and_ctrl_d_for_no(answer: str) -> None:
    code, left = {"yes\n": (0, 0), "\x03": (130, 1)}.get(answer, (2, 1))
    command.ok("ask", "My heron is called Bert")
    asking = terminal("delete", "My heron is called Bert")
    asking.see(r"(?s)Bert\s.*1 memory of these sessions will be deleted too.*delete 1 session permanently\? type yes:")
    asking.type(answer)
    assert "Traceback" not in asking.ended(code)
    assert len(titles("list")) == left


@pytest.mark.parametrize("columns", [30, *(pytest.param(each, marks=pytest.mark.nightly) for each in (60, 80))])
def test_a_table_fits_the_terminal_with_wide_characters_too(columns: int) -> None:
    from rich.cells import cell_len

    make("税务申报的文件和所有相关的收据还有自行车的费用" * 3, "👩‍🔬" * 30, "plain " * 30)
    lines = terminal("list", columns=columns).ended().splitlines()
    assert len([line for line in lines if line.strip()]) == 4
    assert max(cell_len(line) for line in lines) <= columns
    lines = terminal("search", "税务申报", columns=columns).ended().splitlines()
    assert max(cell_len(line) for line in lines if "chatbot -r" not in line) <= columns


def test_what_the_grammar_refuses_is_told_in_json_where_that_is_asked_for() -> None:
    done = run("list", "--nosuch", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--nosuch" in json.loads(done.stderr)["error"]["message"]
    assert run("list", "--nosuch").stderr.startswith("usage: ")
