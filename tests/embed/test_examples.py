"""Each example of docs/examples runs, with a stand-in for the model."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TOLD = "My sister Anna lives in Lisbon."
ASKED = "Where does my sister live?"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'example("{path.stem}")' not in text] == []


async def test_plain(tmp_path: Path) -> None:
    plain = example("plain")
    await plain.turn(str(tmp_path), "mia", TOLD, plain.echo)
    assert "Anna lives in Lisbon" in await plain.turn(str(tmp_path), "mia", ASKED, plain.echo)


async def test_with_openai(tmp_path: Path) -> None:
    import json

    import httpx
    import openai

    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        said: dict[str, Any] = {"role": "assistant", "content": "Noted."}
        if len(sent) == 2:  # it looks before it answers
            called = {"name": "memory_search", "arguments": '{"query": "Anna"}'}
            said |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": called}]}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        made = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return httpx.Response(200, json=made)

    http_client: Any = httpx.AsyncClient(transport=httpx.MockTransport(answer))  # openai 3 declares httpx2's
    async with openai.AsyncOpenAI(api_key="none", http_client=http_client) as client:
        for said in (TOLD, ASKED):
            assert await example("with_openai").turn(str(tmp_path), "mia", said, client) == "Noted."
    assert "Anna lives in Lisbon" in sent[1]["messages"][0]["content"]
    assert "Anna lives in Lisbon" in sent[2]["messages"][-1]["content"]
    assert sent[1]["tools"][0]["function"]["name"].startswith("memory_")


def test_the_page_on_embedding_has_an_example_and_its_other_programs_run() -> None:
    page = (EXAMPLES.parent / "embedding.md").read_text(encoding="utf-8")
    blocks = page.replace("```python\n", "```").split("```")
    assert (EXAMPLES / "with_openai.py").read_text("utf-8") in blocks, "mypy checks the examples"
    programs = [block for block in blocks if 'open_memory("./data"' in block and "openai" not in block]
    for program in programs:
        subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=True)
    assert len(programs) == 4


@pytest.mark.nightly
async def test_with_openai_agents(tmp_path: Path) -> None:
    from tests.adapters.test_openai_agents import Scripted

    turn = example("with_openai_agents").turn
    await turn(str(tmp_path), "one", TOLD, Scripted("Noted."))
    model = Scripted("In Lisbon.")
    assert await turn(str(tmp_path), "two", ASKED, model) == "In Lisbon."
    assert "Anna lives in Lisbon" in model.asked[0][0]["content"]


def _scripted(asked: list[Any]) -> Any:
    """A model of LangChain that notes what it is asked."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Noting(GenericFakeChatModel):
        def _generate(self, messages: Any, *rest: Any, **options: Any) -> Any:
            asked.append(messages)
            return super()._generate(messages, *rest, **options)

    return Noting(messages=iter([AIMessage("Noted."), AIMessage("In Lisbon.")]))


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["langchain", "langgraph"])
def test_with_langchain_and_langgraph(tmp_path: Path, framework: str) -> None:
    modules = {"langchain": example("with_langchain"), "langgraph": example("with_langgraph")}
    asked: list[Any] = []
    model = _scripted(asked)
    modules[framework].turn(str(tmp_path), "one", TOLD, model)
    assert modules[framework].turn(str(tmp_path), "two", ASKED, model) == "In Lisbon."
    assert "Anna lives in Lisbon" in asked[1][0].content
    assert modules["langgraph"].preference(str(tmp_path)) == {"text": "Mia likes figs with goat cheese"}


@pytest.mark.nightly
async def test_with_pydantic_ai(tmp_path: Path) -> None:
    from pydantic_ai.models.function import FunctionModel

    from tests.adapters.test_pydantic_ai import Asked

    turn = example("with_pydantic_ai").turn
    asked = Asked("Noted.", "In Lisbon.")
    await turn(str(tmp_path), TOLD, FunctionModel(asked.answer))
    assert await turn(str(tmp_path), ASKED, FunctionModel(asked.answer)) == "In Lisbon."
    assert "Anna lives in Lisbon" in asked.prompts[1][0]


@pytest.mark.nightly
async def test_with_litellm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    talk = example("with_litellm").talk
    try:
        replies = await talk(str(tmp_path), [TOLD, ASKED], model="gpt-5-mini", mock_response="Noted.")
        assert replies == ["Noted.", "Noted."]
    finally:
        litellm.logging_callback_manager._reset_all_callbacks()  # type: ignore[no-untyped-call]
    from chatbot.embed import open_memory

    async with open_memory(tmp_path, user="mia") as memory:
        [told, *_] = (await memory.list_observations(types=["exchange"], ascending=True)).rows
        assert told.user_text == TOLD


@pytest.mark.nightly
async def test_with_anthropic(tmp_path: Path) -> None:
    import json

    import anthropic
    import httpx2

    command = {"command": "create", "path": "/memories/anna.md", "file_text": TOLD}
    replies: list[dict[str, Any]] = [
        {"type": "tool_use", "id": "t1", "name": "memory", "input": command},
        {"type": "text", "text": "Noted."},
    ]
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        block = replies.pop(0)
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
        return httpx2.Response(200, json={**message, "content": [block], "stop_reason": stop, "usage": usage})

    transport = httpx2.MockTransport(answer)
    async with anthropic.AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport)) as client:
        replies = [replies[0], *replies, *[replies[0]] * 20]
        assert await example("with_anthropic").turn(str(tmp_path), "Remember that.", client) == "Noted."
        assert await example("with_anthropic").turn(str(tmp_path), "Remember that.", client) == ""
    assert len(sent) == 3 + 20
    assert sent[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert "created" in json.dumps(sent[1]["messages"][-1])
