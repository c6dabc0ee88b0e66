"""The README runs as it stands; the pages name only what exists, and their screens, examples and tables are true."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import chatbot.chat.events
from chatbot.cli.arguments import build_parser
from chatbot.hooks.hook import HOOKS, planned_hooks
from chatbot.memory import Memory
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from tests.command import project
from tests.patience import PATIENCE_S
from tests.talk import begun

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
HOOKS_PAGE = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
EMBEDDING_PAGE = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
SCREENS = ROOT / "docs" / "screens"
PICTURES = ("chat.svg", "demo.svg")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_file_and_module_that_is_named_exists(page: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", _prose(ROOT / page))
    paths = (*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "stores").rglob("*.py"))
    tests = {name for path in paths for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    assert {text for text in quoted if re.fullmatch(r"test_\w+", text)} - tests == set()
    tops = "chatbot|stores|docs|tests|benchmarks|[.]ci"
    files = [text for text in quoted if re.fullmatch(rf"(?:{tops})/[\w./-]*", text)]
    assert [text for text in files if not (ROOT / text).exists()] == []
    named = [text for text in quoted if re.fullmatch(r"(?:chatbot|stores)(?:\.\w+)+", text)]
    groups = {"chatbot.stores", "chatbot.hooks", "chatbot.tools"}  # entry points
    assert [text for text in named if text not in groups and not _is_there(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", _prose(ROOT / page)):
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", _prose(target), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}, link


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(module), attribute)
    return True


def test_the_invariants_each_name_a_test() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Invariants")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if "`test_" not in row.split("|")[2]] == []


def test_the_help_that_is_shown_is_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = (SCREENS / "help.txt").read_text(encoding="utf-8")
    assert shown == f"$ chatbot --help\n{build_parser().format_help()}", "run docs/make_screens.py"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_an_image_without_script_or_link_and_the_readme_shows_it(name: str) -> None:
    text = (SCREENS / name).read_text(encoding="utf-8")
    kinds = {element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()}
    assert kinds <= {"svg", "style", "rect", "defs", "text", "tspan", "g", "use"}
    assert not re.findall(r"url\(|@import|href=\"[^#]", text)
    assert f"(docs/screens/{name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_screens_are_made_by_the_script(tmp_path: Path) -> None:
    made = tmp_path / "screens"
    command = [sys.executable, str(ROOT / "docs" / "make_screens.py"), str(made)]
    subprocess.run(command, check=True, capture_output=True, timeout=10 * PATIENCE_S)
    assert {path.name for path in made.iterdir()} == {path.name for path in SCREENS.iterdir()}
    for path in sorted(made.iterdir()):
        assert path.read_text(encoding="utf-8") == (SCREENS / path.name).read_text(encoding="utf-8"), path.name


def _block(language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", HOOKS_PAGE, re.MULTILINE | re.DOTALL))


def _table(head: str) -> list[list[str]]:
    table = HOOKS_PAGE[HOOKS_PAGE.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.usefixtures("config_is_asked_for")
async def test_the_hooks_of_the_documentation_do_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    Path("my_hooks.py").write_text(_block("python"), encoding="utf-8")
    project('[model]\nname = "scripted"\n' + _block("toml"))
    model = ScriptedModel(["Short.", "This one is a little longer."])
    async with Runtime(model=model) as runtime:
        session, chat = await begun(runtime)
        await chat.turn("Which herring is pickled in Gotland?")
        await chat.turn("And which one is smoked there?")
        await runtime.end_session(session)
        [row] = [row for row in (await session.memory.list_observations()).rows if row.source == "lengths"]
    assert row.title == "A reply of 28 characters"
    assert all("It rains today." in prompt[-1].content for prompt in model.prompts)


@pytest.mark.parametrize(
    ("title", "answer"),
    [
        ("Your own embedder", "the cat sat"), ("Your own chat model", "You said: hello"),
        ("A turn as a stream", "It is sunny."), ("Facts by a model", "Mia lives in Lisbon"),
        ("Tests of your own", "expired"),
    ],
)  # fmt: skip
async def test_an_example_of_the_documentation_answers(title: str, answer: str) -> None:
    page = EMBEDDING_PAGE.partition(f"## {title}\n")[2]
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    assert await names["ask"]() == answer


@pytest.mark.parametrize("operation", [Memory.remember, Memory.search])
def test_every_field_of_a_memory_and_every_filter_is_documented(operation: Callable[..., object]) -> None:
    section = EMBEDDING_PAGE.partition("## Fields and filters")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)[=`]", section))
    assert inspect.signature(operation).parameters.keys() - named <= {"self", "text"}


def test_the_table_of_hooks_is_what_runs() -> None:
    told = {row[0].strip("`"): (row[1], row[2]) for row in _table("| hook | topic |")}
    assert set(told) == set(HOOKS.own), "the table `Order` of docs/hooks.md has a row for each hook"
    for plan in planned_hooks({}):
        topics, priority = told[plan.name]
        if plan.hook.topics:
            assert priority == str(plan.priority)
        for topic in re.findall(r"`(.*?)`", topics):
            assert topic in plan.hook.topics


def test_the_table_of_events_has_every_topic() -> None:
    told = {row[0].strip("`") for row in _table("| topic | when |")}
    values = [value for name, value in vars(chatbot.chat.events).items() if name.isupper()]
    known = {value for value in values if isinstance(value, str) and ":" in value}
    assert known <= told, "the table `Events` of docs/hooks.md has a row for each topic"
    assert told - known == {"memory.<session id>.update", "memory.<session id>.retrieve"}


README = (ROOT / "README.md").read_text(encoding="utf-8")


FIRST_SCREEN, _, REST = README.partition("## Two commands")


def _blocks(language: str, text: str = REST) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shipped() -> Path:
    """A folder with the configuration and the identities that ship, and no memory yet."""
    shutil.copy(ROOT / "config.toml", ".")
    shutil.copytree(ROOT / "identities", "identities", ignore=shutil.ignore_patterns("memory"))
    return Path.cwd()


def _run(command: str) -> str:
    """The command's output and complaints, as a person would see them in the terminal."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("part", "least"),
    [(FIRST_SCREEN, 3), pytest.param(REST, 9, marks=pytest.mark.nightly)],
    ids=["first screen", "tour"],
)
def test_the_tour_does_what_it_says(shipped: Path, part: str, least: int) -> None:
    steps = [step for block in _blocks("console", part) for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(steps) >= least
    for step in steps:
        command, _, expected = step.partition("\n")
        output = _run(command)
        pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))  # which stand for anything
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"$ {command}\n{output}\n--- expected ---\n{expected}"


def test_the_example_of_an_agent_runs() -> None:
    program = next(block for block in _blocks("python") if "asyncio.run" in block)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "user Remember the milk.\nshopping\nThe milk is in aisle 4\n"


def test_the_example_of_a_store_is_used_by_naming_it(shipped: Path) -> None:
    program = next(block for block in _blocks("python") if "ForgetfulStore" in block)
    (shipped / "my_stores.py").write_text(program, encoding="utf-8")
    (shipped / "config.toml").write_text(_blocks("toml")[0], encoding="utf-8")
    assert "chatbot config trust" in _run('chatbot ask -m scripted "hello"')
    _run("chatbot config trust")
    said = "My locker has the number 4711."
    assert _run(f'chatbot ask -m scripted "{said}"') == f"You said: {said}\n"
    assert said in _run("chatbot memory search locker")
    assert re.search(r"my_stores:ForgetfulStore +yes +transcript +size=6", _run("chatbot stores"))
    assert not list(shipped.rglob("transcript.md"))


def test_the_two_commands_are_the_ones_that_ci_runs() -> None:
    setup, tests = _blocks("sh")
    assert setup.strip() == "pip install uv && uv run --compile-bytecode chatbot"
    assert tests.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
