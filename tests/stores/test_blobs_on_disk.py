"""Attachments as files: private, found when they were changed, and never through a link."""

from pathlib import Path

import pytest

from chatbot.stores.backend import ATTACHMENTS, Examination
from chatbot.stores.errors import DamagedFile, StoreError
from chatbot.stores.on_disk.place import FileBackend
from chatbot.stores.records import SessionRecord
from chatbot.stores.testing.backend_contract import record


def made(home: Path) -> tuple[FileBackend, Path]:
    backend = FileBackend(home)
    backend.sessions.begin(record(1))
    backend.sessions.publish(record(1))
    return backend, home / "sessions" / record(1).id / ATTACHMENTS


def test_an_attachment_is_a_private_file_that_goes_with_its_session(tmp_path: Path) -> None:
    backend, folder = made(tmp_path / "memory")
    name = backend.place_of(backend.sessions.ref(record(1).id)).blobs(ATTACHMENTS).put(b"a secret plan", ".txt")
    assert (folder / name).read_bytes() == b"a secret plan"
    assert (folder.stat().st_mode & 0o777, (folder / name).stat().st_mode & 0o777) == (0o700, 0o600)
    backend.sessions.delete(record(1).id)
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and b"secret plan" in each.read_bytes()]


def test_an_attachment_that_was_changed_is_refused_found_and_put_again(tmp_path: Path) -> None:
    backend, folder = made(tmp_path / "memory")
    blobs = backend.place_of(backend.sessions.ref(record(1).id)).blobs(ATTACHMENTS)
    name = blobs.put(b"photo", ".png")
    (folder / name).write_bytes(b"PHOTO")
    with pytest.raises(DamagedFile):
        blobs.read(name)
    wish = Examination(lambda id_, made, used: SessionRecord(id_, "chat", (), made, used), verify=True)
    assert [flaw for flaw in backend.examine(wish) if flaw.state == "bad" and name in flaw.message]
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
