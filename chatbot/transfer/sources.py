"""The file or folder to import: recognise its kind and read its items. Nothing is written here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, ZipInfo

from chatbot.stores.errors import DamagedFile, InvalidValue, StoreError, StoreFailed, UnsafePath, did_you_mean
from chatbot.transfer import formats
from chatbot.transfer.exports import MemoryExport, SessionExport, is_bundle, read_bundle
from chatbot.transfer.formats import CHATGPT, CLAUDE, MARKDOWN, MARKDOWN_SUFFIXES, MEMSTORE
from chatbot.transfer.items import Item, Skip
from chatbot.transfer.untrusted import decoded, elements, open_zip, read_member

BUNDLE = "bundle"
KINDS = (BUNDLE, CHATGPT, CLAUDE, MARKDOWN, MEMSTORE)
LARGEST_JSON = 1 << 30
LARGEST_MARKDOWN = 4 << 20
MOST_FILES = 20_000
_CONVERSATIONS = re.compile(r"conversations(-\d{1,4})?\.json")
_CLAUDE_MEMORIES = "memories.json"
_ZIP = b"PK\x03\x04"
_NOT_RECOGNISED = f"has an unknown format: name it with --from ({', '.join(KINDS)})"


Items = Iterator[Item | SessionExport | MemoryExport]


@dataclass(frozen=True, slots=True)
class Source:
    """Something to import."""

    path: Path
    kind: str
    items: Callable[[], Items]
    """Yields every item in file order, as often as it is called; an item that cannot be imported is a `Skip`.

    Raises `DamagedFile` if the file cannot be read.
    """


def open_source(path: Path, kind: str | None = None) -> Source:
    """Open the source at `path`, of the given or the recognised kind. Raises `InvalidValue` or `DamagedFile`."""
    if kind is not None and kind not in KINDS:
        raise InvalidValue(f"unknown import format {kind!r}{did_you_mean(kind, KINDS)}")
    try:
        return _open(path, kind)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error


def memories_in(text: str) -> Source:
    """Return the memories of a bundle as a source, such as the body of a request; its sessions are skipped."""

    def items() -> Items:
        try:
            for each in read_bundle(text, "the text"):
                if isinstance(each, MemoryExport):
                    yield each
                else:
                    yield Skip(each.record.id, "only memories are imported here")
        except DamagedFile as error:
            raise InvalidValue(str(error)) from error

    return Source(Path("text"), BUNDLE, items)


def _open(path: Path, kind: str | None) -> Source:
    if path.is_dir():
        return _open_folder(path, kind)
    if not path.exists():
        raise InvalidValue(f"file not found: {path}")
    if not path.is_file():
        raise UnsafePath(f"{path} is not a regular file")
    with path.open("rb") as file:
        is_zip = file.read(len(_ZIP)) == _ZIP
    if is_zip:
        return _open_zip(path, kind)
    if path.suffix.lower() in MARKDOWN_SUFFIXES or kind == MARKDOWN:
        _check_kind(path, kind, MARKDOWN)
        return Source(path, MARKDOWN, lambda: _notes(path))
    text = _read_text(path)
    if kind in {None, BUNDLE} and is_bundle(text):
        return Source(path, BUNDLE, lambda: read_bundle(text, str(path)))
    if kind == BUNDLE:
        raise DamagedFile(f"{path} is not a bundle: its first line begins none")
    kind = kind or _recognised(text, path)
    return Source(path, kind, lambda: _elements(kind, [(path.name, text)]))


def _notes(path: Path) -> Items:
    """Yield the notes of a file, or of all files in a folder, where links and hidden folders are not followed."""
    is_folder = path.is_dir()
    for file in _markdown_files(path) if is_folder else [path]:
        name = file.relative_to(path if is_folder else path.parent).as_posix()
        if is_folder and file.is_symlink():
            yield Skip(name, "symbolic links are not followed")
        elif file.stat().st_size > LARGEST_MARKDOWN:
            yield Skip(name, f"larger than {LARGEST_MARKDOWN:,} bytes")
        else:
            try:
                place = formats.text_of(str(file.resolve()))  # the same however it is named
                for memory in formats.read_markdown(decoded(file.read_bytes(), name), name):
                    yield replace(memory, place=place)
            except (DamagedFile, OSError) as error:
                yield Skip(name, str(error))


def _open_folder(path: Path, kind: str | None) -> Source:
    """Open a folder of notes, or a folder that holds an unpacked export."""
    exports = sorted(each for each in path.iterdir() if _CONVERSATIONS.fullmatch(each.name) and each.is_file())
    if not exports or kind == MARKDOWN:
        _check_kind(path, kind, MARKDOWN)
        return Source(path, MARKDOWN, lambda: _notes(path))
    _check_json(path, kind)
    remembered = path / _CLAUDE_MEMORIES
    files = [*exports, *([remembered] if remembered.is_file() else [])]
    kind = kind or _recognised(_read_text(exports[0]), exports[0])
    return Source(path, kind, lambda: _elements(kind, ((file.name, _read_text(file)) for file in files)))


def _open_zip(path: Path, kind: str | None) -> Source:
    _check_json(path, kind)
    with open_zip(path) as archive:
        members = _members(archive)
        if not members:
            raise InvalidValue(f"{path} contains no conversations.json: nothing to import")
        kind = kind or _recognised(read_member(archive, members[0]), path)
    return Source(path, kind, lambda: _elements(kind, _texts_in(path)))


def _elements(kind: str, texts: Iterable[tuple[str, str]]) -> Items:
    """Yield what is in the lists of these texts, each after the name of its file."""
    values = (value for name, text in texts for value in elements(text, name))
    for number, value in enumerate(values, 1):
        yield from formats.read(kind, value, number)


def _texts_in(path: Path) -> Iterator[tuple[str, str]]:
    with open_zip(path) as archive:
        for member in _members(archive):
            yield member.filename, read_member(archive, member)


def _members(archive: ZipFile) -> list[ZipInfo]:
    """Return the files to read, conversations first, at any depth of the zip. Raises `DamagedFile`."""
    last = [(PurePosixPath(each.filename).name, each) for each in archive.infolist()]
    conversations = [each for end, each in last if _CONVERSATIONS.fullmatch(end)]
    found = sorted(conversations, key=lambda each: each.filename)
    found += [each for end, each in last if end == _CLAUDE_MEMORIES and conversations]
    if len({each.filename for each in found}) < len(found):
        raise DamagedFile(f"{archive.filename} contains a name more than once")
    return found


def _recognised(text: str, path: Path) -> str:
    """Return the kind that the first element has the shape of."""
    if not text.lstrip().startswith(("[", "{")):
        raise InvalidValue(f"{path} {_NOT_RECOGNISED}")
    if kind := formats.kind_of(next(elements(text, str(path)), None)):
        return kind
    raise InvalidValue(f"{path} {_NOT_RECOGNISED}")


def _check_json(path: Path, kind: str | None) -> None:
    if kind in {BUNDLE, MARKDOWN}:
        raise InvalidValue(f"{path} is not of the format {kind}" + (": unpack it first" if path.is_file() else ""))


def _check_kind(path: Path, kind: str | None, found: str) -> None:
    if kind not in {None, found}:
        raise InvalidValue(f"{path} is {found}, not {kind}")


def _markdown_files(root: Path) -> Iterator[Path]:
    found = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(MARKDOWN_SUFFIXES) and not name.startswith("."):
                found += 1
                if found > MOST_FILES:
                    raise InvalidValue(
                        f"{root} has more than {MOST_FILES:,} Markdown files: check that it is the right folder"
                    )
                yield Path(folder, name)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise DamagedFile(f"{path} is larger than {LARGEST_JSON:,} bytes, the most that is read")
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error
