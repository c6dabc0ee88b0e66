"""The rows whose text no segment holds (any longer), indexed in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stores.bm25 import FIELDS, LENGTHS, Document, frequencies, length_to_byte

_NO_ROWS: Mapping[int, int] = {}
_NOTHING: Sequence[Mapping[str, int]] = ({},) * len(FIELDS)


class Text(NamedTuple):
    """What is searched of a row."""

    seq: int
    """Its version."""
    postings: Sequence[Mapping[str, int]]
    """For each of `FIELDS`: from a term to `frequency * 256 + byte of the field's length`."""

    @classmethod
    def of(cls, seq: int, document: Document) -> Text:
        """The text in terms."""
        return cls(seq, [_postings(document.get(name, ())) for name in FIELDS] if document else _NOTHING)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The quantised length of each field."""
        return tuple(LENGTHS[next(iter(each.values())) & 255] if each else 0 for each in self.postings)


class Overlay:
    """An inverted index from field and term to rows; a row is replaced as a whole, and dropped without a trace."""

    def __init__(self) -> None:
        self._index: tuple[dict[str, dict[int, int]], ...] = tuple({} for _ in FIELDS)
        self._texts: dict[int, Text] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, row: object) -> bool:
        return row in self._texts

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    @property
    def texts(self) -> Mapping[int, Text]:
        """What is here, by row."""
        return self._texts

    def seq(self, row: int) -> int:
        """The version of the row's text; -1 if the row is not here."""
        text = self._texts.get(row)
        return -1 if text is None else text.seq

    def lengths(self, row: int) -> tuple[int, ...]:
        """The quantised length of each field of a row that is here."""
        return self._texts[row].lengths

    def put(self, row: int, text: Text) -> None:
        """Hold this text of the row, in place of any other."""
        self.drop((row,))
        self._texts[row] = text
        for index, postings in zip(self._index, text.postings, strict=True):
            for term, code in postings.items():
                index.setdefault(term, {})[row] = code

    def drop(self, rows: Iterable[int]) -> None:
        """Forget these rows, where they are here."""
        for row in rows:
            if (text := self._texts.pop(row, None)) is None:
                continue
            for index, postings in zip(self._index, text.postings, strict=True):
                for term in postings:
                    del index[term][row]
                    if not index[term]:
                        del index[term]

    def postings(self, number: int, term: str) -> Mapping[int, int]:
        """For the field of that number in `FIELDS`: from row to `frequency * 256 + byte of the field's length`."""
        return self._index[number].get(term, _NO_ROWS)


def _postings(terms: Sequence[str]) -> dict[str, int]:
    code = length_to_byte(len(terms))
    return {term: count << 8 | code for term, count in frequencies(terms).items()}
