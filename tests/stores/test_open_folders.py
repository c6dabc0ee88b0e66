"""Folders that stay open: what is deleted, replaced or forked meanwhile, and how many there are."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.errors import MissingFolder, StoreBusy, UnsafePath
from chatbot.stores.files import locked
from chatbot.stores.open_folders import MOST, OpenFolders
from chatbot.stores.records import SessionRef
from chatbot.stores.testing.session_contract import entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def descriptors(folder: Path) -> int:
    """How many descriptors of this process lead into the folder, deleted files included."""
    links = Path(f"/proc/{os.getpid()}/fd")
    if not links.exists():
        pytest.skip("this system does not tell which descriptors are open")
    return sum(target.startswith(str(folder)) for target in map(_target, links.iterdir()))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # the one that lists the links
        return ""


def add(folders: OpenFolders, path: Path, line: bytes) -> None:
    with folders.locked(path) as folder:
        folder.append("lines", line)


def test_a_folder_that_stays_open_excludes_others_only_while_it_is_in_use(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    with locked(folder, timeout_s=0) as other:
        other.append("lines", b"2\n")
        with pytest.raises(StoreBusy), folders.locked(folder, timeout_s=0.01):
            pass
    with folders.locked(folder), pytest.raises(StoreBusy), OpenFolders().locked(folder, timeout_s=0.01):
        pass
    with folders.locked(folder), pytest.raises(StoreBusy), folders.locked(folder, timeout_s=0.01):
        pass
    add(folders, folder, b"3\n")
    assert (folder / "lines").read_bytes() == b"1\n2\n3\n"


@pytest.mark.parametrize("others", [b"", b"theirs\n"])
def test_a_file_that_was_replaced_is_opened_anew(folder: Path, others: bytes) -> None:
    folders = OpenFolders()
    add(folders, folder, b"lost with the old file\n")
    (folder / "draft").write_bytes(others)
    (folder / "draft").rename(folder / "lines")
    add(folders, folder, b"ours\n")
    assert (folder / "lines").read_bytes() == others + b"ours\n"
    assert descriptors(folder) == 3


def test_a_file_that_became_a_link_is_refused(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    (folder / "lines").rename(folder / "moved")
    (folder / "lines").symlink_to(folder / "moved")
    with pytest.raises(UnsafePath, match="lines is a link"):
        add(folders, folder, b"2\n")
    assert (folder / "moved").read_bytes() == b"1\n"


def test_a_lock_that_was_deleted_or_renamed_locks_out_nobody_and_is_made_anew(folder: Path) -> None:
    for get_rid in (Path.unlink, lambda lock: lock.rename(folder / "old lock")):
        folders = OpenFolders()
        add(folders, folder, b"1\n")
        get_rid(folder / ".lock")
        with locked(folder), pytest.raises(StoreBusy), folders.locked(folder, timeout_s=0.01):
            pass


def test_a_folder_that_was_replaced_is_opened_anew(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    shutil.copytree(folder, folder.with_name("copy"))
    folder.rename(folder.with_name("old"))
    folder.with_name("copy").rename(folder)
    add(folders, folder, b"2\n")
    assert (folder / "lines").read_bytes() == b"1\n2\n"
    assert (folder.with_name("old") / "lines").read_bytes() == b"1\n"


def test_a_folder_that_became_a_link_is_refused(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))
    with pytest.raises(UnsafePath, match="link"):
        add(folders, folder, b"2\n")


def test_a_folder_that_was_deleted_is_missed_and_let_go(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    shutil.rmtree(folder)
    with pytest.raises(MissingFolder, match="folder"):
        add(folders, folder, b"2\n")
    assert descriptors(folder) == 0


def test_an_error_leaves_nothing_open_and_nothing_locked(folder: Path) -> None:
    folders = OpenFolders()
    with pytest.raises(RuntimeError), folders.locked(folder):
        raise RuntimeError
    assert descriptors(folder) == 0
    with locked(folder, timeout_s=0):
        pass


def test_no_more_folders_stay_open_than_the_process_may_have(tmp_path: Path) -> None:
    some = [OpenFolders() for _ in range(10)]
    for number in range(60):
        (tmp_path / str(number)).mkdir()
        add(some[number % 10], tmp_path / str(number), b"1\n")
    assert descriptors(tmp_path) == MOST * 3
    assert [descriptors(tmp_path / name) for name in ("59", "1")] == [3, 0]
    del some
    assert descriptors(tmp_path) == 0


def test_a_folder_in_use_is_not_closed_under_its_user(folder: Path) -> None:
    folders = OpenFolders()
    with folders.locked(folder) as opened_folder:
        folders.close(folder)
        folders.close_all()
        opened_folder.append("lines", b"1\n")
    assert (folder / "lines").read_bytes() == b"1\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_shares_no_lock_with_its_parent(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with folders.locked(folder):
            os.write(theirs, b"x")
            signal.pause()
    try:
        assert os.read(ours, 1) == b"x"
        with pytest.raises(StoreBusy), folders.locked(folder, timeout_s=0.05):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ours)
        os.close(theirs)
    add(folders, folder, b"2\n")
    assert (folder / "lines").read_bytes() == b"1\n2\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_nothing_open_and_unlocks_nothing_of_its_parents(folder: Path) -> None:
    folders = OpenFolders()
    add(folders, folder, b"1\n")
    child = os.fork()
    if child == 0:
        os._exit(descriptors(folder))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert descriptors(folder) == 3


async def test_a_session_that_is_forgotten_and_a_store_that_is_closed_keep_nothing_open(tmp_path: Path) -> None:
    store = BasicSessionStore(tmp_path)
    sessions = [SessionRef(name, tmp_path / name) for name in ("a", "b")]
    for session in sessions:
        session.folder.mkdir()
        await store.transcript_append(session, [entry("said")])
    await store.forget_session(sessions[0])
    assert [descriptors(session.folder) for session in sessions] == [0, 3]
    await store.aclose()
    assert descriptors(tmp_path) == 0
