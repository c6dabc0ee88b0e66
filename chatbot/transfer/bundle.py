"""The bundle format: sessions in one zip file, with a manifest that lists size and SHA-256 of each file.

    manifest.json                         format, version, when, session ids, and the files
    sessions/<id>/session.json            as in the identity's folder, like the next four
    sessions/<id>/transcript.md           entries within the cap
    sessions/<id>/transcript.archive.md   older entries
    sessions/<id>/kv.json
    sessions/<id>/receipts.jsonl
    sessions/<id>/observations.jsonl      its memories: one row a line, in their current state
    sessions/<id>/facts.jsonl
    sessions/<id>/attachments/<name>      the files that messages name, each under the digest of its content
    memories.jsonl                        memories of no session, such as the profile, in the form of their export

A bundle is read only if its files are exactly those of the manifest and have only these names. Hashes prove that it is
complete, not who made it: its content stays untrusted.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

import msgspec

from chatbot.attachments import MEDIA_TYPES
from chatbot.stores import transcript
from chatbot.stores.backend import ATTACHMENTS, checked_blob, is_blob_name
from chatbot.stores.basic_session import parse_key_values, render_key_values
from chatbot.stores.errors import DamagedFile, LaterFormat
from chatbot.stores.observation import parse_observation, parse_triple
from chatbot.stores.records import decode_record, format_time, is_session_id
from chatbot.transfer.exports import MemoryExport, SessionExport, json_lines, read_memories, render_memories
from chatbot.transfer.untrusted import ZipFile, checked_receipt, decoded

FORMAT = "chatbot-bundle"
VERSION = 1
MANIFEST = "manifest.json"
MEMORIES_NAME = "memories.jsonl"
_LARGEST_MANIFEST = 64 << 20
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""A fixed time, so that the same session always gives the same bytes."""


class BundleWriter:
    """Writer of sessions into an open file; `close` adds the manifest."""

    def __init__(self, file: BinaryIO, *, now: datetime) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._now = now
        self._files: dict[str, dict[str, Any]] = {}
        self._sessions: list[str] = []

    def add(self, exported: SessionExport) -> None:
        """Write one session."""
        session = exported.record.id
        self._sessions.append(session)
        for name, data in _files_of(exported):
            if data or name == "session.json":
                self._write(f"sessions/{session}/{name}", data)

    def add_memories(self, remembered: MemoryExport) -> None:
        """Write memories that belong to no session."""
        self._write(MEMORIES_NAME, render_memories(remembered, "jsonl").encode())

    def close(self) -> None:
        """Write the manifest, which completes the bundle."""
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "exported_at": format_time(self._now),
            "sessions": self._sessions,
            "files": self._files,
        }
        self._put(MANIFEST, _rendered(manifest))
        self._zip.close()

    def _write(self, name: str, data: bytes) -> None:
        self._files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self._put(name, data)

    def _put(self, name: str, data: bytes) -> None:
        member = zipfile.ZipInfo(name, _LONG_AGO)
        member.external_attr = 0o600 << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(member, data)


def is_bundle(archive: ZipFile) -> bool:
    """Return True if the archive has the manifest of a bundle."""
    if MANIFEST not in archive.names:
        return False
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except (ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def verify(archive: ZipFile) -> list[str]:
    """Check a bundle against its manifest and return the ids of its sessions.

    Raises `DamagedFile`, `UnsafePath`, or `LaterFormat`.
    """
    archive.check_all()
    files, sessions = _manifest(archive)
    if extra := sorted(set(archive.names) ^ {MANIFEST, *files}):
        raise DamagedFile(f"{archive.path}: the manifest and the files differ in {extra[0]!r}")
    for name, told in files.items():
        _check_name(archive, name, sessions)
        data = archive.read(name)
        if not isinstance(told, dict) or told.get("size") != len(data):
            raise DamagedFile(f"{archive.path}: {name} has another size than the manifest states")
        if told.get("sha256") != hashlib.sha256(data).hexdigest():
            raise DamagedFile(f"{archive.path}: {name} was changed: its SHA-256 differs from the manifest")
    return sessions


def read_session(archive: ZipFile, session: str) -> SessionExport:
    """Read one session of a verified bundle. Raises `DamagedFile` or `LaterFormat`."""
    broken = 0

    def part(name: str) -> bytes:
        path = f"sessions/{session}/{name}"
        return archive.read(path) if path in archive.names else b""

    def lines(name: str, parse: Callable[[Mapping[str, Any]], Any]) -> Iterator[Any]:
        nonlocal broken
        for line in decoded(part(name), name).split("\n"):
            if not line.strip():
                continue
            try:
                yield parse(msgspec.json.decode(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                broken += 1

    try:
        record = decode_record(part("session.json"), session)
        key_values = tuple(parse_key_values(part("kv.json"))) if part("kv.json") else ()
    except LaterFormat:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{archive.path}: session {session} cannot be parsed: {error}") from error
    said = (*transcript.parse(part("transcript.archive.md")), *transcript.parse(part("transcript.md")))
    receipts = tuple(lines("receipts.jsonl", checked_receipt))
    observations = tuple(lines("observations.jsonl", parse_observation))
    facts = tuple(lines("facts.jsonl", parse_triple))
    remembered = MemoryExport(observations, facts, broken)
    attachments = tuple(_attachments(archive, session))
    return SessionExport(record, said, key_values, receipts, remembered, attachments=attachments)


def read_loose(archive: ZipFile) -> Iterator[MemoryExport]:
    """Yield the memories of no session, if there are any. Raises `DamagedFile` or `LaterFormat`."""
    if MEMORIES_NAME in archive.names:
        yield read_memories(decoded(archive.read(MEMORIES_NAME), MEMORIES_NAME))


def _attachments(archive: ZipFile, session: str) -> Iterator[tuple[str, bytes]]:
    """The attachments of a session. Raises `DamagedFile` for one whose content is not that of its name."""
    for path in archive.names:
        name = path.rpartition("/")[2]
        if path == f"sessions/{session}/{ATTACHMENTS}/{name}":
            yield name, checked_blob(name, archive.read(path))


def _files_of(exported: SessionExport) -> Iterator[tuple[str, bytes]]:
    record, entries = exported.record, exported.entries
    yield "session.json", _rendered(record.as_json())
    yield "transcript.md", transcript.render(entries)
    values = list(exported.key_values)
    yield "kv.json", render_key_values(len(values), values) if values else b""
    yield "receipts.jsonl", json_lines(exported.receipts).encode()
    yield "observations.jsonl", json_lines(row.as_json() for row in exported.remembered.observations).encode()
    yield "facts.jsonl", json_lines(fact.as_json() for fact in exported.remembered.facts).encode()
    yield from ((f"{ATTACHMENTS}/{name}", data) for name, data in exported.attachments)


_NAMES = frozenset(
    {
        "session.json",
        "transcript.md",
        "transcript.archive.md",
        "kv.json",
        "receipts.jsonl",
        "observations.jsonl",
        "facts.jsonl",
    }
)


def _manifest(archive: ZipFile) -> tuple[dict[str, Any], list[str]]:
    data = archive.read(MANIFEST)
    if len(data) > _LARGEST_MANIFEST:
        raise DamagedFile(f"{archive.path}: the manifest has {len(data):,} bytes, more than is read")
    try:
        manifest = json.loads(data)
        version, files, sessions = manifest["version"], manifest["files"], manifest["sessions"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{archive.path}: the manifest cannot be parsed: {error}") from error
    if isinstance(version, int) and version > VERSION:
        raise LaterFormat(
            f"{archive.path} was written by a later release (format {version}): upgrade chatbot to read it"
        )
    is_listed = isinstance(sessions, list) and all(isinstance(each, str) and is_session_id(each) for each in sessions)
    if version != VERSION or not isinstance(files, dict) or not is_listed or len(set(sessions)) != len(sessions):
        raise DamagedFile(f"{archive.path}: the manifest is invalid")
    return files, sessions


def _check_name(archive: ZipFile, name: str, sessions: Iterable[str]) -> None:
    parts = name.split("/")
    is_ours = parts[0] == "sessions" and len(parts) > 2 and parts[1] in sessions
    if name != MEMORIES_NAME and (
        not is_ours or not ((parts[2:] == [parts[-1]] and parts[-1] in _NAMES) or _is_attachment(name))
    ):
        raise DamagedFile(f"{archive.path}: unexpected file {name!r}")


def _is_attachment(name: str) -> bool:
    """Return whether a file of a bundle is an attachment of a session."""
    parts = name.split("/")
    return len(parts) == 4 and parts[2] == ATTACHMENTS and is_blob_name(parts[3]) and parts[3][32:] in MEDIA_TYPES


def _rendered(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
