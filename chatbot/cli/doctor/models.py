"""The models: whether they are there, and, when asked, whether they answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import Call
from chatbot.cli.doctor.finding import Finding, command_in, editing
from chatbot.errors import ChatbotError, ModelError
from chatbot.memory.record import utc_now
from chatbot.messages import Finished, Message
from chatbot.models import open_model
from chatbot.models.base import Model
from chatbot.setup import Setup

_PURPOSE = "doctor"


async def models(setup: Setup, *, network: bool) -> AsyncIterator[Finding]:
    """Look at the model that answers and at the one that embeds. Calls nobody, unless `network` says so."""
    async with open_model(setup.config.model) as model:
        try:
            await model.check()
            told = f", which answers: {await _answers(setup, model)}" if network else ""
            yield Finding("model", "ok", f"{model.name}{told}")
        except ModelError as error:
            yield Finding("model", "bad", str(error), command_in(str(error), _choosing(setup, "model", "name")))
    if setup.config.embedding.model:
        yield _embedder(setup)


def _choosing(setup: Setup, *place: str) -> str:
    return editing(setup.source(*place), setup.settings.path)


async def _answers(setup: Setup, model: Model) -> str:
    """How long one token took. It stands on the bill."""
    started = time.monotonic()
    async with aclosing(model.stream([Message("user", "Say yes.")], max_output_tokens=1)) as deltas:
        async for delta in deltas:
            if isinstance(delta, Finished):
                seconds = time.monotonic() - started
                call = Call(utc_now(), "", _PURPOSE, model.name, delta.usage, seconds)
                await Ledger(setup.identity.memory).add(call)
    return f"one token in {time.monotonic() - started:.1f} s"


def _embedder(setup: Setup) -> Finding:
    from chatbot.models.embedding import open_embedder
    from chatbot.models.minilm import MiniLMEmbedder

    try:
        embedder = open_embedder(setup.config.embedding)
        if isinstance(embedder, MiniLMEmbedder):
            embedder.check()
    except ChatbotError as error:
        return Finding("embedder", "bad", str(error), command_in(str(error), _choosing(setup, "embedding", "model")))
    return Finding("embedder", "ok", setup.config.embedding.model)
