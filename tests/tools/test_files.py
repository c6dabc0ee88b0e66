"""Tools for the files of a folder: nothing outside of it is reached, each call is asked about, secrets stay out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chatbot.errors import ConfigError, ToolError
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.tools import Toolbox
from chatbot.tools.file_tools import LARGEST, WorkFolder, file_tools
from chatbot.tools.toolbox import Permission

KEY = "AKIAIOSFODNN7EXAMQLE"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("outside", encoding="utf-8")
    folder = tmp_path / "work"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "today.md").write_text(f"Buy tea.\nThe key is {KEY}.\n", encoding="utf-8")
    (folder / ".env").write_text("hidden", encoding="utf-8")
    return folder


async def _use(root: Path, name: str, answer: Permission = "once", **arguments: Any) -> dict[str, Any]:
    async def confirm(_: ToolCall) -> Permission:
        return answer

    toolbox = Toolbox(file_tools(root), confirm=confirm)
    [result] = await toolbox.run([ToolCall("c", name, json.dumps(arguments))])
    assert result.asked == answer
    told: dict[str, Any] = json.loads(result.content)
    return told


async def test_files_are_listed_read_searched_and_written(root: Path) -> None:
    assert (await _use(root, "files_list"))["entries"] == ["notes/"]
    assert (await _use(root, "files_search", text="TEA"))["lines"] == ["notes/today.md:1: Buy tea."]
    text = (await _use(root, "files_read", path="notes/today.md"))["text"]
    assert text.startswith("Buy tea.")
    assert KEY not in text
    (root / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nMIIEteaBCDEF\n-----END PRIVATE KEY-----\nA teapot.\n")
    found = (await _use(root, "files_search", text="tea"))["lines"]
    assert [line.partition(": ")[2] for line in found] == ["A teapot.", "Buy tea."], "no line of a key is found"
    (root / "key.pem").unlink()
    (root / "notes" / "today.md").chmod(0o640)
    assert (await _use(root, "files_write", path="notes/today.md", text="Done."))["outcome"] == "replaced"
    assert (await _use(root, "files_write", path="new/deep/a.txt", text="é"))["outcome"] == "created"
    assert (root / "notes" / "today.md").read_text(encoding="utf-8") == "Done."
    for path, mode in (("notes/today.md", 0o640), ("new/deep/a.txt", 0o600)):
        assert (root / path).stat().st_mode & 0o777 == mode
    assert not list(root.rglob("*.tmp"))
    Path(os.fsdecode(os.fsencode(root / "caf") + b"\xe9")).touch()  # a name that is not UTF-8
    assert (await _use(root, "files_list"))["entries"] == ["caf\ufffd (0 B)", "new/", "notes/"]


async def test_a_search_says_so_if_it_stops_before_the_last_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatbot.tools.file_tools.MOST_FILES", 1)
    assert (await _use(root, "files_search", text="tea"))["searched"] == "only the first 1 files"
    monkeypatch.setattr("chatbot.tools.file_tools.MOST_FILES", 2)
    assert "searched" not in await _use(root, "files_search", text="tea")


async def test_a_search_says_what_it_could_not_read_and_when_it_found_enough(root: Path) -> None:
    (root / "m.bin").write_bytes(b"\0\xff")
    (root / "locked").mkdir(mode=0o000)
    (root / "/".join(["deep"] * 34)).mkdir(parents=True)
    found = await _use(root, "files_search", text="tea")
    assert len(found["lines"]) == 1
    assert found["not_searched"].startswith(f"{2 if os.geteuid() == 0 else 3} files or folders")  # root opens all
    for name in ("a.txt", "z.txt"):
        (root / name).write_text("tea\n" * 60, encoding="utf-8")
    found = await _use(root, "files_search", text="tea")
    assert (len(found["lines"]), found["left_out"], found["searched"]) == (50, 10, "only the first 1 files")


@pytest.mark.parametrize(
    "path",
    [
        *("../outside.txt", "notes/../../outside.txt", "/etc/passwd", "~/x", "notes\\..\\x", "a\0b"),
        *(".env", "notes/.git/config", "link.txt", "hard.txt", "linked/outside.txt", "linked/new.txt", "pipe", "notes"),
    ],
)
async def test_no_path_leads_out(root: Path, path: str) -> None:
    (root / "link.txt").symlink_to(root.parent / "outside.txt")
    (root / "hard.txt").hardlink_to(root.parent / "outside.txt")
    (root / "linked").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    assert "error" in await _use(root, "files_read", path=path)
    assert "error" in await _use(root, "files_write", path=path, text="changed")
    assert (root.parent / "outside.txt").read_text(encoding="utf-8") == "outside"
    assert not (root.parent / "new.txt").exists()
    assert (root / ".env").read_text(encoding="utf-8") == "hidden"
    assert str(root.parent) not in json.dumps(await _use(root, "files_read", path=path))


def test_half_a_character_is_an_error_of_ours(root: Path) -> None:
    for path, text in (("a.txt", "\ud800"), ("\ud800.txt", "a")):
        with pytest.raises(ToolError, match="not valid Unicode"):
            WorkFolder(root).write(path, text)
    assert [each.name for each in root.iterdir() if each.suffix in {".txt", ".tmp"}] == []


async def test_a_file_that_runs_as_its_owner_does_so_no_more_with_another_text(root: Path) -> None:
    (root / "run").write_text("old", encoding="utf-8")
    (root / "run").chmod(0o4755)
    await _use(root, "files_write", path="run", text="new")
    assert (root / "run").stat().st_mode & 0o7777 == 0o755


async def test_links_are_neither_listed_nor_searched(root: Path) -> None:
    (root / "linked").symlink_to(root.parent)
    (root / "hard.txt").hardlink_to(root.parent / "outside.txt")
    assert (await _use(root, "files_list"))["entries"] == ["notes/"]
    assert (await _use(root, "files_search", text="outside"))["lines"] == []
    assert "error" in await _use(root, "files_list", folder="linked")


def test_a_large_or_binary_file_is_refused(root: Path) -> None:
    work = WorkFolder(root)
    (root / "large").write_bytes(b"x" * (LARGEST + 1))
    (root / "binary").write_bytes(b"\0\xff")
    for path in ("large", "binary", "missing"):
        with pytest.raises(ToolError):
            work.read(path)
    with pytest.raises(ToolError):
        work.write("large2", "x" * (LARGEST + 1))


async def test_what_the_user_denies_is_not_done(root: Path) -> None:
    assert "did not allow" in (await _use(root, "files_write", "denied", path="a.txt", text="x"))["error"]
    assert not (root / "a.txt").exists()


def test_a_folder_with_our_own_files_is_refused(root: Path) -> None:
    (root / "config.toml").touch()
    with pytest.raises(ConfigError, match=r"holds .*config\.toml"):
        file_tools(root, ours=(root / "config.toml",))


@pytest.mark.parametrize("inside", ["identities", "identities/ada", "identities/ada/notes"])
async def test_a_folder_inside_the_identities_is_refused(monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    Path("identities/ada/notes").mkdir(parents=True)
    Path("identities/ada/identity.toml").touch()
    Path("config.toml").touch()
    monkeypatch.setenv("CHATBOT_FILES__FOLDER", str(Path(inside).absolute()))

    async def confirm(_: ToolCall) -> Permission:
        return "once"

    with pytest.raises(ConfigError, match=r"(holds|is inside) .*identities"):
        async with Runtime(Options(), model=ScriptedModel(["Hi."]), confirm=confirm, is_terminal=True) as runtime:
            await runtime.chat(await runtime.new_session()).turn("hello")


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_they_are_offered_in_a_terminal_alone_and_the_receipt_tells_what_ran(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,  # noqa: FBT001 - both are tried
) -> None:
    monkeypatch.setenv("CHATBOT_FILES__FOLDER", str(root))

    async def confirm(_: ToolCall) -> Permission:
        return "session"

    model = ScriptedModel([ToolCall("c", "files_read", '{"path": "notes/today.md"}'), "Buy tea."])
    async with Runtime(Options(), model=model, confirm=confirm, is_terminal=is_terminal) as runtime:
        receipt = await runtime.chat(await runtime.new_session()).turn("what is there to do?")
    assert any(spec.name == "files_read" for spec in model.tools[0]) is is_terminal
    told = {"arguments": '{"path": "notes/today.md"}', "allowed": "session"} if is_terminal else {}
    assert receipt.tools == [{"name": "files_read", "error": not is_terminal, **told}]
    assert ("Buy tea" in repr(model.prompts[-1])) is is_terminal
