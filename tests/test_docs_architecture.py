"""The architecture page and the contributor's guide name only tests, files and modules that exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("docs/architecture.md", "docs/sync.md", "CONTRIBUTING.md")
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
