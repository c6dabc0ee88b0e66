"""The text index finds what the reference finds, whatever happened to its files in between."""

import json
import os
import random
import resource
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chatbot.stores.cache import FolderShelf
from chatbot.stores.errors import StoreBusy
from chatbot.stores.observations import index as text_index
from chatbot.stores.observations.index import TextIndex
from chatbot.stores.observations.lookups import Visible
from chatbot.stores.text.analysis import VERSION
from chatbot.stores.text.bm25 import FIELDS, Document, rank
from tests.effort import examples

WORDS = [f"word{number}" for number in range(12)]
Texts = dict[int, tuple[int, Document]]


def made(random_: random.Random, words: list[str] = WORDS) -> Document:
    fields = random_.sample(FIELDS, random_.randint(0, 3))
    return {name: random_.choices(words, k=random_.choice((1, 3, 9, 30))) for name in fields}


def fill(index: TextIndex, texts: Texts) -> None:
    count = max(texts) + 1
    seqs = array("q", [texts[row][0] for row in range(count)])
    for row in index.uncovered(seqs):
        index.put(row, *texts[row])


def match(index: TextIndex, texts: Texts, query: list[str], visible: Visible) -> dict[int, float]:
    """Return what the index finds, as a store asks."""
    fill(index, texts)
    return scored(index, query, visible)


def scored(index: TextIndex, query: list[str], visible: Visible) -> dict[int, float]:
    found = index.ranked(query, visible)
    return dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


def flush(index: TextIndex, texts: Texts, start: int, end: int) -> None:
    for plan in index.rebuild_plans(end):
        if plan.end > start:
            written = index.write(plan, [(row, *texts[row]) for row in range(plan.start, plan.end)])
            assert written is not None
            index.adopt(written)


@pytest.fixture
def index(tmp_path: Path) -> TextIndex:
    return TextIndex.opened(FolderShelf(tmp_path / "index"))


@pytest.fixture
def texts() -> Texts:
    random_ = random.Random(7)
    return {row: (row, made(random_)) for row in range(300)}


def seen(texts: Texts, visible: Visible) -> dict[int, Document]:
    return {row: document for row, (_, document) in texts.items() if visible.sees(row)}


def everything(texts: Texts) -> Visible:
    return Visible(bytearray(b"\1" * (max(texts) + 1)))


class Life(RuleBasedStateMachine):
    """A store's use of two indexes over one folder, one text at a time."""

    @initialize(seed=st.integers(0, 1_000_000))
    def begin(self, seed: int) -> None:
        import tempfile

        self.random = random.Random(seed)
        self.place = tempfile.TemporaryDirectory()
        self.indexes = [TextIndex.opened(FolderShelf(Path(self.place.name) / "index")) for _ in range(2)]
        self.texts: Texts = {}
        self.seq = 0
        self.all = Visible(bytearray())
        self.some = Visible(bytearray())
        self.few = Visible(bytearray())
        self.add(5)

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.cleanup()

    @rule(count=st.integers(1, 9))
    def add(self, count: int) -> None:
        for _ in range(count):
            self.seq += 1
            self.texts[len(self.texts)] = (self.seq, made(self.random))
            self.all.flags.append(1)
            self.some.flags.append(self.random.random() < 0.7)
            self.few.flags.append(self.random.random() < 0.2)

    @rule()
    def edit(self) -> None:
        self.seq += 1
        self.texts[self.random.randrange(len(self.texts))] = (self.seq, made(self.random))

    @rule()
    def hide_or_show(self) -> None:
        row = self.random.randrange(len(self.texts))
        self.some.flags[row] ^= 1
        self.some.version += 1

    @rule(which=st.integers(0, 1))
    def write(self, which: int) -> None:
        index = self.indexes[which]
        index.refresh()
        fill(index, self.texts)
        if plan := index.plan():
            texts = self.texts
            written = index.write(plan, [(row, *texts[row]) for row in range(plan.start, plan.end) if row in texts])
            assert written is not None
            if self.random.random() < 0.8:  # else as if the process had died
                index.adopt(written)

    @rule(which=st.integers(0, 1))
    def erase(self, which: int) -> None:
        self.seq += 1
        row = self.random.randrange(len(self.texts))
        self.texts[row] = (self.seq, {})
        self.indexes[which].erase([row])

    @rule()
    def damage(self) -> None:
        index = Path(self.place.name) / "index"
        if files := sorted(index.glob("seg-*")):
            file = self.random.choice(files)
            data = bytearray(file.read_bytes())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            file.write_bytes(data)

    @rule(which=st.integers(0, 1))
    def leave(self, which: int) -> None:
        index = self.indexes[which]
        index.refresh()
        fill(index, self.texts)
        if (plan := index.plan(1)) and (written := index.write(plan)):
            index.adopt(written)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.indexes[which] = TextIndex.opened(FolderShelf(Path(self.place.name) / "index"))

    @invariant()
    def each_index_equals_the_reference(self) -> None:
        for index in self.indexes if hasattr(self, "place") else ():
            index.refresh()
            query = self.random.sample(WORDS, self.random.randint(1, 4))
            for visible in (self.all, self.some, self.few):
                assert match(index, self.texts, query, visible) == rank(seen(self.texts, visible), query)


@pytest.fixture(autouse=True, scope="module")
def _small_plans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_index, "FLUSH_ROWS", 4)
        patch.setattr(text_index, "MAX_ROWS", 16)
        patch.setattr(text_index, "_MANY", 12)
        yield


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)


def test_an_index_unreadable_for_now_is_not_taken_for_damaged(tmp_path: Path, index: TextIndex, texts: Texts) -> None:
    other = TextIndex.opened(FolderShelf(tmp_path / "index"))
    flush(index, texts, 0, 300)
    visible = everything(texts)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(StoreBusy, match="Too many open files"):
            other.refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert other.refresh()
    assert scored(other, WORDS, visible) == rank(seen(texts, visible), WORDS)


@pytest.mark.parametrize("trouble", ["link", "pipe", "folder", "empty", "open to others", "end", "digest", "missing"])
def test_a_segment_that_is_not_as_it_was_written_is_told_and_removed(
    tmp_path: Path, index: TextIndex, texts: Texts, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    flush(index, texts, 0, 300)
    folder = tmp_path / "index"
    victim = min(folder.glob("seg-*"))
    if trouble in {"end", "digest"}:
        manifest = json.loads((folder / "manifest.json").read_text())
        at, value = (3, 15) if trouble == "end" else (1, "é" * 32)
        next(entry for entry in manifest["pieces"] if entry[0] == victim.name)[at] = value
        (folder / "manifest.json").write_text(json.dumps(manifest))
    elif trouble == "open to others":
        victim.chmod(0o666)
    else:
        victim.rename(tmp_path / "elsewhere")
    if trouble == "link":
        victim.symlink_to(tmp_path / "elsewhere")
    elif trouble == "pipe":
        os.mkfifo(victim, 0o600)
    elif trouble == "folder":
        victim.mkdir()
    elif trouble == "empty":
        victim.write_bytes(b"")
    again = TextIndex.opened(FolderShelf(folder))
    assert not os.path.lexists(victim)
    assert (tmp_path / "elsewhere").exists() or trouble in {"open to others", "end", "digest"}
    assert "is damaged" in caplog.text
    assert len(again.uncovered(array("q", range(300)))) in {16, 12}


def test_a_list_of_any_shape_is_an_empty_one(tmp_path: Path, index: TextIndex, texts: Texts) -> None:
    """Lists as deep as they can just be read are too deep for what looks into them."""
    flush(index, texts, 0, 300)
    manifest = tmp_path / "index" / "manifest.json"
    value, limit = json.loads(manifest.read_text()), sys.getrecursionlimit()
    deep = ["[" * depth + "]" * depth for depth in range(limit - 150, limit)]
    first = value["pieces"][0]
    shapes: list[dict[str, Any]] = [
        {key: to} for key in ("generation", "pieces", "format") for to in ("MARK", ["MARK"])
    ]
    shapes.append({"pieces": [["MARK", *first[1:]]]})
    for wrong in ("null", "1e999", "-1", '"x"', *deep):
        for shape in shapes if wrong not in deep else shapes[-1:]:
            manifest.write_text(json.dumps(value | shape).replace('"MARK"', wrong))
            assert unlisted(tmp_path) in {0, 300}
    assert str(value["format"]).endswith(f".{VERSION}")  # that of another analysis is not read
    for content in ("", "[]", "{", "[" * 100_000, '{"format": 1, "pieces": [{}]}', "\xff", value | {"format": 2}):
        manifest.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode("latin-1"))
        assert unlisted(tmp_path) == 300


def unlisted(folder: Path) -> int:
    """Return how many texts an index opened there has to read."""
    index = TextIndex.opened(FolderShelf(folder / "index"))
    return len(index.uncovered(array("q", range(300))))
