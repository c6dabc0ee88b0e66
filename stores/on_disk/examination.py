"""Examination of files: their permissions, remains of crashes, damaged lines and records. Blocking."""

import os
import secrets
import shlex
import stat
import string
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from chatbot.stores import files, transcript
from chatbot.stores.backend import ATTACHMENTS, Examination, Flaw, is_blob_name, is_content_of
from chatbot.stores.basic_session import KEY_VALUES_NAME, parse_key_values
from chatbot.stores.errors import MISFITS, DamagedFile, LaterFormat, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.json_lines import damage_of, encode, is_blank, record_of
from chatbot.stores.on_disk.session_index import NAME as INDEX_NAME
from chatbot.stores.on_disk.session_index import SESSION_NAME
from chatbot.stores.on_disk.sessions import STRAY_AFTER_S, FolderSessions, render
from chatbot.stores.records import SessionRecord, decode_record, is_id

ASIDE = "set-aside"
"""Folder in an identity's memory to which damaged folders are moved."""
_NAMED = 3
"""Maximum lines that a message describes."""

LineCheck = Callable[[bytes], object]
"""A function that raises one of `MISFITS` for an invalid line."""

_PLAIN = f"{string.ascii_letters}{string.digits}/._-".encode()

_Found = Mapping[Path, os.stat_result]


def examine(home: Path, sessions: FolderSessions, options: Examination) -> Iterator[Flaw]:
    """Examine everything below `home`, an identity's memory."""
    yield from _folders(home)
    yield from _sessions(home, sessions, options)
    for name, (subject, check) in options.subjects.items():
        yield from bad_lines(subject, home / f"{name}.jsonl", check, verify=options.verify)


def exposed(paths: Iterable[Path]) -> Iterator[Flaw]:
    """Examine permissions and owners of these files and folders; missing ones are skipped."""
    yield from _modes(dict(_there(paths)), needed=stat.S_IRUSR)


def unwritable(path: Path) -> OSError | None:
    """Return why nothing can be written below `path`, tried in the nearest folder that exists; leaves no trace."""
    try:
        folder = next(each for each in (path, *path.absolute().parents) if each.exists())
        before = folder.stat()
        trial = folder / f".doctor-{secrets.token_hex(8)}.tmp"
        try:
            trial.write_bytes(b"tried")  # on a full disk an empty file or folder could be made
        finally:
            trial.unlink(missing_ok=True)
        os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    except OSError as error:
        return error
    return None


def bad_lines(
    subject: str, path: Path, check: LineCheck = record_of, *, lock: str = files.LOCK_NAME, verify: bool = False
) -> Iterator[Flaw]:
    """Find damaged lines, and an incomplete last one, in a file; nothing if there is no such file.

    With `verify` each line is compared with its checksum; a readable line that was edited by hand is kept.
    """
    try:
        with files.opened(path.parent) as folder:
            data = folder.read(path.name, most=files.LARGEST_JOURNAL)
    except FileNotFoundError:
        return
    lines = data.split(b"\n")
    try:
        bad = [number for number, line in enumerate(lines, 1) if not _is_good(line, check)]
    except LaterFormat as error:
        yield Flaw(subject, "bad", f"{path}: {error}", is_later=True)
        return
    is_torn = bool(data) and not data.endswith(b"\n")
    if bad or is_torn:
        what = f"the last line of {path} is incomplete"
        if bad:
            what = f"{path} has {how_many(len(bad), 'damaged line')} (the first is line {bad[0]})"
        yield Flaw(subject, "bad", what, mend=partial(_remove_bad_lines, path, check, lock))
    if verify:
        yield from _changed_lines(subject, path, lines, set(bad), lock)


def _changed_lines(subject: str, path: Path, lines: list[bytes], bad: set[int], lock: str) -> Iterator[Flaw]:
    changed = [
        f"line {number}: {damage}{' (it cannot be read)' if number in bad else ''}"
        for number, line in enumerate(lines, 1)
        if not is_blank(line) and (damage := damage_of(line))
    ]
    if changed:
        others = f"; and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        what = f"{path} differs from its checksums, {'; '.join(changed[:_NAMED])}{others}: check it; it is kept"
        yield Flaw(subject, "bad" if bad else "note", what, mend=partial(_renew_checksums, path, lock))


def _renew_checksums(path: Path, lock: str) -> str:
    with files.locked(path.parent, name=lock) as folder:
        lines = folder.read(path.name, most=files.LARGEST_JOURNAL).split(b"\n")
        aside = _put_lines(folder, path.name, [_seal(line) for line in lines if line])
    return f"accepted as it is; a copy is kept as {aside}"


def _seal(line: bytes) -> bytes:
    try:
        return encode(record_of(line)).rstrip(b"\n") if damage_of(line) else line
    except ValueError:
        return line


def _remove_bad_lines(path: Path, check: LineCheck, lock: str) -> str:
    with files.locked(path.parent, name=lock) as folder:
        data = folder.read(path.name, most=files.LARGEST_JOURNAL)
        lines = [line for line in data.split(b"\n") if not is_blank(line)]
        aside = _put_lines(folder, path.name, [line for line in lines if _is_good(line, check)])
    return f"the damaged file is kept as {aside}"


def _is_good(line: bytes, check: LineCheck) -> bool:
    if is_blank(line):
        return not line
    try:
        check(line)
    except LaterFormat:
        raise
    except MISFITS:
        return False
    return True


def _folders(home: Path) -> Iterator[Flaw]:
    found = dict(_there([home, *sorted(files.below(home))]))
    open_ones = list(_modes(found))
    whole = how_many(len(found), "file or folder", "files and folders")
    yield from open_ones or [Flaw("permissions", "ok", f"{whole}, all private")]
    yield from _links(found)
    for path, status in found.items():
        if stat.S_ISDIR(status.st_mode) and len(path.relative_to(home).parts) > files.DEEPEST:
            yield _flaw("permissions", path, "is nested too deep to be examined: move it away", "ls -ld")
        if ".damaged-" in path.name or path.parent == home / ASIDE:
            yield replace(_flaw("set aside", path, "was set aside by a repair: check it, then", "rm -r"), state="note")
    yield from _strays(home, found)


def _flaw(subject: str, path: Path, what: str, command: str = "ls -l") -> Flaw:
    """Return a flaw of a file or folder, with the command that shows or repairs it."""
    return Flaw(subject, "bad", f"{path} {what}", f"{command} {shell_word(path)}")


def shell_word(path: object) -> str:
    """Return the path quoted for bash, zsh and ksh, with control and invisible characters escaped."""
    text = str(path)
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in os.fsencode(text))
    return f"$'{escaped}'"


def _there(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the paths that still exist: other processes may delete some meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            yield path, path.lstat()


def _modes(found: _Found, *, needed: int = stat.S_IRUSR | stat.S_IWUSR) -> Iterator[Flaw]:
    for path, status in found.items():
        if stat.S_ISLNK(status.st_mode):
            continue
        if status.st_uid != os.geteuid():
            yield _flaw("permissions", path, "belongs to another user", "sudo chown $USER")
        elif (needed | stat.S_ISDIR(status.st_mode) * stat.S_IXUSR) & ~status.st_mode:
            yield _flaw("permissions", path, "cannot be read and written by you, its owner", "chmod u+rwX")
        elif status.st_mode & files.OTHERS and not _is_hard_link(status):
            flaw = _flaw("permissions", path, "is readable by other users", "chmod go=")
            yield replace(flaw, mend=partial(close_to_others, path))


def close_to_others(path: Path) -> str:
    """Remove other users' rights to a file or folder."""
    path.chmod(path.stat().st_mode & ~files.OTHERS)
    return "access by others removed"


def _is_hard_link(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _links(found: _Found) -> Iterator[Flaw]:
    for path, status in found.items():
        if stat.S_ISLNK(status.st_mode):
            yield _flaw("links", path, "is a symbolic link, which is never followed")
        elif _is_hard_link(status):
            yield _flaw("links", path, "is a hard link, which is never opened: put a copy in its place")


def _strays(home: Path, found: _Found) -> Iterator[Flaw]:
    """Report leftovers of killed processes: unfinished sessions, partly deleted sessions, drafts of files."""
    old = time.time() - STRAY_AFTER_S
    for path, status in found.items():
        move = partial(_move_aside, home, path)
        if path.parent == home / ".drafts" and status.st_mtime < old:
            yield Flaw("drafts", "bad", f"{path} is an unfinished new session", mend=move)
        elif path.parent == home / ".trash":
            yield Flaw("drafts", "bad", f"{path} was only partly deleted", mend=partial(_erase, path))
        elif path.name.startswith(".") and path.suffix == ".tmp" and status.st_mtime < old:
            yield Flaw("drafts", "bad", f"{path} is an unfinished file", mend=move)


def _sessions(home: Path, sessions: FolderSessions, options: Examination) -> Iterator[Flaw]:
    root = home / "sessions"
    if not root.is_dir():
        yield Flaw("sessions", "ok", "no sessions yet")
        return
    yield from _index(home, sessions)
    sound = total = 0
    for path in sorted(root.iterdir()):
        total += 1
        problems = list(_session(home, path, sessions, options))
        sound += not any(problem.state == "bad" for problem in problems)
        yield from problems
    yield Flaw(
        "sessions",
        "ok" if sound == total else "note",
        f"{how_many(total, 'session')}, {'all' if sound == total else sound} valid",
    )


def _index(home: Path, sessions: FolderSessions) -> Iterator[Flaw]:
    def rebuild() -> str:
        aside = sessions.index.rebuild()
        return "rebuilt from the folders" + (f", the old one kept as {aside}" if aside else "")

    if problem := sessions.index.problem():
        why, is_damaged = problem
        what = f"{home / INDEX_NAME} {why}; it will be rebuilt on its next use"
        yield Flaw("index", "bad" if is_damaged else "note", what, mend=rebuild)


def _session(home: Path, path: Path, sessions: FolderSessions, options: Examination) -> Iterator[Flaw]:
    if not path.is_dir() or not is_id(path.name):
        why = "its name is not a session id" if path.is_dir() else "it is not a folder"
        what = f"{path} is not a session: {why}"
        yield Flaw("sessions", "bad", what, mend=partial(_move_aside, home, path))
        return
    try:
        yield from _record(path, partial(_recover, path, sessions, options))
        yield from _key_values(path)
        for name in (transcript.NAME, transcript.ARCHIVE_NAME):
            yield from _transcript(path, name)
        yield from bad_lines("sessions", path / "receipts.jsonl", verify=options.verify)
        if options.verify:
            yield from _attachments(path / ATTACHMENTS)
    except (StoreError, OSError) as error:
        yield _flaw("sessions", path, f"cannot be read: {error}", "ls -la")


def _record(path: Path, recover: Callable[[], str]) -> Iterator[Flaw]:
    try:
        with files.opened(path) as folder:
            decode_record(folder.read(SESSION_NAME), path.name)
    except LaterFormat as error:
        yield Flaw("sessions", "bad", f"{path / SESSION_NAME}: {error}", is_later=True)
    except FileNotFoundError:
        yield Flaw("sessions", "bad", f"{path} has no {SESSION_NAME}", mend=recover)
    except ValueError as error:
        yield Flaw("sessions", "bad", f"{path / SESSION_NAME} is damaged: {error}", mend=recover)


def _key_values(path: Path) -> Iterator[Flaw]:
    name = KEY_VALUES_NAME

    def set_aside() -> str:
        with files.locked(path) as folder:
            return f"kept as {folder.set_aside(name)}; the session continues without its entries"

    try:
        with files.opened(path) as folder:
            parse_key_values(folder.read(name))
    except FileNotFoundError:
        return
    except MISFITS as error:
        yield Flaw("sessions", "bad", f"{path / name} is damaged: {error}", mend=set_aside)


def _transcript(path: Path, name: str) -> Iterator[Flaw]:
    try:
        with files.opened(path) as folder:
            data = folder.read(name)
    except FileNotFoundError:
        return
    repair = partial(_repair_transcript, path, name)
    cut, missing = transcript.mend(data)
    if cut:
        what = f"the end of {path / name} is damaged: {cut} bytes are not a complete entry"
        yield Flaw("sessions", "bad", what, mend=repair)
    elif missing:
        what = f"the last entry of {path / name} is incomplete: the write was interrupted, or it was edited"
        yield Flaw("sessions", "note", what, mend=repair)
    try:
        data[: len(data) - cut].decode()
    except UnicodeDecodeError as error:
        what = f"{path / name} contains bytes that are not UTF-8, the first at {error.start}"
        yield Flaw("sessions", "bad", what, mend=repair)
    if data.strip(b"\0\n ") and not transcript.starts(data):
        yield _flaw("sessions", path / name, "contains no entry: each begins with ### role — time", "$EDITOR")


def _attachments(path: Path) -> Iterator[Flaw]:
    """Compare each attachment with its name, which is its checksum."""
    names = [each.name for each in sorted(path.iterdir())] if path.is_dir() else []
    for name in filter(is_blob_name, names):
        with files.opened(path) as folder:
            data = folder.read(name)
        if not is_content_of(name, data):
            what = "was changed: its content does not match its name; replace it from a backup"
            yield _flaw("sessions", path / name, what)


def _repair_transcript(path: Path, name: str) -> str:
    """Complete the end of the transcript, and replace bytes that are not UTF-8."""
    with files.locked(path) as folder:
        aside = _copy_aside(folder, name)
        data = folder.read(name)
        cut, missing = transcript.mend(data)
        whole = data[: len(data) - cut] + missing
        folder.replace(name, whole.decode(errors="replace").encode())
    return f"repaired; the original is kept as {aside}"


def _recover(path: Path, sessions: FolderSessions, options: Examination) -> str:
    try:
        how, aside = "recovered from the index", sessions.mend(path.name)
    except DamagedFile:
        how, aside = "written again", _rewrite_record(path, sessions, options.new_record)
    return how + (f", the damaged one kept as {aside}" if aside else "")


def _rewrite_record(
    path: Path, sessions: FolderSessions, new_record: Callable[[str, datetime, datetime], SessionRecord]
) -> str:
    """Write a new `session.json` so that the conversation can continue; return the name of the old one, if any."""
    used = max(file.stat().st_mtime for file in (path, *path.iterdir()))
    made = min((UUID(path.name).int >> 80) / 1000, used)  # an id of another program may have any time
    record = new_record(path.name, datetime.fromtimestamp(made, UTC), datetime.fromtimestamp(used, UTC))
    with files.locked(path) as folder:
        aside = folder.set_aside(SESSION_NAME) if folder.stamp(SESSION_NAME) else ""
        folder.create(SESSION_NAME, render(record))
    with files.locked(path.parent.parent):
        sessions.index.distrust()  # it is then rebuilt, with this session
    return aside


def _erase(path: Path) -> str:
    files.erase(path)
    return "deletion finished"


def _copy_aside(folder: files.Folder, name: str) -> str:
    """Copy a damaged file to a name with `.damaged-`; return the name. Needs the folder's lock."""
    aside = files.aside_of(name)
    folder.create(aside, folder.read(name, most=files.LARGEST_JOURNAL))
    return aside


def _put_lines(folder: files.Folder, name: str, lines: Iterable[bytes]) -> str:
    """Copy a file aside and replace it by these lines; return the name of the copy. Needs the folder's lock."""
    aside = _copy_aside(folder, name)
    folder.replace(name, b"".join(line + b"\n" for line in lines))
    return aside


def _move_aside(home: Path, path: Path) -> str:
    """Move a folder or file of the memory in `home` out of the way."""
    place = home / ASIDE
    files.make_folder(place)
    moved = place / files.aside_of(path.name, "")
    os.rename(path, moved)  # noqa: PTH104 - moves a link itself, which Path.rename does not promise
    files.sync_folder(place)
    return f"moved to {moved}"
