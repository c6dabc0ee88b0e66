"""What attributes are called: as the conventions for generative AI say, else our own.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ is still in development, so its names stand here and nowhere else.
"""

from __future__ import annotations

from chatbot.models.opening import SCRIPTED

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
MAX_TOKENS = "gen_ai.request.max_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - no secret
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"

PURPOSE = "chatbot.purpose"
COST = "chatbot.cost_usd"
ESTIMATED = "chatbot.usage.estimated"
TURN = "chatbot.turn.id"
FINISH = "chatbot.turn.finish"
HOOK = "chatbot.hook.name"
TOPIC = "chatbot.topic"
STORE = "chatbot.store"
ACCESS = "chatbot.store.access"
DONE = "chatbot.operation"
CHANGES = "chatbot.changes"
ROWS = "chatbot.rows"
OUTCOME = "chatbot.outcome"
STATUS = "chatbot.status"
PART = "chatbot.part"
DEED = "chatbot.deed"


def provider_of(model: str) -> str:
    """Who is called, as far as LiteLLM's name of a model says it."""
    provider, slash, _ = model.partition("/")
    return provider if slash or model == SCRIPTED else "litellm"
