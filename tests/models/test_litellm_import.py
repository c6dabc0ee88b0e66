"""Order of loading: nothing before it is needed, and LiteLLM without holding anybody up."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S


def run(program: str, *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    search = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    command = [sys.executable, "-W", "error", "-c", search + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.nightly
def test_the_event_loop_keeps_ticking_while_litellm_is_imported() -> None:
    ran = run("""
import asyncio, time
from chatbot.config import ModelSettings
from chatbot.models import litellm_import, open_model

async def main():
    started = last = time.perf_counter()
    open_model("openai/gpt-4o").warm()
    gaps = []
    while not litellm_import.begin_import().done():
        await asyncio.sleep(0.002)
        gaps.append(time.perf_counter() - last)
        last = time.perf_counter()
    print(len(gaps), max(gaps) / (last - started))

asyncio.run(main())
""")
    assert ran.returncode == 0, ran.stderr
    ticks, longest_share = ran.stdout.split()
    assert int(ticks) > 100
    assert float(longest_share) < 0.4


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["litellm", "litellm.utils", "openai.resources"])
def test_leaving_while_it_is_imported_is_quick_and_quiet(moment: str) -> None:
    """Else the locks of an import that never ends would hold up what is torn down."""
    ran = run(f"""
import sys, time
from chatbot.models import litellm_import
litellm_import.begin_import()
while {moment!r} not in sys.modules:
    time.sleep(0.001)
""")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_an_import_that_fails_is_told_each_time(tmp_path: Path) -> None:
    (tmp_path / "litellm").mkdir()
    (tmp_path / "litellm" / "__init__.py").write_text("raise ImportError('half of it is missing')")
    program = """
import asyncio
from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ProviderFailed
from chatbot.messages import Message
from chatbot.models import open_model

async def main():
    providers = {"openai": ProviderSettings(api_key="k")}
    async with open_model(ModelSettings(name="openai/gpt-4o", retries=0), providers) as model:
        model.warm()
        for _ in range(2):
            try:
                await anext(model.stream([Message("user", "hello")]))
            except ProviderFailed as error:
                print(error)

asyncio.run(main())
"""
    ran = run(program, path=tmp_path)
    said = "litellm cannot be imported (ImportError: half of it is missing): reinstall chatbot-runtime"
    assert (ran.stdout.splitlines(), ran.stderr) == ([said, said], "")


@pytest.mark.nightly
def test_nothing_is_fetched_and_no_file_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("READ_FROM_A_FILE=1")
    ran = run(f"""
import os, socket
os.chdir({str(tmp_path)!r})
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from chatbot.models import litellm_import
print(litellm_import.begin_import().result().__name__, os.environ.get("READ_FROM_A_FILE"))
""")
    assert (ran.stdout, ran.stderr) == ("litellm None\n", "")
