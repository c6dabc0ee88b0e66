"""The README is run as it stands: the tour in a copy of the project's data, the Python blocks as programs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


FIRST_SCREEN, _, REST = README.partition("## Two commands")


def _blocks(language: str, text: str = REST) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def project() -> Path:
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
def test_the_tour_does_what_it_says(project: Path, part: str, least: int) -> None:
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


def test_the_example_of_a_store_is_used_by_naming_it(project: Path) -> None:
    program = next(block for block in _blocks("python") if "ForgetfulStore" in block)
    (project / "my_stores.py").write_text(program, encoding="utf-8")
    (project / "config.toml").write_text(_blocks("toml")[0], encoding="utf-8")
    assert "chatbot config trust" in _run('chatbot ask -m scripted "hello"')
    _run("chatbot config trust")
    said = "My locker has the number 4711."
    assert _run(f'chatbot ask -m scripted "{said}"') == f"You said: {said}\n"
    assert said in _run("chatbot memory search locker")
    assert re.search(r"my_stores:ForgetfulStore +yes +transcript +size=6", _run("chatbot stores"))
    assert not list(project.rglob("transcript.md"))


def test_the_two_commands_are_the_ones_that_ci_runs() -> None:
    setup, tests = _blocks("sh")
    assert setup.strip() == "pip install uv && uv run --compile-bytecode chatbot"
    assert tests.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
