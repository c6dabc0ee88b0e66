"""The rows whose text no segment holds (any longer), indexed in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stores.bm25 import FIELDS, LENGTHS, Document, frequencies, length_to_byte

_NO_ROWS: Mapping[int, int] = {}


class Overlay:
    """An inverted index from field and term to rows; a row is replaced as a whole, and dropped without a trace."""

    def __init__(self) -> None:
        self._index: tuple[dict[str, dict[int, int]], ...] = tuple({} for _ in FIELDS)
        self._terms: dict[int, tuple[tuple[str, ...], ...]] = {}
        self._seqs: dict[int, int] = {}
        self._lengths: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._seqs)

    def __contains__(self, row: object) -> bool:
        return row in self._seqs

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def seq(self, row: int) -> int:
        """The version of the row's text; -1 if the row is not here."""
        return self._seqs.get(row, -1)

    def lengths(self, row: int) -> tuple[int, ...]:
        """The quantised length of each field of a row that is here."""
        return self._lengths[row]

    def put(self, row: int, seq: int, document: Document) -> None:
        """Hold this text of the row, in place of any other."""
        self.drop((row,))
        self._seqs[row] = seq
        terms, lengths = [], []
        for name, index in zip(FIELDS, self._index, strict=True):
            words = document.get(name, ())
            code = length_to_byte(len(words))
            counts = frequencies(words)
            for term, count in counts.items():
                index.setdefault(term, {})[row] = count << 8 | code
            terms.append(tuple(counts))
            lengths.append(LENGTHS[code])
        self._terms[row] = tuple(terms)
        self._lengths[row] = tuple(lengths)

    def drop(self, rows: Iterable[int]) -> None:
        """Forget these rows, where they are here."""
        for row in rows:
            if self._seqs.pop(row, None) is None:
                continue
            del self._lengths[row]
            for index, terms in zip(self._index, self._terms.pop(row), strict=True):
                for term in terms:
                    del index[term][row]
                    if not index[term]:
                        del index[term]

    def postings(self, number: int, term: str) -> Mapping[int, int]:
        """For the field of that number in `FIELDS`: from row to `frequency * 256 + byte of the field's length`."""
        return self._index[number].get(term, _NO_ROWS)
