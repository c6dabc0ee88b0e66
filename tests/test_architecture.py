"""The architecture, checked: who imports whom, what an import costs, and that the trees of errors are as drawn."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import chatbot.errors
import stores.errors

ROOT = Path(__file__).parents[1]
HEAVY = {
    "aiohttp",
    "cyllama",
    "fastapi",
    "hypothesis",
    "litellm",
    "mcp",
    "numpy",
    "openai",
    "prompt_toolkit",
    "pydantic",
    "pytest",
    "rich",
    "starlette",
    "tokenizers",
    "uvicorn",
    "whoosh",
}
"""What takes long to load, and must not be loaded by who does not use it."""

LIGHT = [
    "chatbot",
    "chatbot.errors",
    "chatbot.memory",
    "chatbot.messages",
    "chatbot.server",
    "stores",
    "stores.basic_session",
    "stores.in_memory",
    "stores.plugins",
]


def test_the_import_contracts_hold() -> None:
    done = _python("-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert _loaded_by(f"import {module}") & HEAVY == set()


USE_OF_A_SESSION = """
import asyncio
from chatbot.memory import MemorySystem

async def main():
    async with MemorySystem({home!r}) as memory:
        session = await memory.create_session(["basic_session"], "chat")
        await session.transcript_append("user", "hello")
        await session.kv_set("key", "value")
        await memory.list_sessions()

asyncio.run(main())
"""


def test_using_a_session_loads_nothing_heavy(tmp_path: Path) -> None:
    assert _loaded_by(USE_OF_A_SESSION.format(home=str(tmp_path))) & HEAVY == set()


@pytest.mark.parametrize(
    "module", ["chatbot.runtime", "chatbot.cli.repl.loop", "chatbot.cli.serve", "chatbot.cli.token"]
)
def test_only_serving_loads_a_web_framework(module: str) -> None:
    web = {"fastapi", "starlette", "uvicorn", "nicegui"}
    assert _loaded_by(f"import {module}") & web == set()
    assert _loaded_by("import chatbot.server.app") & web


@pytest.mark.parametrize("module", ["chatbot.cli.repl.loop", "chatbot.cli.ask", "chatbot.cli.sessions.command"])
def test_a_command_starts_without_what_only_turns_and_servers_need(module: str) -> None:
    late = {"litellm", "pydantic", "whoosh", "mcp", "opentelemetry", "chatbot.chat.rules", "stores.observations"}
    assert _loaded_by(f"import {module}") & late == set()


def test_this_test_would_notice_a_heavy_module() -> None:
    assert _loaded_by("import pydantic") & HEAVY == {"pydantic"}


def test_the_contract_kit_knows_nothing_of_the_app() -> None:
    assert "chatbot" not in _loaded_by("import stores.testing")


def test_nothing_is_printed_read_or_written_by_an_import(tmp_path: Path) -> None:
    done = _python("-W", "error", "-c", "import chatbot.memory, stores.basic_session", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [stores.errors, chatbot.errors], ids=lambda module: module.__name__)
def test_the_tree_of_errors_is_as_its_docstring_draws_it(module: ModuleType) -> None:
    drawn = dict(_drawn_tree(module))
    assert drawn == dict(_real_tree(module))
    assert len(drawn) > 5


def _drawn_tree(module: ModuleType) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each class in the docstring's tree, with the parent and the builtin that it is drawn with."""
    assert module.__doc__
    above: list[str] = []
    for line in module.__doc__.splitlines():
        if found := re.fullmatch(r"([ │├└─]*)([A-Z]\w+)(?: +.*?)?(?:\((\w+)\))?", line):
            if not found[1] and found[2] not in vars(module):
                continue  # a sentence, not a class
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            yield found[2], (above[depth - 1] if depth else "Exception", found[3] or "")


def _real_tree(module: ModuleType) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, class_ in vars(module).items():
        if isinstance(class_, type) and issubclass(class_, Exception):
            parent, *builtin = class_.__bases__
            yield name, (parent.__name__, builtin[0].__name__ if builtin else "")


def _loaded_by(source: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `source`."""
    done = _python("-c", f"{source}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def _python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd, check=False
    )
