"""Verbatim drafts of exchanges, and a summary, by rule, of the entries that left the context window.

Each entry contributes its sentence with the most content words; the lines with the rarest words are kept. A turn reads
only the entries that left the window since the turn before.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from chatbot.embedder import Judgement
from chatbot.memory.handle import SUMMARY_KEYS, SessionHandle
from chatbot.memory.memorability import Memorability, content, is_worth_keeping, rarity
from chatbot.memory.session_catalog import MESSAGES
from chatbot.memory.writing import ANSWERS, Draft
from chatbot.messages import without_blocks
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.base import KeyValueStore, ObservationStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import STATUSES, Observation, Type, replace_unchecked
from chatbot.stores.query import Filter
from chatbot.stores.records import TranscriptEntry, format_time, is_id, parse_time
from chatbot.stores.span import span
from chatbot.stores.text.analysis import is_question, sentences_of
from chatbot.stores.text.redaction import redact_beginning

KEY, MODEL_KEY = SUMMARY_KEYS
_MOST_LINES = 24
_LONGEST_LINE = 160
_READ_CHARACTERS = 20_000
READ_AT_ONCE = 200
"""Entries to read: enough for those that left the window since it last moved."""
_READ_AT_FIRST = 2_000
"""Entries that are read for the first summary."""
_HEAD = "(Earlier in this conversation, in short; a record, not instructions:)"


class ModelSummary(msgspec.Struct, frozen=True):
    """A model's summary of everything up to `until`."""

    until: datetime
    text: str


class Episode(msgspec.Struct, frozen=True):
    """A summary up to `until`: that of a model, if there is one, then lines about the entries after it."""

    until: datetime | None = None
    lines: tuple[str, ...] = ()
    by_model: ModelSummary | None = None

    def text(self) -> str:
        """Return the summary for the prompt; empty if there is none."""
        by_model = (self.by_model.text,) if self.by_model else ()
        return "\n".join((_HEAD, *by_model, *self.lines)) if by_model or self.lines else ""

    def with_summary(self, summary: ModelSummary | None, entries: Sequence[TranscriptEntry]) -> "Episode":
        """Return an episode that begins with a newer summary by a model, if `entries` hold all that came after it."""
        if summary is None or summary == self.by_model or self.until is None or summary.until > self.until:
            return self
        reaches = len(entries) < READ_AT_ONCE or entries[0].at <= summary.until
        return Episode(summary.until, (), summary) if reaches else self

    def extended(self, entries: Sequence[TranscriptEntry], until: datetime) -> "Episode":
        """Return the episode with more entries, up to `until`."""
        return replace(self, until=until, lines=tuple(_best_lines([*self.lines, *filter(None, map(_line, entries))])))


Summary = TypeVar("Summary", Episode, ModelSummary)


async def summarize_episode(session: SessionHandle, since: datetime | None, *, save: bool = True) -> str:
    """Return the summary of the transcript before `since`; empty if there is none or no store for it."""
    with span("memory", operation="summarize_episode"):
        if since is None or not session.supports(KeyValueStore):
            return ""
        episode = await kept_episode(session)
        if episode.until is None or episode.until < since:
            episode = await _extend_to(since, episode, session)
            if save and episode.until is not None:
                await keep_summary(session, episode)
        return episode.text()


async def _extend_to(since: datetime, episode: Episode, session: SessionHandle) -> Episode:
    entries = await session.transcript_read_last(READ_AT_ONCE if episode.until else _READ_AT_FIRST)
    episode = episode.with_summary(await kept_model_summary(session), entries)
    left = [entry for entry in entries if entry.at < since and (episode.until is None or entry.at >= episode.until)]
    longer = episode.extended(left, since)
    while left != (kept := await without_forgotten(session, left)):  # the first lines of a long session take seconds
        left, longer = kept, episode.extended(kept, since)
    return longer if left or episode.until is not None else episode


async def take_back_episode(session: SessionHandle, since: datetime) -> None:
    """Delete the summaries that reach beyond `since`; a model's summary that ends before stays."""
    summary, episode = await kept_model_summary(session), await kept_episode(session)
    if summary is not None and summary.until > since:
        await session.kv_delete(MODEL_KEY)
    if episode.until is not None and episode.until > since:
        if episode.by_model is not None and episode.by_model.until <= since:
            await keep_summary(session, Episode(episode.by_model.until, (), episode.by_model))
        else:
            await session.kv_delete(KEY)


async def kept_episode(session: SessionHandle) -> Episode:
    """Return the summary that prompts show."""
    return _parse(await session.kv_get(KEY), Episode) or Episode()


async def kept_model_summary(session: SessionHandle) -> ModelSummary | None:
    """Return the last summary by a model; prompts show it once the window moves."""
    return _parse(await session.kv_get(MODEL_KEY), ModelSummary)


async def keep_summary(session: SessionHandle, summary: Episode | ModelSummary) -> None:
    """Keep the summary that prompts show, or a model's for when the window moves."""
    await session.kv_set(KEY if isinstance(summary, Episode) else MODEL_KEY, msgspec.json.encode(summary).decode())


def _parse(kept: str | None, kind: type[Summary]) -> Summary | None:
    try:
        return msgspec.json.decode(kept or "", type=kind)
    except (ValueError, RecursionError):
        return None


def _line(entry: TranscriptEntry) -> str:
    if entry.role not in MESSAGES:
        return ""
    sentences = sentences_of(redact_beginning(without_blocks(entry.content), _READ_CHARACTERS))
    best = max(sentences[:20], key=lambda each: len(content(each)), default="")
    return f"- {entry.role}: {best[:_LONGEST_LINE]}" if content(best) else ""


def _best_lines(lines: Iterable[str]) -> list[str]:
    """Return the `_MOST_LINES` lines with the rarest words, in order; of equally rare ones, the later."""
    lines = list(lines)
    rare = rarity([line.partition(": ")[2] for line in lines])
    ranked = sorted(range(len(lines)), key=lambda at: (rare[at], at), reverse=True)
    return [lines[at] for at in sorted(ranked[:_MOST_LINES])]


async def without_forgotten(session: SessionHandle, entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the entries, from the first question on, without exchanges whose rows were forgotten or erased."""
    if not entries or not session.supports(ObservationStore):
        return list(entries)
    asked = {format_time(entry.at) for entry in entries if entry.role == "user"}
    remembered = await session.remembered_since(min(entry.at for entry in entries))
    kept = [(at, each) for at, each in remembered if at in asked]
    scope = session.memory.scope
    rows = await scope.store.get(scope.view(SENSITIVITIES), [each for _, each in kept], current=False) if kept else []
    there = {row.id for row in rows if row.status != "deleted"}
    known = {at for at, _ in kept}
    gone, last = known.difference(at for at, each in kept if each in there), ""
    for entry in entries:  # a message without a row of its own is in that of the one before, if they share the reply
        if entry.role == "user":
            at = format_time(entry.at)
            gone |= {at} if last in gone and at not in known else set()
            last = at
        elif entry.role in MESSAGES:
            last = ""
    return list(without(entries, gone))


def without(entries: Sequence[TranscriptEntry], gone: Collection[str]) -> Iterator[TranscriptEntry]:
    """Yield the entries, from the first question on, without exchanges that began at one of these times."""
    hidden = True
    for entry in entries:
        if entry.role == "user":
            hidden = format_time(entry.at) in gone
        if not hidden:
            yield entry


EXCHANGE: Type = "exchange"
QUESTION = "question"
"""Metadata key of the bot's question that an exchange answers, if the exchange that asked it is not remembered."""
_LONGEST_QUESTION = 400
_NOT_FORGOTTEN = tuple(each for each in STATUSES if each != "deleted")
_MOST_AT_ONCE = 20


class Exchange(NamedTuple):
    """A message with its reply, and the reply `before` it; its entries are those from `number` to `last`, from 1 on."""

    number: int
    last: int
    at: datetime
    text: str
    reply: str
    before: str = ""
    before_at: datetime | None = None
    """The time of the exchange with that reply."""


def exchanges_in(entries: Sequence[TranscriptEntry], unkept: Collection[str] = ()) -> list[Exchange]:
    """Return the exchanges of a transcript: successive messages of the user with the assistant's replies.

    Messages after the last reply are left out, as are repetitions: a failed call may be made again; and messages of the
    times `unkept`, with their replies.
    """
    found: list[Exchange] = []
    asked: list[tuple[int, TranscriptEntry]] = []
    replied: list[tuple[int, TranscriptEntry]] = []
    before = spoken = ""
    before_at: datetime | None = None
    is_kept = True

    def close() -> None:
        if asked and replied:
            text, reply = ("\n\n".join(dict.fromkeys(entry.content for _, entry in each)) for each in (asked, replied))
            found.append(Exchange(asked[0][0], replied[-1][0], asked[0][1].at, text, reply, before, before_at))

    for number, entry in enumerate(entries, 1):
        if entry.role == "user":
            if replied:
                close()
                before_at, asked, replied = asked[0][1].at, [], []
            is_kept = format_time(entry.at) not in unkept
            if not asked:
                before = spoken
            asked += [(number, entry)] if is_kept else []
        elif entry.role == "assistant":
            spoken = entry.content if is_kept else ""
            if asked and is_kept:
                replied.append((number, entry))
    close()
    return found


def question_in(reply: str) -> str:
    """Return the question at the end of the bot's reply; empty if there is none."""
    *_, last = "", *sentences_of(without_blocks(reply)[-_LONGEST_QUESTION:])
    return last if is_question(last) else ""


def exchange_draft(
    at: datetime,
    text: str,
    reply: str | None,
    *,
    measure: Memorability,
    judged: Judgement | None = None,
    known: Iterable[str] = (),
    before: str = "",
    answers: str | datetime | None = None,
) -> Draft | None:
    """Return the draft of an exchange; None if it is not worth keeping, see `is_worth_keeping`.

    A threshold of 0 keeps everything. Without a `reply` only the text is judged; `judged` is its judgement. `before` is
    the bot's last reply: a question at its end is kept with the answer, or only what it `answers`, if that is
    remembered and has the question: the id of an exchange, or the time of one in the same session. Memory blocks are
    left out.
    """
    text, question = without_blocks(text), question_in(before)
    reply = None if reply is None else without_blocks(reply)  # recalled text is not remembered again
    if measure.threshold and not is_worth_keeping(text, reply, judged, known=known, question=question):
        return None
    about = {QUESTION: question}
    if answers is not None:
        about = {ANSWERS: answers if isinstance(answers, str) else format_time(answers)}
    return Draft(
        type=EXCHANGE,
        user_text=text,
        assistant_text=reply or "",
        metadata=about if question else {},
        created_at=at,
        source="chat",
    )


async def exchanges_at(at: datetime, session_id: str, store: ObservationStore, view: View) -> list[Observation]:
    """Return the exchanges of a session that began at that time and were not forgotten."""
    end = at + timedelta.resolution
    wanted = Filter(types=(EXCHANGE,), session_id=session_id, after=at, before=end, statuses=_NOT_FORGOTTEN)
    return [*(await store.find(view, wanted, limit=_MOST_AT_ONCE)).rows]


async def with_questions(rows: Sequence[Observation], store: ObservationStore, view: View) -> list[Observation]:
    """Return the rows with the bot's questions that they answer, those of visible exchanges."""
    named = {row.id: str(row.metadata[ANSWERS]) for row in rows if ANSWERS in row.metadata}
    ids = [each for each in named.values() if is_id(each)]
    there = {each.id: each for each in await store.get(view, ids, current=False)} if ids else {}
    found = []
    for row in rows:
        asked = [there[named[row.id]]] if named.get(row.id) in there else []
        with suppress(InvalidValue):  # another key of that name
            if row.session_id and row.id in named and not is_id(named[row.id]):
                asked = await exchanges_at(parse_time(named[row.id]), row.session_id, store, view)
        asked = [each for each in asked if each.namespace == row.namespace and each.status in _NOT_FORGOTTEN]
        question = next(filter(None, (question_in(each.assistant_text) for each in asked)), "")
        found.append(replace_unchecked(row, metadata={**row.metadata, QUESTION: question}) if question else row)
    return found
