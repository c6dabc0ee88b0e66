"""The contract kit for backends: what a `Place` and a `Backend` promise, between processes, and when killed."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from msgspec.structs import replace

from chatbot.stores.backend import Backend, Blobs, Document, Lease, Lines, Place, RecordWriter, Sessions, blob_name
from chatbot.stores.errors import MissingFolder, StoreError, UnsafePath
from chatbot.stores.records import SessionRecord
from chatbot.stores.testing.processes import OpenerTests, kill_after, opened, run_together, start

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
_HERE = "chatbot.stores.testing.backend_contract"


def session_id(number: int) -> str:
    """Return the id of the session of that number."""
    return str(UUID(int=(0x0191 << 112) | (7 << 76) | (8 << 60) | number))


def record(number: int, **fields: Any) -> SessionRecord:
    """Return the record of a session; each number has another time."""
    at = NOW + timedelta(minutes=number)
    return replace(SessionRecord(session_id(number), "chat", ("basic_session",), at, at), **fields)


def make(backend: Backend, *numbers: int, **fields: Any) -> list[SessionRecord]:
    """Create and publish the sessions of these numbers; return their records."""
    records = [record(number, **fields) for number in numbers]
    for each in records:
        backend.sessions.begin(each)
        backend.sessions.publish(each)
    return records


class PlaceContract(OpenerTests):
    """Tests of the contract of a `Place`."""

    promised_by = (Place, Lines, RecordWriter, Document, Lease, Blobs, Backend, Sessions)
    processes: ClassVar[bool] = True
    """True if another process sees what this one has written."""
    lapses_within_s: ClassVar[float] = 0.0
    """How long a lease may outlive a process that was killed."""

    @pytest.fixture
    def place(self, folder: Path) -> Any:
        """The place that is tested."""
        return opened(self.opener, folder)

    @pytest.fixture
    def shared(self, folder: Path) -> Path:
        """The folder, for tests with several processes; skips them if `processes` is False."""
        if not self.processes:
            pytest.skip("no other process sees this data")
        return folder

    def again(self, folder: Path, place: Any) -> Any:
        """Return the same place, as another process opens it."""
        return opened(self.opener, folder) if self.processes else place

    def test_what_nobody_wrote_is_empty_and_reading_makes_nothing(self, place: Place, folder: Path) -> None:
        lines, document = place.lines("receipts"), place.document("state.json")
        assert (lines.all(), list(lines.newest_first()), document.read()) == ([], [], None)
        assert (lines.since(None).records, lines.holds("id", ["x"])) == ([], False)
        assert not [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]

    def test_lines_keep_their_order_and_every_text(self, place: Place, folder: Path) -> None:
        records: list[dict[str, Any]] = [
            {"n": 1},
            {"text": "a\nb\u2028c \0 🦜"},
            {"deep": {"list": [1, None, True, 0.5]}},
        ]
        place.lines("usage").append(records[:2])
        place.lines("usage").append(records[2:])
        lines = self.again(folder, place).lines("usage")
        assert lines.all() == records
        assert list(lines.newest_first()) == records[::-1]
        assert place.lines("others").all() == []

    def test_only_what_is_new_is_read_and_everything_after_a_rewrite(self, place: Place, folder: Path) -> None:
        lines, others = place.lines("usage"), self.again(folder, place).lines("usage")
        lines.append([{"n": number} for number in range(3)])
        reading = others.since(None)
        assert ([each["n"] for each in reading.records], reading.starts_over) == ([0, 1, 2], True)
        mark = reading.mark
        assert others.since(mark).records == []
        lines.append([{"n": 3}])
        reading = others.since(mark)
        assert ([each["n"] for each in reading.records], reading.starts_over) == ([3], False)
        lines.rewrite(lambda each: None if each["n"] % 2 else each)
        reading = others.since(reading.mark)
        assert ([each["n"] for each in reading.records], reading.starts_over) == ([0, 2], True)

    def test_a_concurrent_reader_misses_nothing(self, place: Place) -> None:
        def write() -> None:
            for number in range(0, 300, 3):
                place.lines("usage").append([{"n": number + each, "text": list("text")} for each in range(3)])

        found: list[int] = []
        mark, is_over = None, False
        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            while not is_over:
                is_written = writing.done()
                reading = place.lines("usage").since(mark)
                mark, is_over = reading.mark, is_written and not reading.records
                found += [each["n"] for each in reading.records]
        assert found == list(range(300))

    def test_a_rewrite_changes_drops_and_leaves_the_rest(self, place: Place) -> None:
        lines = place.lines("receipts")
        lines.append([{"n": 1, "text": "keep"}, {"n": 2, "text": "change"}, {"n": 3, "text": "drop"}])

        def change(each: dict[str, Any]) -> dict[str, Any] | None:
            return {"change": each | {"text": "changed"}, "drop": None}.get(each["text"], each)

        lines.rewrite(change)
        assert [each["text"] for each in lines.all()] == ["keep", "changed"]
        lines.rewrite(lambda each: each | {"text": "seen"}, holding=["keep"])
        assert [each["text"] for each in lines.all()] == ["seen", "changed"]
        assert lines.holds("text", ["other", "seen"])
        assert not lines.holds("n", ["seen"])

    def test_who_is_alone_decides_on_what_is_there(self, place: Place) -> None:
        """Each thread adds the number of lines that it found: no number occurs twice."""

        def add(_: int) -> None:
            lines = place.lines("numbers")
            with lines.alone() as writer:
                writer.append([{"n": len(lines.all())}])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(20)))
        assert [each["n"] for each in place.lines("numbers").all()] == list(range(20))

    def test_a_document_is_replaced_as_a_whole_and_seen_at_once(self, place: Place, folder: Path) -> None:
        def fail(_: bytes | None) -> bytes:
            raise LookupError

        document, other = place.document("tokens.json"), self.again(folder, place).document("tokens.json")
        assert document.change(lambda before: b"first" if before is None else b"wrong") == b"first"
        assert other.read() == b"first"
        assert other.change(lambda before: (before or b"") + b" second") == b"first second"
        with pytest.raises(LookupError):
            document.change(fail)
        assert document.read() == b"first second"
        assert document.read() is document.read()

    def test_threads_that_change_a_document_lose_no_change(self, place: Place) -> None:
        def add(_: int) -> None:
            place.document("count").change(lambda before: str(int(before or 0) + 1).encode())

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(40)))
        assert place.document("count").read() == b"40"

    def test_a_blob_is_kept_once_under_a_name_of_its_content(self, place: Place, folder: Path) -> None:
        blobs, other = place.blobs("attachments"), self.again(folder, place).blobs("attachments")
        assert (blobs.sizes(), blobs.read(blob_name(b"x"))) == ({}, None)
        photo = bytes(range(256)) * 1_000
        names = [blobs.put(photo, ".png"), blobs.put(b"", ".txt"), other.put(photo, ".png"), blobs.put(b"line\r\n\0")]
        assert names == [blob_name(photo, ".png"), blob_name(b"", ".txt"), names[0], blob_name(b"line\r\n\0")]
        assert other.sizes() == dict(sorted({names[0]: len(photo), names[1]: 0, names[3]: 7}.items()))
        assert [other.read(name) for name in names] == [photo, b"", photo, b"line\r\n\0"]
        assert place.blobs("others").sizes() == {}

    def test_a_blob_that_was_dropped_is_gone_and_may_come_back(self, place: Place, folder: Path) -> None:
        blobs, other = place.blobs("attachments"), self.again(folder, place).blobs("attachments")
        blobs.drop(blob_name(b"never there"))
        kept, dropped = blobs.put(b"keep"), blobs.put(b"drop")
        other.drop(dropped)
        other.drop(dropped)
        assert (blobs.sizes(), blobs.read(dropped)) == ({kept: 4}, None)
        assert other.read(blobs.put(b"drop")) == b"drop"

    @pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "a" * 31, "a" * 32 + ".PNG", "a" * 32 + "./x"])
    def test_what_is_not_the_name_of_a_blob_is_refused(self, place: Place, name: str) -> None:
        blobs = place.blobs("attachments")
        for use in (blobs.read, blobs.drop):
            with pytest.raises(UnsafePath):
                use(name)
        with pytest.raises(UnsafePath):
            blobs.put(b"data", "/../x")

    def test_a_lease_is_held_by_one_until_any_thread_releases_it(self, place: Place, folder: Path) -> None:
        lease, other = place.lease("turn"), self.again(folder, place).lease("turn")
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(lease.take).result()
        assert not other.take()
        assert place.lease("another").take()
        other.release()  # it is not theirs
        assert not other.take()
        lease.release()
        lease.release()
        assert other.take()
        other.release()

    @pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd", "A", "a b", "x" * 100])
    def test_a_name_never_leads_elsewhere(self, place: Place, name: str) -> None:
        if self.processes:
            for find in (place.lines, place.document, place.lease, place.blobs):
                with pytest.raises(StoreError):
                    find(name)

    def test_processes_that_write_at_once_lose_nothing(self, shared: Path) -> None:
        run_together(f"{_HERE}:write_many", self.opener, shared, [(1, 25), (2, 25), (3, 25)])
        place: Place = opened(self.opener, shared)
        found = [(each["worker"], each["n"]) for each in place.lines("usage").all()]
        assert sorted(found) == [(worker, n) for worker in "123" for n in range(25)]
        assert [n for worker, n in found if worker == "2"] == list(range(25))
        assert place.document("count").read() == b"75"

    @pytest.mark.parametrize("after", [1, 9, 25])
    def test_a_kill_loses_nothing_that_was_durable(self, shared: Path, after: int) -> None:
        reported = kill_after(start(f"{_HERE}:write_and_report", self.opener, shared), after)
        place: Place = opened(self.opener, shared)
        place.lines("usage").append([{"n": -1}])
        lines = place.lines("usage").all()
        found = [each["n"] for each in lines]
        assert found[: len(reported)] == list(map(int, reported))
        assert found[-1] == -1
        assert all(each["filler"] == _filler(each["n"]) for each in lines[:-1])
        assert len(found) - 1 - len(reported) <= 1
        assert int(place.document("count").read() or 0) in {len(reported) - 1, len(reported), len(reported) + 1}

    def test_a_lease_ends_with_the_process_that_held_it(self, shared: Path) -> None:
        holder = start(f"{_HERE}:hold", self.opener, shared)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        lease = opened(self.opener, shared).lease("turn")
        assert not lease.take()
        kill_after(holder, 0)
        give_up = time.monotonic() + self.lapses_within_s
        while not (is_free := lease.take()) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert is_free
        lease.release()


class BackendContract(PlaceContract):
    """Tests of the contract of a `Backend`."""

    def test_a_session_is_there_with_its_blobs_once_it_is_published(self, place: Backend, folder: Path) -> None:
        sessions = place.sessions
        photo = place.place_of(sessions.begin(record(1))).blobs("attachments").put(b"photo", ".png")
        assert sessions.find(lambda _: True) == []
        assert sessions.ids() == []
        with pytest.raises(MissingFolder):
            sessions.get(session_id(1))
        sessions.publish(record(1))
        other = self.again(folder, place)
        assert other.sessions.get(session_id(1)) == record(1)
        assert other.sessions.glance(session_id(1)) in {None, record(1)}
        assert other.sessions.find(lambda _: True) == [record(1)]
        assert other.sessions.ids() == [session_id(1)]
        assert other.place_of(other.sessions.ref(session_id(1))).blobs("attachments").read(photo) == b"photo"

    def test_a_session_that_was_abandoned_or_never_finished_blocks_nobody(self, place: Backend, folder: Path) -> None:
        """A process that continues after a killed one creates the same session again."""
        place.sessions.begin(record(1))
        place.sessions.abandon(session_id(1))
        place.sessions.begin(record(1))
        assert place.sessions.ids() == []
        other = self.again(folder, place)
        make(other, 1)
        assert other.sessions.get(session_id(1)) == record(1)

    def test_sessions_come_in_the_order_of_their_last_use(self, place: Backend, folder: Path) -> None:
        make(place, 1, 2, 3)
        place.sessions.note_used(session_id(1), NOW + timedelta(hours=1))
        place.sessions.change(session_id(2), lambda each: replace(each, pinned_at=NOW))  # no use
        place.sessions.change(session_id(1), lambda each: replace(each, archived_at=NOW))

        def found(backend: Backend, *limit: int, after_id: str | None = None) -> Sequence[str]:
            return [each.id for each in backend.sessions.find(lambda _: True, *limit, after_id=after_id)]

        for each in (place, self.again(folder, place)):
            assert found(each) == [session_id(number) for number in (1, 3, 2)]
            assert found(each, 2) == [session_id(1), session_id(3)]
            assert found(each, after_id=session_id(1)) == [session_id(3), session_id(2)]
            used_last = each.sessions.find(lambda _: True, 1)[0]
            assert (used_last.used_at, used_last.archived_at) == (NOW + timedelta(hours=1), NOW)
        wanted = place.sessions.find(lambda each: each.id != session_id(3))
        assert [each.id for each in wanted] == [session_id(1), session_id(2)]

    def test_a_change_is_seen_by_all_and_no_other_is_lost(self, place: Backend, folder: Path) -> None:
        make(place, 1, 2)
        backends = [place, self.again(folder, place)]

        def add(number: int) -> None:
            backends[number % 2].sessions.change(
                session_id(1), lambda before: replace(before, title=before.title + str(number % 10))
            )

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(20)))
        assert len(place.sessions.get(session_id(1)).title) == 20
        assert place.sessions.find(lambda each: each.id == session_id(1)) == [place.sessions.get(session_id(1))]
        assert place.sessions.get(session_id(2)).title == ""

    def test_a_deleted_session_is_gone_with_all_that_is_kept_of_it(self, place: Backend, folder: Path) -> None:
        make(place, 1, title="forget this title")
        make(place, 2)
        ref = place.sessions.ref(session_id(1))
        place.place_of(ref).lines("receipts").append([{"said": "forget this"}])
        photo = place.place_of(ref).blobs("attachments").put(b"forget this too", ".txt")
        fork = place.place_of(place.sessions.begin(record(3, parent=ref.id)))  # whose process was killed
        fork.lines("receipts").append([{"said": "forget this"}])
        place.sessions.delete(session_id(1))
        place.sessions.drop_former()
        self.check_erased(folder, b"forget this")

        def uses_of(backend: Backend) -> list[Callable[[], object]]:
            return [
                lambda: backend.sessions.get(ref.id),
                lambda: backend.sessions.delete(ref.id),
                lambda: backend.sessions.change(ref.id, lambda before: before),
                lambda: backend.place_of(ref).lines("receipts").append([{"said": "again"}]),
                lambda: backend.place_of(ref).lease("turn").take(),
                lambda: backend.place_of(ref).blobs("attachments").put(b"again"),
                *([lambda: fork.lines("receipts").append([{"said": "again"}])] if self.processes else []),
            ]

        for each in (place, self.again(folder, place)):
            assert each.sessions.ids() == [session_id(2)]
            for use in uses_of(each):
                with pytest.raises(MissingFolder):
                    use()
        make(place, 1)
        anew = place.place_of(place.sessions.ref(session_id(1)))
        assert (anew.lines("receipts").all(), anew.blobs("attachments").read(photo)) == ([], None)

    def test_what_is_no_id_of_a_session_is_no_session(self, place: Backend) -> None:
        sessions = place.sessions
        for text in ("../../etc", "", session_id(9), "x", "\0", "\ud800"):
            for use in (sessions.get, sessions.delete, lambda each: sessions.change(each, lambda before: before)):
                with pytest.raises(MissingFolder):
                    use(text)

    def test_each_session_has_a_place_of_its_own(self, place: Backend, folder: Path) -> None:
        make(place, 1, 2)
        one, two = (place.place_of(place.sessions.ref(session_id(number))) for number in (1, 2))
        one.lines("receipts").append([{"of": "one"}])
        two.lines("receipts").append([{"of": "two"}])
        place.lines("receipts").append([{"of": "all"}])
        other = self.again(folder, place)
        assert other.place_of(other.sessions.ref(session_id(1))).lines("receipts").all() == [{"of": "one"}]
        assert one.lease("turn").take()
        assert two.lease("turn").take()
        one.lease("turn").release()

    def test_closing_twice_is_no_error(self, place: Backend) -> None:
        make(place, 1)
        place.sessions.tidy()
        place.close()
        place.close()

    def test_processes_that_make_and_delete_sessions_agree(self, shared: Path) -> None:
        run_together(f"{_HERE}:make_sessions", self.opener, shared, [(100, 10), (200, 10)])
        backend: Backend = opened(self.opener, shared)
        left = sorted(session_id(n * 100 + k) for n in (1, 2) for k in range(10) if k % 3)
        assert sorted(backend.sessions.ids()) == left
        assert sorted(each.id for each in backend.sessions.find(lambda _: True)) == left

    @pytest.mark.parametrize("after", [1, 5])
    def test_a_kill_leaves_whole_sessions_alone(self, shared: Path, after: int) -> None:
        reported = kill_after(start(f"{_HERE}:make_and_report", self.opener, shared), after)
        backend: Backend = opened(self.opener, shared)
        found = sorted(backend.sessions.ids())
        assert found[: len(reported)] == reported
        assert len(found) <= len(reported) + 1
        assert sorted(each.id for each in backend.sessions.find(lambda _: True)) == found
        assert [backend.sessions.get(each).agent_id for each in found] == ["chat"] * len(found)


def write_many(place: Place, worker: str, times: str) -> None:
    """Add lines and increase a number, that many times."""
    for number in range(int(times)):
        place.lines("usage").append([{"worker": worker, "n": number}])
        place.document("count").change(lambda before: str(int(before or 0) + 1).encode())


def write_and_report(place: Place) -> None:
    """Add lines until killed; report each once it is durable."""
    for number in count():
        place.lines("usage").append([{"n": number, "filler": _filler(number)}])
        place.document("count").change(lambda before: str(int(before or 0) + 1).encode())
        print(number, flush=True)


def _filler(number: int) -> str:
    return "x" * (4_096 << number % 9)


def hold(place: Place) -> None:
    """Hold a lease until killed."""
    lease = place.lease("turn")
    assert lease.take()
    print("held", flush=True)
    threading.Event().wait()


def make_sessions(backend: Backend, first: str, times: str) -> None:
    """Create sessions, and delete every third of them."""
    for number in range(int(times)):
        [made] = make(backend, int(first) + number)
        if number % 3 == 0:
            backend.sessions.delete(made.id)


def make_and_report(backend: Backend) -> None:
    """Create sessions until killed; report each once it is durable."""
    for number in count():
        make(backend, number)
        print(session_id(number), flush=True)
