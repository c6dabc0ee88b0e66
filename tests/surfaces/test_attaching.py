"""Files in a message at the terminal, and what the user is asked about a call: in this process, with typed keys."""

import json
import os
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from chatbot.cli.from_arguments import upload_from_file
from chatbot.cli.repl.actions import Consent, PastedTexts, _call_text, attach_named
from chatbot.cli.repl.commands import Commands
from chatbot.cli.repl.input import SlashCompleter
from chatbot.messages import ToolCall
from chatbot.stores.errors import InvalidValue
from chatbot.tools.file_tools import lasting_consent
from tests import command


@pytest.fixture(autouse=True)
def _files() -> None:
    for name in ("notes.txt", "my notes.txt", "deep/er.md"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"this is {name}", encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "said", "names"),
    [
        ("what is @notes.txt?", "what is notes.txt?", ["notes.txt"]),
        ("@deep/er.md, and @notes.txt.", "er.md, and notes.txt.", ["er.md", "notes.txt"]),
        ('see @"my notes.txt" please', "see my notes.txt please", ["my notes.txt"]),
        ("ask @bob or me@example.org", "ask @bob or me@example.org", []),
        ("@~/notes.txt", "notes.txt", ["notes.txt"]),
    ],
)
def test_a_typed_name_attaches_its_file(typed: str, said: str, names: list[str]) -> None:
    notices: list[str] = []
    text, files = attach_named(typed, PastedTexts(), notices.append)
    assert (text, [file.name for file in files], notices) == (said, names, [])


def test_a_name_with_an_extension_and_without_a_file_is_text_with_a_notice() -> None:
    notices: list[str] = []
    assert attach_named("read @note.txt, @deep", PastedTexts(), notices.append) == ("read @note.txt, @deep", [])
    assert notices == ["file not found: 'note.txt': its name is sent as text"]


def test_what_was_pasted_names_no_file() -> None:
    pasted = PastedTexts()
    pasted.note("please read @notes.txt now")
    assert attach_named("please read @notes.txt now", pasted, pytest.fail) == ("please read @notes.txt now", [])
    assert [file.name for file in attach_named("read @deep/er.md", pasted, pytest.fail)[1]] == ["er.md"]


@pytest.mark.parametrize("name", ["~nobody-of-this-name", "n" * 5_000, "\ud800", "a\0b"])
def test_what_can_be_no_file_is_text_or_an_error_of_ours(name: str) -> None:
    assert attach_named(f"ask @{name}", PastedTexts(), pytest.fail) == (f"ask @{name}", [])
    for text in (f"@{name}/x", f'@"{name}"'):
        with pytest.raises(InvalidValue, match="file not found:"):
            attach_named(text, PastedTexts(), pytest.fail)
    for given, error in ((name, "file not found:"), ("~", "not a file: '~'")):
        with pytest.raises(InvalidValue, match=error):
            upload_from_file(given)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        *((typed, "er.md") for typed in ("what is in @deep/", "@deep/", "@notes.txt\n@deep/")),
        *((typed, '"my notes.txt"') for typed in ("see @my", '@"my', '@"my n')),
    ],
)
async def test_tab_completes_a_path_behind_an_at_sign_in_quotes_if_it_has_a_space(typed: str, completed: str) -> None:
    completer = SlashCompleter(Commands, None)  # type: ignore[arg-type] # no command is completed
    found = [each.text async for each in completer.get_completions_async(Document(typed), CompleteEvent())]
    assert found == [completed]


async def test_a_call_is_allowed_once_or_for_this_session_or_denied() -> None:
    read, search = ToolCall("a", "files_read", "{}"), ToolCall("b", "files_search", '{"text": "tea"}')
    write, same, other = (
        ToolCall("c", "files_write", json.dumps({"path": path, "text": text}))
        for path, text in (("a.md", "one"), ("./a.md", "two"), ("b.md", "one"))
    )
    consent = Consent()
    consent.session = "one"
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):

        async def ask(call: ToolCall, typed: str) -> str:
            keys.send_text(typed)
            return await consent(call)

        assert await ask(read, "y\r") == "once"
        assert await ask(read, "\r") == "denied"
        assert await ask(read, "nonsense\r") == "denied"
        assert await ask(read, "s\r") == "session"
        assert await consent(read) == "session"  # it is not asked again
        assert await consent(search) == "session"  # reading is one permission
        assert await ask(write, "s\r") == "session"
        assert await consent(same) == "session"
        assert await ask(other, "n\r") == "denied"  # writing is one for each file
        consent.session = "two"
        assert await ask(read, "n\r") == "denied"


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("files_list", "{}", "list, read and search files in this folder"),
        ("files_write", '{"path": "notes//./a.md", "text": ""}', "write notes/a.md"),
        ("files_write", '{"path": "../a.md"}', "repeat a call that names no file"),
        ("files_write", "[1]", "repeat a call that names no file"),
        ("mail__send", '{"path": "a.md"}', "call mail__send"),
    ],
)
def test_the_question_says_what_is_allowed_for_the_session(name: str, arguments: str, what: str) -> None:
    assert lasting_consent(ToolCall("a", name, arguments))[1] == what


LONG = [json.dumps({"text": "x" * 5_000, "path": "run.sh"}), json.dumps({"path": "run.sh", "text": "x" * 5_000})]


@pytest.mark.parametrize(
    "written", [*LONG, "[" * 5_000, "x" * 5_000, json.dumps({str(n): "x" for n in range(5_000)}), "\x1b]0;" * 500]
)
def test_a_long_call_is_shown_in_part_and_no_argument_hides_another(written: str) -> None:
    shown = _call_text(ToolCall("c", "files_write", written))
    assert len(shown) < 1_000
    assert "\x1b" not in shown
    assert written not in LONG or ('"run.sh"' in shown and "more)" in shown)


def test_ask_attaches_files_and_standard_input_names_none() -> None:
    command.project('[model]\nname = "scripted"\n')
    assert "notes.txt, above" in command.ok("ask", "-a", "notes.txt", "what?")
    assert "above" not in command.ok("ask", "--new", stdin="what is @notes.txt?")
    assert "attached: notes.txt · text/plain · 17 bytes · 17 characters" in command.ok("why", "1", "--session", "what?")
    assert "attachments: 1 file, 17 bytes kept, " in command.ok("usage", "what?")
    assert "input, above" in command.ok("ask", "--new", "My customer Ann wrote:", stdin="I'm allergic to nuts.")
    assert ["Ann" in (kept := command.ok("memory", "export")), "nuts" in kept] == [True, False]
    done = command.run("ask", "-a", "nowhere.txt", "what?")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "chatbot: file not found: 'nowhere.txt'\n"


def test_a_file_of_absurd_size_is_told_and_fills_no_memory() -> None:
    command.project('[model]\nname = "scripted"\n')
    command.ok("ask", "-a", "notes.txt", "what?")
    [session] = Path("identities/ada/memory/sessions").iterdir()
    [file] = (session / "attachments").iterdir()
    os.truncate(file, 40 << 30)
    done = command.run("ask", "-c", "and now?")
    assert done.returncode == 0
    assert "notes.txt cannot be read: " in done.stderr
    assert f"{file.name}: 42,949,672,960 bytes are too many to be read at once" in done.stderr
    os.truncate(session / "session.json", 40 << 30)
    command.fails(7, "session.json: 42,949,672,960 bytes are too many to be read at once", "ask", "-c", "and now?")
