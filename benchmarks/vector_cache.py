"""A local encoder that keeps its vectors in a file, for benchmarks that embed the same texts in every run."""

import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path

from chatbot.embedder import Embedder, EmbeddingResult, Judgement
from chatbot.messages import Usage
from chatbot.stores.records import Vector


class KeptVectors(Embedder):
    """Vectors of the encoder `made_by`, each made once. A file is for one encoder: delete it if that changes."""

    def __init__(self, made_by: Embedder, path: Path) -> None:
        self._made_by = made_by
        self.name, self.batch, self.sends_away = made_by.name, made_by.batch, made_by.sends_away
        self.scale, self.dimension = made_by.scale, made_by.dimension
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._file.execute("pragma journal_mode = wal")
        self._file.execute(
            "create table if not exists kept (asked text, number int, vector, primary key (asked, number))"
        )

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return the texts' vectors."""
        found = {text: self._read(text) for text in texts}
        missing = [text for text, vectors in found.items() if not vectors]
        if missing:
            answer = await self._made_by.embed(missing)
            found |= {text: self._kept(text, [each]) for text, each in zip(missing, answer.vectors, strict=True)}
        return EmbeddingResult([found[text][0] for text in texts], Usage(0, cost_usd=0.0))

    async def embed_questions(self, texts: Sequence[str]) -> tuple[list[list[Vector]], Usage]:
        """Return the vectors to search with for each text."""
        asked = {text: f"asked {text}" for text in texts}
        found = {text: self._read(key) for text, key in asked.items()}
        missing = [text for text, vectors in found.items() if not vectors]
        if missing:
            answer, _ = await self._made_by.embed_questions(missing)
            found |= {text: self._kept(asked[text], each) for text, each in zip(missing, answer, strict=True)}
        return [found[text] for text in texts], Usage(0, cost_usd=0.0)

    async def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        """Return how close the encoder finds the texts to a question."""
        return await self._made_by.closeness(question, texts)

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        """Return the judgements of the encoder's heads."""
        return await self._made_by.judge(texts)

    async def aclose(self) -> None:
        """Close nothing: one encoder serves many memories."""

    def _read(self, asked: str) -> list[Vector]:
        rows = self._file.execute("select vector from kept where asked = ? order by number", (asked,))
        return [array("f", vector) for (vector,) in rows]

    def _kept(self, asked: str, vectors: list[Vector]) -> list[Vector]:
        rows = [(asked, number, array("f", each).tobytes()) for number, each in enumerate(vectors)]
        self._file.executemany("insert or replace into kept values (?, ?, ?)", rows)
        return vectors
