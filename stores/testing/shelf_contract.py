"""The contract kit for engines: what a `Shelf` promises, between threads and processes, and when it is killed.

class TestMyShelf(ShelfContract):
    opener = "my_package.my_module:MyShelf"    # from a folder to the shelf in it
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from chatbot.stores.log import Shelf, ShelfWriter
from chatbot.stores.testing import Contract
from chatbot.stores.testing.processes import killed_after, opened, run_together, start

_HERE = "chatbot.stores.testing.shelf_contract"
_SIZE = 20_000


def contents(shelf: Shelf) -> dict[str, bytes]:
    """Return the content of all listed pieces; the list has their names."""
    return {name: shelf.read(name) for name in shelf.listed() or ()}


def publish(shelf: Shelf, **pieces: bytes) -> None:
    """Put pieces on the shelf and list only these."""
    with shelf.alone() as writer:
        for name, data in pieces.items():
            writer.put(name, data)
        writer.publish([*pieces])
        writer.remove({*shelf.names()} - {*pieces})
        writer.sync()


class ShelfContract(Contract):
    """Tests of the contract of a `Shelf`."""

    promised_by = (Shelf, ShelfWriter)
    opener: ClassVar[str]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Folder of the shelf; not created yet."""
        return tmp_path / "shelf"

    @pytest.fixture
    def shelf(self, folder: Path) -> Shelf:
        """Return a prepared shelf."""
        shelf = self.open(folder)
        shelf.prepare()
        return shelf

    def open(self, folder: Path) -> Shelf:
        """Open the shelf in the folder, as another process would."""
        shelf: Shelf = opened(self.opener, folder)
        return shelf

    def test_a_missing_shelf_has_no_list_and_reading_creates_nothing(self, folder: Path) -> None:
        shelf = self.open(folder)
        assert (shelf.stamp(), shelf.listed()) == (None, None)
        with pytest.raises(OSError):  # noqa: PT011 - of any kind
            shelf.read("one")
        with pytest.raises(OSError), shelf.alone():  # noqa: PT011
            pass
        assert not folder.exists()

    def test_what_was_published_is_read_by_all(self, shelf: Shelf, folder: Path) -> None:
        other = self.open(folder)
        publish(shelf, one=b"abcdef" * 5_000, two=b"")
        assert contents(other) == {"one": b"abcdef" * 5_000, "two": b""}
        assert {*other.names()} == {"one", "two"}

    def test_the_stamp_changes_with_each_list_and_with_nothing_else(self, shelf: Shelf, folder: Path) -> None:
        other = self.open(folder)
        seen = {other.stamp()}
        for number in range(20):
            with shelf.alone() as writer:
                returned = writer.publish({"n": number % 2})
            assert other.stamp() == returned == shelf.stamp()
            seen.add(returned)
            with shelf.alone() as writer:
                writer.put(f"piece-{number}", b"x")
            assert other.stamp() == returned
        assert len(seen) == 21
        assert other.listed() == {"n": 1}

    def test_an_unlisted_piece_is_ignored_and_can_be_removed(self, shelf: Shelf, folder: Path) -> None:
        publish(shelf, one=b"1")
        with shelf.alone() as writer:
            writer.put("two", b"2", durable=True)
            assert shelf.read("two") == b"2"
            assert {*shelf.names()} == {"one", "two"}
        other = self.open(folder)
        assert contents(other) == {"one": b"1"}
        assert {*other.names()} == {"one", "two"}
        with other.alone() as writer:
            writer.remove(["two", "three"])
        assert {*shelf.names()} == {"one"}

    def test_what_was_removed_cannot_be_read(self, shelf: Shelf, folder: Path) -> None:
        words = b"the combination is 4711"
        publish(shelf, one=words, two=b"2")
        publish(shelf, two=b"2")
        with pytest.raises(OSError):  # noqa: PT011
            self.open(folder).read("one")
        assert contents(shelf) == {"two": b"2"}
        self.check_erased(folder, words)

    def test_a_cleared_shelf_is_empty_and_can_be_used_again(self, shelf: Shelf, folder: Path) -> None:
        publish(shelf, one=b"1")
        other = self.open(folder)
        before = other.stamp()
        shelf.clear()
        shelf.clear()
        assert (other.stamp(), other.listed()) == (None, None)
        shelf.prepare()
        publish(shelf, one=b"another")
        assert contents(other) == {"one": b"another"}
        assert other.stamp() != before

    def test_processes_that_change_the_list_at_once_lose_nothing(self, shelf: Shelf, folder: Path) -> None:
        publish(shelf)
        run_together(f"{_HERE}:add_many", self.opener, folder, [("a", 15), ("b", 15)])
        expected = {f"{which}-{number}": f"{number}".encode() for which in "ab" for number in range(15)}
        assert contents(shelf) == expected

    def test_a_kill_leaves_a_list_whose_pieces_are_whole_and_no_lock_behind(self, shelf: Shelf, folder: Path) -> None:
        killed_after(start(f"{_HERE}:publish_forever", self.opener, folder), 5)
        [(name, data)] = contents(shelf).items()
        assert data == name.encode() * _SIZE
        publish(shelf, last=b"1")
        assert {*shelf.names()} == {"last"}


def add_many(shelf: Shelf, which: str, count: str) -> None:
    """Add pieces to the list, one at a time."""
    for number in range(int(count)):
        with shelf.alone() as writer:
            writer.put(f"{which}-{number}", f"{number}".encode())
            writer.publish([*shelf.listed(), f"{which}-{number}"])


def publish_forever(shelf: Shelf) -> None:
    """Replace the one piece by another until killed; report each."""
    number = 0
    while True:
        publish(shelf, **{f"piece-{number}": f"piece-{number}".encode() * _SIZE})
        print(number, flush=True)
        number += 1
