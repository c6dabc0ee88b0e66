"""The captured screens in `docs/screens` are those that the script makes, and the pictures ask nobody for anything."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chatbot.cli.arguments import build_parser
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "docs" / "screens"
PICTURES = ("chat.svg", "demo.svg")


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
