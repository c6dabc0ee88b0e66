"""Embedding models of LiteLLM behind the `Embedder` contract, and the choice of an embedder by name."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from chatbot.config import EmbeddingSettings, ProviderSettings
from chatbot.embedder import Embedder, EmbeddingResult
from chatbot.errors import ConfigError, ModelError, ModelTimeout, UnknownModel
from chatbot.messages import MOST_TOKENS, Usage
from chatbot.models.call import LONGEST_PAUSE_S, MARGIN_S, pause_before, translate
from chatbot.models.litellm_import import LiteLLMClient
from chatbot.models.local_encoder import MINILM_NAME, JudgingEmbedder, LocalEmbedder, MiniLMEmbedder
from chatbot.models.local_encoder import NAME as LOCAL
from chatbot.models.model import estimate_text
from chatbot.models.provider import Provider
from chatbot.stores.records import Vector, vector

_RETRIES = 2
_TIMEOUT_S = 60.0


class _TrueZero(int):
    """A 0 that is true: LiteLLM takes a plain 0 for no limit, and lets the SDK make three attempts for each of ours."""

    def __bool__(self) -> bool:
        return True


def open_embedder(
    settings: EmbeddingSettings, providers: Mapping[str, ProviderSettings] | None = None
) -> Embedder | None:
    """Return the embedder that the settings name; None if they name none or `local/auto` is not installed.

    Nothing is loaded or called before it is used. Raises `UnknownModel`, and `ConfigError` for one whose provider may
    not receive memories.
    """
    if not settings.model:
        return None
    disclosure = Provider(settings.model, providers).disclosure
    if not disclosure.memory:
        raise ConfigError(
            f"[embedding] model = {settings.model!r} would send memories to {disclosure.provider}, and [providers."
            f"{disclosure.provider}] memory = false forbids it: choose another embedding model, such as local/minilm"
        )
    if settings.model == LOCAL:
        return LocalEmbedder() if LocalEmbedder.is_installed() else None
    if settings.model == MINILM_NAME:
        return MiniLMEmbedder()
    if settings.model.startswith("local/"):
        raise UnknownModel(f"unknown local embedder {settings.model!r}: choose {LOCAL} or {MINILM_NAME}")
    return LiteLLMEmbedder(settings, providers)


class LiteLLMEmbedder(LiteLLMClient, JudgingEmbedder):
    """An embedding model by its LiteLLM name."""

    def __init__(self, settings: EmbeddingSettings, providers: Mapping[str, ProviderSettings] | None = None) -> None:
        self.name = settings.model
        self.provider = Provider(settings.model, providers)
        self.server = self.provider.server()
        self.batch = settings.batch
        self._settings = settings

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Embed the texts in a call that is tried up to three times."""
        tried = 0
        while texts:
            self.provider.check_before_call()  # what is remembered is not sent for nothing
            try:
                return await self._call(texts)
            except ModelError as error:
                pause = pause_before(tried, error)
                if tried == _RETRIES or pause > LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(pause)
            tried += 1
        return EmbeddingResult([], Usage(cost_usd=0.0))

    async def _call(self, texts: Sequence[str]) -> EmbeddingResult:
        """Make one call. Its errors never contain a key or the provider's exception."""
        litellm = await self._litellm()
        failure: ModelError
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await litellm.aembedding(**self._request(texts), timeout=_TIMEOUT_S + MARGIN_S)
            return EmbeddingResult(self._vectors(found), self._usage(litellm, found, texts))
        except TimeoutError:
            failure = ModelTimeout(f"{self.name}: no answer for {_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - LiteLLM raises any exception of its many providers
            failure = translate(error, self.name, self.provider.secrets())
        raise self.provider.with_advice(failure)

    def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        size = self._settings.dimensions
        return {
            **self.provider.arguments(),
            "input": [text or " " for text in texts],  # providers refuse an empty text
            "encoding_format": "float",
            "num_retries": 0,  # `embed` retries
            "max_retries": _TrueZero(),
            "drop_params": True,
            **({"dimensions": size, "allowed_openai_params": ["dimensions"]} if size else {}),  # else LiteLLM drops it
        }

    def _vectors(self, response: Any) -> list[Vector]:
        """Return the vectors that came; callers check their number, once the call is billed."""
        rows = sorted(response.data, key=lambda row: int(row["index"]))
        vectors = [vector(row["embedding"]) for row in rows]
        lengths = {len(each) for each in vectors}
        if len(lengths) > 1 or 0 in lengths:
            raise ModelError(f"{self.name} gave vectors of {sorted(lengths)} numbers")
        self.dimension = max(lengths, default=self.dimension)
        return vectors

    def _usage(self, litellm: ModuleType, response: Any, texts: Sequence[str]) -> Usage:
        reported = getattr(response, "usage", None)
        read = int(getattr(reported, "prompt_tokens", None) or 0)
        tokens = read if 0 < read <= MOST_TOKENS else sum(map(estimate_text, texts))
        return Usage(tokens, cost_usd=self._cost(litellm, tokens), estimated=tokens != read)

    def _cost(self, litellm: Any, tokens: int) -> float | None:
        own = self.provider.price.input_usd_per_million
        if own is not None:
            return tokens * own / 1e6
        with suppress(Exception):  # a model without a known price raises a bare Exception
            name, costs_of = self.provider.price_name, litellm.cost_calculator.cost_per_token
            return float(sum(costs_of(model=name, prompt_tokens=tokens, call_type="aembedding")))
        return None
