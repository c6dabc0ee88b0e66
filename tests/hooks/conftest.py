"""Fixtures of the tests of hooks: a memory, and calls to models over HTTP."""

from pathlib import Path

import pytest
from msgspec import convert

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger
from chatbot.config import BudgetSettings, Config, ExtractionSettings
from chatbot.hooks.extraction.structured import calls_for_extraction
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.models.model import Model


def settings_of(**settings: object) -> ExtractionSettings:
    return convert(settings, ExtractionSettings)


def calls_of(
    model: Model,
    home: Path,
    session: SessionHandle | None = None,
    *,
    budget: BudgetSettings | None = None,
    **settings: object,
) -> Calls:
    config = Config(budget=budget or BudgetSettings(), extraction=settings_of(**settings))
    return calls_for_extraction(model, Ledger(home), config, session=session)


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    return await memory.create_session(["basic_session", "observations"], "chat")
