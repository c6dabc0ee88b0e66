"""Models are told of in the words of the published conventions for generative AI, as their own package has them."""

from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as published
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from chatbot.config import ModelSettings
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.models.gateway import LiteLLMModel
from tests.servers.providers import providers_at
from tests.telemetry.conftest import Talking, Watched

pytest_plugins = ["tests.servers.openai_server"]
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

DEPRECATED = {"GEN_AI_SYSTEM", "GEN_AI_PROMPT", "GEN_AI_COMPLETION"}
NAMES = {
    str(name)
    for module in (published, server_attributes, error_attributes)
    for key, name in vars(module).items()
    if key.isupper() and isinstance(name, str) and key not in DEPRECATED
}
METRICS = {value for key, value in vars(gen_ai_metrics).items() if key.startswith("GEN_AI_CLIENT")}
OF_A_TOOL = {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"}
"""Attributes that the conventions require of a tool's span; `test_spans.py` compares those of turns and calls whole."""


def _own(attributes: Any) -> set[str]:
    return {name for name in attributes or {} if not name.startswith("chatbot.")}


async def test_spans_and_metrics_keep_to_the_conventions(watched: Watched, talking: Talking, openai_url: str) -> None:
    model = LiteLLMModel(ModelSettings(name="openai/says"), providers_at(openai_url))
    async with talking(model) as (runtime, session):
        await runtime.chat(session).turn("hello")
    asks = ScriptedModel([ToolCall("1", "session_search", "{}"), "Done."])
    async with talking(asks, identity="bob") as (runtime, session):
        await runtime.chat(session).turn("hello again")
    for span in watched.spans:
        assert _own(span.attributes) <= NAMES, span.name
    assert _own(watched.one("execute_tool session_search").attributes) >= OF_A_TOOL
    told = {line.split()[2].removesuffix("_seconds") for line in watched.text().splitlines() if "# TYPE gen_ai" in line}
    assert told
    assert told <= {name.replace(".", "_") for name in METRICS}


@pytest.mark.parametrize(
    ("name", "provider", "bare"),
    [
        ("openai/gpt-5", "openai", "gpt-5"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("bedrock/anthropic.claude", "aws.bedrock", "anthropic.claude"),
        ("gemini/gemini-2.5-pro", "gcp.gemini", "gemini-2.5-pro"),
        ("mistral/large", "mistral_ai", "large"),
        ("xai/grok", "x_ai", "grok"),
    ],
)
def test_providers_have_the_names_of_the_conventions(watched: Watched, name: str, provider: str, bare: str) -> None:
    assert provider in {each.value for each in published.GenAiProviderNameValues}
    observer = watched.telemetry.observer
    observer.begin("call", {"operation": "chat", "model": name, "purpose": "chat"}).end()
    [span] = watched.spans
    assert span.attributes
    assert (span.attributes["gen_ai.provider.name"], span.attributes["gen_ai.request.model"]) == (provider, bare)
