"""Export one session, also as a file for people or programs: Markdown, JSON lines, or an HTML page.

Keys and passwords that the detector recognises are redacted in every text. Rows with sensitivity `secret` are never
exported, nor is any row that the caller may not see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from typing import Any

from chatbot.memory import MemorySystem, SessionHandle, SessionRecord
from chatbot.redaction import redact_all
from chatbot.stores import transcript
from chatbot.stores.access import Sensitivity
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import UnsupportedOperation
from chatbot.stores.observation import Observation, Triple
from chatbot.stores.query import EVERY
from chatbot.stores.records import KeyValue, TranscriptEntry, format_time
from chatbot.transfer.earlier_imports import without_places

EXPORTED_SENSITIVITIES: tuple[Sensitivity, ...] = ("public", "private")
FORMATS = ("markdown", "jsonl", "html")
SUFFIXES = {"markdown": ".md", "jsonl": ".jsonl", "html": ".html"}
VERSION = 1


@dataclass(frozen=True, slots=True)
class SessionExport:
    """The parts of a session that are exported."""

    record: SessionRecord
    entries: tuple[TranscriptEntry, ...]
    key_values: tuple[KeyValue, ...] = ()
    receipts: tuple[Mapping[str, Any], ...] = ()
    observations: tuple[Observation, ...] = ()
    facts: tuple[Triple, ...] = ()
    redacted: tuple[str, ...] = ()
    """Kinds of the secrets that were redacted."""
    attachments: tuple[tuple[str, bytes], ...] = ()
    """The files that messages name; only a bundle holds them."""


async def export_session(memory: MemorySystem, session_id: str, *, memories: bool = True) -> SessionExport:
    """Collect the parts of a session that may be exported; its memories too unless `memories` is False."""
    session = await memory.load_session(session_id, any_agent=True)
    entries = await _said(session)
    key_values = await session.kv_entries() if session.supports(KeyValueStore) else []
    receipts = await session.receipts()
    if not memories:
        receipts = [{name: value for name, value in receipt.items() if name != "memory"} for receipt in receipts]
    said, spoken = redact_all([entry.content for entry in entries])
    values, kept = redact_all([entry.value for entry in key_values])
    receipts, billed = redact_all(receipts)
    title, named = redact_all(session.record.title)
    observations, facts = await _remembered(memory, session_id) if memories else ((), ())
    used_at = max([session.record.used_at, *(entry.at for entry in entries[-1:])])
    return SessionExport(
        replace(session.record, title=title, used_at=used_at),
        tuple(replace(entry, content=content) for entry, content in zip(entries, said, strict=True)),
        tuple(replace(entry, value=value) for entry, value in zip(key_values, values, strict=True)),
        tuple(receipts),
        observations,
        facts,
        tuple(dict.fromkeys((*spoken, *kept, *billed, *named))),
        tuple([(name, data) for name in await session.attachments() if (data := await session.attachment(name))]),
    )


async def _said(session: SessionHandle) -> list[TranscriptEntry]:
    return await session.transcript_read_all() if session.supports(TranscriptStore) else []


async def _remembered(memory: MemorySystem, session_id: str) -> tuple[tuple[Observation, ...], tuple[Triple, ...]]:
    """Return the current rows and facts of the session that the caller may see, oldest first."""
    try:
        memories = memory.memories().everywhere()
    except UnsupportedOperation:
        return (), ()
    rows = await memories.every(ask=EXPORTED_SENSITIVITIES, session_id=session_id)
    facts = await memories.query_facts(ask=EXPORTED_SENSITIVITIES, session_id=session_id, limit=EVERY)
    return tuple(replace(row, metadata=without_places(row.metadata)) for row in rows[::-1]), tuple(facts[::-1])


def render(exported: SessionExport, form: str) -> str:
    """Render the session in one of `FORMATS`."""
    return {"markdown": _markdown, "jsonl": _jsonl, "html": _html}[form](exported)


def _markdown(exported: SessionExport) -> str:
    """Render a title and the transcript in the format of its file, so that no text can forge an entry."""
    record = exported.record
    head = f"# {record.title or 'untitled'}\n\n{record.id}; started {format_time(record.created_at)}\n\n"
    said = transcript.render(exported.entries).decode()
    remembered = "\n".join(f"- {' '.join(row.text().split())}" for row in exported.observations)
    return head + said + (f"---\n\n## Memories\n\n{remembered}\n" if remembered else "")


def _jsonl(exported: SessionExport) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(exported))


def _lines(exported: SessionExport) -> Iterator[dict[str, Any]]:
    yield {"kind": "session", "format": VERSION, **exported.record.as_json()}
    for number, entry in enumerate(exported.entries, 1):
        yield {
            "kind": "entry",
            "number": number,
            "role": entry.role,
            "at": format_time(entry.at),
            "content": entry.content,
        }
    for row in exported.observations:
        yield {"kind": "observation", **row.as_json()}
    for fact in exported.facts:
        yield {"kind": "fact", **fact.as_json()}


def _html(exported: SessionExport) -> str:
    """Render one self-contained page; its content policy forbids it to load anything."""
    title = escape(_plain(exported.record.title or "untitled"))
    said = "\n".join(
        f'<article class="{escape(entry.role)}" id="e{number}"><header><b>{escape(entry.role)}</b> '
        f'<a href="#e{number}">{number}</a> {_time(entry.at)}</header>'
        f"<div>{escape(_plain(entry.content))}</div></article>"
        for number, entry in enumerate(exported.entries, 1)
    )
    rows = "\n".join(
        f"<li><b>{escape(row.type)}</b> {escape(_plain(row.text()))} {_time(row.created_at)}</li>"
        for row in exported.observations
    )
    remembered = f"<h2>Memories</h2>\n<ul>\n{rows}\n</ul>\n" if rows else ""
    return _PAGE.format(
        title=title,
        style=_STYLE,
        about=f"{escape(exported.record.id)}; started {_time(exported.record.created_at)}",
        said=said,
        remembered=remembered,
    )


def _time(moment: datetime) -> str:
    return f'<time datetime="{format_time(moment)}">{moment.astimezone(UTC):%Y-%m-%d %H:%M}</time>'


def _plain(text: str) -> str:
    """Replace control characters and those that change the direction of text."""
    return "".join(char if char.isprintable() or char in "\n\t\u200c\u200d\u3000\u00a0" else "�" for char in text)


_STYLE = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1f; --soft: #6b6b76; --line: #dcdce3; --user: #eef3fb; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15161a; --ink: #e8e8ee; --soft: #9a9aa6; --line: #33343c; --user: #1d2532; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; margin: 0 auto;
  max-width: 46rem; padding: 2rem 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
.about, header { color: var(--soft); font-size: .8rem; } header b { color: var(--ink); } a { color: inherit; }
article { border-top: 1px solid var(--line); margin-top: 1rem; padding: .75rem; }
article.user { background: var(--user); border-radius: .5rem; border-top: 0; }
article.error, article.tool, article.tool_call { color: var(--soft); font-size: .85rem; }
div, li { white-space: pre-wrap; overflow-wrap: anywhere; }"""

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="about">{about}</p>
<main>
{said}
</main>
{remembered}</body>
</html>
"""
