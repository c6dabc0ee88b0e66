"""The embedder contract: texts in, vectors of their meaning and the usage out."""

import logging
import math
from abc import abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from msgspec import Struct

from chatbot.errors import ChatbotError, ModelError
from chatbot.messages import Usage
from chatbot.stores.base import AsyncResource
from chatbot.stores.loops import is_failure
from chatbot.stores.records import Vector, check_type, chunks, reason_of, unit, vector

logger = logging.getLogger(__name__)


class EmbeddingResult(Struct, frozen=True):
    """One vector per text, in order, and the usage to bill."""

    vectors: list[Vector]
    usage: Usage


SURE = 2
"""The highest level of `Judgement.orders_a_model`."""


class Judgement(Struct, frozen=True):
    """The judgement of a text by heads that were trained on labelled lines. See `training/README.md`."""

    needs_memory: bool
    """An answer needs something that the person said earlier."""
    states_something: bool
    """It says something worth keeping."""
    orders_a_model: int
    """How much it reads like an order to a model: 0 no, 1 maybe, `SURE`."""
    scores: Mapping[str, float]
    """The score of each head, before its thresholds: for receipts."""
    asks_the_bot: bool = False
    """It asks about what the bot itself said."""


class Embedder(AsyncResource):
    """Embedding model. Vectors of different spaces must never be compared. Safe to share between tasks.

    Errors of a subclass that are no `ChatbotError` reach callers as `ModelError`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {"embed", "embed_questions", "closeness", "judge", "ready", "check", "aclose"} & vars(cls).keys():
            setattr(cls, name, guard_method(vars(cls)[name]))

    name: str
    """The model's stable id, such as `local/minilm` or `openai/text-embedding-3-small`."""
    server: str = ""
    """Address or host of the provider; empty if there is none, or it is unknown."""
    dimension: int = 0
    """The length of each vector; 0 if it is not known before the first call."""
    batch: int = 32
    """Maximum texts of one call."""
    scale: float = 1.0
    """Factor that corrects the cosine of a question and a row, if the form of the vectors makes it smaller."""
    is_calibrated: bool = False
    """True if the thresholds of evidence in recall were chosen for its cosines."""
    sends_away: bool = True
    """True if texts may leave this machine: then sensitive rows are not sent to it."""

    @property
    def space(self) -> str:
        """The id of the space of its vectors, kept with them: vectors of another space are made again."""
        return self.name

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return the vectors of at most `batch` texts; of none without a call. Raises a `ModelError`. May be cancelled.

        A text that is longer than the model's window is cut, if the model can do that.
        """

    async def embed_all(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return the vectors of any number of texts, in calls of `batch`, between which others are served."""
        parts = [await self.embed(some) for some in chunks(texts, self.batch)]
        costs = [part.usage.cost_usd for part in parts]
        usage = Usage(
            sum(part.usage.input_tokens for part in parts),
            cost_usd=None if None in costs else sum(filter(None, costs)),
            estimated=any(part.usage.estimated for part in parts),
        )
        return self._checked(EmbeddingResult([each for part in parts for each in part.vectors], usage))

    def check_count(self, found: Sequence[object], texts: int) -> None:
        """Raise `ModelError` for too few or too many vectors, of a call that is billed already and not made again."""
        if len(found) != texts:
            raise ModelError(f"{self.name} gave {len(found)} vectors for {texts} texts")

    def _checked(self, found: EmbeddingResult) -> EmbeddingResult:
        if not all(map(is_finite, found.vectors)):
            raise ModelError(f"{self.name} gave a vector with numbers that are not finite")
        if self.dimension and (others := {len(each) for each in found.vectors} - {self.dimension}):
            raise ModelError(f"{self.name} has {self.dimension} dimensions, and gave a vector of {min(others)} numbers")
        return found

    async def embed_questions(self, texts: Sequence[str]) -> tuple[list[list[Vector]], Usage]:
        """Return the vectors to search with, one or more for each text, in their order, and the usage to be billed.

        The length of a vector, which is 1 at most, is its weight.
        """
        found = self._checked(await self.embed(texts))
        return [[unit(vector)] for vector in found.vectors], found.usage

    async def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:  # noqa: ARG002 - as `judge`
        """Return how close texts are to a question, word by word; without those that it cannot compare so."""
        return {}

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:  # noqa: ARG002 - for those that can
        """Return the judgement of each text; an empty list if nothing here can judge."""
        return []

    async def ready(self) -> None:
        """Wait for what it needs before its first call, such as an import. Searches wait for it without a limit."""
        return

    async def check(self) -> None:
        """Raise a `ModelError` if weights, a provider or its key are missing. Makes no call."""
        return

    async def aclose(self) -> None:
        """Release connections and memory. May be called twice."""
        return


def is_finite(vector: Vector) -> bool:
    """Return whether all numbers are finite: if not, their sum is not."""
    return math.isfinite(sum(vector))


def guard_method(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the method of a model; its errors that are no `ChatbotError` are logged, and raised as `ModelError`."""

    @wraps(method)
    async def guarded(self: Any, *args: Any, **named: Any) -> Any:
        try:
            answer = method(self, *args, **named)
            found = await check_type(answer, Awaitable, f"the answer of {method.__name__}", ": write `async def`")
            if method.__name__ in {"context_window", "count_tokens"}:
                check_type(found, int, f"the answer of {method.__name__}")
            return _with_arrays(found) if method.__name__ == "embed" else found
        except BaseException as error:
            if isinstance(error, ChatbotError) or not is_failure(error):
                raise
            raise model_error(self.name, error) from error

    return guarded


def _with_arrays(found: EmbeddingResult) -> EmbeddingResult:
    """Return the result with vectors of 32-bit floats, whatever sequences of numbers a plug-in made."""
    vectors: Sequence[Sequence[float]] = check_type(found, EmbeddingResult, "its answer").vectors
    arrays = [each if isinstance(each, array) else vector(each) for each in vectors]
    return EmbeddingResult(arrays, check_type(found.usage, Usage, "its usage"))


def model_error(name: str, error: BaseException) -> ModelError:
    """Log an error that a model must not raise, and return the one to raise. A full machine is no fault of its code."""
    reason = reason_of(error)
    is_full = isinstance(error, MemoryError | OSError) or "can't start new thread" in reason
    logger.error("the model %s failed", name, exc_info=None if is_full else error)
    return ModelError(f"{name} failed: {reason}")
