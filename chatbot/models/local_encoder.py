"""`local/auto`: MiniLM for English and USE-multilingual for other languages, side by side in one vector.

The first 384 numbers are MiniLM's and the other 512 those of USE. A text fills the part of its own language and leaves
the other part zero, so rows of different languages are at right angles, never compared by chance.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence

from chatbot.embedding import Embedder, EmbeddingResult
from chatbot.messages import Usage
from chatbot.models.language import is_english
from chatbot.models.minilm import DIMENSION as ENGLISH
from chatbot.models.minilm import MiniLMEmbedder
from chatbot.models.multilingual import DIMENSION as OTHER
from chatbot.models.multilingual import MultilingualEncoder
from chatbot.models.weights import MINILM, MULTILINGUAL
from chatbot.stores.vectors import Vector

NAME = "local/auto"
PARTS = (MINILM, MULTILINGUAL)


class LocalEmbedder(Embedder):
    """Offline, on the processor, at no cost; each encoder is loaded with the first text of its language."""

    name = NAME
    batch = MiniLMEmbedder.batch
    sends_away = False

    def __init__(self) -> None:
        self._english = MiniLMEmbedder()
        self._other = MultilingualEncoder()

    @property
    def dimension(self) -> int:
        """Both parts."""
        return ENGLISH + OTHER

    @staticmethod
    def is_installed() -> bool:
        """Return whether both encoders can be loaded. Cheap: nothing is imported."""
        return all(weights.folder() is not None for weights in PARTS)

    async def check(self) -> None:
        """Raise `MissingModel`, with the command that installs it, where an encoder is missing."""
        await self._english.check()
        self._other.check()

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return each text's vector, in the part of its language."""
        english = [number for number, text in enumerate(texts) if is_english(text)]
        found = await self._english.embed([texts[number] for number in english])
        vectors = {number: _placed(each, b"") for number, each in zip(english, found.vectors, strict=True)}
        others = [number for number in range(len(texts)) if number not in vectors]
        if others:
            encoded = await asyncio.to_thread(self._other.encode, [texts[number] for number in others])
            vectors |= {number: _placed(b"", each) for number, each in zip(others, encoded, strict=True)}
        return EmbeddingResult(
            [vectors[number] for number in range(len(texts))], Usage(found.usage.input_tokens, cost_usd=0.0)
        )

    async def embed_questions(self, texts: Sequence[str], *, among_others: bool) -> tuple[list[list[Vector]], Usage]:
        """Return a vector for each text, and for an English one a second, for the rows in other languages."""
        found = await self.embed(texts)
        english = [number for number, text in enumerate(texts) if among_others and is_english(text)]
        asked = [texts[number] for number in english]
        more = dict(zip(english, await asyncio.to_thread(self._other.encode, asked) if asked else [], strict=True))
        return [
            [vector, _placed(b"", more[number])] if number in more else [vector]
            for number, vector in enumerate(found.vectors)
        ], found.usage

    def probes(self) -> Sequence[Vector]:
        """Return two opposite vectors of the second part: a row that uses it is near to one of them."""
        return _placed(b"", array("f", [1.0] * OTHER)), _placed(b"", array("f", [-1.0] * OTHER))

    async def aclose(self) -> None:
        """Free the memory of the English encoder."""
        await self._english.aclose()


def _placed(english: Vector | bytes, other: Vector | bytes) -> Vector:
    whole = array("f", english or bytes(4 * ENGLISH))
    whole.extend(array("f", other or bytes(4 * OTHER)))
    return whole
