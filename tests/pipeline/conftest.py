"""What the tests of the pipeline share: a memory, and errands to models over HTTP."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec import convert

from chatbot.chat.ledger import Ledger
from chatbot.config import BudgetSettings, ExtractionSettings, ModelSettings
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.models.base import Model
from chatbot.models.gateway import LiteLLMModel
from chatbot.pipeline.by_model.errands import Clerk

KEY = "sk-test-0123456789abcdef"

MakeClerk = Callable[..., Clerk]


def model_at(url: str, behaviour: str, **settings: object) -> LiteLLMModel:
    given = {"name": f"openai/{behaviour}", "api_base": url, "api_key": KEY, "retries": 0} | settings
    return LiteLLMModel(convert(given, ModelSettings), first_pause_s=0.01)


def clerk_of(model: Model, home: Path, *, budget: BudgetSettings | None = None, **settings: object) -> Clerk:
    return Clerk(model, convert(settings, ExtractionSettings), budget or BudgetSettings(), Ledger(home))


@pytest.fixture
async def memory(memory_home: Path) -> AsyncIterator[MemorySystem]:
    async with MemorySystem(memory_home) as system:
        yield system


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    return await memory.create_session(["basic_session", "observations"], "chat")
