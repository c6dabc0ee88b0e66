"""The model of the section `[extraction]`, and the calls that are made to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from chatbot.chat.calls import Calls, OwnBudget, Purpose
from chatbot.chat.ledger import Ledger
from chatbot.config import Config, ExtractionSettings, ModelSettings
from chatbot.hooks.hook import HookContext
from chatbot.memory import SessionHandle
from chatbot.memory.record import utc_now
from chatbot.models.model import Model
from chatbot.stores.lifecycle import AsyncResource

PURPOSES: tuple[Purpose, ...] = ("extract", "reconcile", "summarize")


def settings_of_model(chat: ModelSettings, settings: ExtractionSettings) -> ModelSettings | None:
    """Return the model that `[extraction]` names; None where it is the one that chats. Its temperature is 0."""
    if not settings.model:
        return None
    return ModelSettings(
        name=settings.model,
        api_key=settings.api_key,
        api_base=settings.api_base,
        temperature=0.0,
        max_output_tokens=settings.max_output_tokens,
        timeout_s=settings.timeout_s,
        retries=chat.retries,
        input_usd_per_million=settings.input_usd_per_million,
        output_usd_per_million=settings.output_usd_per_million,
        script=chat.script,
    )


def calls_for_extraction(
    model: Model,
    ledger: Ledger,
    config: Config,
    *,
    session: SessionHandle | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Calls:
    """Return the calls of one piece of work, within the limits of `[extraction]` and of `[budget]`."""
    settings = config.extraction
    own = OwnBudget(settings.budget_usd, PURPOSES, "budget_usd", "raise it in [extraction], or wait for the next day")
    return Calls(
        model,
        ledger,
        config.budget,
        reply_tokens=settings.max_output_tokens,
        session=session,
        own_budget=own,
        timeout_s=settings.timeout_s,
        clock=clock,
    )


class ExtractionModel(AsyncResource):
    """The model of `[extraction]` for a hook: opened when it is first needed, unless it is the chat's."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._own: Model | None = None

    def calls(self, session: SessionHandle) -> Calls:
        """Return the calls of one piece of work. Raises what opening a model raises."""
        context, config = self._context, self._context.config
        other = settings_of_model(config.model, config.extraction)
        if other is not None and self._own is None:
            self._own = context.open_model(other)
        model = self._own or context.model
        return calls_for_extraction(model, context.ledger, config, session=session, clock=context.clock)

    async def aclose(self) -> None:
        """Close the model if it is not the chat's. May be called twice."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()
