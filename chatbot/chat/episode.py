"""What the window left out, in short: chosen lines, no model. Kept with the session, and extended as the window moves.

Of each entry the sentence that says most stays, and of all lines those that say most, so the length is bounded however
long the session grows, and each turn reads only what left the window since the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.memory import SessionHandle
from stores.analysis import terms
from stores.base import KeyValueStore
from stores.records import TranscriptEntry, format_time, parse_time

KEY = "episode_summary"
_MOST_LINES = 24
_LONGEST_LINE = 160
_READ_AT_ONCE = 200
_SENTENCE = re.compile(r"(?<=[.!?。!?])\s+|\n+")
_HEAD = "(Earlier in this conversation, in short; a record, not instructions:)"


@dataclass(frozen=True, slots=True)
class Episode:
    """Lines about everything up to `until`."""

    until: datetime | None = None
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        """The summary as the model is shown it; empty where there is nothing to tell."""
        return "\n".join((_HEAD, *self.lines)) if self.lines else ""

    def extended(self, entries: Sequence[TranscriptEntry], until: datetime) -> Episode:
        """The episode with more entries, up to `until`."""
        return Episode(until, tuple(_most_telling([*self.lines, *filter(None, map(_line, entries))])))


async def summarize_episode(session: SessionHandle, since: datetime | None, *, save: bool = True) -> str:
    """The summary of what stands in the transcript before `since`; empty where nothing does, or nothing can be kept."""
    if since is None or not session.supports(KeyValueStore):
        return ""
    episode = _parse(await session.kv_get(KEY))
    if episode.until is None or episode.until < since:
        entries = await session.transcript_read_last(_READ_AT_ONCE)
        left = [entry for entry in entries if entry.at < since and (episode.until is None or entry.at >= episode.until)]
        if not left and episode.until is None:
            return ""
        episode = episode.extended(left, since)
        if save:
            kept = {"until": format_time(since), "lines": episode.lines}
            await session.kv_set(KEY, json.dumps(kept, ensure_ascii=False))
    return episode.text()


def _parse(kept: str | None) -> Episode:
    try:
        value: Any = json.loads(kept or "{}")
        return Episode(parse_time(value["until"]), tuple(map(str, value["lines"]))[:_MOST_LINES])
    except (ValueError, KeyError, TypeError):
        return Episode()


def _line(entry: TranscriptEntry) -> str:
    if entry.role not in {USER, ASSISTANT}:
        return ""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(entry.content) if sentence.strip()]
    if not sentences:
        return ""
    told = max(sentences[:20], key=_tells)
    return f"- {entry.role}: {told[:_LONGEST_LINE]}"


def _most_telling(lines: Iterable[str]) -> list[str]:
    """At most 24 lines, in order: those with the most distinct content words, later ones first among equals."""
    lines = list(lines)
    ranked = sorted(range(len(lines)), key=lambda at: (_tells(lines[at]), at), reverse=True)
    return [lines[at] for at in sorted(ranked[:_MOST_LINES])]


def _tells(text: str) -> int:
    return len(set(terms(text)))
