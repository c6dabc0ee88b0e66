"""MiniLM in numpy: its weights are read from ONNX, without a runtime.

An ONNX file is a protocol buffer; field numbers are those of `onnx.proto`. Only the published file is read, identified
by its digest. `training/train_encoder.py` has trained small changes of its matrices, which are added when the file is
unpacked: a question then lies nearer to the statement that answers it.

The texts of a batch are concatenated, so that nothing is computed for padding; only attention works text by text. The
word embeddings stay int8, the layers become float32 in an unpacked file of 55 MB, which later processes map.
"""

import gzip
import json
import mmap
from array import array
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from chatbot.models.weights import CHANGES, MINILM, changes_mark, read_changes
from chatbot.stores.records import Vector, chunks

Tensor = NDArray[Any]
Matrix = NDArray[np.float32]
Made = TypeVar("Made")

_TYPES = {1: "<f4", 3: "i1"}
"""`TensorProto.DataType`, of the tensors that are read; others are skipped."""
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9


def _tensors(path: Path) -> dict[str, Tensor]:
    """Map the tensors of the published file by name, in their order."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    graphs = (span for number, span in _fields(data, (0, len(data))) if number == _GRAPH)
    spans = (span for graph in graphs for number, span in _fields(data, graph) if number == _INITIALIZER)
    tensors: dict[str, Tensor] = {}
    for fields in (list(_fields(data, span)) for span in spans):
        shape, found = [value for number, value in fields if number == _DIMS], dict(fields)
        if found[_DATA_TYPE] in _TYPES:
            (start, end), dtype = found[_RAW_DATA], np.dtype(_TYPES[found[_DATA_TYPE]])
            flat = np.frombuffer(data, dtype, (end - start) // dtype.itemsize, start)
            tensors[data[slice(*found[_NAME])].decode()] = flat.reshape(shape)
    return tensors


def _fields(data: mmap.mmap, span: tuple[int, int]) -> Iterator[tuple[int, Any]]:
    """Yield each field of a message: its number, and its value or the span of its bytes."""
    at, end = span
    while at < end:
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        yield key >> 3, (at, at + value) if key & 7 else value
        at += value if key & 7 else 0


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
    return value | byte << shift, at + 1


def _dequantized(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """Return as float32 a matrix stored as int8 with a scale per row or column."""
    whole = tensors[f"{name}_q"].astype(np.float32)
    whole *= tensors[f"{name}_scale"]
    return whole


def low_rank(kept: Mapping[str, Any]) -> tuple[Matrix, Matrix]:
    """Return a trained matrix as a product, inputs × rank and rank × outputs."""
    scales = np.array(kept["scales"], "f4")
    down, up = (np.frombuffer(b64decode(kept[name]), "i1").astype("f4") for name in ("down", "up"))
    return down.reshape(-1, len(scales)) * scales, up.reshape(len(scales), -1)


_VOCABULARY = CHANGES.with_name("bert_uncased_vocab.txt.gz")
"""The vocabulary of BERT (uncased), under Apache-2.0; the package with the weights lacks it."""
WORDS = "embeddings.word_embeddings.weight"
WORDS_SCALE = f"{WORDS}_scale"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
_WINDOW = 256
"""Maximum tokens of a text, as the model was published."""
LAYERS = 6
MATRICES = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)
"""The matrices of a layer, in the order of the file."""
_IN_LAYERS = tuple(f"encoder.layer.{number}.{part}.weight" for number in range(LAYERS) for part in MATRICES)
"""The names of the matrices of all layers, in the same order."""
HEADS = 12
EPSILON = 1e-12
_BEST = 8
"""Tokens of a text that count twice, those nearest to the question: the rest of a long text may be about anything."""
_KEPT = 256
"""Texts whose tokens stay in memory, of about 50 kB each."""
_AT_ONCE = 8
"""Texts that are read together."""
_BLOCK = 32
"""Columns of a matrix that are stored as one block: with few tokens OpenBLAS multiplies a block in place, in half the
time of a whole matrix, which it copies first."""
_FEW_TOKENS = 128
"""With more tokens than this, joining the blocks into a whole matrix is faster, unless the processor has AVX-512."""
_IN_PLACE = 1_000_000
"""Multiplications up to which OpenBLAS copies no matrix then: for many tokens, too, this takes a sixth less time."""
_AVX_512 = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})  # OpenBLAS's names of processors that have it
_CACHED_TOKENS = 32
"""Tokens whose widened vectors are worked on at once, as they fit into the processor's cache."""


class RecentTexts(Generic[Made]):
    """Cache of what is made of texts, for the `most` that were used last: the same rows are looked at repeatedly."""

    def __init__(self, make: Callable[[list[str]], Sequence[Made]], most: int) -> None:
        self._make, self._most = make, most
        self.kept: dict[str, Made] = {}
        """By text, in the order of their last use."""

    def get(self, texts: Sequence[str]) -> dict[str, Made]:
        """Return what is made of each text, by text."""
        asked = dict.fromkeys(texts)
        new = [each for each in asked if each not in self.kept]
        known = self.kept | dict(zip(new, self._make(new), strict=True))
        used = {each: known.pop(each) for each in asked}
        self.kept = dict([*(known | used).items()][-self._most :])
        return used


class Network:
    """The weights, and the forward pass."""

    def __init__(self) -> None:
        self._weights = MINILM.map_arrays(_changed_weights, changes_mark())
        self._tokenizer = tokenizer()
        self._encoded: dict[str, Matrix] = {}  # by the texts encoded last: a question is, and then it is compared
        self._tokens = RecentTexts(self._tokens_of, _KEPT)
        self._has_avx_512 = not _AVX_512.isdisjoint(each.get("architecture") for each in _threads().info())

    def encode(self, texts: list[str]) -> tuple[list[Vector], int]:
        """Return the texts' vectors, each of length 1, by the mean of their tokens, and how many tokens were read."""
        self._encoded = dict(zip(texts, self._read(texts), strict=True))
        found = [self._encoded[text] for text in texts]
        return [array("f", _of_length_1(each.mean(axis=0)).tobytes()) for each in found], sum(map(len, found))

    def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        """Return how close each text is to a question, from -1 to 1, by the vectors of their tokens.

        It is the mean of two means: of each token of the question the cosine with the nearest of the text (Khattab and
        Zaharia 2020, "ColBERT: efficient and effective passage search via contextualized late interaction over BERT"),
        and of the `_BEST` tokens of the text the cosine with the nearest of the question.
        """
        tokens = self._tokens.get([question, *texts])
        return {each: _closeness(tokens[question], tokens[each]) for each in texts}

    def _tokens_of(self, texts: list[str]) -> list[Matrix]:
        """Return the vectors of each text's tokens, each of length 1, without the first and the last."""
        new = [text for text in texts if text not in self._encoded]
        read = self._encoded | dict(zip(new, self._read(new), strict=True))
        return [_of_length_1(read[text][1:-1]) for text in texts]

    def _read(self, texts: list[str]) -> Iterator[Matrix]:
        # Not `encode_batch`, which starts a thread for each core and panics if it cannot.
        tokens = [self._tokenizer.encode(text).ids for text in texts]
        with one_core():
            for batch in chunks(tokens, _AT_ONCE):
                yield from self._forward(batch)

    def _forward(self, texts: Sequence[Sequence[int]]) -> list[Matrix]:
        ends = np.cumsum([len(tokens) for tokens in texts])
        spans = [slice(end - len(tokens), end) for tokens, end in zip(texts, ends, strict=True)]
        x = self._embeddings(texts)
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attend(x, spans, f"{layer}attention.self."), f"{layer}attention.output.dense")
            attended += x
            x = self._normal(attended, f"{layer}attention.output.LayerNorm")
            widened = _gelu(self._linear(x, f"{layer}intermediate.dense"))
            narrowed = self._linear(widened, f"{layer}output.dense")
            narrowed += x
            x = self._normal(narrowed, f"{layer}output.LayerNorm")
        return [x[span] for span in spans]

    def _embeddings(self, texts: Sequence[Sequence[int]]) -> Matrix:
        ids = np.concatenate([np.array(each) for each in texts])
        words: Matrix = self._weights[WORDS][ids] * self._weights[WORDS_SCALE][ids]
        words += self._weights[POSITIONS][np.concatenate([np.arange(len(tokens)) for tokens in texts])]
        words += self._weights[TYPES][0]
        return self._normal(words, "embeddings.LayerNorm")

    def _attend(self, x: Matrix, spans: Sequence[slice], name: str) -> Matrix:
        query, key, value = (
            self._linear(x, f"{name}{part}").reshape(len(x), HEADS, -1).transpose(1, 0, 2)
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
        blocks, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        few = _IN_PLACE // blocks[0].size if self._has_avx_512 else _FEW_TOKENS
        if len(x) > few and not self._has_avx_512:
            product: Matrix = x @ np.concatenate(list(blocks), axis=1)
        else:
            product = np.empty((len(x), len(bias)), np.float32)
            columns = product.reshape(len(x), len(blocks), _BLOCK).transpose(1, 0, 2)
            for at in range(0, len(x), few):
                np.matmul(x[at : at + few], blocks, out=columns[:, at : at + few])
        product += bias
        return product

    def _normal(self, x: Matrix, name: str) -> Matrix:
        """Normalise each token to mean 0 and variance 1 in place, then scale and shift."""
        x -= x.mean(axis=1, keepdims=True)
        x /= np.sqrt(np.einsum("ij,ij->i", x, x) / x.shape[1] + EPSILON)[:, None]
        x *= self._weights[f"{name}.weight"]
        x += self._weights[f"{name}.bias"]
        return x


def _of_length_1(vectors: Matrix) -> Matrix:
    unit: Matrix = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), EPSILON)
    return unit


def _closeness(question: Matrix, text: Matrix) -> float:
    cosines = question @ text.T
    if not cosines.size:
        return 0.0
    best = np.sort(cosines.max(axis=0))[-_BEST:]
    return float(cosines.max(axis=1).mean() + best.mean()) / 2


def _gelu(x: Matrix) -> Matrix:
    """Apply GELU, max(x, 0) - |x| Φ(-|x|), in place; Φ by Abramowitz and Stegun 7.1.26, good to 1e-7."""
    for start in range(0, len(x), _CACHED_TOKENS):
        part = x[start : start + _CACHED_TOKENS]
        size = np.abs(part)
        t = 1 / (1 + 0.3275911 * 0.5**0.5 * size)
        series = t * (0.5 * 1.061405429)
        for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            series += 0.5 * term
            series *= t
        series *= size
        np.square(size, out=size)
        size *= -0.5
        np.exp(size, out=size)
        series *= size
        np.maximum(part, 0, out=part)
        part -= series
    return x


def one_core() -> AbstractContextManager[Any]:
    """Limit NumPy to one thread: the others wait by spinning, which costs more CPU time than they save."""
    limited: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="blas")
    return limited


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def tokenizer() -> Tokenizer:
    """Return the tokenizer of BERT (uncased)."""
    words = gzip.decompress(_VOCABULARY.read_bytes()).decode().split("\n")
    ids = {word: number for number, word in enumerate(words) if word}
    made = Tokenizer(WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - a token of text
    made.normalizer = BertNormalizer(lowercase=True)
    made.pre_tokenizer = BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    made.enable_truncation(_WINDOW)
    return made


def published_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights by name as float32; the word embeddings stay int8, with the scale of each row."""
    tensors = _tensors(folder / "model.onnx")
    matrices = (name.removesuffix("_q") for name in tensors if name.startswith("val_") and name.endswith("_q"))
    weights = {name: _dequantized(tensors, each) for name, each in zip(_IN_LAYERS, matrices, strict=True)}
    for name, tensor in tensors.items():
        if tensor.dtype == "<f4" and name.startswith("inner."):
            weights[name.removeprefix("inner.")] = tensor
    weights[POSITIONS] = _dequantized(tensors, f"inner.{POSITIONS}")
    weights[WORDS] = tensors[f"inner.{WORDS}_q"]
    return weights


def _changed_weights(folder: Path) -> dict[str, Tensor]:
    """Return the published weights with the trained changes, those of layers in blocks of `_BLOCK` columns."""
    weights = published_weights(folder)
    for name, change in json.loads(read_changes())["matrices"].items():
        weights[name] += np.matmul(*low_rank(change))
    for name in _IN_LAYERS:
        blocks = weights[name].reshape(len(weights[name]), -1, _BLOCK).transpose(1, 0, 2)
        weights[name] = np.ascontiguousarray(blocks)
    return weights
