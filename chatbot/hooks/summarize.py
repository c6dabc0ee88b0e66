"""The hooks that summarise sessions and episodes, by rule or by a model.

By rule, the request is the most informative sentence of the first message that says more than a greeting, the outcome
that of the last such reply; decisions are the session's rows of that type, open items its open tasks. This is used
until a model's summary is ready, and if that fails. A model's summary is bounded, cleaned and judged like any untrusted
text.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from chatbot.attachments import with_file_names
from chatbot.chat.calls import Calls
from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.chat.events import SESSION_END, TURN_END, SessionEnd, TurnEnd
from chatbot.chat.governor import fenced, with_bars, without_role_marks
from chatbot.chat.titles import says_little
from chatbot.errors import ChatbotError
from chatbot.hooks.extraction import structured
from chatbot.hooks.hook import Hook, HookContext, per_session
from chatbot.memory import SessionHandle, episode
from chatbot.memory.memorability import content
from chatbot.memory.people import OPEN, task_of
from chatbot.memory.prompt_injection import injection_in, without_invisible
from chatbot.memory.writing import TASK
from chatbot.messages import Message, without_blocks
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import KeyValueStore, TranscriptStore
from chatbot.stores.errors import MissingFolder, UnknownObservation
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import KIND
from chatbot.stores.records import TranscriptEntry
from chatbot.stores.text.analysis import sentences_of
from chatbot.stores.text.redaction import redact, redact_beginning

SUMMARY = "session.summary_by_model"
_LEAST_NEW = 6
"""Messages that must leave the window before a model is asked again."""
_LONGEST_MESSAGE = 2_000
_LONGEST_SUMMARY = 2_400
_LONGEST_LINE = 300
_MOST_ITEMS = 10
_READ_CHARACTERS = 20_000
_KEPT = "the summary made by rule is kept"
_DELETED = f"{_KEPT}: a memory was deleted meanwhile"

_EPISODE = f"""\
You sum up the earlier part of a conversation for the one who goes on with it: what was asked and answered, names, \
numbers, decisions, and what is still open. At most ten short lines, each beginning with "- ", in the language of the \
conversation. Say nothing that is not there. If an earlier summary is given, keep what still matters of it.
{structured.DATA}"""
_SESSION = f"""\
You sum up a conversation. Reply with JSON and nothing else:
{{"request": "what was asked for", "outcome": "what came of it", "decisions": ["..."], "open_items": ["..."]}}
One or two sentences each, in the language of the conversation. Say nothing that is not there; lists may be empty.
{structured.DATA}"""
_TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_TEXT = {"type": "string"}
_SCHEMA = structured.schema_of({"request": _TEXT, "outcome": _TEXT, "decisions": _TEXTS, "open_items": _TEXTS})


class Episodes(Hook):
    """Lets a model summarise the entries that left the window, if `[extraction]` enables summaries.

    It then provides the capability `session.summary_by_model`, which is its method `summarize`.
    """

    topics = (TURN_END,)
    priority = 160
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._model = structured.ExtractionModel(context)
        self._tried = per_session(list[datetime])
        if context.config.extraction.summaries:
            context.capabilities[SUMMARY] = self.summarize

    async def handle(self, event: TurnEnd) -> None:
        """Ask for a summary if enough has left the window since the last one."""
        session = event.session
        if not self.context.config.extraction.summaries:
            return
        if not (session.supports(TranscriptStore) and session.supports(KeyValueStore)):
            return
        evicted = await evicted_entries(session)
        if evicted is None or self._tried(session.id) == [evicted.until]:
            return  # a failure is tried again when the window has moved, not at each turn
        self._tried(session.id)[:] = [evicted.until]
        calls = self._model.calls(session)
        async with structured.note_work(calls, "episode", after=event.turn, failed=_KEPT) as record:
            withheld = _withheld_notices(session, calls)
            record["notices"] += withheld or await summarize_evicted(session, calls, evicted)

    async def summarize(self, session: SessionHandle, entries: list[TranscriptEntry]) -> "SessionSummary | None":
        """Return a model's summary of the session; None, with a notice in the receipts, if there is none."""
        calls, summary = self._model.calls(session), None
        notices = _withheld_notices(session, calls)
        try:
            if not notices:
                summary, notice = await summarize_by_model(entries, calls)
                notices += filter(None, [notice])
                if await episode.without_forgotten(session, entries) != entries:
                    summary, notices = None, [_DELETED]
        finally:
            await to_its_end(calls.note("summary", notices=notices))
        return summary

    async def aclose(self) -> None:
        """Close the model if it is not the chat's."""
        await self._model.aclose()


TurnCount = Annotated[int, Meta(ge=1)]


class Summarize(Hook):
    """Summarises a session by rule, after `every` turns and at its end: request, outcome, decisions, open items."""

    topics = (TURN_END, SESSION_END)
    priority = 150
    timeout_s = 60.0
    background = True

    def __init__(self, context: HookContext, *, every: TurnCount = 10, least: TurnCount = 4) -> None:
        super().__init__(context)
        self._every = every
        self._least = least
        self._new = Counter[str]()
        """Number of turns since the last summary, by session."""

    async def handle(self, event: TurnEnd | SessionEnd) -> None:
        """Count a turn that may be remembered, and write the summary when it is time."""
        session = event.session
        if isinstance(event, TurnEnd):
            if event.memory is None or not session.supports(TranscriptStore):
                return
            self._new[session.id] += 1
            if self._new[session.id] >= self._every:
                await self._write(session, self._new.pop(session.id), least=1)
        elif new := self._new.pop(session.id, 0):
            with suppress(MissingFolder):  # the session was deleted elsewhere
                await self._write(session, new, least=self._least)

    async def _write(self, session: SessionHandle, new: int, *, least: int) -> None:
        try:
            await self._summarize(session, new, least=least)
        except UnknownObservation:  # a memory was deleted meanwhile: once more, without it
            await self._summarize(session, new, least=least)

    async def _summarize(self, session: SessionHandle, new: int, *, least: int) -> None:
        """Update the summary, or write the first one, unless there are fewer than `least` turns for it."""
        earlier = await session.memory.session_summaries(session_id=session.id, limit=1, sensitivities=SENSITIVITIES)
        said = await session.transcript_read_last(episode.READ_AT_ONCE)
        entries = await episode.without_forgotten(session, said)
        if (new if earlier else len(episode.exchanges_in(entries))) < least:
            return
        unkept = await session.times_not_kept(min(each.at for each in said)) if entries else ()
        entries = [*episode.without(entries, unkept)]
        turns = episode.exchanges_in(entries)
        if not earlier and len(turns) < least:
            return
        before = earlier[0].metadata if earlier else {}
        asked = (_most_informative(with_file_names(each.text)) for each in turns)
        replies = (_most_informative(each.reply) for each in reversed(turns))
        request = str(before.get("request") or "") or next(filter(None, asked), "")
        outcome = next(filter(None, replies), "") or str(before.get("outcome") or "")
        if request:
            decisions, open_items = await _decisions_in(session), await _open_tasks_in(session)
            await session.memory.summarize_session(request, outcome, decisions=decisions, open_items=open_items)
            by_model = self.context.capabilities.get(SUMMARY)
            if by_model is not None and (found := await by_model(session, entries)) is not None:
                parts = {"decisions": found.decisions, "open_items": found.open_items}
                await session.memory.summarize_session(found.request or request, found.outcome, **parts)


async def _decisions_in(session: SessionHandle) -> list[str]:
    """Return the last decisions that were written in the session, in their order."""
    rows = await session.memory.every(session_id=session.id, types=("decision",), sensitivities=SENSITIVITIES)
    return [_on_a_line(row.title or row.text()) for row in reversed(rows[:_MOST_ITEMS])]


async def _open_tasks_in(session: SessionHandle) -> list[str]:
    """Return the last tasks that were written in the session and are open, in their order."""
    rows = await session.memory.every(session_id=session.id, metadata={KIND: TASK}, sensitivities=SENSITIVITIES)
    tasks = [task for task in map(task_of, rows) if task.status in OPEN]
    return [_on_a_line(task.title) for task in reversed(tasks[:_MOST_ITEMS])]


def _most_informative(text: str) -> str:
    """Return the sentence with most content words, without secrets; empty if it says little."""
    text = redact_beginning(without_blocks(text), _READ_CHARACTERS)
    best = max(sentences_of(text), key=lambda each: len(content(each)), default="")
    return "" if says_little(best) else _on_a_line(best)


def _on_a_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_LINE]


def _withheld_notices(session: SessionHandle, calls: Calls) -> list[str]:
    """Return a notice if the model, which need not be the chat's, may not be sent what is said in the session."""
    sensitivity = session.record.sensitivity
    return [] if sensitivity in calls.model.disclosure.sent else [f"{_KEPT}: the session is {sensitivity}"]


class SessionSummary(Struct, frozen=True):
    """The parts of a summary that `summarize_session` keeps."""

    request: str
    outcome: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()


class EvictedEntries(Struct, frozen=True):
    """Entries that left the window, until `until`, since the model's summary `before`; `earlier` is the last text."""

    until: datetime
    entries: list[TranscriptEntry]
    before: episode.ModelSummary | None
    earlier: str


async def evicted_entries(session: SessionHandle) -> EvictedEntries | None:
    """Return the entries that a model could summarise; None if too few are new."""
    by_rule, before = await episode.kept_episode(session), await episode.kept_model_summary(session)
    if by_rule.until is None:
        return None
    since = before.until if before else None
    entries = [
        entry
        for entry in await session.transcript_read_last(episode.READ_AT_ONCE)
        if entry.role in {USER, ASSISTANT} and entry.at < by_rule.until and (since is None or entry.at >= since)
    ]
    if len(entries) < _LEAST_NEW or len(entries := await episode.without_forgotten(session, entries)) < _LEAST_NEW:
        return None
    return EvictedEntries(by_rule.until, entries, before, before.text if before else "\n".join(by_rule.lines))


async def summarize_evicted(session: SessionHandle, calls: Calls, evicted: EvictedEntries) -> list[str]:
    """Ask a model to summarise the entries that left the window, and keep it; return notices of failures.

    It is not kept if a memory of these entries, or the summary before them, was deleted meanwhile.
    Purpose `summarize`. Raises a `ModelError`, `BudgetExceeded` or `StoreError`; then the last summary is kept.
    """
    reply = await calls.ask("summarize", await _messages(calls, _EPISODE, evicted.entries, evicted.earlier))
    text = _first_lines(structured.without_fence(reply))
    if not text:
        return [f"{_KEPT}: the model's was empty, or read like an instruction"]
    is_current = evicted.before == await episode.kept_model_summary(session)
    if not is_current or evicted.entries != await episode.without_forgotten(session, evicted.entries):
        return [_DELETED]
    await episode.keep_summary(session, episode.ModelSummary(evicted.until, text))
    return []


async def summarize_by_model(entries: Sequence[TranscriptEntry], calls: Calls) -> tuple[SessionSummary | None, str]:
    """Return a model's summary of a session, or None and the reason. Purpose `summarize`."""
    said = [entry for entry in entries if entry.role in {USER, ASSISTANT}]
    try:
        reply = await calls.ask("summarize", await _messages(calls, _SESSION, said), schema=_SCHEMA)
    except ChatbotError as error:
        return None, f"{_KEPT}: {error}"
    summary = parse_summary(reply)
    return summary, "" if summary else f"{_KEPT}: the model's could not be used"


def parse_summary(reply: str) -> SessionSummary | None:
    """Read the summary in a reply; None if it is empty, or reads like an instruction. Never raises."""
    given = next(iter(structured.objects_in(reply)), {})
    request, outcome = (_line(given.get(name)) for name in ("request", "outcome"))
    decisions, open_items = (_lines(given.get(name)) for name in ("decisions", "open_items"))
    is_usable = (request or outcome) and not injection_in([request, outcome, *decisions, *open_items])
    return SessionSummary(request, outcome, decisions, open_items) if is_usable else None


async def _messages(
    calls: Calls, instructions: str, entries: Sequence[TranscriptEntry], earlier: str = ""
) -> list[Message]:
    parts = [with_bars("earlier", redact(earlier)[0])] if earlier else []
    lines = [with_bars(entry.role, redact(entry.content)[0][:_LONGEST_MESSAGE]) for entry in entries]
    room = await calls.room()
    while True:
        text = fenced("conversation", [*parts, *lines], secrets.token_hex(4))
        messages = [Message("system", instructions), Message("user", f"{text}\nReply with the summary.")]
        if len(lines) < 2 or await calls.model.count_tokens(messages) <= room:
            return messages
        lines = lines[-(len(lines) * 3 // 4) :]


def _first_lines(text: str) -> str:
    """Return the first lines of the text, cleaned; empty if it may not be shown."""
    lines: list[str] = []
    cut = (line.strip()[:_LONGEST_LINE] for line in _cleaned(text[: 4 * _LONGEST_SUMMARY]).splitlines())
    for line in filter(None, cut):
        if sum(map(len, lines)) + len(line) > _LONGEST_SUMMARY:
            break
        lines.append(line)
    return "" if injection_in(lines) else "\n".join(lines)


def _line(value: object) -> str:
    return _on_a_line(_cleaned(value[: 10 * _LONGEST_LINE])) if isinstance(value, str) else ""


def _lines(value: object) -> tuple[str, ...]:
    items: Iterable[object] = value[:_MOST_ITEMS] if isinstance(value, list) else ()
    return tuple(filter(None, map(_line, items)))


def _cleaned(text: str) -> str:
    return without_role_marks(without_invisible(redact(text)[0]))
