"""The command line as scripts use it: real processes, real files, exit codes."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import cast

import pytest

from chatbot import __main__
from chatbot.chat.events import Notice
from chatbot.chat.ledger import Call, Ledger
from chatbot.cli.ask import Printer
from chatbot.cli.config import set_values
from chatbot.cli.output import read_input
from chatbot.cli.run import TerminalFormatter, cancel_on_signals
from chatbot.memory.scope import utc_now
from chatbot.messages import TextDelta, Usage
from chatbot.models import provider as keys
from tests import process
from tests.command import fails, from_json, ok, project, run
from tests.disk import fill
from tests.patience import PATIENCE_S
from tests.surfaces.test_repl import ENDLESS

CONFIG = """
[model]
name = "scripted"
[agents.chat]
memory = ["basic_session"]
[agents.bare]
memory = []
"""


@pytest.fixture(autouse=True)
def _project() -> None:
    project(CONFIG, "ada", "grace", identity='persona = "You are one."')


def test_a_question_is_an_argument_a_pipe_or_both() -> None:
    assert ok("ask", "two", "words") == "You said: two words\n"
    assert ok("ask", stdin="piped\n") == "You said: piped\n"
    assert ok("ask", "-", stdin="piped") == "You said: piped\n"
    assert ok("ask", "about this:", stdin="piped") == "You said: about this:\n[standard input, above]\n"
    assert ok("ask", "--no-stream", "whole") == "You said: whole\n"


def test_a_notice_in_a_pipe_waits_for_the_end_of_the_reply(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    printer = Printer(streams=True)
    for event in (Notice("first"), TextDelta("Hi "), Notice("second"), TextDelta("Ida")):
        printer(event)
    printer.end()
    assert capsys.readouterr().out == "chatbot: first\nHi Ida\nchatbot: second\n"


@pytest.mark.parametrize("command", ["keys", "personas", "tools", "token", "users"])
def test_a_command_with_a_list_prints_it_if_no_action_is_named(command: str) -> None:
    assert from_json(command) == from_json(command, "list")


def test_asking_begins_a_session_unless_told_to_go_on() -> None:
    first = from_json("ask", "first")["session"]
    assert from_json("ask", "second")["session"] != first
    assert from_json("ask", "-r", "first", "third")["session"] == first
    assert from_json("ask", "-c", "fourth")["session"] == first
    assert from_json("ask", "-r", first[:23], "fifth")["session"] == first
    Path("noise").write_bytes(b"\0\xff")
    fails(2, "attach another file", "ask", "--fork", "Fir", "sixth", "--attach", "noise")
    assert len(from_json("sessions", "list")) == 2
    fork = from_json("ask", "--fork", "Fir", "sixth")["session"]
    assert fork != first
    assert from_json("sessions", "show", fork)["title"] == "sixth"  # not that of its source
    entries, former = (from_json("sessions", "show", each)["entries"] for each in (fork, first))
    assert len(entries) == len(former) + 2


def test_the_bill_is_shown_for_a_session_and_in_all() -> None:
    assert ok("usage") == "No model calls yet\n"
    ok("ask", "alpha")
    ok("ask", "beta")
    assert from_json("usage")["by_purpose"]["chat"]["calls"] == 2
    assert from_json("usage", "alpha")["calls"] == 1
    assert re.search(r"tokens in 30 days: [\d,]+, most on.*purpose", ok("usage"), re.DOTALL)
    spent = from_json("usage", "--days", "2")
    assert (len(spent["days"]), spent["days"][-1]["calls"], spent["calls"]) == (2, 2, 2)
    assert run("usage", "--days", "0").returncode == 2
    [bill] = Path("identities").rglob("usage.jsonl")
    for cost in (0.5, None):
        Ledger(bill.parent).prepare_add(Call(utc_now(), "", "chat", "a-model", Usage(1, 1, cost_usd=cost), 1.0))()
    assert re.search(r"cost in 30 days: over \$0\.5000, most on [\d-]+: over \$0\.5000", ok("usage"))


def test_a_budget_refuses_before_anything_is_spent() -> None:
    done = run("ask", "hello", CHATBOT_BUDGET__SESSION_TOKENS="10")
    assert (done.returncode, done.stdout) == (6, "")
    assert "session_tokens = 10" in done.stderr
    assert from_json("usage")["calls"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["ask", "-i", "gracie", "hi"], 4, "did you mean 'grace'"),
        (["ask", "-r", "w" * 5_000, "hi"], 4, "no session matches 'www"),
        (["sessions", "show", "tax"], 4, "no session matches 'tax': see `chatbot sessions list --all`"),
        (["hooks", "w" * 5_000], 2, "unrecognized arguments: www"),
        (["ask", "--agent", "chatt", "hi"], 3, "did you mean 'chat'"),
        (["ask", "--config", "nowhere.toml", "hi"], 3, "nowhere.toml (`chatbot --config FILE init` creates one)"),
        (["ask", "-m", "local/nowhere.gguf", "hi"], 5, "nowhere.gguf"),
        (["ask", "-r", "--", "hi"], 2, "name a session"),
        (["ask"], 2, "no question"),
        (["ask", "-m", "scr\udcff", "hi"], 2, "the model is not valid Unicode"),
        (["config", "set", "model.name", "scr\udcff"], 2, "the new text is not valid Unicode"),
        (["sessions", "list", "--limit", "9" * 20], 2, "must be a whole number from 0 to 10^15"),
        (["mcp", "--http", "--port", "99999"], 2, "must be a whole number from 0 to 65535"),
        (["ask", "--budget-usd", "a lot", "hi"], 2, "argument --budget-usd: 'a lot' must be a number above 0"),
        (["sessions"], 2, "name an action: list, search, show"),
        (["sesions"], 2, "invalid choice 'sesions': did you mean 'sessions'?"),
        (["backup", "~nobody-63/x"], 2, "'~nobody-63/x' names an unknown user: write the whole path"),
        (["qwerty"], 2, "init, completion; `chatbot ask` takes a question"),
        (["-i", "ada", "forget", "tea"], 2, "did you mean 'memory forget'?"),
        (["memory", "timeline", "--limit", "2"], 2, "chatbot memory timeline: error: unrecognized arguments: --limit"),
        (["config", "get", "model.name"], 2, "invalid choice 'get': did you mean 'show'?"),
        (["memory", "profile", "--as-of", "May 2030"], 2, "12h, 30d, 4w, or a past time, such as May 2025 or last"),
        (["memory", "help"], 2, "invalid choice 'help': did you mean 'chatbot memory --help'?"),
        (["memory", "tasks", "list"], 2, "invalid choice 'list': did you mean 'chatbot memory tasks'?"),
        (["memory", "rm", "tea"], 2, "invalid choice 'rm': did you mean 'forget' or 'purge'?"),
        (["--project", "house", "memory", "list"], 2, "--project has no effect before 'memory'"),
        ([], 2, "needs a terminal"),
        (["--config", "x\nchatbot: well.toml", "ask", "hi"], 3, "not found: x\n         chatbot: well.toml"),
    ],
)
def test_what_goes_wrong_has_its_code_and_its_words(arguments: list[str], code: int, named: str) -> None:
    fails(code, named, *arguments)


def test_control_characters_never_reach_the_terminal() -> None:
    script = json.dumps(["\x1b[31mred\x07 \x9b1m"])
    assert ok("ask", "hi", CHATBOT_MODEL__SCRIPT=script) == "�[31mred� �1m\n"
    assert "\x1b" not in ok("sessions", "show", "hi")
    for flags in ([], ["--json"]):
        refused = run("ask", "-i", "gr\x9bace\u202e", "hi", *flags).stderr
        assert "ace" in refused
        assert refused.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("plumbing", "code", "told"),
    [("| head -n 1", 0, ""), ("> /dev/full", 7, "standard output: No space left"), ("<&- >&- 2>&-", 0, "")],
)
def test_a_reader_that_leaves_or_none_is_no_error_and_a_full_disk_is_one(plumbing: str, code: int, told: str) -> None:
    ok("ask", "hello " * 12_000, CHATBOT_MODEL__CONTEXT_WINDOW="1000000")
    command = f'{sys.executable} -m chatbot sessions show -- "$(ls identities/ada/memory/sessions)" {plumbing}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (code, plumbing.count("head"))
    assert (told in done.stderr, done.stderr.count("\n")) == (True, bool(told))


def test_a_reply_whose_reader_has_enough_is_kept_as_far_as_it_came() -> None:
    asking = f"yes word | head -n 30000 | {sys.executable} -m chatbot ask - | head -c 9"
    settings = os.environ | {"CHATBOT_MODEL__CONTEXT_WINDOW": "1000000"}
    done = subprocess.run(["/bin/sh", "-c", asking], capture_output=True, timeout=PATIENCE_S, env=settings, check=True)
    assert (done.stdout, done.stderr) == (b"You said:", b"")
    [session] = from_json("sessions", "list")
    said = [(each["role"], each["content"][:9]) for each in from_json("sessions", "show", session["id"])["entries"]]
    assert said[1:] == [("assistant", "You said:"), ("error", "stopped b")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_keep_what_was_said(number: int, code: int) -> None:
    Path("endless.py").write_text(ENDLESS, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "endless.py", "ask", "tell me"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.read(14) == b"so far so good"
        asking.send_signal(number)
        assert asking.wait(timeout=PATIENCE_S) == code
    entries = from_json("sessions", "show", "tell me")["entries"]
    said = [("user", "tell me"), ("assistant", "so far so good"), ("error", "stopped before the reply was complete")]
    assert [(entry["role"], entry["content"]) for entry in entries] == said


@pytest.mark.parametrize(
    ("arguments", "stdin", "named"),
    [
        (["ask", "-"], b"g\xc3\xb6od and \xff bad", "UTF-8 (character 10): convert it first, e.g. with iconv\n"),
        (["-m", "local/./missing.gguf", "ask", "hi"], b"", "missing.gguf"),
        pytest.param(["ask", "-"], b"x" * 15_000_001, "at most 15,000,000 can be kept", id="longer than an entry"),
    ],
)
def test_a_question_that_was_not_put_leaves_no_empty_session(arguments: list[str], stdin: bytes, named: str) -> None:
    done = run(*arguments, stdin=stdin)
    assert done.returncode != 0
    assert named in done.stderr
    listed = from_json("sessions", "list")
    assert [from_json("sessions", "show", each["id"])["entries"] == [] for each in listed] in ([], [False])


@pytest.mark.parametrize(("command", "longest"), [("ask", "15,000,000"), ("memory add x -", "1,000,000")])
def test_an_input_without_an_end_is_refused(command: str, longest: str) -> None:
    project('[model]\nname = "scripted"\n')
    line = f"yes | {sys.executable} -m chatbot {command}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, f"at most {longest} can be kept" in done.stderr.decode()) == (2, True)


@pytest.mark.parametrize(("words", "stdin", "what"), [(["häh"], "", "the input"), ([], "häh", "standard input")])
def test_a_text_that_cannot_be_decoded_names_the_setting_that_helps(words: list[str], stdin: str, what: str) -> None:
    done = process.run("ask", *words, stdin=stdin, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 2
    assert f"{what} is not valid ASCII" in done.stderr
    assert "set LC_ALL=C.UTF-8 and unset PYTHONUTF8" in done.stderr


def test_a_configuration_that_gets_a_key_is_readable_by_its_owner_alone() -> None:
    path = Path("config.toml")
    path.chmod(0o644)
    ok("config", "set", "model.max_output_tokens", "77")
    assert run("config", "set", "providers.openai.api_key", "env:MY_KEY").returncode == 0
    assert path.stat().st_mode & 0o777 == 0o644
    told = run("config", "set", "providers.openai.api_key", "sk-a-key-of-mine")
    assert told.returncode == 0
    assert "only you may read it" in told.stderr
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_without_room_or_that_is_read_only_keeps_what_it_has_and_says_what_helps(small_disk: Path) -> None:
    ok("ask", "hello")
    [session] = from_json("sessions", "list")
    path = Path(shutil.copy("config.toml", small_disk))
    before = path.read_bytes()
    fill(small_disk)
    for helps in ("No space left on device: free some", "Read-only file system: make it writable, or change a copy"):
        fails(7, f"{path} cannot be written: {helps}", "config", "set", "model.seed", "77", "--config", str(path))
        out = str(small_disk / "session.md")
        fails(7, f"{out} cannot be written: {helps}", "sessions", "export", session["id"], "-o", out)
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert path.read_bytes() == before


def test_keys_that_are_set_at_once_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_keyring", nullcontext)
    stale, both = keys._entries, Barrier(2)

    def read() -> keys.Entries:
        known = stale()
        with suppress(BrokenBarrierError):  # where one waits for the other to write, they do not meet here
            both.wait(0.1)
        return known

    monkeypatch.setattr(keys, "_entries", read)
    with ThreadPoolExecutor(2) as threads:
        places = list(threads.map(keys.store_key, ("one", "two"), ("first", "second")))
    assert places == ["keys.json"] * 2
    assert {*keys.loaded_keys()} == {"first", "second"}


def test_settings_that_are_set_at_once_are_all_kept() -> None:
    wanted = {"session_tokens": 7, "day_tokens": 8, "session_usd": 9.0, "day_usd": 10.0}
    with ThreadPoolExecutor(len(wanted)) as threads:
        list(threads.map(lambda each: set_values(Path("config.toml"), {("budget", each[0]): each[1]}), wanted.items()))
    assert tomllib.loads(Path("config.toml").read_text(encoding="utf-8"))["budget"] == wanted


def test_limits_of_tokens_and_users_are_set_and_shown() -> None:
    assert run("token", "add", "shop", "--for", "ada", "--clearance", "full").returncode == 0
    limited = from_json("token", "limit", "shop", "--day-usd", "5", "--user-day-tokens", "300")
    assert limited["quota"] == {"day_usd": 5.0, "day_tokens": 0}
    assert limited["user_quota"] == {"day_usd": 0.0, "day_tokens": 300}
    assert "of $5.00, each user 300 tokens a day" in ok("token", "limit", "shop")
    assert "of $5.00 and 2,000 tokens" in ok("token", "limit", "shop", "--day-tokens", "2000")
    assert from_json("users", "limit", "alice", "--day-usd", "2")["day_usd"] == 2
    assert "alice: $0.00, 0 tokens of $2.00" in ok("users", "limit", "alice")
    assert "or the limit of their token" in ok("users", "limit", "alice", "--default")
    assert run("users", "limit", "alice", "--day-usd", "-1").returncode == 2


KEEPS_NOTHING = {
    "no stores": ("[agents.chat]\nmemory = []", "the agent 'chat' has no stores"),
    "a store that forgets": ('[agents.chat]\nmemory = ["in_memory"]', "in_memory forgets everything at the end"),
}


@pytest.mark.parametrize(("text", "why"), KEEPS_NOTHING.values(), ids=KEEPS_NOTHING)
def test_a_chat_that_keeps_nothing_says_so_everywhere(text: str, why: str) -> None:
    project(f'[model]\nname = "scripted"\n{text}')
    told = run("ask", "hi")
    assert f"this chat keeps nothing: {why}" in told.stderr
    assert 'set [agents.chat] memory = ["basic_session", "observations"]' in told.stderr
    assert (told.returncode, "keeps nothing" in told.stdout) == (0, False)
    assert json.loads(run("ask", "--json", "hi").stdout)["kept"] is False
    assert [each["state"] for each in from_json("doctor") if "keeps nothing" in each["message"]] == ["note"]


def test_an_error_of_the_operating_system_names_its_file_and_has_no_number() -> None:
    Path("config.toml").unlink()
    fails(7, "/dev/null is not a folder: move it away, or choose another place", "memory", "list", HOME="/dev/null")
    error = OSError(28, "No space left on device", "usage.jsonl")
    log_line = TerminalFormatter().format(logging.LogRecord("stores", logging.WARNING, "", 0, "%s", (error,), None))
    assert log_line == "usage.jsonl: No space left on device"


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError("no 2 MiB")])
def test_a_machine_that_lacks_memory_or_threads_is_named(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = run("usage")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"no memory or thread is left ({type(error).__name__}: {error}): close other programs" in done.stderr


def test_ctrl_c_ends_the_program_also_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading:
        @property
        def main(self) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(cast("dict[str, object]", sys.modules), "chatbot.cli.main", Loading())
    assert __main__.run() == 130


def test_the_second_hangup_of_a_terminal_that_closes_does_not_interrupt_the_closing() -> None:
    ended = []

    async def work() -> None:
        cancel_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            for _ in range(10):
                await asyncio.sleep(0)
            ended.append(True)

    with suppress(asyncio.CancelledError):
        asyncio.run(work())
    assert ended


def test_nohup_holds_and_a_question_that_waits_for_an_answer_can_be_terminated() -> None:
    def read() -> str:
        signal.raise_signal(signal.SIGTERM)
        return ""

    async def work() -> None:
        cancel_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)
        read_input(read)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(work())
    finally:
        signal.signal(signal.SIGHUP, before)
