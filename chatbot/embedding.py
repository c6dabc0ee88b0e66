"""The embedder contract: texts in, vectors of their meaning out, and what that took."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from chatbot.messages import Usage
from stores.lifecycle import AsyncResource
from stores.vectors import Vector


@dataclass(frozen=True, slots=True)
class Embedded:
    """One vector a text, in the order of the texts, and the usage to be billed."""

    vectors: list[Vector]
    usage: Usage


class Embedder(AsyncResource):
    """One embedding model. Vectors of different names must never be compared. Safe to share between tasks."""

    name: str
    """The model's stable id, such as `local/minilm` or `openai/text-embedding-3-small`."""
    batch: int = 32
    """How many texts are best given at once."""
    sends_away: bool = True
    """Whether texts leave this machine, or may; then nothing delicate is given to it unasked."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The length of each vector; 0 where it is not known before the first call."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> Embedded:
        """The texts' vectors. No texts, no call. Raises a `ModelError`; cancelling stops at once.

        A text past the model's window counts as far as it fits, where the model can cut it.
        """

    async def aclose(self) -> None:
        """Let go of connections and memory. May be called twice."""
        return
