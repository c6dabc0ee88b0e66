"""A Python client made of the OpenAPI document by the generator that most people use."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.servers.http_server import Served, serving

pytestmark = pytest.mark.nightly


def test_a_generated_client_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as served:
        _try(served, tmp_path, monkeypatch)


def _try(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "openapi.json"
    with served.client() as client:
        document.write_text(client.get("/openapi.json").text, encoding="utf-8")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(document), "--meta", "none"]
    out = tmp_path / "generated" / "chatbot_client"
    made = subprocess.run(
        [*command, "--output-path", str(out)], capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    assert made.returncode == 0, made.stdout + made.stderr
    names = {path.stem for path in (out / "models").glob("*.py")}
    assert {"draft", "drafts", "context_request", "held_messages", "memory_record"} <= names
    paths = json.loads(document.read_text(encoding="utf-8"))["paths"]
    routes = sum(method in {"get", "post", "put", "patch", "delete"} for each in paths.values() for method in each)
    functions = [path for path in (out / "api").rglob("*.py") if path.stem != "__init__"]
    assert len(functions) == routes
    monkeypatch.syspath_prepend(out.parent)
    models = importlib.import_module("chatbot_client.models")
    remember = importlib.import_module("chatbot_client.api.memory.remember")
    context = importlib.import_module("chatbot_client.api.memory.get_context")
    with importlib.import_module("chatbot_client").Client(base_url=served.url) as client:
        kept = remember.sync(client=client, body=models.Draft(title="Anna lives in Lisbon"))
        assert kept.outcome == "added"
        asked = models.ContextRequest(messages=[models.PromptMessage(role="user", content="Where does Anna live?")])
        assert "Anna lives in Lisbon" in context.sync(client=client, body=asked).text
