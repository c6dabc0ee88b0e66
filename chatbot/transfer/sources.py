"""Files and folders to import: their kinds are recognised and their items read. Nothing is written here."""

import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from chatbot.stores.errors import DamagedFile, InvalidValue, StoreError, UnsafePath
from chatbot.stores.files import translated
from chatbot.transfer import formats
from chatbot.transfer.exports import MemoryExport, SessionExport, is_bundle, read_bundle
from chatbot.transfer.formats import MARKDOWN, MARKDOWN_SUFFIXES, Item, Skip
from chatbot.transfer.untrusted import content_of, open_zip

BUNDLE = "bundle"
LARGEST_JSON = 1 << 30
LARGEST_MARKDOWN = 4 << 20
MOST_FILES = 20_000
MOST_LEVELS = 100
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(-\d{1,4})?\.json")
_MEMORIES = re.compile(r"(?:.*/)?memories(?:\.json|/[^/.][^/]*\.json)")
_CONVERSATION = re.compile(r"\s*(?:# .*\n\s*[0-9a-f-]{36}; started .*\n\s*)?### \S+ — \d{4}-\d\d-\d\dT[\d:.]+Z")
"""The beginning of a transcript, or of an export of one; elsewhere, a note quotes it."""

Items = Iterator[Item | SessionExport | MemoryExport]
_Member = tuple[str, Callable[[], str]]
"""A file of an export: its name, and how its text is read."""


class Source(Struct, frozen=True):
    """Something to import."""

    path: Path
    kind: str
    items: Items
    """Items in file order; one that cannot be imported is a `Skip`. Iterating raises `DamagedFile`."""


def open_source(path: Path) -> Source:
    """Open the source at `path` and detect its kind. Raises `InvalidValue` or `DamagedFile`."""
    with translated(path):
        if not path.exists():
            raise InvalidValue(f"file not found: {path}")
        if not (path.is_dir() or path.is_file()):
            raise UnsafePath(f"{path} is not a regular file")
        is_zip = path.is_file() and _is_zip(path)
        members = _exports(path, is_zip=is_zip)
    if not (is_zip or members) and (path.is_dir() or path.suffix.lower() in MARKDOWN_SUFFIXES):
        return Source(path, MARKDOWN, _notes(path))
    if is_zip and not members:
        raise InvalidValue(f"{path} contains neither conversations.json nor memories: nothing to import")
    if not members:
        text = _read_text(path)
        if is_bundle(text):
            return Source(path, BUNDLE, read_bundle(text, str(path)))
        members = [(str(path), lambda: text)] if text.lstrip().startswith(("[", "{")) else []
    values = (value for name, read_text in members for value in elements(read_text(), name))
    first = next(values, None)
    if (kind := formats.kind_of(first)) is None:
        raise InvalidValue(f"{path} is neither a bundle, an export of ChatGPT or Claude, nor Markdown (*.md)")
    numbered = enumerate(chain([first], values), 1)
    return Source(path, kind, (item for at, value in numbered for item in formats.read_element(kind, value, at)))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _exports(path: Path, *, is_zip: bool) -> list[_Member]:
    """Return the files of an export in a folder, or anywhere in a zip: conversations first. Raises `DamagedFile`."""
    if is_zip:
        with path.open("rb") as file:
            members = open_zip(file, str(path)).infolist()
        files: list[_Member] = [(each.filename, partial(_read_member, path, each)) for each in members]
    else:
        inside = sorted((*path.iterdir(), *path.glob("memories/*.json"))) if path.is_dir() else ()
        files = [(_as_text(each.relative_to(path)), partial(_read_text, each)) for each in inside if each.is_file()]
    found = sorted((each for each in files if _CONVERSATIONS.fullmatch(each[0])), key=itemgetter(0))
    found += [each for each in files if (found or is_zip) and _MEMORIES.fullmatch(each[0])]
    if len({name for name, _ in found}) < len(found):
        raise DamagedFile(f"{path} contains a name more than once")
    return found


def _notes(path: Path) -> Items:
    """Yield the notes of a file, or of all files in a folder, where links and hidden folders are not followed."""
    is_folder = path.is_dir()
    unread, notes, others = list[OSError](), list[Path](), list[Path]()
    for file in _files_below(path, unread.append) if is_folder else [path]:
        (notes if file.name.lower().endswith(MARKDOWN_SUFFIXES) else others).append(file)
        if len(notes) > MOST_FILES:
            raise InvalidValue(f"{path} has more than {MOST_FILES:,} Markdown files: check that it is the right folder")
    for file in notes:
        name = _as_text(file.relative_to(path if is_folder else path.parent))
        try:
            if is_folder and file.is_symlink():
                yield Skip(name, "symbolic links are not followed")
            elif file.stat().st_size > LARGEST_MARKDOWN:
                yield Skip(name, f"larger than {LARGEST_MARKDOWN:,} bytes")
            elif _CONVERSATION.match(text := decode(file.read_bytes(), name)):
                yield Skip(name, "it is a conversation: export it as a bundle, `sessions export ID -o FILE.jsonl`")
            else:  # the resolved path is the same however the file is named
                found: list[Item] = [*formats.read_markdown(text, PurePosixPath(_as_text(file.resolve())))]
                yield from found or [Skip(name, "no text")]
        except (StoreError, OSError) as error:
            yield Skip(name, str(error))
    for failed in unread:
        yield Skip(_as_text(Path(failed.filename).relative_to(path)), f"cannot be read: {failed.strerror}")
    if others:
        yield _skipped(path, others, is_all=not (notes or unread))


def _skipped(path: Path, others: Sequence[Path], *, is_all: bool) -> Skip:
    """Return what is skipped of files of a folder that are no notes. Raises `InvalidValue` if it has nothing else."""
    named = _as_text(others[0].relative_to(path)) + (f" and {len(others) - 1:,} more" if len(others) > 1 else "")
    why = f"only {' and '.join(MARKDOWN_SUFFIXES)} files of a folder are read: name other files to import them"
    if is_all:
        raise InvalidValue(f"nothing was imported from {path}, which contains {named}: {why}")
    return Skip(named, why)


def _as_text(path: Path) -> str:
    """Return the path as a text that can be kept: bytes that are not UTF-8 are written as escapes."""
    return path.as_posix().encode(errors="backslashreplace").decode()


def _files_below(root: Path, unread: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the files below a folder, except hidden ones; `unread` gets the error of a folder that cannot be read."""
    for folder, folders, names in os.walk(root, onerror=unread):
        if len(Path(folder).relative_to(root).parts) > MOST_LEVELS:
            raise InvalidValue(f"{root} has over {MOST_LEVELS} levels of folders: check that it is the right folder")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _read_text(path: Path) -> str:
    with translated(path):
        if path.stat().st_size > LARGEST_JSON:
            raise DamagedFile(f"{path} is larger than {LARGEST_JSON:,} bytes, the maximum")
        return decode(path.read_bytes(), str(path))


def _read_member(path: Path, member: zipfile.ZipInfo) -> str:
    """Return the text of a member of a zip file. Raises `DamagedFile`."""
    name = f"{path}: {member.filename!r}"
    if member.file_size > LARGEST_JSON:
        raise DamagedFile(f"{name} would unpack to {member.file_size:,} bytes, which is refused")
    with path.open("rb") as file:
        return decode(content_of(open_zip(file, str(path)), member), name)


def decode(data: bytes, name: str) -> str:
    """Decode UTF-8. Raises `DamagedFile` for anything else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{name} is not valid UTF-8: {error.reason} at byte {error.start:,}") from error


def elements(text: str, name: str) -> Iterator[Any]:
    """Yield the elements of a JSON list, or the single value, without lone surrogates. Raises `DamagedFile`."""
    try:
        found = json.loads(text, parse_constant=lambda _: None)
        for value in found if isinstance(found, list) else [found]:
            yield json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (RecursionError, ValueError) as error:
        why = "a number or the nesting is too large"
        if isinstance(error, json.JSONDecodeError):
            why = f"error at character {error.pos:,} of {len(text):,}: check that the download is complete"
        raise DamagedFile(f"{name} is not valid JSON: {why}") from error
