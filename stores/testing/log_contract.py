"""The contract kit for engines: what `Log` and `Shelf` promise, between threads and processes, and when killed."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.log import LinePlace, Log, Shelf, ShelfWriter, Writing
from chatbot.stores.observation import Observation
from chatbot.stores.row_events import Event
from chatbot.stores.testing.processes import OpenerTests, kill_after, opened, run_together, start

_HERE = "chatbot.stores.testing.log_contract"
_SIZE = 20_000
_BEGIN = datetime(2026, 3, 4, tzinfo=UTC)


def row_id(number: int) -> str:
    """Return the id of the row of that number."""
    return str(UUID(int=(0x0190 << 112) | (7 << 76) | (8 << 60) | number))


def event(number: int, narrative: str = "") -> Event:
    """Return an event that adds the row of that number."""
    at = _BEGIN + timedelta(seconds=number)
    row = Observation(
        id=row_id(number),
        created_at=at,
        updated_at=at,
        title=f"title {number}",
        narrative=narrative,
        sensitivity="public",
    )
    return Event(kind="add", at=at, row=row)


def read(log: Log) -> list[tuple[LinePlace, str]]:
    """Return the place and row id of each new line, without lines that a kill left incomplete."""
    if log.is_replaced():
        log.start_again()
    found = []
    for place, line in log.read_new():
        with suppress(ValueError, KeyError):
            found.append((place, str(record_of(line)["row"]["id"])))
    return found


def write(log: Log, *events: Event) -> list[LinePlace]:
    """Read the log to its end, then add events."""
    with log.locked() as writing:
        read(log)
        places = [writing.append(each) for each in events]
        writing.release()
        writing.sync()
    return places


class LogContract(OpenerTests):
    """Tests of the contract of a `Log`."""

    promised_by = (Log, Writing)

    @pytest.fixture(autouse=True)
    def _close_at_end(self) -> Iterator[None]:
        self._opened: list[Log] = []
        yield
        for log in self._opened:
            log.close()

    def open(self, folder: Path) -> Log:
        """Open the log in the folder, as another process would; it is closed at the end of the test."""
        self._opened.append(opened(self.opener, folder))
        return self._opened[-1]

    def test_a_missing_log_is_empty_and_reading_creates_nothing(self, folder: Path) -> None:
        log = self.open(folder)
        assert (list(log.read_new()), log.position, log.is_replaced()) == ([], 0, False)
        log.close()
        assert not folder.exists()

    def test_what_was_appended_is_read_in_order_at_its_place(self, folder: Path) -> None:
        log, other = self.open(folder), self.open(folder)
        places = write(log, event(1), event(2))
        places += write(log, event(3, "with\nlines \U0001f99c"))
        assert places == sorted(set(places))
        assert read(other) == [(place, row_id(number)) for place, number in zip(places, (1, 2, 3), strict=True)]
        assert [other.event_at(place) for place in places] == [event(1), event(2), event(3, "with\nlines \U0001f99c")]
        assert read(other) == []
        assert read(log) == []  # our own lines count as read

    def test_reading_goes_on_behind_the_last_line_that_was_asked_for(self, folder: Path) -> None:
        log, other = self.open(folder), self.open(folder)
        write(log, event(1), event(2), event(3))
        reading = other.read_new()
        next(reading)
        next(reading)
        del reading
        assert [each for _, each in read(other)] == [row_id(2), row_id(3)]
        assert other.position == log.position

    def test_a_mark_is_resumed_by_another_process_and_only_what_is_new_is_read(self, folder: Path) -> None:
        log = self.open(folder)
        write(log, event(1), event(2))
        mark = log.mark()
        write(log, event(3))
        other = self.open(folder)
        assert other.resume(mark)
        assert [each for _, each in read(other)] == [row_id(3)]

    def test_a_rewrite_is_another_log_for_all_who_read_the_old_one(self, folder: Path) -> None:
        log, other = self.open(folder), self.open(folder)
        places = write(log, event(1), event(2, "goes"), event(3))
        read(other)
        mark = other.mark()
        gone = places[1][0]

        def change(line: bytes, begin: int) -> bytes | None:
            return None if begin == gone else line

        with log.locked() as writing:
            moved = writing.rewrite(change, [event(4)])
        assert set(moved) == {places[0][0], places[2][0]}
        assert [log.event_at(moved[place[0]]) for place in (places[0], places[2])] == [event(1), event(3)]
        assert not log.is_replaced()
        assert read(log) == []
        assert other.is_replaced()
        assert [each for _, each in read(other)] == [row_id(1), row_id(3), row_id(4)]
        assert not self.open(folder).resume(mark)
        write(other, event(5))
        assert [each for _, each in read(log)] == [row_id(5)]

    def test_what_was_erased_is_given_to_nobody(self, folder: Path) -> None:
        log = self.open(folder)
        words = "the combination is 4711"
        places = write(log, event(1), event(2, words * 1_000), event(3))  # longer than what is written in its place
        purge = encode(Event(kind="purge", at=_BEGIN, ids=(row_id(2),)).as_json()).rstrip()

        def change(line: bytes, begin: int) -> bytes:
            return purge if begin == places[1][0] else line

        with log.locked() as writing:
            writing.rewrite(change)
        log.close()
        log = self.open(folder)
        assert not any(words.encode() in line for _, line in log.read_new())
        self.check_erased(folder, words.encode())

    def test_who_writes_is_alone(self, folder: Path) -> None:
        is_in = threading.Event()

        def enter() -> None:
            with self.open(folder).locked():
                is_in.set()

        waiting = threading.Thread(target=enter)
        with self.open(folder).locked():
            waiting.start()
            assert not is_in.wait(0.05)
        waiting.join()
        assert is_in.is_set()

    def test_who_reads_waits_for_no_writer(self, folder: Path) -> None:
        log, found = self.open(folder), list[Event]()
        [place] = write(log, event(1))
        reading = threading.Thread(target=lambda: found.append(log.event_at(place)))
        with log.locked():
            reading.start()
            reading.join(20)
            assert found == [event(1)]

    def test_processes_that_append_at_once_lose_nothing_and_share_no_place(self, folder: Path) -> None:
        run_together(f"{_HERE}:append_many", self.opener, folder, [(1, 25), (2, 25)])
        log = self.open(folder)
        found = read(log)
        assert sorted(each for _, each in found) == [row_id(n * 1000 + k) for n in (1, 2) for k in range(25)]
        assert [place for place, _ in found] == sorted({place for place, _ in found})

    @pytest.mark.parametrize("after", [1, 7, 20])
    def test_a_kill_loses_nothing_that_was_durable_and_the_next_append_is_whole(self, folder: Path, after: int) -> None:
        reported = kill_after(start(f"{_HERE}:append_and_report", self.opener, folder), after)
        log = self.open(folder)
        write(log, event(999_999))
        log.start_again()
        found = [each for _, each in read(log)]
        assert found[: len(reported)] == reported
        assert found[-1] == row_id(999_999)
        assert len(found) - 1 - len(reported) <= 1  # written, but not reported yet

    def test_a_kill_in_a_rewrite_leaves_the_old_log_or_the_new_one(self, folder: Path) -> None:
        log = self.open(folder)
        write(log, *map(event, range(200)))
        log.close()
        kill_after(start(f"{_HERE}:rewrite_forever", self.opener, folder), 3)
        log = self.open(folder)
        write(log, event(999))
        log.start_again()
        found = [each for _, each in read(log)]
        kept = [row_id(number) for number in range(200)]
        assert found[-1] == row_id(999)
        assert [each for each in found if each in kept] == kept


def append_many(log: Log, worker: str, times: str) -> None:
    """Append rows one at a time, reading the others' lines before each."""
    for number in range(int(times)):
        with log.locked() as writing:
            read(log)
            writing.append(event(int(worker) * 1000 + number))
            writing.release()
            writing.sync()
    log.close()


def append_and_report(log: Log) -> None:
    """Append rows until killed; report each once it is durable."""
    for number in count():
        write(log, event(number, "x" * 5_000))
        print(row_id(number), flush=True)


def rewrite_forever(log: Log) -> None:
    """Rewrite the log until killed, changing nothing."""
    while True:
        with log.locked() as writing:
            read(log)
            writing.rewrite(lambda line, _: line)
        print("rewritten", flush=True)


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


class ShelfContract(OpenerTests):
    """Tests of the contract of a `Shelf`."""

    promised_by = (Shelf, ShelfWriter)

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
        kill_after(start(f"{_HERE}:publish_forever", self.opener, folder), 5)
        [(name, data)] = contents(shelf).items()
        assert data == name.encode() * _SIZE
        publish(shelf, last=b"1")
        assert {*shelf.names()} == {"last"}


def add_many(shelf: Shelf, which: str, times: str) -> None:
    """Add pieces to the list, one at a time."""
    for number in range(int(times)):
        with shelf.alone() as writer:
            writer.put(f"{which}-{number}", f"{number}".encode())
            writer.publish([*shelf.listed(), f"{which}-{number}"])


def publish_forever(shelf: Shelf) -> None:
    """Replace the one piece by another until killed; report each."""
    for number in count():
        publish(shelf, **{f"piece-{number}": f"piece-{number}".encode() * _SIZE})
        print(number, flush=True)
