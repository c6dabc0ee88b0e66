"""Search of sessions: transcripts with attached texts, archives, titles and the memories of each, ranked together.

Sessions are ranked by the number of entries with each term, which `session_terms` has; only the entries of the best are
read and ranked, each by its score in `bm25` plus half of its session's.
"""

import asyncio
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from chatbot.attachments import split_links
from chatbot.memory.handle import SessionHandle
from chatbot.memory.scope import Scope
from chatbot.memory.session_catalog import MESSAGES
from chatbot.stores.backend import ATTACHMENTS
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import BrokenStore, MissingFolder, StoreError
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter, Progress
from chatbot.stores.records import SessionRecord, SessionRef, TranscriptEntry, format_time
from chatbot.stores.session_terms import Row, SessionTerms, stamp_version
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.bm25 import rank, score_sessions
from chatbot.stores.text.redaction import redact

logger = logging.getLogger(__name__)
T = TypeVar("T")

MEMORY = "memory"
TITLE = "title"
_SESSIONS_PART = 0.5
_READ_FOR_EACH = 2
"""Number of sessions that are read for each one asked for."""
_LEAST_READ = 10
_MATCHES = 100
"""Number of memories that are considered for each session asked for."""
_BATCH = 100


class SessionHit(Struct, frozen=True):
    """A session that matches a search, and its best line.

    `role` is that of the entry, `memory` for a memory of the session, or `title`. `number` counts the entries from 1,
    archived ones first; None for no entry. `ranges` are the matches in `line`, in characters.
    """

    record: SessionRecord
    score: float
    role: str
    line: str
    ranges: "tuple[Range, ...]"
    at: datetime
    number: int | None = None
    observation: str | None = None
    """Id of the memory, if one was found."""

    def as_json(self) -> dict[str, Any]:
        """Return the hit as JSON values."""
        place = {"role": self.role, "number": self.number, "observation": self.observation, "at": format_time(self.at)}
        found = {"line": self.line, "ranges": [list(each) for each in self.ranges]}
        return {"session": self.record.as_json(), "score": round(self.score, 4), **place, **found}


class _Candidate(Struct):
    """State of one session while it is ranked."""

    session: SessionHandle
    score: float = 0.0
    memory: tuple[float, str] = (0.0, "")
    """Its best memory: the score, and the id; empty for none."""
    entries: Sequence[TranscriptEntry] = ()


async def search(
    sessions: Sequence[SessionHandle],
    query: str,
    index: SessionTerms,
    scope: Scope | None,
    *,
    limit: int,
    progress: Progress | None = None,
) -> list[SessionHit]:
    """Return the best of `sessions`, best first, by entries and memories in `scope`; none without content words."""
    asked = list(dict.fromkeys(terms(query)))
    if not asked or not sessions:
        return []
    unreadable: dict[str, BaseException] = {}
    found = await _candidates(sessions, asked, index, progress or (lambda _done, _total: None), unreadable)
    if len(unreadable) == len(sessions):
        raise next(iter(unreadable.values()))  # an empty result would mean that nothing was said
    await _add_remembered(found, sessions, asked, scope, limit)
    best = sorted(found.values(), key=lambda each: (each.score, each.memory), reverse=True)
    best = best[: max(limit * _READ_FOR_EACH, _LEAST_READ)]
    entries = await _entries([each.session for each in best], unreadable)
    for each in best:
        each.entries = entries.get(each.session.id, ())
    rows = await _rows(scope, [each.memory[1] for each in best if each.memory[1]])
    hits = await asyncio.to_thread(_rank, best, asked, rows)
    return hits[:limit]


async def _candidates(
    sessions: Sequence[SessionHandle],
    asked: Sequence[str],
    index: SessionTerms,
    progress: Progress,
    unreadable: dict[str, BaseException],
) -> dict[str, _Candidate]:
    """Return the sessions whose entries or titles contain any of the terms, with their scores."""
    indexed = await asyncio.to_thread(index.find, asked)
    counts: dict[str, tuple[int, ...]] = {}
    changed: list[tuple[SessionHandle, str]] = []
    stamps = await of_each(sessions, lambda store, those: store.transcript_stamps(those))
    for session in sessions:
        stamp = "" if isinstance(found := stamps.get(session.id, "-"), BaseException) else found
        if stamp and session.id in indexed and indexed[session.id][0] == stamp_version(stamp):
            counts[session.id] = indexed[session.id][1]
        else:
            changed.append((session, stamp))
    for begin in range(0, len(changed), _BATCH):
        if len(changed) > _BATCH:  # fewer take no time
            progress(begin, len(changed))
        batch = changed[begin : begin + _BATCH]
        entries = await _entries([session for session, _ in batch], unreadable)
        changed_entries = [(each.id, stamp, entries[each.id]) for each, stamp in batch if each.id in entries]
        counts |= await asyncio.to_thread(_keep_terms, changed_entries, asked, index)
    held = {session.id: _with_title(session, asked, counts.get(session.id, ())) for session in sessions}
    held_by = [{each: held[each][place] for each in held if held[each][place]} for place in range(len(asked))]
    scores = score_sessions(held_by)
    return {session.id: _Candidate(session, scores[session.id]) for session in sessions if session.id in scores}


def _keep_terms(
    changed: Sequence[tuple[str, str, Sequence[TranscriptEntry]]], asked: Sequence[str], index: SessionTerms
) -> dict[str, tuple[int, ...]]:
    """Keep the terms of sessions that have changed; return how many entries hold each of those asked for."""
    answers: dict[str, tuple[int, ...]] = {}
    rows: list[Row] = []
    for session, stamp, entries in changed:
        spoken = [entry.content for entry in entries if entry.role in MESSAGES]
        held = Counter(term for text in spoken for term in set(terms(text)))
        answers[session] = tuple(held[term] for term in asked)
        if stamp:
            rows.append((session, stamp, held))
    index.put(rows)
    return answers


async def of_each(
    sessions: Sequence[SessionHandle],
    read: Callable[[TranscriptStore, list[SessionRef]], Awaitable[Sequence[T | BaseException]]],
) -> dict[str, T | BaseException]:
    """Return what `read` returns for each session, or why it failed; nothing for those without a transcript."""
    those_of: defaultdict[TranscriptStore, list[SessionRef]] = defaultdict(list)
    for store, ref in (each.transcript_place() for each in sessions if each.supports(TranscriptStore)):
        those_of[store].append(ref)
    found: dict[str, T | BaseException] = {}
    for store, those in those_of.items():
        ids = [each.id for each in those]
        try:
            if len(answers := await read(store, those)) != len(those):
                raise BrokenStore(f"the store {type(store).__name__} answered for {len(answers)} of {len(those)}")
            found |= zip(ids, answers, strict=True)
        except StoreError as error:
            found |= dict.fromkeys(ids, error)
    return found


async def _entries(
    sessions: Sequence[SessionHandle], unreadable: dict[str, BaseException]
) -> dict[str, Sequence[TranscriptEntry]]:
    """Return all entries, except of sessions that are being deleted or damaged. Damage is added to `unreadable`."""
    found: dict[str, Sequence[TranscriptEntry]] = {each.id: () for each in sessions}
    by_id = {each.id: each for each in sessions}
    for session, entries in (await of_each(sessions, lambda store, those: store.transcripts_read_all(those))).items():
        if not isinstance(entries, BaseException):
            found[session] = [await _with_attached(by_id[session], each) for each in entries]
            continue
        del found[session]
        if not isinstance(entries, MissingFolder) and unreadable.setdefault(session, entries) is entries:
            logger.warning("session %s was skipped: %s", session, entries)
    return found


async def _with_attached(session: SessionHandle, entry: TranscriptEntry) -> TranscriptEntry:
    """Return an entry with the texts of the files that it names, as far as they can be read."""
    for link in split_links(entry.content)[1] if entry.role == "user" and ATTACHMENTS in entry.content else ():
        with suppress(StoreError):
            data = (await session.attachment(link.text) if link.text else None) or b""
            entry = replace(entry, content=f"{entry.content}\n{data.decode(errors='replace')}")
    return entry


def _with_title(session: SessionHandle, asked: Sequence[str], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of entries with each term, one more for each term of the title."""
    title = set(terms(session.record.title)) if session.record.title else set()
    return tuple(count + (term in title) for term, count in zip(asked, counts or (0,) * len(asked), strict=True))


async def _add_remembered(
    found: dict[str, _Candidate],
    sessions: Sequence[SessionHandle],
    asked: Sequence[str],
    scope: Scope | None,
    limit: int,
) -> None:
    """Note for each session its best memory that the caller may see."""
    if scope is None:
        return
    wanted = {session.id: session for session in sessions}
    matches = await scope.store.match(scope.view(), asked, Filter(), limit=_MATCHES * max(1, limit))
    summaries = await _rows(scope, [match.id for match in matches if match.type == "session_summary"])
    for match in matches:
        session_id = summaries[match.id].subject if match.id in summaries else match.session_id
        if session_id in wanted:
            each = found.setdefault(session_id, _Candidate(wanted[session_id]))
            each.memory = max(each.memory, (match.score, match.id))


async def _rows(scope: Scope | None, ids: Sequence[str]) -> dict[str, Observation]:
    if scope is None or not ids:
        return {}
    return {row.id: row for row in await scope.store.get(scope.view(), ids)}


def _rank(best: Sequence[_Candidate], asked: Sequence[str], rows: Mapping[str, Observation]) -> list[SessionHit]:
    wanted = set(asked)
    places: list[tuple[str, _Text]] = []
    documents: dict[int, dict[str, list[str]]] = {}
    for each in best:
        for text in _searched_texts(each):
            if not wanted.isdisjoint(words := terms(text.content)):
                documents[len(places)] = {text.role: words}
                places.append((each.session.id, text))
    scores = rank(documents, asked)
    top: dict[str, tuple[float, _Text]] = {}
    for document, (session_id, text) in enumerate(places):
        if session_id not in top or scores[document] > top[session_id][0]:
            top[session_id] = (scores[document], text)
    hits = [hit for each in best if (hit := _hit(each, top.get(each.session.id), wanted, rows))]
    return sorted(hits, key=lambda hit: (hit.score, hit.record.used_at), reverse=True)


class _Text(NamedTuple):
    """A text of a session; `number` is that of its entry, None for the title."""

    role: str
    content: str
    at: datetime
    number: int | None = None


def _searched_texts(candidate: _Candidate) -> Iterable[_Text]:
    record = candidate.session.record
    if record.title:
        yield _Text(TITLE, record.title, record.created_at)
    for number, entry in enumerate(candidate.entries, 1):
        if entry.role in MESSAGES:
            yield _Text(entry.role, entry.content, entry.at, number)


def _hit(
    candidate: _Candidate, top: tuple[float, _Text] | None, wanted: set[str], rows: Mapping[str, Observation]
) -> SessionHit | None:
    record, row = candidate.session.record, rows.get(candidate.memory[1])
    score = max(top[0] if top else 0.0, candidate.memory[0] if row else 0.0) + _SESSIONS_PART * candidate.score
    if top is not None:
        text = top[1]
        line, ranges = snippet(redact(text.content)[0], wanted)  # before it is cut, so that no part of a secret remains
        return SessionHit(record, score, text.role, line, ranges, text.at, text.number)
    if row is None:
        return None
    line, ranges = snippet(row.text(), wanted)
    return SessionHit(record, score, MEMORY, line, ranges, row.created_at, observation=row.id)


Range = tuple[int, int]
"""Begin and end of a match, in characters."""

LONGEST = 240
_WORD = re.compile(r"\w+(?:['’.:/\\@&_-]+\w+)*(?:\+\+|#)?|[^\w\s\x00-\x7f]+")
_LINES_LOOKED_AT = 2_000


def snippet(text: str, wanted: set[str]) -> tuple[str, tuple[Range, ...]]:
    """Return the first line with the most wanted terms, cut to `LONGEST`, and the ranges of the terms in it."""
    lines = [line.strip() for line in text.splitlines()[:_LINES_LOOKED_AT] if line.strip()]
    line = max(lines, key=lambda line: len(wanted & set(terms(line))), default="")
    return _cut(line, _merge_ranges(_ranges(line, wanted)))


def _ranges(line: str, wanted: set[str]) -> Iterator[Range]:
    for word in _WORD.finditer(line):
        if wanted.isdisjoint(terms(word[0])):
            continue
        signs = [at for at, sign in enumerate(word[0], word.start()) if sign > "\x7f" and wanted & {*terms(sign)}]
        if signs:  # in a script without spaces, the whole sentence is one match
            yield from ((place, place + 1) for place in signs)
        else:
            yield word.span()


def _merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for begin, end in ranges:
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return tuple(merged)


def _cut(line: str, found: tuple[Range, ...]) -> tuple[str, tuple[Range, ...]]:
    if len(line) <= LONGEST:
        return line, found
    begin = max(0, min((found[0][0] if found else 0) - LONGEST // 3, len(line) - LONGEST))
    end = begin + LONGEST
    before, after = "…" * (begin > 0), "…" * (end < len(line))
    shift = len(before) - begin
    kept = tuple((start + shift, min(stop, end) + shift) for start, stop in found if begin <= start < end)
    return f"{before}{line[begin:end]}{after}", kept
