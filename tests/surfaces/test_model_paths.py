"""A model that is a file is told and kept by the name of the file: where it stands is nobody's business."""

from pathlib import Path

import httpx
import pytest

from chatbot.models import ScriptedModel
from chatbot.models.local_model import LocalModel
from chatbot.models.weights import find_model
from chatbot.runtime import Options, Runtime
from tests.command import from_json, ok, project, run
from tests.servers.http_server import serving
from tests.telemetry.conftest import collecting

pytestmark = pytest.mark.usefixtures("config_is_asked_for")
FOLDER = "hush-hush"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The embedded model as a file of one's own."""
    folder = tmp_path / FOLDER / "models"
    folder.mkdir(parents=True)
    (folder / "mine.gguf").symlink_to(find_model("smollm2-135m"))
    return f"local/{folder}/mine.gguf"


def kept() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path("identities").rglob("*") if path.is_file()}


@pytest.mark.nightly  # the model reads a whole prompt
def test_receipts_bills_exports_and_telemetry_have_no_folder_of_it(model: str) -> None:
    project("[model]\nmax_output_tokens = 4\n")
    with collecting() as collector:
        telemetry = {"CHATBOT_TELEMETRY__ENDPOINT": collector.url}
        receipt = from_json("ask", "-m", model, "hello there, my friend", **telemetry)
        run("ask", "-c", "-m", model.replace("mine", "away"), "are you still there?", **telemetry)
        assert b"mine.gguf" in b"".join(body for *_, body in collector.bodies)
        assert FOLDER.encode() not in b"".join(body for *_, body in collector.bodies)
    assert receipt["model"] == "local/mine.gguf"
    session = receipt["session"]
    assert [path for path, data in kept().items() if FOLDER.encode() in data] == []
    assert "away.gguf" in ok("sessions", "show", session)
    told = ok("why") + ok("usage") + ok("usage", "--json") + ok("sessions", "show", session, "--json")
    for form in ("markdown", "jsonl"):
        told += ok("sessions", "export", session, "--format", form)
    assert FOLDER not in told


def test_guests_are_not_told(model: str) -> None:
    away = model.replace("mine", "away")
    config = f'[model]\nname = "{away}"\n[agents.chat]\nmemory = ["basic_session"]\n'
    with (
        serving(config=config, tokens=True) as served,
        served.client(served.token("ada", clearance="familiar")) as client,
    ):
        served.identities._open_runtime = Runtime
        said = {"text": "hello", "stream": False}
        session = client.post("/v1/sessions", json={}).json()["id"]
        answers: list[httpx.Response] = [
            client.post(f"/v1/sessions/{session}/chat", json=said),
            client.post(f"/v1/sessions/{session}/chat", json={"text": "hello"}),
            client.get(f"/v1/sessions/{session}/messages"),
            client.get(f"/v1/sessions/{session}/receipts"),
            client.post("/v1/chat/completions", json={"model": "ada", "messages": [{"role": "user", "content": "x"}]}),
        ]
    assert all("away.gguf" in answer.text and FOLDER not in answer.text for answer in answers)


async def test_one_chosen_later_is_offered_again_by_the_name_it_was_asked_for(model: str) -> None:
    project("")
    async with Runtime(Options(), model=ScriptedModel()) as runtime:
        assert runtime.model_asked_for == "scripted"
        await runtime.use_model(model)
        assert isinstance(runtime.model, LocalModel)
        assert (runtime.model.name, runtime.model_asked_for) == ("local/mine.gguf", model)
