"""Examination of a journal and its index. Blocking; changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from chatbot.stores.cache import Cache
from chatbot.stores.errors import UnsafePath
from chatbot.stores.flaws import Flaw
from chatbot.stores.json_lines import record_of
from chatbot.stores.observations import log, manifest, search
from chatbot.stores.observations.folder_shelf import FolderShelf
from chatbot.stores.on_disk.examination import bad_lines
from chatbot.stores.row_events import parse_event

_BEHIND = 4096
"""Rows missing in the index before it is reported: searches find them anyway."""
_REINDEX = "chatbot memory reindex"


def examine(home: Path, cache: Cache, reindex: Callable[[], int], *, verify: bool) -> list[Flaw]:
    """Check the journal in `home` and the files derived from it; nothing if nothing was ever remembered."""
    path = home / log.NAME
    if not path.exists():
        return []
    added = 0

    def count(line: bytes) -> None:
        nonlocal added
        added += parse_event(record_of(line)).kind == "add"

    flaws = list(bad_lines("memory", path, count, lock=log.LOCK_NAME, verify=verify))
    if not flaws:
        flaws.append(Flaw("memory", "ok", f"{added} memories added in total, all readable"))
    return [*flaws, _index(cache, added, reindex)] if added else flaws


def _index(cache: Cache, rows: int, reindex: Callable[[], int]) -> Flaw:
    def again() -> str:
        return f"indexed {reindex():,} memories"

    def renew() -> str:
        aside = cache.move_away()
        return f"moved to {aside}; {again()}"

    try:
        cache.check()
    except UnsafePath as error:
        is_there = cache.folder.is_symlink() or cache.folder.exists()
        command = f"rm -r {quote(str(cache.folder))} && {_REINDEX}"
        return Flaw("index", "bad", str(error), command, renew if is_there else None)
    known = manifest.read(FolderShelf.of(cache, search.NAME)).entries
    covered = known[-1].end if known else 0
    if rows - covered > _BEHIND:
        what = f"the index in {cache.folder} holds {covered:,} of {rows:,} rows" if known else "no index yet"
        return Flaw("index", "note", f"{what}: the next search builds it", _REINDEX, again)
    return Flaw("index", "ok", f"in {cache.folder}")
