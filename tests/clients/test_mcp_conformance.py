"""The official conformance suite of MCP against `chatbot mcp --http`: all that applies to this server passes.

The other scenarios call parts of the suite's own server, or need what this one does not offer, such as logging.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.servers.http_server import server_process

SUITE = "@modelcontextprotocol/conformance@0.1.16"
APPLIES = {
    "server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-error",
    "server-sse-multiple-streams", "resources-list", "prompts-list", "dns-rebinding-protection",
}  # fmt: skip


@pytest.mark.nightly
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
