"""Program that extracts the text of a document, from standard input to standard output, within limits it sets itself.

An untrusted file may be made to exhaust or crash its reader, so it is read in a process of its own: limited in memory,
time and output, without the variables of its parent. Its argument is the kind: pdf, docx or odt. Exit 0: the
text; 3: encrypted; 4: unreadable. Nothing here imports the rest of the package.
"""

import logging
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from xml.parsers.expat import ParserCreate
from zipfile import ZipFile

ENCRYPTED = 3
UNREADABLE = 4
LONGEST_TEXT = 1_000_000
"""Maximum characters read from a document."""
LONGEST_S = 30
"""Seconds of processor time."""
_MEMORY_BYTES = 1 << 30
_MOST_UNPACKED = 200 << 20
"""Maximum bytes of XML unpacked from an office document."""
_AT_A_TIME = 1 << 16


def main(kind: str) -> int:
    """Read the document, and print its text part by part."""
    _limit()
    logging.disable()
    read = {"pdf": _pages, "docx": _docx, "odt": _odt}[kind]
    left = LONGEST_TEXT + 1  # one more, so that the parent sees that the text is longer
    try:
        for part in read(sys.stdin.buffer.read()):
            text = part.replace("\0", "")[:left]
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))
            left -= len(text)
            if left <= 0:
                break
    except PermissionError:
        return ENCRYPTED
    except Exception:  # noqa: BLE001 - a malformed file may raise anything, and the program ends
        return UNREADABLE
    return 0


def _pages(data: bytes) -> Iterator[str]:
    from pypdf import PdfReader, errors

    reader = PdfReader(BytesIO(data))
    try:
        if reader.is_encrypted and not reader.decrypt(""):
            raise PermissionError
        for page in reader.pages:
            yield f"{page.extract_text()}\n\n"
    except errors.FileNotDecryptedError as error:
        raise PermissionError from error


def _docx(data: bytes) -> Iterator[str]:
    with ZipFile(BytesIO(data)) as archive:
        yield from _Office(of_word=True).read(archive.open("word/document.xml").read)
        for notes in ("word/footnotes.xml", "word/endnotes.xml"):
            if notes in archive.namelist():
                yield from _Office(of_word=True).read(archive.open(notes).read)


def _odt(data: bytes) -> Iterator[str]:
    with ZipFile(BytesIO(data)) as archive:
        if b"encryption-data" in archive.open("META-INF/manifest.xml").read(_AT_A_TIME):
            raise PermissionError
        yield from _Office(of_word=False).read(archive.open("content.xml").read)


class _Office:
    """Reader of the XML of an office document, as a stream: paragraphs on lines, cells of a row on one line.

    A document with a DOCTYPE is refused: neither format has one, and entities are declared there.
    """

    def __init__(self, *, of_word: bool) -> None:
        self._texts = {"t"} if of_word else {"p", "h"}
        self._left_out = {"Fallback", "moveFrom"} if of_word else {"annotation", "tracked-changes"}
        self._names: list[str] = []
        self._parts: list[str] = []
        self._skipped = self._reading = self._cells = 0

    def read(self, read: Callable[[int], bytes]) -> Iterator[str]:
        """Yield the text. Raises `ValueError` for a DOCTYPE or too much XML, and what the parser raises."""
        parser = ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._take_text
        for _ in range(_MOST_UNPACKED // _AT_A_TIME):
            data = read(_AT_A_TIME)
            parser.Parse(data, not data)
            yield "".join(self._parts)
            self._parts.clear()
            if not data:
                return
        raise ValueError("too much XML")

    @staticmethod
    def _refuse(*_: object) -> None:
        raise ValueError("a DOCTYPE")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2]
        parent = self._names[-1] if self._names else ""
        self._names.append(name)
        self._skipped += name in self._left_out
        self._reading += name in self._texts
        self._cells += name in {"tc", "table-cell"}
        if self._skipped or not (self._reading or parent == "r"):
            return
        if name in {"tab", "br", "cr", "line-break"}:
            self._parts.append("\t" if name == "tab" else "\n")
        elif name == "s":  # spaces of an ODT, with their number
            number = next((value for key, value in attributes.items() if key.endswith(" c")), "1")
            self._parts.append(" " * min(int(number), 100))

    def _end(self, _: str) -> None:
        name = self._names.pop()
        self._reading -= name in self._texts
        if not self._skipped:
            if name in {"tc", "table-cell"}:
                self._parts.append(" | ")
            elif name in {"p", "h"}:
                self._parts.append(" " if self._cells else "\n")
            elif name in {"tr", "table-row"}:
                self._parts.append("\n")
        self._cells -= name in {"tc", "table-cell"}
        self._skipped -= name in self._left_out

    def _take_text(self, text: str) -> None:
        if self._reading and not self._skipped:
            self._parts.append(text)


def _limit() -> None:
    for what, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, LONGEST_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # macOS cannot limit memory
            resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
