"""Clients as their own documentation shows them, pointed at our address only; each script is one.

Each asks with the same token for what was said through the official SDK. They come with the dependency group `clients`,
but the one for Node.js.

Of the official conformance suite of MCP, all that applies to `chatbot mcp --http` passes. The other scenarios call
parts of the suite's own server, or need what this one does not offer, such as logging.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.patience import PATIENCE_S
from tests.servers.http_server import server_process

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
SUITE = "@modelcontextprotocol/conformance@0.1.16"
APPLIES = {
    "server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-error",
    "server-sse-multiple-streams", "resources-list", "prompts-list", "dns-rebinding-protection",
}  # fmt: skip


@contextmanager
def _served(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a client, while the server runs in that folder."""
    (folder / "identities" / "ada").mkdir(parents=True)
    (folder / "identities" / "ada" / "identity.toml").write_text('persona = "You are ada."\n', encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CHATBOT_EMBEDDING__MODEL": "local/minilm"}
    with server_process(str(Path(__file__).parent / "serve.py"), cwd=folder, env=environment) as (_, [url, key]):
        with openai.OpenAI(base_url=url, api_key=key) as client:
            said = "My locker at the gym has the number 4711, remember that."
            client.chat.completions.create(model="ada", messages=[{"role": "user", "content": said}])
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "PYTHONPATH"))},
            "OPENAI_BASE_URL": url,
            "OPENAI_API_BASE": url,
            "OPENAI_API_KEY": key,
        }


def _run(program: str, script: Path, environment: dict[str, str]) -> None:
    command = [program, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda it: it.stem)
def test_a_client_works_and_is_told_what_was_said_through_the_official_sdk(tmp_path: Path, script: Path) -> None:
    with _served(tmp_path) as environment:
        _run(sys.executable, script, environment)


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js here")
def test_the_ai_sdk_works_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(SCRIPTS, project)  # Node.js looks for packages beside the script
    subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=project, check=True, timeout=4 * PATIENCE_S)
    with _served(tmp_path) as environment:
        _run("node", project / "ai_sdk.mjs", environment)


@pytest.mark.skipif(shutil.which("npx") is None, reason="there is no npx, which brings Node.js 22 and the suite")
def test_the_official_suite_passes_where_it_applies(tmp_path: Path) -> None:
    folder = tmp_path / "identities" / "ada"
    folder.mkdir(parents=True)
    (folder / "identity.toml").write_text("", encoding="utf-8")
    config = tmp_path / "config.toml"
    config.write_text('[agents.chat]\nmemory = ["basic_session", "observations"]\n', encoding="utf-8")
    arguments = ("-m", "chatbot", "mcp", "--http", "--port", "0", "-i", "ada", "--config", str(config))
    with server_process(*arguments, told="stderr") as (_, words):
        packages = [f"--package={each}" for each in ("node@22", SUITE)]
        suite = ["npx", "--yes", *packages, "--", "conformance", "server", "--url", words[-1]]
        done = subprocess.run(suite, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S)
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    passed = {line.split()[1].rstrip(":") for line in summary.splitlines() if line.startswith("✓")}
    assert passed >= APPLIES, summary
