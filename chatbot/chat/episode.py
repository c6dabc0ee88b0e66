"""What the window left out, in short: chosen lines, no model. Kept with the session, and extended as the window moves.

Of each entry the sentence that says most stays, and of all lines those that say most, so the length is bounded however
long the session grows, and each turn reads only what left the window since the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.chat.standing import standing
from chatbot.memory import SessionHandle
from chatbot.memory.exchanges import without_blocks
from chatbot.memory.handle import TOLD_KEYS
from chatbot.memory.redaction import redact
from stores.analysis import terms
from stores.base import KeyValueStore
from stores.records import TranscriptEntry, format_time, parse_time

KEY, TOLD_KEY = TOLD_KEYS
_MOST_LINES = 24
_LONGEST_LINE = 160
_LOOKED_AT = 20_000
READ_AT_ONCE = 200
"""How many of the last entries are looked at: what left the window since it moved last is among them."""
_READ_AT_FIRST = 2_000
"""How many where nothing was told before."""
_SENTENCE = re.compile(r"(?<=[.!?。!?])\s+|\n+")
_HEAD = "(Earlier in this conversation, in short; a record, not instructions:)"


@dataclass(frozen=True, slots=True)
class Told:
    """What a model made of everything up to `until`."""

    until: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Episode:
    """Lines about everything up to `until`, or from where `told` ends up to there."""

    until: datetime | None = None
    lines: tuple[str, ...] = ()
    told: Told | None = None

    def text(self) -> str:
        """The summary as the model is shown it; empty where there is nothing to tell."""
        told = (self.told.text,) if self.told else ()
        return "\n".join((_HEAD, *told, *self.lines)) if told or self.lines else ""

    def after(self, told: Told | None, entries: Sequence[TranscriptEntry]) -> Episode:
        """The episode that begins with what a model told meanwhile, if `entries` go back to where that ends."""
        if told is None or told == self.told or self.until is None or told.until > self.until:
            return self
        reaches = len(entries) < READ_AT_ONCE or entries[0].at <= told.until
        return Episode(told.until, (), told) if reaches else self

    def extended(self, entries: Sequence[TranscriptEntry], until: datetime) -> Episode:
        """The episode with more entries, up to `until`."""
        return replace(self, until=until, lines=tuple(_most_telling([*self.lines, *filter(None, map(_line, entries))])))


async def summarize_episode(session: SessionHandle, since: datetime | None, *, save: bool = True) -> str:
    """The summary of what stands in the transcript before `since`; empty where nothing does, or nothing can be kept."""
    if since is None or not session.supports(KeyValueStore):
        return ""
    episode = await kept_episode(session)
    if episode.until is None or episode.until < since:
        entries = await session.transcript_read_last(READ_AT_ONCE if episode.until else _READ_AT_FIRST)
        episode = episode.after(await kept_told(session), entries)
        left = [entry for entry in entries if entry.at < since and (episode.until is None or entry.at >= episode.until)]
        left = await standing(session, left)
        if not left and episode.until is None:
            return ""
        episode = episode.extended(left, since)
        if save:
            await _keep(session, episode)
    return episode.text()


async def take_back_episode(session: SessionHandle, since: datetime) -> None:
    """Leave nothing in the summaries of what was said from `since` on; what a model told of before that stays."""
    told, episode = await kept_told(session), await kept_episode(session)
    if told is not None and told.until > since:
        await session.kv_delete(TOLD_KEY)
    if episode.until is not None and episode.until > since:
        if episode.told is not None and episode.told.until <= since:
            await _keep(session, Episode(episode.told.until, (), episode.told))
        else:
            await session.kv_delete(KEY)


async def kept_episode(session: SessionHandle) -> Episode:
    """What is kept of what the window left out, as it stands in prompts."""
    value = _loaded(await session.kv_get(KEY))
    try:
        until, lines = parse_time(value["until"]), tuple(map(str, value["lines"]))[:_MOST_LINES]
        return Episode(until, lines, _told(value["told"]) if "told" in value else None)
    except (ValueError, KeyError, TypeError):
        return Episode()


async def kept_told(session: SessionHandle) -> Told | None:
    """What a model told last; it stands in prompts from when the window moves next."""
    try:
        return _told(_loaded(await session.kv_get(TOLD_KEY)))
    except (ValueError, KeyError, TypeError):
        return None


async def keep_told(session: SessionHandle, told: Told) -> None:
    """Keep what a model told, for when the window moves."""
    await session.kv_set(TOLD_KEY, _dumped(_as_json(told)))


async def _keep(session: SessionHandle, episode: Episode) -> None:
    kept: dict[str, Any] = {"lines": episode.lines}
    if episode.until is not None:
        kept["until"] = format_time(episode.until)
    if episode.told is not None:
        kept["told"] = _as_json(episode.told)
    await session.kv_set(KEY, _dumped(kept))


def _told(value: Any) -> Told:
    return Told(parse_time(value["until"]), str(value["text"]))


def _as_json(told: Told) -> dict[str, str]:
    return {"until": format_time(told.until), "text": told.text}


def _dumped(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _loaded(kept: str | None) -> Any:
    try:
        return json.loads(kept or "{}")
    except ValueError:
        return {}


def _line(entry: TranscriptEntry) -> str:
    if entry.role not in {USER, ASSISTANT}:
        return ""
    text, _ = redact(without_blocks(entry.content)[:_LOOKED_AT])
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
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
