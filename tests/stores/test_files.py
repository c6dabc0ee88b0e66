"""Durable files: private, contained, whole, locked; lines and attachments; and what the system's refusals become."""

import logging
import os
import resource
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from chatbot.stores import json_lines
from chatbot.stores.backend import ATTACHMENTS, Examination
from chatbot.stores.errors import DamagedFile, MissingFolder, StoreBusy, StoreError, StoreFailed, UnsafePath
from chatbot.stores.files import below, locked, make_folder, opened, path_inside, stamp
from chatbot.stores.on_disk.place import FileBackend, FilePlace
from chatbot.stores.records import LONGEST_CONTENT, SessionRecord
from chatbot.stores.testing.backend_contract import record
from tests.effort import rounds

WISH = Examination(lambda each, made, used: SessionRecord(each, "chat", (), made, used))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    make_folder(path)
    return path


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def churn(folder: Path) -> Iterator[Path]:
    """A folder in which folders come and go all the time."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            for name in "abcdefgh":
                (folder / name / "inner").mkdir(parents=True, exist_ok=True)
                (folder / name / "inner" / "file").write_bytes(b"x")
            for name in "abcdefgh":
                shutil.rmtree(folder / name)

    (folder / "stays").write_bytes(b"1234567")
    thread = threading.Thread(target=work)
    thread.start()
    yield folder
    ended.set()
    thread.join()


def test_what_comes_and_goes_meanwhile_hinders_nobody_who_looks(churn: Path) -> None:
    for _ in range(rounds(300, least=60)):
        assert churn / "stays" in set(below(churn))
        assert all(flaw.state == "ok" for flaw in FileBackend(churn).examine(WISH) if flaw.subject == "links")


def test_files_and_folders_are_private_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(folder / "a" / "b")
        with locked(folder) as opened_folder:
            opened_folder.append("lines", b"x\n")
            opened_folder.replace("whole", b"x")
    finally:
        os.umask(before)
    assert [_mode(folder / name) for name in ("a", "a/b")] == [0o700, 0o700]
    assert [_mode(folder / name) for name in ("lines", "whole", ".lock")] == [0o600] * 3


@pytest.mark.parametrize("name", ["../out", "a/b", "..", ".", "", "/etc/passwd"])
def test_a_name_cannot_leave_its_folder(folder: Path, name: str) -> None:
    with pytest.raises(UnsafePath), locked(folder) as opened_folder:
        opened_folder.replace(name, b"x")
    with pytest.raises(UnsafePath):
        path_inside(folder, name)


def test_a_link_that_stays_inside_is_followed_one_that_leaves_is_not(folder: Path, tmp_path: Path) -> None:
    (folder / "real").mkdir()
    (folder / "inside").symlink_to(folder / "real")
    (folder / "leaves").symlink_to(tmp_path)
    assert path_inside(folder, "inside") == folder / "inside"
    with pytest.raises(UnsafePath):
        path_inside(folder, "leaves")


def test_replacing_sweeps_what_a_killed_writer_left(folder: Path) -> None:
    stray = folder / ".kv.json.123-abcd.tmp"
    stray.write_bytes(b"half")
    other = folder / ".other.json.123-abcd.tmp"
    other.write_bytes(b"not mine")
    with locked(folder) as opened_folder:
        opened_folder.replace("kv.json", b"whole")
    assert not stray.exists()
    assert other.exists()
    assert (folder / "kv.json").read_bytes() == b"whole"


def test_the_stamp_of_a_file_that_just_changed_is_not_trusted(folder: Path) -> None:
    def is_settled() -> bool:
        opened_folder.replace("file", b"one")
        before = stamp(folder / "file")
        assert before is not None
        return before.is_settled()

    with locked(folder) as opened_folder:
        # It is too young to be trusted, should the inode be used again; some are looked at late on a busy machine.
        assert not all(is_settled() for _ in range(50))
    assert stamp(folder / "absent") is None


def test_whoever_waits_for_a_lock_gives_up_in_time(folder: Path) -> None:
    with locked(folder), pytest.raises(StoreBusy, match="folder"), locked(folder, timeout_s=0.05):
        pass


def test_a_replacement_that_cannot_take_its_place_names_the_file(folder: Path) -> None:
    (folder / "whole").mkdir()
    with locked(folder) as opened_folder, pytest.raises(IsADirectoryError, match="directory: 'whole'"):
        opened_folder.replace("whole", b"new")


def test_a_really_full_file_system_is_refused_with_its_own_words(small_disk: Path) -> None:
    with locked(small_disk) as opened_folder:
        opened_folder.append("lines", b"kept\n")
        with pytest.raises(OSError, match="No space left"):
            opened_folder.append("lines", b"x" * 400_000)
        with pytest.raises(OSError, match="No space left on device: 'whole'"):
            opened_folder.replace("whole", b"x" * 400_000)
        opened_folder.append("lines", b"kept too\n")
    assert (small_disk / "lines").read_bytes() == b"kept\nkept too\n"
    assert sorted(path.name for path in small_disk.iterdir()) == [".lock", "lines"]


def test_without_a_free_descriptor_storage_is_busy_and_no_lease_counts_as_taken(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(StoreBusy, match="ulimit"):
            FilePlace(folder).lease("turn").take()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("kind", ["a link", "a folder", "a pipe", "a pipe that someone reads"])
def test_what_is_no_regular_file_is_refused_by_name_and_never_awaited(folder: Path, tmp_path: Path, kind: str) -> None:
    path, outside = folder / "lines", tmp_path / "outside"
    outside.write_bytes(b"mine")
    make = {"a link": lambda: path.symlink_to(outside), "a folder": path.mkdir}
    make.get(kind, lambda: os.mkfifo(path))()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if kind == "a pipe that someone reads" else None
    try:
        with pytest.raises(UnsafePath, match=r"lines is (a link|not a regular file)"), opened(folder) as opened_folder:
            opened_folder.read("lines")
        with pytest.raises((UnsafePath, StoreFailed), match="lines"), locked(folder) as opened_folder:
            opened_folder.append("lines", b"x")
    finally:
        if reader is not None:
            os.close(reader)
    assert outside.read_bytes() == b"mine"


@pytest.mark.parametrize("fate", ["renamed", "replaced", "deleted"])
def test_a_lock_is_refused_when_the_folder_went_between_opening_and_locking(folder: Path, fate: str) -> None:
    with opened(folder) as opened_folder:
        folder.rmdir() if fate == "deleted" else folder.rename(folder.with_name("elsewhere"))
        if fate == "replaced":
            folder.mkdir()
        with pytest.raises((MissingFolder, FileNotFoundError)):
            opened_folder.lock(1)
    assert fate != "replaced" or list(folder.iterdir()) == []


NAME = "lines.jsonl"


def _append(folder: Path, *records: Mapping[str, object]) -> None:
    with locked(folder) as opened_folder:
        for record in records:
            opened_folder.append(NAME, json_lines.encode(record))


def _both_ways(folder: Path) -> list[dict[str, object]]:
    with opened(folder) as opened_folder:
        forwards = list(json_lines.readable(opened_folder.read(NAME).split(b"\n"), NAME))
        assert list(json_lines.read_backwards(opened_folder, NAME)) == forwards[::-1]
    return forwards


def test_a_line_that_is_skipped_is_reported_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / NAME).write_bytes(b'{"n":1}\n{"n"\n')
    with opened(folder) as opened_folder:
        assert [*json_lines.read_backwards(opened_folder, NAME)] == [*json_lines.read_backwards(opened_folder, NAME)]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("off", range(-2, 3))
def test_a_line_that_ends_near_the_border_of_a_chunk_is_read_whole(tmp_path: Path, off: int) -> None:
    small, long = {"n": 1}, {"x": "".join(map(str, range(20_000)))}  # which several chunks hold
    filler = {"x": "y" * (16 * 1024 - len(json_lines.encode({"x": ""})) - len(json_lines.encode(small)) + off)}
    _append(tmp_path, {"first": 0}, long, filler, small, filler, small)
    assert _both_ways(tmp_path) == [{"first": 0}, long, filler, small, filler, small]


@pytest.mark.nightly
def test_a_receipt_that_quotes_the_longest_message_is_read(tmp_path: Path) -> None:
    _append(tmp_path, receipt := {"query": "🦜" * LONGEST_CONTENT}, {"n": 1})
    assert _both_ways(tmp_path) == [receipt, {"n": 1}]


@pytest.mark.parametrize("garbage", [b"{", b"5", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} {"b": 2}'])
def test_garbage_is_skipped_and_reported(tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).write_bytes(b'{"n": 1}\n' + garbage + b'\n{"n": 2}\n')
    with caplog.at_level(logging.WARNING):
        assert _both_ways(tmp_path) == [{"n": 1}, {"n": 2}]
    assert NAME in caplog.text


def test_a_line_without_an_end_is_not_read_until_memory_is_full(tmp_path: Path) -> None:
    _append(tmp_path, {"n": 1})
    os.truncate(tmp_path / NAME, 50 << 30)
    with opened(tmp_path) as folder, pytest.raises(DamagedFile, match=NAME):
        list(json_lines.read_backwards(folder, NAME))


def test_cut_anywhere_every_whole_record_survives_and_the_next_one_too(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"n": number, "text": "é🦜\n"} for number in range(3)]
    data = b"".join(map(json_lines.encode, records))
    for length in range(len(data) + 1):
        (tmp_path / NAME).write_bytes(data[:length] + bytes(length % 2 * 5_000))  # zeros after a power cut
        _append(tmp_path, {"next": True})
        assert b"\0" not in (tmp_path / NAME).read_bytes()
        whole = data[:length].count(b"\n") + (data[length : length + 1] == b"\n")
        assert _both_ways(tmp_path) == [*records[:whole], {"next": True}], length


def test_reading_backwards_keeps_to_the_file_it_began_with(tmp_path: Path) -> None:
    lines = [b'{"n": %d}' % number for number in range(10_000)]
    (tmp_path / NAME).write_bytes(b"\n".join(lines))
    with opened(tmp_path) as folder:
        backwards = json_lines.lines_backwards(folder, NAME)
        first = next(backwards)
        folder.replace(NAME, b"another\n" * 3)
        folder.remove(NAME)
        assert [first, *backwards] == lines[::-1]
        assert list(json_lines.lines_backwards(folder, NAME)) == []


def test_lines_that_were_rewritten_in_a_file_of_the_same_inode_are_all_read_again(tmp_path: Path) -> None:
    lines = FileBackend(tmp_path).lines("usage")
    lines.append([{"n": 1}])
    mark = lines.since(None).mark
    (tmp_path / "usage.jsonl").write_bytes(b"".join(json_lines.encode({"n": number}) for number in (2, 3, 4)))
    reading = lines.since(mark)
    assert (reading.records, reading.starts_over) == ([{"n": 2}, {"n": 3}, {"n": 4}], True)
    lines.append([{"n": 5}])
    assert lines.since(reading.mark).records == [{"n": 5}]


def made(home: Path) -> tuple[FileBackend, Path]:
    backend = FileBackend(home)
    backend.sessions.begin(record(1))
    backend.sessions.publish(record(1))
    return backend, home / "sessions" / record(1).id / ATTACHMENTS


def test_an_attachment_that_was_changed_is_refused_found_and_put_again(tmp_path: Path) -> None:
    backend, folder = made(tmp_path / "memory")
    blobs = backend.place_of(backend.sessions.ref(record(1).id)).blobs(ATTACHMENTS)
    name = blobs.put(b"photo", ".png")
    (folder / name).write_bytes(b"PHOTO")
    with pytest.raises(DamagedFile):
        blobs.read(name)
    assert name in next(each.message for each in backend.examine(replace(WISH, verify=True)) if each.state == "bad")
    assert blobs.put(b"photo", ".png") == name
    assert blobs.read(name) == b"photo"


def test_a_link_in_place_of_the_folder_or_a_file_is_refused(tmp_path: Path) -> None:
    backend, folder = made(tmp_path / "memory")
    blobs = backend.place_of(backend.sessions.ref(record(1).id)).blobs(ATTACHMENTS)
    name = blobs.put(b"photo", ".png")
    (tmp_path / "outside").write_bytes(b"photo")
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError):
        blobs.read(name)
    (folder / name).unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    for use in (lambda: blobs.put(b"new"), lambda: blobs.read(name), blobs.sizes):
        with pytest.raises(StoreError):
            use()
