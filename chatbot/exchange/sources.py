"""A file or folder to import: what kind it is, and what it holds. Nothing is written here."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from chatbot.exchange import bundle, chatgpt, claude, markdown_memories, memories, memstore
from chatbot.exchange.bundle import BundledSession
from chatbot.exchange.items import Item, Memory, Skipped, text_of
from chatbot.exchange.json_text import decoded, elements
from chatbot.exchange.memories import Remembered
from chatbot.exchange.zip_file import ZipFile, opened_zip
from stores.errors import DamagedFile, InvalidValue, StoreError, StoreFailed, UnsafePath, did_you_mean

BUNDLE = "bundle"
KINDS = (BUNDLE, chatgpt.KIND, claude.KIND, markdown_memories.KIND, memories.KIND, memstore.KIND)
LARGEST_JSON = 1 << 30
LARGEST_MARKDOWN = 4 << 20
MOST_FILES = 20_000
_CONVERSATIONS = re.compile(r"conversations(-\d{1,4})?\.json")
_MEMORIES = "memories.json"
_ZIP = b"PK\x03\x04"
_NOT_RECOGNISED = f"cannot be recognised: say with --from what it is: {', '.join(KINDS)}"


class Source(ABC):
    """Something to import. `items` may be asked for again, and raises `DamagedFile` where the whole cannot be read."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind

    @abstractmethod
    def items(self) -> Iterator[Item | BundledSession | Remembered]:
        """All that it holds, in its order; what cannot be taken over is among it, as `Skipped`."""


def open_source(path: Path, kind: str | None = None) -> Source:
    """The source at `path`, of the kind that is given or that it looks like. Raises `InvalidValue` or `DamagedFile`."""
    if kind is not None and kind not in KINDS:
        raise InvalidValue(f"nothing can be imported from {kind!r}{did_you_mean(kind, KINDS)}")
    try:
        return _open(path, kind)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error


def place_of(path: Path) -> str:
    """What tells a file from all others on this machine, however it was named."""
    return text_of(str(path.resolve()))


def _open(path: Path, kind: str | None) -> Source:
    if path.is_dir():
        return _open_folder(path, kind)
    if not path.exists():
        raise InvalidValue(f"there is no file {path}")
    if not path.is_file():
        raise UnsafePath(f"{path} is no regular file")
    if _starts_with(path, _ZIP):
        return _open_zip(path, kind)
    if path.suffix.lower() in markdown_memories.SUFFIXES or kind == markdown_memories.KIND:
        _check_kind(path, kind, markdown_memories.KIND)
        return _MarkdownFolder(path.parent, only=path)
    if kind == BUNDLE:
        raise DamagedFile(f"{path} is no zip file, and so no bundle")
    text = _read_text(path)
    if kind == memories.KIND or (kind is None and memories.is_ours(text)):
        return _MemoriesFile(path, memories.KIND)
    return _JsonFiles(path, kind or _recognised(text, path), lambda: iter([(path.name, text)]))


class _BundleFile(Source):
    def items(self) -> Iterator[Item | BundledSession | Remembered]:
        """See `Source`. The whole bundle is verified before the first session is given."""
        with opened_zip(self.path) as archive:
            for session in bundle.verify(archive):
                yield bundle.read_session(archive, session)


class _MemoriesFile(Source):
    def items(self) -> Iterator[Item | BundledSession | Remembered]:
        """See `Source`."""
        yield memories.read(_read_text(self.path))


class _JsonFiles(Source):
    """Lists of conversations or of facts, in a file, or in several in a zip."""

    def __init__(self, path: Path, kind: str, texts: Callable[[], Iterator[tuple[str, str]]]) -> None:
        super().__init__(path, kind)
        self._texts = texts

    def items(self) -> Iterator[Item | BundledSession | Remembered]:
        """See `Source`."""
        number = 0
        for name, text in self._texts():
            for value in elements(text, name):
                number += 1
                yield from _read(self.kind, value, number, self.path)


class _MarkdownFolder(Source):
    def __init__(self, path: Path, *, only: Path | None = None) -> None:
        super().__init__(only or path, markdown_memories.KIND)
        self._folder = path
        self._only = only

    def items(self) -> Iterator[Item | BundledSession | Remembered]:
        """See `Source`. Links are not followed, nor are hidden folders looked into."""
        for path in [self._only] if self._only else _markdown_files(self._folder):
            name = PurePosixPath(path.relative_to(self._folder)).as_posix()
            if path.is_symlink() and not self._only:
                yield Skipped(name, "it is a link, which could lead anywhere")
            elif path.stat().st_size > LARGEST_MARKDOWN:
                yield Skipped(name, f"it is larger than {LARGEST_MARKDOWN:,} bytes")
            else:
                try:
                    for memory in markdown_memories.read(decoded(path.read_bytes(), name), name):
                        yield replace(memory, place=place_of(path))
                except (DamagedFile, OSError) as error:
                    yield Skipped(name, str(error))


def _open_folder(path: Path, kind: str | None) -> Source:
    """A folder of notes; or one into which an export was unpacked."""
    exports = sorted(each for each in path.iterdir() if _CONVERSATIONS.fullmatch(each.name) and each.is_file())
    if not exports or kind == markdown_memories.KIND:
        _check_kind(path, kind, markdown_memories.KIND)
        return _MarkdownFolder(path)
    _check_json(path, kind)
    remembered = path / _MEMORIES
    files = [*exports, *([remembered] if remembered.is_file() else [])]
    kind = kind or _recognised(_read_text(exports[0]), exports[0])
    return _JsonFiles(path, kind, lambda: ((file.name, _read_text(file)) for file in files))


def _open_zip(path: Path, kind: str | None) -> Source:
    with opened_zip(path) as archive:
        if kind == BUNDLE or (kind is None and bundle.is_bundle(archive)):
            if bundle.MANIFEST not in archive.names:
                raise DamagedFile(f"{path} has no {bundle.MANIFEST}, and so is no bundle")
            return _BundleFile(path, BUNDLE)
        _check_json(path, kind)
        names = _export_names(archive)
        if not names:
            raise InvalidValue(f"{path} holds no bundle and no conversations.json: there is nothing to import")
        kind = kind or _recognised(decoded(archive.read(names[0]), names[0]), path)

    def texts() -> Iterator[tuple[str, str]]:
        with opened_zip(path) as archive:
            for name in names:
                yield name, decoded(archive.read(name), name)

    return _JsonFiles(path, kind, texts)


def _export_names(archive: ZipFile) -> list[str]:
    """The files of an export that are read, the conversations first; wherever it was packed."""
    last = {name: PurePosixPath(name).name for name in archive.names}
    conversations = sorted(name for name, end in last.items() if _CONVERSATIONS.fullmatch(end))
    return [*conversations, *(name for name, end in last.items() if end == _MEMORIES and conversations)]


def _recognised(text: str, path: Path) -> str:
    """What the first element looks like."""
    if not text.lstrip().startswith(("[", "{")):
        raise InvalidValue(f"{path} {_NOT_RECOGNISED}")
    first = next(elements(text, str(path)), None)
    if chatgpt.is_conversation(first):
        return chatgpt.KIND
    if claude.is_conversation(first) or claude.is_memory(first):
        return claude.KIND
    if memstore.is_fact(first) or memstore.facts_of(first) is not None:
        return memstore.KIND
    raise InvalidValue(f"{path} {_NOT_RECOGNISED}")


def _read(kind: str, value: Any, number: int, path: Path) -> Iterator[Item]:
    if kind == chatgpt.KIND:
        yield chatgpt.read(value, number)
    elif kind == claude.KIND:
        yield from claude.read_memory(value) if claude.is_memory(value) else [claude.read(value, number)]
    else:
        facts = memstore.facts_of(value)
        for place, fact in enumerate([value] if facts is None else facts, number):
            for item in memstore.read(fact, place):
                yield replace(item, place=place_of(path)) if isinstance(item, Memory) else item


def _check_json(path: Path, kind: str | None) -> None:
    if kind in {BUNDLE, markdown_memories.KIND, memories.KIND}:
        raise InvalidValue(f"{path} is no {kind}" + (": unpack it first" if path.is_file() else ""))


def _check_kind(path: Path, kind: str | None, found: str) -> None:
    if kind not in {None, found}:
        raise InvalidValue(f"{path} is {found}, not {kind}")


def _markdown_files(root: Path) -> Iterator[Path]:
    found = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(markdown_memories.SUFFIXES) and not name.startswith("."):
                found += 1
                if found > MOST_FILES:
                    raise InvalidValue(f"{root} has more than {MOST_FILES:,} Markdown files: is it the right folder?")
                yield Path(folder, name)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise DamagedFile(f"{path} has more than {LARGEST_JSON:,} bytes, which is not to be read")
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error
