"""Program that takes the text out of a PDF: from standard input to standard output, within limits it sets itself.

A file from anywhere may be made to exhaust or crash its reader, so it is read in a process that holds nothing: limited
in memory, time and output, without the variables of its parent. Exit 0: the text; 3: encrypted; 4: unreadable.
"""

from __future__ import annotations

import logging
import resource
import sys
from io import BytesIO

ENCRYPTED = 3
UNREADABLE = 4
LONGEST_TEXT = 1_000_000
"""Characters that are read of a document."""
LONGEST_S = 30
"""Seconds of processor time."""
_MEMORY_BYTES = 1 << 30


def main() -> int:
    """Read, and print page by page."""
    _limit()
    logging.disable()
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError, PyPdfError

    try:
        reader = PdfReader(BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            return ENCRYPTED
        left = LONGEST_TEXT
        for page in reader.pages:
            text = page.extract_text()[:left].encode("utf-8", "replace")
            sys.stdout.buffer.write(text + b"\n\n")
            left -= len(text) + 2
            if left <= 0:
                break
    except FileNotDecryptedError:
        return ENCRYPTED
    except (
        PyPdfError,
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return UNREADABLE  # a malformed file may raise any of these
    return 0


def _limit() -> None:
    for what, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, LONGEST_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):
            continue  # macOS has no limit of memory


if __name__ == "__main__":
    raise SystemExit(main())
