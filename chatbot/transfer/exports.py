"""Exports of a session, and of memories without their sessions; as values, and as files for people or programs.

Recognised secrets are redacted in every text of a session. Only rows that the caller may see and that are current are
exported; from a session, no `secret` ones. Only a bundle, which is JSON lines, can be imported again:

    {"kind": "session", "format": 1, …}       its record; the lines after it are of this session, until the part ends
    {"kind": "entry", "number", "role", "at", "content"}
    {"kind": "value", "key", "value", "at"}
    {"kind": "receipt", "receipt"}
    {"kind": "attachment", "name", "data"}    in base64; its name has the digest of its content
    {"kind": "memories", "format": 1}         the rows and facts after it belong to no session, or to any
    {"kind": "observation", …}                a row in its current state, oldest first
    {"kind": "fact", …}
    {"kind": "end", "sha256", "left"}         of the lines of the part, and how many parts follow
"""

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from chatbot.attachments import MEDIA_TYPES
from chatbot.memory import Memory, MemorySystem, SessionRecord
from chatbot.memory.erasure import KEY
from chatbot.memory.session_catalog import NOT_KEPT
from chatbot.messages import json_in
from chatbot.stores import transcript
from chatbot.stores.access import NOT_SECRET, Sensitivity, is_same_project
from chatbot.stores.backend import checked_blob, is_blob_name, suffix_of
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat, UnsupportedOperation
from chatbot.stores.observation import Observation, Triple, parse_observation, parse_triple
from chatbot.stores.query import EVERY
from chatbot.stores.records import KeyValue, TranscriptEntry, format_time, parse_record, parse_time
from chatbot.stores.text.redaction import redact_all
from chatbot.transfer.formats import Skip
from chatbot.transfer.untrusted import checked_receipt

SESSION, MEMORIES, END = "session", "memories", "end"
"""Lines of a bundle that begin and end a part of it."""
SUFFIXES = {"markdown": ".md", "jsonl": ".jsonl"}
VERSION = 1


class MemoryExport(msgspec.Struct, frozen=True):
    """Memories, oldest first; `broken` are the lines of a file that could not be parsed."""

    observations: tuple[Observation, ...] = ()
    facts: tuple[Triple, ...] = ()
    broken: tuple[Skip, ...] = ()


class SessionExport(msgspec.Struct, frozen=True):
    """The parts of a session that are exported."""

    record: SessionRecord
    entries: tuple[TranscriptEntry, ...]
    key_values: tuple[KeyValue, ...] = ()
    receipts: tuple[Mapping[str, Any], ...] = ()
    remembered: MemoryExport = MemoryExport()
    redacted: tuple[str, ...] = ()
    attachments: tuple[tuple[str, bytes], ...] = ()
    """The files that messages name; only JSON lines hold them."""


async def export_session(memory: MemorySystem, session_id: str, *, memories: bool = True) -> SessionExport:
    """Collect the parts of a session that may be exported; its memories too unless `memories` is False."""
    session = await memory.load_session(session_id, any_agent=True)
    entries = await session.transcript_read_all() if session.supports(TranscriptStore) else []
    key_values = await session.kv_entries() if session.supports(KeyValueStore) else []
    receipts = [each for each in await session.records() if each.get("kind") in {None, NOT_KEPT}]
    remembered = MemoryExport()
    if memories:
        with suppress(UnsupportedOperation):  # none are kept
            every = memory.memory().everywhere()
            remembered = await export_memories(every, NOT_SECRET, session_id=session_id)
    else:
        receipts = [{name: value for name, value in receipt.items() if name != "memory"} for receipt in receipts]
    texts = ([each.content for each in entries], [each.value for each in key_values], receipts, session.record.title)
    (said, values, receipts, title), redacted = redact_all(texts)
    used_at = max([session.record.used_at, *(entry.at for entry in entries[-1:])])
    return SessionExport(
        msgspec.structs.replace(session.record, title=title, used_at=used_at),
        tuple(msgspec.structs.replace(entry, content=content) for entry, content in zip(entries, said, strict=True)),
        tuple(msgspec.structs.replace(entry, value=value) for entry, value in zip(key_values, values, strict=True)),
        tuple(receipts),
        remembered,
        redacted,
        tuple([(name, data) for name in await session.attachments() if (data := await session.attachment(name))]),
    )


async def export_loose(memory: MemorySystem, project: str | None = None) -> MemoryExport:
    """Return memories and facts of all projects, or one, without their sessions'. Raises `UnsupportedOperation`."""
    every = await export_memories(memory.memory().everywhere(), NOT_SECRET, project=project)
    expired = {record.id for record in await memory.expired_sessions()}
    sessions = [each for each in await memory.sessions_anywhere() if each.id not in expired]
    theirs = {each.id for each in sessions if project is None or is_same_project(project, each.project)}
    rows = tuple(row for row in every.observations if row.session_id not in theirs)
    return MemoryExport(rows, tuple(fact for fact in every.facts if fact.session_id not in theirs))


async def export_memories(memories: Memory, sensitivities: Collection[Sensitivity], **wanted: Any) -> MemoryExport:
    """Return the current rows that match, with their facts.

    Without filters, or for a project, facts without a source come too. A session comes with all its facts, even if
    their source is in another one. Rows lack the paths that they were imported from, which reveal local folders.
    """
    rows = (await memories.every(sensitivities=sensitivities, **wanted))[::-1]
    of_facts: dict[str, Any] = {name: wanted.get(name) for name in ("project", "session_id")}
    facts = (await memories.query_facts(sensitivities=sensitivities, limit=EVERY, **of_facts))[::-1]
    sources: set[str | None] = {row.id for row in rows}
    if not any(value for name, value in wanted.items() if name not in of_facts):
        sources |= {fact.source for fact in facts} if of_facts["session_id"] else {None}
    without_paths = [
        replace(row, metadata={name: row.metadata[name] for name in row.metadata if name != KEY}) for row in rows
    ]
    return MemoryExport(tuple(without_paths), tuple(fact for fact in facts if fact.source in sources))


def render_session(exported: SessionExport, form: str, *, left: int = 0) -> str:
    """Render the session in a format of `SUFFIXES`; in a bundle, `left` parts follow it."""
    return _part(_session_lines(exported), left) if form == "jsonl" else _session_markdown(exported)


def render_memories(remembered: MemoryExport, form: str) -> str:
    """Render the memories as `jsonl`, the last part of a bundle, or as `markdown`."""
    if form == "jsonl":
        return _part([{"kind": MEMORIES, "format": VERSION}, *_memory_lines(remembered)])
    facts = (fact for fact in remembered.facts if not fact.is_about_session)
    stated = "\n".join(f"- {fact.subject} · {fact.predicate} · {fact.object}" for fact in facts)
    return "\n".join(map(render_note, remembered.observations)) + (f"\n# Facts\n\n{stated}\n" if stated else "")


def _part(values: Iterable[Mapping[str, Any]], left: int = 0) -> str:
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    end = {"kind": END, "sha256": hashlib.sha256(lines.encode()).hexdigest(), "left": left}
    return f"{lines}{json.dumps(end)}\n"


class _Part:
    """Part of a bundle as it is read: a session, or memories. Raises `DamagedFile` or `LaterFormat`."""

    def __init__(self, kind: str, fields: Mapping[str, Any], where: str) -> None:
        self.lines = defaultdict[str, list[Any]](list)
        self.broken = list[Skip]()
        try:
            if fields["format"] > VERSION:
                raise LaterFormat("it was written by a later release: upgrade chatbot to read it")
            self.record = parse_record(fields) if kind == SESSION else None
        except LaterFormat as error:
            raise LaterFormat(f"{where}: {error}") from error
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedFile(f"{where} cannot be parsed: {_why(error)}") from error

    def add(self, kind: str, fields: Mapping[str, Any], where: str) -> None:
        """Parse a line. Lines that a session needs must be valid; others that are not are reported."""
        try:
            if kind not in (_OF_MEMORY if self.record is None else _PARSERS):
                raise InvalidValue("it is not a line of a bundle")
            self.lines[kind].append(_PARSERS[kind](fields))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if self.record is not None and kind not in {*_OF_MEMORY, "receipt"}:
                raise DamagedFile(f"{where} cannot be parsed: {_why(error)}") from error
            self.broken.append(Skip(where, f"not of this format: {_why(error)}"))

    def whole(self) -> SessionExport | MemoryExport:
        """Return the session or the memories in it."""
        entries, values, receipts, rows, facts, files = (tuple(self.lines[kind]) for kind in _PARSERS)
        remembered = MemoryExport(rows, facts, tuple(self.broken))
        if self.record is None:
            return remembered
        return SessionExport(self.record, entries, values, receipts, remembered, attachments=files)


def _why(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def read_bundle(text: str, name: str) -> Iterator[SessionExport | MemoryExport]:
    """Yield the sessions of a bundle, and memories. Raises `DamagedFile` or `LaterFormat`."""
    part: _Part | None = None
    digest, left = hashlib.sha256(), 0
    for number, line in filter(lambda each: each[1].strip(), enumerate(text.split("\n"), 1)):
        where = f"{name}, line {number}"
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            kind = str(fields.pop("kind"))
        except (ValueError, KeyError, RecursionError):
            if text.rstrip().endswith(line):  # cut off
                left = 1
                break
            fields, kind = {}, "unknown"
        if part is None:
            part, digest = _Part(kind, fields, where), hashlib.sha256()
        elif kind == END:
            if fields.get("sha256", digest.hexdigest()) != digest.hexdigest():
                raise DamagedFile(f"{where}: the SHA-256 of a part differs: the file was damaged or changed")
            yield part.whole()
            part, left = None, fields.get("left", 0)
        elif kind in {SESSION, MEMORIES}:
            break
        else:
            part.add(kind, fields, where)
        digest.update(f"{line}\n".encode())
    if part is not None or left != 0:
        raise DamagedFile(f"{name} ends early: check that the file is complete")


def is_bundle(text: str) -> bool:
    """Return True if the first line begins a bundle."""
    head = json_in(text.partition("\n")[0])
    return isinstance(head, dict) and head.get("kind") in {SESSION, MEMORIES}


def _attachment(fields: Mapping[str, Any]) -> tuple[str, bytes]:
    name = fields["name"]
    if not is_blob_name(name) or suffix_of(name) not in MEDIA_TYPES:
        raise InvalidValue(f"{name!r:.80} is not the name of an attachment")
    return name, checked_blob(name, base64.b64decode(fields["data"], validate=True))


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "entry": lambda line: TranscriptEntry(line["role"], line["content"], parse_time(line["at"])),
    "value": lambda line: KeyValue(line["key"], line["value"], parse_time(line["at"])),
    "receipt": lambda line: checked_receipt(line["receipt"]),
    "observation": parse_observation,
    "fact": parse_triple,
    "attachment": _attachment,
}
_OF_MEMORY = frozenset({"observation", "fact"})


def _memory_lines(remembered: MemoryExport) -> Iterator[dict[str, Any]]:
    yield from ({"kind": "observation", **row.as_json()} for row in remembered.observations)
    yield from ({"kind": "fact", **fact.as_json()} for fact in remembered.facts)


def _session_lines(exported: SessionExport) -> Iterator[dict[str, Any]]:
    yield {"kind": SESSION, "format": VERSION, **exported.record.as_json()}
    for number, entry in enumerate(exported.entries, 1):
        line = {"kind": "entry", "number": number, "role": entry.role}
        yield line | {"at": format_time(entry.at), "content": entry.content}
    for value in exported.key_values:
        yield {"kind": "value", "key": value.key, "value": value.value, "at": format_time(value.at)}
    yield from ({"kind": "receipt", "receipt": receipt} for receipt in exported.receipts)
    for name, data in exported.attachments:
        yield {"kind": "attachment", "name": name, "data": base64.b64encode(data).decode()}
    yield from _memory_lines(exported.remembered)


def render_note(row: Observation) -> str:
    """Render one memory as a section of Markdown."""
    return "# {}\n{}".format(*row.as_note())


def _session_markdown(exported: SessionExport) -> str:
    """Render a title and the transcript in the format of its file, so that no text can forge an entry."""
    record = exported.record
    head = f"# {record.title or 'untitled'}\n\n{record.id}; started {format_time(record.created_at)}\n\n"
    body = transcript.render(exported.entries).decode()
    remembered = "\n".join(f"- {' '.join(row.text().split())}" for row in exported.remembered.observations)
    return head + body + (f"---\n\n## Memories\n\n{remembered}\n" if remembered else "")
