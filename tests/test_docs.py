"""The pages name only tests, files and modules that exist, and show the screens that the script makes."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chatbot.cli.arguments import build_parser
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
PAGES = ("docs/architecture.md", "docs/sync.md", "CONTRIBUTING.md")
SCREENS = ROOT / "docs" / "screens"
PICTURES = ("chat.svg", "demo.svg")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_file_and_module_that_is_named_exists(page: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))
    paths = (*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "stores").rglob("*.py"))
    tests = {name for path in paths for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    assert {text for text in quoted if re.fullmatch(r"test_\w+", text)} - tests == set()
    tops = "chatbot|stores|docs|tests|benchmarks|[.]ci"
    files = [text for text in quoted if re.fullmatch(rf"(?:{tops})/[\w./-]*", text)]
    assert files
    assert [text for text in files if not (ROOT / text).exists()] == []
    named = [text for text in quoted if re.fullmatch(r"(?:chatbot|stores)(?:\.\w+)+", text)]
    groups = {"chatbot.stores", "chatbot.hooks", "chatbot.tools"}  # entry points
    assert [text for text in named if text not in groups and not _is_there(text)] == []


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
    assert shown == f"$ chatbot --help\n{build_parser().format_help()}"


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
