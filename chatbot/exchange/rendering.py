"""A session as one file for people or programs: Markdown, JSON lines, or a page. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

from chatbot.exchange.exported import Exported
from stores import transcript
from stores.records import format_time

FORMATS = ("markdown", "jsonl", "html")
SUFFIXES = {"markdown": ".md", "jsonl": ".jsonl", "html": ".html"}
VERSION = 1


def render(exported: Exported, form: str) -> str:
    """The session in one of `FORMATS`."""
    return {"markdown": _markdown, "jsonl": _jsonl, "html": _html}[form](exported)


def _markdown(exported: Exported) -> str:
    """The transcript as it stands in its own file, below a title; an entry can no more be forged than there."""
    record = exported.record
    head = f"# {record.title or 'untitled'}\n\n{record.id}, begun {format_time(record.created_at)}\n\n"
    said = transcript.render(exported.entries).decode()
    remembered = "\n".join(f"- {' '.join(row.text().split())}" for row in exported.observations)
    return head + said + (f"---\n\n## Remembered\n\n{remembered}\n" if remembered else "")


def _jsonl(exported: Exported) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(exported))


def _lines(exported: Exported) -> Iterator[dict[str, Any]]:
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


def _html(exported: Exported) -> str:
    """One page that holds all it needs, and is not able to load anything: its policy forbids it."""
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
    remembered = f"<h2>Remembered</h2>\n<ul>\n{rows}\n</ul>\n" if rows else ""
    return _PAGE.format(
        title=title,
        style=_STYLE,
        about=f"{escape(exported.record.id)}, begun {_time(exported.record.created_at)}",
        said=said,
        remembered=remembered,
    )


def _time(moment: datetime) -> str:
    return f'<time datetime="{format_time(moment)}">{moment.astimezone(UTC):%Y-%m-%d %H:%M}</time>'


def _plain(text: str) -> str:
    """The text without what would turn its direction or control who reads it."""
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
