"""The index of the terms of each session, so that a search does not read every transcript. Blocking.

`sessions.jsonl` in the cache has a line for each session: the version of its transcript, and how many of its entries
contain each term. A search finds its terms in the bytes of the lines and parses none. Sessions whose line is damaged or
missing are read again.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from chatbot.stores.cache import Cache
from chatbot.stores.errors import StoreError
from chatbot.stores.files import erase, locked, stamp
from chatbot.stores.home import Home
from chatbot.stores.json_lines import damage_of, encode
from chatbot.stores.text.analysis import VERSION

logger = logging.getLogger(__name__)

NAME = "sessions.jsonl"
_LOCK_NAME = ".sessions.lock"
_SESSION = re.compile(rb'\{"session":"([^"\\]*)","version":(\d{1,19}),"terms":\{')
_NUMBER = re.compile(rb"\d{1,19}")
_FIRST_LINE = encode({"format": f"sessions 6.{VERSION}"})

Counts = Mapping[str, int]
"""Number of entries of a session that contain each term."""
Row = tuple[str, str, Counts]
"""A session, the stamp of its transcript, and the counts of its terms."""
TermCounts = Mapping[str, tuple[int, tuple[int, ...]]]
"""By session: the version of its transcript, and the number of entries with each of the terms asked for."""


class SessionTerms:
    """Terms of the sessions of a home, in its cache, which is in the folder `root` if given; none without a home."""

    def __init__(self, home: Home | None, root: Path | None = None) -> None:
        self._cache = None if home is None else Cache(home, root)

    def find(self, terms: Sequence[str]) -> TermCounts:
        """Return for each known session the version that was read, and how many entries contain each of the terms."""
        if self._cache is None:
            return {}
        keys = [json.dumps(term, ensure_ascii=False).encode() + b":" for term in terms]
        return {
            _session_of(head): (int(head[2]), tuple(_count(line, key, head.end()) for key in keys))
            for head, line in _lines(self._cache.read(NAME))
        }

    def put(self, rows: Sequence[Row]) -> None:
        """Store the current terms of sessions."""
        if rows:
            new = {session for session, _, _ in rows}
            self._change(lambda session: session not in new, rows)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Erase the terms of sessions; no byte of them is left."""
        if self._cache is not None and stamp(self._cache.folder) is not None:
            self._change(lambda session: not is_gone(session))

    def _change(self, is_kept: Callable[[str], bool], new: Sequence[Row] = ()) -> None:
        """Rewrite the file with the kept lines and new ones. A failure is only logged: the cache saves only time."""
        if self._cache is None:
            return
        try:
            with locked(self._cache.prepare(), name=_LOCK_NAME) as folder:
                old, names = self._cache.read(NAME), folder.names()
                lines = [line + b"\n" for head, line in _lines(old) if is_kept(_session_of(head))]
                lines += [
                    encode({"session": session, "version": stamp_version(transcript), "terms": dict(counts)})
                    for session, transcript, counts in new
                ]
                data = b"".join([_FIRST_LINE, *lines])
                has_draft = any(name.startswith(f".{NAME}.") for name in names)  # of a killed process
                if has_draft or (data != old and (NAME in names or lines)):
                    if not old:  # damaged or missing: there may even be a folder
                        erase(folder.path / NAME)
                    folder.replace(NAME, data, durable=not new)
        except (StoreError, OSError) as error:
            logger.warning("the terms of sessions could not be kept: %s", error)


def _lines(data: bytes) -> Iterator[tuple[re.Match[bytes], bytes]]:
    lines = data.split(b"\n") if data.startswith(_FIRST_LINE) else ()
    yield from ((head, line) for line in lines if (head := _SESSION.match(line)) and not damage_of(line))


def _session_of(head: re.Match[bytes]) -> str:
    return head[1].decode(errors="replace")


def _count(line: bytes, key: bytes, begin: int) -> int:
    at = line.find(key, begin)
    number = _NUMBER.match(line, at + len(key)) if at >= 0 else None
    return int(number[0]) if number else 0


def stamp_version(stamp: str) -> int:
    """Return a number for the stamp of a transcript, never 0."""
    return int.from_bytes(blake2b(stamp.encode(), digest_size=8).digest(), "little") >> 1 or 1
