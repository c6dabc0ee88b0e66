"""Many observations as one: everything that they say, each line once, by rule and without a word added. Pure.

What is merged is of one agent and guarded alike. A digest is short enough to be recalled: where there is more to say,
there are several. Nothing is cut: a row that is too long by itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from stores.access import Guard
from stores.observation import PROTECTED_TYPES, Observation, estimate_tokens, fold

MOST_TOKENS = 1_000
"""About the most that a digest may say, so that it fits a prompt beside others."""
MOST_SOURCES = 200
_LONGEST_TITLE = 200
_SUMMARIES = frozenset({"session_summary", "compressed_summary"})
_JOINED = ("tags", "concepts", "people", "files_read", "files_modified", "facts")
_MOST_ITEMS = 200

Key = tuple[object, ...]


def may_be_merged(row: Observation) -> bool:
    """Whether a row may become part of a digest: no protected type, no task, and no digest itself."""
    return row.type not in PROTECTED_TYPES | _SUMMARIES and "kind" not in row.metadata


def kinship(row: Observation) -> Key:
    """What rows must have in common to be merged: agent, guard, project, and whether they are kept for ever."""
    return (row.agent_id, Guard.of(row), fold(row.project), row.expires_at is None)


def portions(rows: Iterable[Observation], *, least: int = 3) -> list[list[Observation]]:
    """The rows, oldest first, in as many groups as their digests need; groups of fewer than `least` are left out."""
    found: list[list[Observation]] = [[]]
    said: set[str] = set()
    size = 0
    for row in sorted(rows, key=lambda each: (each.created_at, each.id)):
        adds = _tokens(row, said)
        if size + adds > MOST_TOKENS or len(found[-1]) == MOST_SOURCES or _items([*found[-1], row]) > _MOST_ITEMS:
            found.append([])
            said, size = set(), 0
            adds = _tokens(row, said)
        if adds <= MOST_TOKENS and _items([row]) <= _MOST_ITEMS:
            found[-1].append(row)
            said.update(map(fold, _lines(row.said())))
            size += adds
    return [portion for portion in found if len(portion) >= least]


def digest(rows: Sequence[Observation], *, new_id: str, what: str, now: datetime) -> Observation:
    """One observation that says what `rows`, oldest first and of one `kinship`, say; `what` they are opens its title.

    It was created when the newest of them was, is as important as the most important by now, and expires with the
    first.
    """
    first, last = rows[0], rows[-1]
    expiries = [row.expires_at for row in rows if row.expires_at is not None]
    return Observation(
        id=new_id,
        created_at=last.created_at,
        updated_at=max(now, last.created_at),
        agent_id=first.agent_id,
        session_id=_common(row.session_id for row in rows) or None,
        project=first.project,
        type="compressed_summary",
        title=f"{len(rows)} {what}: {_headline(last)}"[:_LONGEST_TITLE],
        subtitle=f"from {first.created_at:%Y-%m-%d} to {last.created_at:%Y-%m-%d}",
        narrative=_told((row, (row.title, row.subtitle, row.narrative)) for row in rows),
        user_text=_told((row, (row.user_text,)) for row in rows),
        assistant_text=_told((row, (row.assistant_text,)) for row in rows),
        subject=_common(row.subject for row in rows),
        category=_common(row.category for row in rows),
        source="maintenance",
        importance=max(row.standing for row in rows),
        expires_at=min(expiries, default=None),
        derived_from=tuple(row.id for row in rows),
        **Guard.of(first)._asdict(),
        **_joined(rows),
    )


def _joined(rows: Sequence[Observation]) -> dict[str, Any]:
    return {name: tuple(dict.fromkeys(each for row in rows for each in getattr(row, name))) for name in _JOINED}


def _told(parts: Iterable[tuple[Observation, Iterable[str]]]) -> str:
    """The lines that were not said before, those of each row behind its day."""
    said: set[str] = set()
    told = []
    for row, texts in parts:
        new = []
        for line in _lines(texts):
            if fold(line) not in said:
                said.add(fold(line))
                new.append(line)
        if new:
            told.append(f"{row.created_at:%Y-%m-%d}: " + "\n".join(new))
    return "\n".join(told)


def _lines(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in text.splitlines() if line.strip()]


def _tokens(row: Observation, said: set[str]) -> int:
    return sum(estimate_tokens(line) + 4 for line in _lines(row.said()) if fold(line) not in said)


def _items(rows: Sequence[Observation]) -> int:
    return max(len({each for row in rows for each in getattr(row, name)}) for name in _JOINED)


def _headline(row: Observation) -> str:
    return next((line.strip() for line in _lines(row.said())), "")


def _common(values: Iterable[str | None]) -> str:
    found = set(values)
    return (found.pop() or "") if len(found) == 1 else ""
