"""A bundle: sessions in one zip file, with a manifest that tells the size and the SHA-256 of each file in it.

    manifest.json                         format, version, when, which sessions, and the files
    sessions/<id>/session.json            as in the identity's folder, and so are the next four
    sessions/<id>/transcript.md           what is within the cap
    sessions/<id>/transcript.archive.md   what is past it
    sessions/<id>/kv.json
    sessions/<id>/receipts.jsonl
    sessions/<id>/observations.jsonl      what is remembered of it: one row a line, as it is now
    sessions/<id>/facts.jsonl

A bundle is read only if it is exactly what its manifest says, and holds no name but these. Hashes prove that it is
whole, not who made it: what it says is still a stranger's word.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from chatbot.exchange.exported import Exported
from chatbot.exchange.json_text import decoded
from chatbot.exchange.zip_file import ZipFile
from chatbot.memory.record import SessionRecord, decode_record, is_session_id
from stores import key_value_file, transcript
from stores.errors import DamagedFile, LaterFormat
from stores.observation import Observation, Triple, parse_observation, parse_triple
from stores.records import KeyValue, TranscriptEntry, format_time

FORMAT = "chatbot-bundle"
VERSION = 1
MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 64 << 20
_LARGEST_AMOUNT = 1e12
"""Of dollars or tokens in one call: more was never spent, and would be more than any budget for ever."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The same session gives the same bytes, whenever it is written."""


@dataclass(frozen=True, slots=True)
class BundledSession:
    """A session as a bundle holds it; `broken` are its lines that cannot be understood."""

    record: SessionRecord
    entries: tuple[TranscriptEntry, ...]
    key_values: tuple[KeyValue, ...]
    receipts: tuple[dict[str, Any], ...]
    observations: tuple[Observation, ...]
    facts: tuple[Triple, ...]
    broken: int = 0


class BundleWriter:
    """Writes sessions into an open file, one after the other; `close` ends it with the manifest."""

    def __init__(self, file: BinaryIO, *, now: datetime) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._now = now
        self._files: dict[str, dict[str, Any]] = {}
        self._sessions: list[str] = []

    def add(self, exported: Exported) -> None:
        """Write one session."""
        session = exported.record.id
        self._sessions.append(session)
        for name, data in _files_of(exported):
            if data or name == "session.json":
                self._write(f"sessions/{session}/{name}", data)

    def close(self) -> None:
        """Write the manifest; the bundle is whole after that."""
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
    """Whether it says that it is a bundle."""
    if MANIFEST not in archive.names:
        return False
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except (ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def verify(archive: ZipFile) -> list[str]:
    """The ids of the sessions in a bundle, once all of it is what its manifest says.

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
            raise DamagedFile(f"{archive.path}: {name} is not as long as the manifest says")
        if told.get("sha256") != hashlib.sha256(data).hexdigest():
            raise DamagedFile(f"{archive.path}: {name} was changed: its SHA-256 is not that of the manifest")
    return sessions


def read_session(archive: ZipFile, session: str) -> BundledSession:
    """One session of a verified bundle. Raises `DamagedFile` or `LaterFormat`."""
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
                yield parse(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                broken += 1

    try:
        record = decode_record(part("session.json"), session)
        key_values = tuple(key_value_file.parse(part("kv.json"))) if part("kv.json") else ()
    except LaterFormat:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{archive.path}: session {session} cannot be understood: {error}") from error
    said = (*transcript.parse(part("transcript.archive.md")), *transcript.parse(part("transcript.md")))
    receipts = tuple(lines("receipts.jsonl", _receipt))
    observations = tuple(lines("observations.jsonl", parse_observation))
    facts = tuple(lines("facts.jsonl", parse_triple))
    return BundledSession(record, said, key_values, receipts, observations, facts, broken)


def _files_of(exported: Exported) -> Iterator[tuple[str, bytes]]:
    record, entries = exported.record, exported.entries
    yield "session.json", _rendered(record.as_json())
    yield "transcript.archive.md", transcript.render(entries[: exported.archived])
    yield "transcript.md", transcript.render(entries[exported.archived :])
    values = list(exported.key_values)
    yield "kv.json", key_value_file.render(len(values), values) if values else b""
    yield "receipts.jsonl", _json_lines(exported.receipts)
    yield "observations.jsonl", _json_lines(row.as_json() for row in exported.observations)
    yield "facts.jsonl", _json_lines(fact.as_json() for fact in exported.facts)


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
        raise DamagedFile(f"{archive.path}: the manifest has {len(data):,} bytes, which is not to be read")
    try:
        manifest = json.loads(data)
        version, files, sessions = manifest["version"], manifest["files"], manifest["sessions"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{archive.path}: the manifest cannot be understood: {error}") from error
    if isinstance(version, int) and version > VERSION:
        raise LaterFormat(f"{archive.path} was written by a later release (format {version}): upgrade to read it")
    is_listed = isinstance(sessions, list) and all(isinstance(each, str) and is_session_id(each) for each in sessions)
    if version != VERSION or not isinstance(files, dict) or not is_listed or len(set(sessions)) != len(sessions):
        raise DamagedFile(f"{archive.path}: the manifest cannot be understood")
    return files, sessions


def _check_name(archive: ZipFile, name: str, sessions: Iterable[str]) -> None:
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != "sessions" or parts[1] not in sessions or parts[2] not in _NAMES:
        raise DamagedFile(f"{archive.path}: no bundle holds a file {name!r}")


def _receipt(value: Any) -> dict[str, Any]:
    """A receipt that can be shown and billed: what it says was spent was spent, and no less than nothing."""
    calls = value.get("calls", [])
    spent = [call.get(name) or 0 for call in calls for name in ("cost_usd", "input_tokens", "output_tokens")]
    if not isinstance(value["turn"], str) or not all(_is_amount(each) for each in spent):
        raise ValueError("it is no receipt")
    return dict(value)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _LARGEST_AMOUNT


def _rendered(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _json_lines(values: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
