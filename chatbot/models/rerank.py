"""Reranking models: score how well texts answer a question. The contract, and LiteLLM's models behind it. Opt-in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from chatbot.config import ProviderSettings, RerankSettings
from chatbot.errors import ConfigError, ProviderFailed
from chatbot.messages import Usage
from chatbot.models import litellm_import
from chatbot.models.call import answer_of
from chatbot.models.failures import Disclosure
from chatbot.models.litellm_import import Connections
from chatbot.models.model import estimate_text
from chatbot.models.provider import Provider
from chatbot.stores.lifecycle import AsyncResource

_TIMEOUT_S = 10.0
"""Seconds that a turn may wait: without an answer the ranking is unchanged."""


class Reranking(Struct, frozen=True):
    """A score for each text, the higher the better, and what the call took."""

    scores: list[float]
    usage: Usage


class Reranker(AsyncResource):
    """Ranks texts by a question. Open with `async with`; safe to share between tasks."""

    name: str
    usd_per_call: float | None = None
    """The price of a call, where it is known before it is made."""
    disclosure: Disclosure = Disclosure()

    @abstractmethod
    async def rank(self, question: str, texts: Sequence[str]) -> Reranking:
        """Score the texts. Raises a `ModelError`."""

    async def aclose(self) -> None:
        """Release what it holds; nothing by default."""
        return


def open_reranker(settings: RerankSettings, providers: Mapping[str, ProviderSettings] | None = None) -> Reranker | None:
    """The reranker that the settings name; None where they name none. Nothing is loaded before it is used.

    Raises `ConfigError` for one whose provider may be sent nothing from memory.
    """
    if not settings.model:
        return None
    reranker = LiteLLMReranker(settings, providers)
    if not reranker.disclosure.memory:
        raise ConfigError(
            f"[rerank] model = {settings.model!r} would send memories to {reranker.disclosure.provider}, and "
            f"[providers.{reranker.disclosure.provider}] memory = false forbids it: choose another model"
        )
    return reranker


class LiteLLMReranker(Reranker):
    """A reranking model by its LiteLLM name, such as `cohere/rerank-v3.5`. Each call is tried once."""

    def __init__(self, settings: RerankSettings, providers: Mapping[str, ProviderSettings] | None = None) -> None:
        self.name = settings.model
        self._provider = Provider(settings.model, providers)
        self.usd_per_call = self._provider.price.usd_per_call
        self.disclosure = self._provider.disclosure
        self._connections = Connections()

    async def rank(self, question: str, texts: Sequence[str]) -> Reranking:
        """Make one call. Its errors never contain a key or the provider's exception."""
        provider = self._provider.arguments()
        request = {
            "headers": provider.pop("extra_headers", None),  # LiteLLM sends no others with this call
            **provider,
            "query": question,
            "documents": list(texts),
            "top_n": len(texts),
            "return_documents": False,
        }
        litellm = await litellm_import.litellm()
        self._connections.use(litellm)
        return await answer_of(
            litellm.arerank,
            request,
            lambda found: Reranking(self._scores(found, len(texts)), self._usage(found, question, texts)),
            provider=self._provider,
            name=self.name,
            timeout_s=_TIMEOUT_S,
        )

    async def aclose(self) -> None:
        """Close the connections of this model."""
        await self._connections.aclose()

    def _scores(self, response: Any, count: int) -> list[float]:
        found = {int(each["index"]): float(each["relevance_score"]) for each in response.results or ()}
        if found.keys() != set(range(count)):
            raise ProviderFailed(f"{self.name}: {count} texts came back with {len(found)} scores")
        return [found[number] for number in range(count)]

    def _usage(self, response: Any, question: str, texts: Sequence[str]) -> Usage:
        cost = self.usd_per_call
        if cost is None:
            with suppress(Exception):  # a model that LiteLLM's table does not hold
                told = response.hidden_params.get("response_cost")
                cost = None if told is None else float(told)
        return Usage(sum(map(estimate_text, (question, *texts))), cost_usd=cost, estimated=True)
