"""A local model behind the `Model` contract: called through LiteLLM like any other, counted exactly, and free.

It goes by the name of its file alone: receipts, bills and metrics get around, and are to tell nothing of our folders.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import PurePath
from types import ModuleType
from typing import Any

from chatbot.config import ModelSettings
from chatbot.messages import Message, ToolSpec
from chatbot.models import late
from chatbot.models.base import JsonMode, Price
from chatbot.models.engine import ENGINES
from chatbot.models.gateway import LiteLLMModel
from chatbot.models.gguf import PREFIX, find_model, missing_engine


class LocalModel(LiteLLMModel):
    """`local/smollm2-135m`, or `local/` and the path of a GGUF file. It takes no tools."""

    supports_tools = False

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.name = f"{PREFIX}{PurePath(settings.name).name}"
        self._is_open = True
        self._engine = ENGINES.open(settings.name, settings.context_window)

    def warm(self) -> None:
        """See `Model`."""
        late.begin()
        self._engine.warm()

    async def check(self) -> None:
        """See `Model`: weights and engine are there."""
        await asyncio.to_thread(find_model, self._settings.name.removeprefix(PREFIX))
        if importlib.util.find_spec("cyllama") is None:
            raise missing_engine()

    async def context_window(self) -> int:
        """See `Model`."""
        return await self._engine.window()

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:  # noqa: ARG002
        """See `Model`; exact, tools being unknown to local models."""
        return await self._engine.count([message.as_openai() for message in messages])

    async def json_mode(self) -> JsonMode:
        """Not at all."""
        return ""

    async def price(self) -> Price:
        """Nothing."""
        return Price(0.0, 0.0)

    async def aclose(self) -> None:
        """See `Model`; the weights are freed when the last who shares them closes."""
        await super().aclose()
        if self._is_open:
            self._is_open = False
            await ENGINES.let_go(self._engine)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], limit: int | None) -> dict[str, Any]:
        request = super()._request(messages, tools, limit)
        request.pop("tools", None)
        return request | {"model": self._settings.name, "context_window": self._settings.context_window}

    def _answerer(self, told: str) -> str:  # noqa: ARG002 - LiteLLM's, with all folders
        return self.name.removeprefix(PREFIX)

    async def _litellm(self) -> ModuleType:
        from chatbot.models.local_provider import register

        litellm = await late.litellm()
        register(litellm)
        return litellm
