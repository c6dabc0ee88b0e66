"""Writing of segments by Whoosh's own `SegmentWriter`, through a codec.

A codec decides how Whoosh stores postings. With this one Whoosh writes no file of its own: no table of contents, no
pickle. Searches only read the arrays.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
from whoosh.codec import base
from whoosh.fields import FieldType, Schema
from whoosh.filedb.filestore import RamStorage
from whoosh.formats import Frequency
from whoosh.writing import SegmentWriter

from chatbot.stores.observations.lookups import Numbering
from chatbot.stores.observations.segments import KEY_BYTES, MANY, REPEATED, UNKNOWN, Numbers, Segment, SegmentDraft
from chatbot.stores.text.bm25 import FIELDS, MAX_FREQUENCY, length_to_byte

NUMBERS = {name: number for number, name in enumerate(FIELDS)}
_FIELD, _DOCUMENT, _TERM = 16, 20, 36
"""Bit offsets of field and document in a packed posting, and of the term in one that is sorted."""

Counts = Mapping[str, int]
Part = tuple[Sequence[bytes], Numbers, Numbers]
"""Terms, the number of postings of each, and the postings: `document << 20 | field << 16 | count`."""


class Postings:
    """Gathers postings in place of Whoosh's pool, which would sort tuples and spill them to files as pickles."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._numbers = Numbering(self._words)
        self._terms = array("I")
        self._counts = array("I")
        self._runs: list[tuple[int, int]] = []
        """For each field of a document: its number of terms, and its part of a packed posting."""
        self.parts: list[Part] = []
        """Postings that were copied from segments."""

    def add(self, field: int, document: int, counts: Counts) -> None:
        """Add all postings of one field of a document."""
        self._terms.extend(map(self._numbers.__getitem__, counts))
        self._counts.extend(counts.values())
        self._runs.append((len(counts), document << _DOCUMENT | field << _FIELD))

    def iter_postings(self) -> "Postings":
        """Return these postings for `RowWriter` and the codec's `add_postings`, all at once."""
        return self

    def arrays(self, codes: Numbers) -> dict[str, Numbers]:
        """Return all arrays of a segment but `codes` and `versions`; `codes` are lengths by field and document."""
        parts = [*self.parts, *([self._gather()] if self._runs else [])]
        if not sum(len(part[2]) for part in parts):
            return {}
        terms = list(parts[0][0]) if len(parts) == 1 else sorted(set().union(*(part[0] for part in parts)))
        places = {term: number for number, term in enumerate(terms)}
        numbers = [np.fromiter(map(places.__getitem__, part[0]), "u8", len(part[0])) for part in parts]
        owners = np.concatenate([np.repeat(each, part[1]) for each, part in zip(numbers, parts, strict=True)])
        values = np.concatenate([part[2] for part in parts])
        document, count = values >> np.uint64(_DOCUMENT), values & np.uint64(0xFFFF)
        field = (values >> np.uint64(_FIELD)) & np.uint64(15)
        packed = owners << np.uint64(_TERM) | field << np.uint64(32) | document << np.uint64(16) | count
        packed.sort()
        return _term_arrays(terms) | _posting_arrays(packed, len(terms), codes)

    def _gather(self) -> Part:
        """Return the postings that were added, with their terms sorted."""
        found = [term.encode() for term in self._words]
        order = np.array(sorted(range(len(found)), key=found.__getitem__), "i8")
        ranks = np.empty(len(found), "i8")
        ranks[order] = np.arange(len(found))
        owners = ranks[np.frombuffer(self._terms, "u4")]
        sizes, places = np.array(self._runs, "u8").T
        counts = np.minimum(np.frombuffer(self._counts, "u4"), MAX_FREQUENCY).astype("u8")
        values = np.repeat(places, sizes.astype("i8")) | counts
        sizes = np.bincount(owners, minlength=len(found))
        return [found[number] for number in order.tolist()], sizes, values[np.argsort(owners, kind="stable")]


def _term_arrays(terms: Sequence[bytes]) -> dict[str, Numbers]:
    keys = np.frombuffer(b"".join(term[:KEY_BYTES].ljust(KEY_BYTES, b"\0") for term in terms), ">u8")
    rest = [term[KEY_BYTES:] for term in terms]
    rests = np.fromiter(accumulate(map(len, rest), initial=0), "<u4")
    return {"keys": keys, "rest": np.frombuffer(b"".join(rest), "u1"), "rests": rests}


def _posting_arrays(packed: Numbers, terms: int, codes: Numbers) -> dict[str, Numbers]:
    """Return arrays of postings, from sorted `term << 36 | field << 32 | document << 16 | count`."""
    entries = packed >> np.uint64(32)
    begins = np.flatnonzero(np.r_[True, entries[1:] != entries[:-1]])
    owners = entries[begins] >> np.uint64(4)
    counts, documents = packed & np.uint64(0xFFFF), (packed >> np.uint64(16)) & np.uint64(0xFFFF)
    many = np.flatnonzero(counts >= MANY).astype("u8")
    lengths = codes[(entries & np.uint64(15)).astype("i8"), documents.astype("i8")]
    flags = np.minimum(counts, MANY).astype("u1") | _repeat_flags(packed, owners, begins)
    return {
        "firsts": np.searchsorted(owners, np.arange(terms + 1, dtype="u8")).astype("<u4"),
        "fields": (entries[begins] & np.uint64(15)).astype("u1"),
        "runs": np.r_[begins, len(packed)].astype("<u4"),
        "postings": documents.astype("<u4") << 16 | lengths.astype("<u4") << 8 | flags,
        "many": many << np.uint64(16) | counts[many.astype("i8")],
    }


def _repeat_flags(packed: Numbers, owners: Numbers, begins: Numbers) -> Numbers:
    """Return `REPEATED` for each posting whose row has the term in an earlier field too."""
    flags = np.full(len(packed), 0, "u1")
    sizes = np.diff(np.r_[begins, len(packed)])
    same = owners[1:] == owners[:-1]
    shared = np.flatnonzero(np.repeat(np.r_[same, False] | np.r_[False, same], sizes))
    if len(shared):
        few = packed[shared]
        holders = few >> np.uint64(_TERM) << np.uint64(16) | (few >> np.uint64(16)) & np.uint64(0xFFFF)
        _, first = np.unique(holders, return_index=True)
        flags[shared] = REPEATED
        flags[shared[first]] = 0
    return flags


class _Documents(base.PerDocumentWriter):  # type: ignore[misc]
    """Keeps the length of each field of each document."""

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros((len(FIELDS), rows), "u1")


class _Fields(base.FieldWriter):  # type: ignore[misc]
    """Takes all postings at once."""

    def __init__(self, documents: _Documents) -> None:
        self.arrays: dict[str, Numbers] = {}
        self._documents = documents

    def add_postings(self, schema: object, lengths: object, items: Postings) -> None:  # noqa: ARG002
        """Build the arrays."""
        self.arrays = items.arrays(self._documents.codes)


class Codec(base.Codec):  # type: ignore[misc]
    """Codec of a segment of `rows` rows."""

    length_stats = False

    def __init__(self, rows: int) -> None:
        self._documents = _Documents(rows)

    def new_segment(self, storage: object, indexname: str) -> base.Segment:  # noqa: ARG002
        """Return a segment for Whoosh."""
        return base.Segment(indexname)

    def per_document_writer(self, storage: object, segment: object) -> _Documents:  # noqa: ARG002
        """Return the writer of lengths."""
        return self._documents

    def field_writer(self, storage: object, segment: object) -> _Fields:  # noqa: ARG002
        """Return the writer of postings."""
        return _Fields(self._documents)


class RowWriter(SegmentWriter):  # type: ignore[misc]
    """Whoosh's writer of the rows from `start` to `end`, which takes documents, in any order, and segments."""

    def __init__(self, start: int, end: int) -> None:
        schema = Schema(**{name: FieldType(Frequency(), None, scorable=True) for name in FIELDS})
        toc = SimpleNamespace(generation=0, schema=schema, segments=[])
        index = SimpleNamespace(storage=RamStorage(), indexname="rows", _read_toc=lambda: toc)
        super().__init__(index, _lk=False, codec=Codec(end - start), compound=False)
        self.pool = Postings()
        self._start, self._end = start, end
        self._versions = np.full(end - start, UNKNOWN, "<i8")

    def add_row(self, row: int, version: int, fields: Mapping[str, Counts]) -> None:
        """Add the searched text of a row, unless it was added before or is not one of these rows."""
        if self._start <= row < self._end and self._versions[row - self._start] == UNKNOWN:
            self._versions[row - self._start] = version
            self.docnum = row - self._start
            self.add_document(**fields)

    def add_document(self, **fields: Counts) -> None:
        """Add a document with counted terms, a field at once; Whoosh would add posting by posting."""
        for name, counts in fields.items():
            self.perdocwriter.codes[NUMBERS[name], self.docnum] = length_to_byte(sum(counts.values()))
            self.pool.add(NUMBERS[name], self.docnum, counts)

    def add_segment(self, segment: Segment) -> None:
        """Add the rows of a segment that are still missing, as Whoosh's `add_reader` would one by one."""
        rows = np.arange(segment.start, segment.end) - self._start
        inside = (rows >= 0) & (rows < len(self._versions))
        free = self._versions[np.where(inside, rows, 0)] == UNKNOWN
        places = np.where(inside & free & (segment.versions != UNKNOWN), rows, -1)
        taken = np.flatnonzero(places >= 0)
        self._versions[places[taken]] = segment.versions[taken]
        self.perdocwriter.codes[:, places[taken]] = segment.codes[:, taken]
        self.pool.parts.append(_part_of(segment, places))

    def finish(self) -> SegmentDraft:
        """Return the segment; Whoosh's commit would write a table of contents."""
        self._flush_segment()
        self._finish()
        lengths = {f"codes{number}": codes for number, codes in enumerate(self.perdocwriter.codes) if codes.any()}
        return SegmentDraft(self._start, self._end, {**self.fieldwriter.arrays, **lengths, "versions": self._versions})


def _part_of(segment: Segment, places: Numbers) -> Part:
    """Return the postings of documents at their new `places`, without those of a negative place."""
    firsts, runs = segment.array("firsts", "<u4").astype("i8"), segment.array("runs", "<u4").astype("i8")
    postings = segment.postings
    rows, counts = places[postings >> 16], (postings & MANY).astype("u8")
    for place, count in segment.many(0, len(rows)):
        counts[place] = count
    keep = rows >= 0
    fields = np.repeat(segment.array("fields", "u1").astype("u8"), np.diff(runs))
    values = rows.astype("u8") << np.uint64(_DOCUMENT) | fields << np.uint64(_FIELD) | counts
    kept = np.concatenate([[0], np.cumsum(keep)])
    sizes = np.diff(kept[runs[firsts]]) if len(runs) else np.zeros(0, "i8")
    held = np.flatnonzero(sizes)
    terms = segment.terms()
    return [terms[number] for number in held.tolist()], sizes[held], values[keep]


def build(
    start: int,
    end: int,
    documents: Iterable[tuple[int, int, Mapping[str, Counts]]],
    segments: Iterable[Segment] = (),
    pause: Callable[[], object] = lambda: None,
) -> SegmentDraft:
    """Return the segment of these rows, each from `documents` or else from the first of `segments` that holds it.

    `pause` is called between rows, to let other threads run.
    """
    writer = RowWriter(start, end)
    for row, version, fields in documents:
        writer.add_row(row, version, fields)
        pause()
    for segment in segments:
        writer.add_segment(segment)
    return writer.finish()
