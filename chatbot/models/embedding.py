"""Any embedding model that LiteLLM can call, behind the `Embedder` contract, and the way from a name to an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from chatbot.config import EmbeddingSettings
from chatbot.embedding import Embedded, Embedder
from chatbot.errors import ModelError, ModelTimeout, ProviderFailed, UnknownModel
from chatbot.messages import Usage
from chatbot.models import late
from chatbot.models.connections import Connections
from chatbot.models.failures import TRANSIENT, translate
from chatbot.models.keys import key_for, secrets_of
from chatbot.models.minilm import NAME as MINILM
from chatbot.models.minilm import MiniLMEmbedder
from chatbot.models.retries import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause_before
from chatbot.models.tokens import estimate_text
from stores.vectors import Vector, vector

_RETRIES = 2
_TIMEOUT_S = 60.0
_PATIENCE_S = 5.0
"""LiteLLM's own limit comes this much later than ours, so that it is ours that strikes."""


class _TrueZero(int):
    """LiteLLM takes a plain 0 for a limit that was not given, and lets the SDK try three times for each of ours."""

    def __bool__(self) -> bool:
        return True


_NO_RETRIES = _TrueZero(0)


def open_embedder(settings: EmbeddingSettings) -> Embedder | None:
    """The embedder that the settings name, None where they name none. Nothing is loaded or called before it is used."""
    if not settings.model:
        return None
    if settings.model == MINILM:
        return MiniLMEmbedder()
    if settings.model.startswith("local/"):
        raise UnknownModel(f"there is no local embedder {settings.model!r}: there is {MINILM}")
    return LiteLLMEmbedder(settings)


class LiteLLMEmbedder(Embedder):
    """One embedding model by its LiteLLM name. `first_pause_s` is how long to wait before the second try, about."""

    def __init__(self, settings: EmbeddingSettings, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self.name = settings.model
        self.batch = settings.batch
        self._settings = settings
        self._first_pause_s = first_pause_s
        self._connections = Connections()
        self._dimension = 0

    @property
    def dimension(self) -> int:
        """See `Embedder`."""
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See `Embedder`; in calls of `batch` texts, each tried three times before it fails."""
        vectors: list[Vector] = []
        usages: list[Usage] = []
        for start in range(0, len(texts), self.batch):
            batch = texts[start : start + self.batch]
            answer = await self._patiently(batch)
            vectors += answer.vectors
            usages.append(answer.usage)
        return Embedded(vectors, _sum(usages))

    async def aclose(self) -> None:
        """See `Embedder`."""
        await self._connections.aclose()

    async def _patiently(self, texts: Sequence[str]) -> Embedded:
        tried = 0
        while True:
            try:
                return await self._call(texts)
            except TRANSIENT as error:
                pause = pause_before(tried, error, self._first_pause_s)
                if tried == _RETRIES or pause > LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(pause)
            tried += 1

    async def _call(self, texts: Sequence[str]) -> Embedded:
        """One call. No message of its failure holds a key, and no traceback the provider's exception."""
        request = self._request(texts)
        litellm = await late.litellm()
        self._connections.use(litellm)
        failure: ModelError
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await litellm.aembedding(**request)
            return Embedded(self._vectors(response, len(texts)), self._usage(litellm, response, texts))
        except TimeoutError:
            failure = ModelTimeout(f"{self.name}: nothing came for {_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - LiteLLM raises what its many providers raise
            settings = self._settings
            failure = translate(error, self.name, secrets_of(self.name, settings.api_key, settings.api_base))
        raise failure

    def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        settings = self._settings
        optional = {
            "api_key": key_for(self.name, settings.api_key, settings.api_base),
            "api_base": settings.api_base or None,
            "dimensions": settings.dimensions or None,
            "allowed_openai_params": ["dimensions"] if settings.dimensions else None,  # whatever the model is called
        }
        return {
            "model": self.name,
            "input": [text or " " for text in texts],  # providers refuse an empty text
            "encoding_format": "float",
            "timeout": _TIMEOUT_S + _PATIENCE_S,
            "num_retries": 0,  # retries are ours, as everywhere
            "max_retries": _NO_RETRIES,
            "drop_params": True,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _vectors(self, response: Any, count: int) -> list[Vector]:
        rows = sorted(response.data, key=lambda row: int(row["index"]))
        vectors = [vector(row["embedding"]) for row in rows]
        lengths = {len(each) for each in vectors}
        if len(vectors) != count or len(lengths) != 1 or 0 in lengths:
            raise ProviderFailed(f"{self.name}: {count} texts came back as {len(vectors)} vectors of {sorted(lengths)}")
        self._dimension = lengths.pop()
        return vectors

    def _usage(self, litellm: ModuleType, response: Any, texts: Sequence[str]) -> Usage:
        told = getattr(response, "usage", None)
        read = int(getattr(told, "prompt_tokens", None) or 0)
        tokens = read or sum(map(estimate_text, texts))
        return Usage(tokens, cost_usd=self._cost(litellm, tokens), estimated=not read)

    def _cost(self, litellm: Any, tokens: int) -> float | None:
        own = self._settings.usd_per_million
        if own is not None:
            return tokens * own / 1e6
        with suppress(Exception):  # a model that the table does not hold raises a bare Exception
            costs = litellm.cost_calculator.cost_per_token(
                model=self.name, prompt_tokens=tokens, call_type="aembedding"
            )
            return float(sum(costs))
        return None


def _sum(usages: Sequence[Usage]) -> Usage:
    costs = [usage.cost_usd for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return Usage(
        sum(usage.input_tokens for usage in usages),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        estimated=any(usage.estimated for usage in usages),
    )
