"""The memory of a conversation, as its turns use it: the block in a prompt, and the exchange that is remembered."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from chatbot.attachments import with_file_names
from chatbot.chat.dialogue import USER, read_back, reply_before
from chatbot.chat.governor import fenced, is_readers_own, judged_text
from chatbot.chat.memory_block import MemoryBlock, build_block
from chatbot.chat.prompt import withheld_tools
from chatbot.chat.receipts import as_unsent
from chatbot.config import AgentSettings
from chatbot.embedder import Judgement
from chatbot.memory import Memory, SessionHandle
from chatbot.memory.episode import (
    EXCHANGE,
    exchange_draft,
    exchanges_at,
    question_in,
    with_questions,
    without,
    without_forgotten,
)
from chatbot.memory.erasure import marks_of
from chatbot.memory.memorability import Memorability
from chatbot.memory.profile import StandingAnswer
from chatbot.memory.profile_lines import ProfileLine
from chatbot.memory.recall import OVER_LIMIT, PROFILE_LINE, RECALLED, SEEN, RankedMemory, Recollection
from chatbot.memory.session_catalog import MESSAGES, handed_over
from chatbot.memory.writing import STARTUP, AddResult, Draft, add_drafts
from chatbot.messages import FENCE, ends_of, without_blocks
from chatbot.models.model import Disclosure, estimate_text
from chatbot.stores.access import NOT_SECRET, SENSITIVITIES
from chatbot.stores.base import ObservationStore, TranscriptStore
from chatbot.stores.errors import InvalidValue, UnknownObservation
from chatbot.stores.observation import OF_SESSION, STATUSES, Observation, Type
from chatbot.stores.query import Version
from chatbot.stores.records import KEYED, TranscriptEntry, format_time, parse_time
from chatbot.stores.row_events import Event, Outcome
from chatbot.stores.span import observed, span
from chatbot.stores.text.redaction import redact, redact_all

AUTO = "auto"
"""The source of rows that hooks captured."""
WITHHELD, _IN_MESSAGES = "withheld", "in the messages that were sent"
"""Reasons for leaving out a row: the provider may not be sent it, or a client sends it anyway."""
_MOST_SHOWN = 200
"""Maximum rows of the window that are looked up, newest first."""
_NEAR = 20
"""Entries that are searched for the bot's question: a turn with tools writes several."""
RECENT_QUESTIONS = 3
"""Messages of the user that recall looks at: the last one, and the two before it."""
Choose = Callable[[SessionHandle, Sequence[RankedMemory], int, datetime], Awaitable[Sequence[RankedMemory]]]
"""Picks a limited number of a session's hits for a prompt at a given time."""
_TASKS_SHOWN = 3
_LASTING: tuple[Type, ...] = ("decision", "preference", "identity")
_WITH_PROFILE_LINES = 2
"""Number of the best rows whose profile lines are added."""
_IN_THIS_PROCESS = Disclosure()
_MOST_ASKED = 20_000
"""Characters at each end of a message that are searched with."""
_NEEDLESS = -1.5
"""Score of the head `needs_memory` below which memory is not searched."""
_CONSIDERED = 30
"""Number of considered rows that a receipt lists besides the chosen ones."""


class PromptMemory(Struct, frozen=True):
    """The memory block of a prompt, its rows, and the record of how they were chosen."""

    block: MemoryBlock = MemoryBlock()
    rows: tuple[Observation, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)
    in_window: Mapping[str, datetime] = field(default_factory=dict)
    """Rows that the conversation in the prompt shows anyway, by id, with the times at which they were said."""

    def __post_init__(self) -> None:
        kinds = (("block", self.block, MemoryBlock), ("rows", self.rows, tuple), ("record", self.record, dict))
        for name, value, kind in kinds:
            if not isinstance(value, kind):
                raise InvalidValue(f"{name} of PromptMemory cannot be {type(value).__name__}")
        rows: Sequence[object] = self.rows
        if wrong := [row for row in rows if not isinstance(row, Observation)]:
            raise InvalidValue(f"rows of PromptMemory cannot contain {type(wrong[0]).__name__}")

    @property
    def text(self) -> str:
        """The block as it is in the prompt."""
        return self.block.text

    @property
    def whole(self) -> tuple[str, ...]:
        """The ids of the recalled rows shown whole: another question may need other passages of an excerpt."""
        return tuple(each for each in self.block.injected if each not in self.block.excerpts)

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of everything in the block."""
        block = self.block
        return (*block.profile, *block.standing, *block.injected, *block.listed)


def limit_disclosure(recalled: PromptMemory, disclosure: Disclosure) -> PromptMemory:
    """Withhold the whole block if the provider may not be sent one of its rows; the record lists all of them.

    A block that names no rows, which a plug-in made, may come from any.
    """
    rows, record = {row.id: row for row in recalled.rows}, dict(recalled.record)
    held = list(record.get("withheld", {}).get("rows", ()))
    is_limited = not disclosure.memory or disclosure.sensitivity == "public"
    if recalled.text and any(
        disclosure.withholds(rows[each]) if each in rows else is_limited for each in recalled.shown or [""]
    ):
        held += recalled.shown
        record = as_unsent(record, recalled.shown, WITHHELD)
        note = fenced(FENCE, [disclosure.note(len(held))], secrets.token_hex(4)) if held else ""
        recalled = PromptMemory(MemoryBlock(note), record=record)
    tools = sorted(withheld_tools(disclosure))
    if held or tools:
        record["withheld"] = disclosure.record(rows=held, **({"tools": tools} if tools else {}))
    return replace(recalled, record=record)


async def are_outdated(rows: Iterable[Observation], memory: Memory) -> bool:
    """Return whether one of the rows of a prompt was changed, marked, forgotten or hidden since."""
    given = {row.id: (row.hash, row.sensitivity) for row in rows if row.status == "active"}
    found = await memory.get(list(given), count_use=False, sensitivities=NOT_SECRET) if given else ()
    return {row.id: (row.hash, row.sensitivity) for row in found} != given


class ConversationMemory:
    """The memory of one conversation, with its session if it has one. `earlier` is the block of the last turn."""

    def __init__(self, memory: Memory, settings: AgentSettings, session: SessionHandle | None = None) -> None:
        self._memory = memory
        self._session = session
        self._settings = settings
        self.earlier = PromptMemory()
        self._judgement: tuple[str, Judgement | None] = ("", None)
        """The last judged text, with its judgement."""

    @classmethod
    def of(cls, session: SessionHandle | None, settings: AgentSettings) -> "ConversationMemory | None":
        """Return the memory of that conversation, or None if nothing is remembered, as for `public` callers."""
        if session is None or session.caller.clearance == "public" or not session.supports(ObservationStore):
            return None
        return cls(session.memory, settings, session)

    def _refresh(self) -> None:
        """Use the session's current memory: the session may have been moved to another project, or marked."""
        if self._session is not None:
            self._memory = self._session.memory

    async def recall(
        self,
        said: Sequence[str],
        *,
        since: datetime | None,
        most_tokens: int,
        choose: Choose | None = None,
        disclosure: Disclosure = _IN_THIS_PROCESS,
        client_text: str = "",
    ) -> PromptMemory:
        """Recall rows about the user's last messages; `said` ends with the one to be answered.

        Rows that `disclosure` keeps from the model are not recalled: the block says how many they are, and the record
        names them. Nor are rows that it sees anyway: in the window from `since` on, whole in the last block, or in the
        messages of a client, `client_text`. In a first turn open tasks come first, beyond the limit of rows, and titles
        of lasting rows last, if set. `choose` picks among twice as many hits as there are places, else the best are.
        """
        if not self._settings.recall_rows:
            return PromptMemory()
        self._refresh()
        if await are_outdated(self.earlier.rows, self._memory):
            self.earlier = PromptMemory()
        judged = await self._judge(said[-1]) if said else None
        asked = [ends_of(text, _MOST_ASKED) for text in said]
        in_window, most = await self._in_window(since), self._settings.recall_rows
        recollection = await self._search(asked, judged, in_window, most if choose is None else 2 * most)
        hits, withheld, repeated = await self._choose_hits(recollection.hits, choose, disclosure, client_text)
        tasks, index = await self._at_the_beginning() if len(said) == 1 else ((), ())
        rows = [*((row, 1.0) for row in tasks), *((each.observation, each.score) for each in hits if each.observation)]
        lines = await self._profile(asked, recollection, [each.id for each in hits[:_WITH_PROFILE_LINES]])
        answers = await self._memory.standing(pinned=True, sensitivities=NOT_SECRET)
        pinned = _pinned(answers, {*in_window, *(row.id for row, _ in rows)}, client_text)
        rows, standing = await self._with_questions(rows, pinned, disclosure)
        beside = [*(line.row for line in lines), *(row for row, _ in standing)]
        withheld |= {row.id for row in beside if row.sensitivity not in disclosure.sent}
        given = [*(row for row, _ in rows), *index, *(row for row in beside if row.id not in withheld)]
        block = build_block(
            rows,
            index,
            nonce=secrets.token_hex(4),
            view=self._memory.scope.write_view(NOT_SECRET),
            budget_tokens=min(self._settings.recall_tokens, most_tokens),
            most=most + len(tasks),  # so that tasks displace no answer
            count=estimate_text,
            asked=asked,
            asks_the_bot=judged is not None and judged.asks_the_bot,
            profile=[line for line in lines if line.id not in withheld],
            standing=[row for row, _ in standing if row.id not in withheld],
            closest=await self._closest_sentences(answers, asked, rows),
            order_levels=await self._order_levels(given),
            last_line=disclosure.note(len(withheld)) if withheld and disclosure.memory else "",
        )
        left_out = dict.fromkeys(repeated, _IN_MESSAGES) | dict.fromkeys(sorted(withheld), WITHHELD)
        # Rows shown in the conversation are listed as considered only if they would have been recalled.
        considered = [each for each in recollection.considered if each.id not in in_window or each.verdict == SEEN]
        record = _record(said, judged, considered, hits, block, left_out=left_out, standing=standing)
        record |= {"withheld": disclosure.record(rows=sorted(withheld))} if withheld else {}
        recalled = PromptMemory(block, record=record, in_window=in_window)
        by_id = {row.id: row for row in given}
        return replace(recalled, rows=tuple(by_id[each] for each in recalled.shown))

    async def _with_questions(
        self, rows: Sequence[tuple[Observation, float]], pinned: Sequence[tuple[Observation, str]], to: Disclosure
    ) -> tuple[list[tuple[Observation, float]], list[tuple[Observation, str]]]:
        """Return the rows with the bot's questions that they answer, those that the model may be sent."""
        scope, every = self._memory.scope, [row for row, _ in (*rows, *pinned)]
        if not every:
            return [], []
        asked = {row.id: row for row in await with_questions(every, scope.store, scope.write_view(to.sent))}
        return [(asked[row.id], score) for row, score in rows], [(asked[row.id], said) for row, said in pinned]

    async def _closest_sentences(
        self, answers: Iterable[StandingAnswer], asked: Sequence[str], rows: Iterable[tuple[Observation, float]]
    ) -> dict[str, str]:
        """Return by id the sentences of long rows that are closest to what is asked."""
        answered = {each.question: each.rows for each in answers}
        answered |= {each: [row for row, _ in rows] for each in asked[-1:]}
        meaning = self._memory.scope.meaning
        return {} if meaning is None else await meaning.closest_sentences(answered, in_all=1_000)

    async def _choose_hits(
        self, found: Sequence[RankedMemory], choose: Choose | None, disclosure: Disclosure, client_text: str
    ) -> tuple[Sequence[RankedMemory], set[str], list[str]]:
        """Return the hits for the prompt, and the ids of those that the model may not be sent, and of those it has."""
        most = self._settings.recall_rows
        sent = [each for each in found if each.observation and each.observation.sensitivity in disclosure.sent]
        withheld = {each.id for each in found[:most] if each not in sent}  # they count towards the limit
        repeated = [each.id for each in sent if _is_in(client_text, each.observation)]
        hits: Sequence[RankedMemory] = [each for each in sent if each.id not in repeated]
        if choose is not None and self._session is not None:
            hits = await choose(self._session, hits, most, self._memory.scope.clock())
        return hits, withheld, repeated

    async def _judge(self, text: str) -> Judgement | None:
        """Return the judgement of a message, made once; None without a judge."""
        meaning = self._memory.scope.meaning
        if meaning is not None and text != self._judgement[0]:
            ends = ends_of(without_blocks(text), _MOST_ASKED)
            self._judgement = text, (await meaning.judge([ends], sentences=True))[0]
        return None if meaning is None else self._judgement[1]

    async def _in_window(self, since: datetime | None) -> Mapping[str, datetime]:
        """Return the rows that the window shows anyway, with their times: exchanges, captures of them and of tools."""
        lineage = await self._lineage()
        if since is None or not lineage:
            return {}
        entries = await self._session.transcript_read_last(_MOST_SHOWN) if len(lineage) > 1 and self._session else ()
        shown, copied = dict[str, datetime](), {entry.at for entry in entries}
        for session_id, until in lineage:
            page = await self._memory.list_observations(
                session_id=session_id, after=since, before=until, limit=_MOST_SHOWN, sensitivities=SENSITIVITIES
            )
            last = max((at for at in copied if until is None or at <= until), default=since)
            for row in page.rows:
                is_shown = row.created_at in copied if row.type == EXCHANGE else row.created_at <= last
                if (row.type == EXCHANGE or row.source == AUTO) and (until is None or is_shown):
                    shown[row.id] = row.created_at
        return shown

    async def _lineage(self) -> Sequence[tuple[str, datetime | None]]:
        """Return the session, if there is one, and those that it was forked from, each with the time of the fork."""
        scope = self._memory.scope
        forked = await scope.ancestors() if scope.ancestors is not None else ()
        return () if scope.session_id is None else ((scope.session_id, None), *forked)

    async def _search(
        self, said: Sequence[str], judged: Judgement | None, in_window: Collection[str], limit: int
    ) -> Recollection:
        """Search memory for rows that the prompt does not show anyway; not for a message that needs no memory."""
        need = None if judged is None else judged.scores.get("needs_memory")
        if need is not None and need < _NEEDLESS:
            return Recollection()
        summaries = list[Observation]()  # a fork shows what those of its source tell, up to the fork
        for own, until in await self._lineage():
            found = await self._memory.session_summaries(session_id=own, sensitivities=SENSITIVITIES)
            summaries += [row for row in found if until is None or row.updated_at <= until]
        return await self._memory.recall(
            said,
            limit=limit,
            exclude={*in_window, *(row.id for row in summaries), *self.earlier.whole},
            sensitivities=SENSITIVITIES,
            need=need,
            statements=judged is None or not judged.asks_the_bot,
        )

    async def _at_the_beginning(self) -> tuple[Sequence[Observation], Sequence[Observation]]:
        """Return what the first turn of a session always shows: open tasks, and the newest lasting rows."""
        due = [task.id for task in await self._memory.tasks(surface=STARTUP)][:_TASKS_SHOWN]
        tasks = await self._memory.get(due, count_use=False) if due else []
        most = self._settings.index_rows
        return tasks, (await self._memory.list_observations(types=_LASTING, limit=most)).rows if most else ()

    async def _profile(self, said: Sequence[str], recollection: Recollection, best: Sequence[str]) -> list[ProfileLine]:
        """Return the profile lines for this message, without unpinned ones that the last block shows."""
        found = [each.id for each in recollection.considered if each.verdict == PROFILE_LINE]
        lines = await self._memory.profile_for(said[-1] if said else "", [*found, *best])
        return [line for line in lines if line.pinned or line.id not in self.earlier.block.profile]

    async def _order_levels(self, rows: Sequence[Observation]) -> dict[str, int]:
        """Return the level of `orders_a_model` of each row that is not the user's own; empty without heads."""
        if not rows or (meaning := self._memory.scope.meaning) is None:
            return {}
        view = self._memory.scope.write_view(NOT_SECRET)
        others = [row for row in rows if not is_readers_own(row, view)]
        judged = zip(others, await meaning.judge([judged_text(row) for row in others]), strict=True)
        return {row.id: found.orders_a_model for row, found in judged if found is not None}

    async def remember(
        self,
        asked_at: datetime,
        text: str,
        reply: str | None = None,
        recalled: PromptMemory | None = None,
        *,
        memorability: Memorability,
        before: str | None = None,
    ) -> AddResult | None:
        """Remember an exchange word for word; None if it is not worth keeping.

        Without a `reply` only the user's words are kept, before they are answered: the reply completes that row. If a
        row has the same words and no reply, the result is that row, or None if it is of another session. `before` is
        the bot's reply just before it; None reads it from the transcript.
        """
        self._refresh()
        answers = None
        if self._session is not None and (before is None or question_in(before)):  # it is kept with the answer
            before, answers = await self._kept_reply_before(self._session, asked_at)
        judged = await self._judge(text) if memorability.threshold else None
        known = [row.text() for row in recalled.rows] if recalled else []
        draft = exchange_draft(
            asked_at,
            text,
            reply,
            measure=memorability,
            judged=judged,
            known=known,
            before=before or "",
            answers=answers,
        )
        if draft is None:
            return None
        if reply is not None:
            return (await self._memory.remember_all([draft]))[0]
        scope = self._memory.scope
        with observed(scope.caller.observer), span("memory", operation="keep_words"):
            [kept] = await add_drafts(scope, [draft])  # it is embedded once it is whole
        if kept.outcome == "exact_dup":
            rows = await self._memory.get([kept.id], sensitivities=SENSITIVITIES, count_use=False)
            return kept if any(row.session_id == scope.session_id for row in rows) else None
        return kept

    async def _kept_reply_before(self, session: SessionHandle, asked_at: datetime) -> tuple[str | None, str | None]:
        """Return the bot's reply before that moment, and the id of its exchange if that is remembered.

        There is none if it was forgotten, or said while memory was off.
        """
        if not session.supports(TranscriptStore):
            return None, None
        entries = await _entries_before(asked_at, session)
        kept = await without_forgotten(session, entries)
        kept = [*without(kept, await session.times_not_kept(min(each.at for each in entries)))] if kept else []
        if kept[-1:] != entries[-1:]:
            return "", None
        said, scope = reply_before(entries, asked_at), self._memory.scope
        began = next((each.at for each in reversed(entries) if each.role == USER), None)
        if not (said and began and question_in(said)):
            return said, None
        store, view = scope.store, scope.write_view(SENSITIVITIES)
        ids = [each for at, each in await session.remembered_since(began) if at == format_time(began)]
        asked = await store.get(view, ids, current=False)  # what repeats an earlier exchange is in the row of that
        for at in (began, *await _unanswered_before(began, session)):
            asked = asked or await exchanges_at(at, session.id, store, view)
        question = question_in(said)
        return said, next((row.id for row in asked if question_in(row.assistant_text) == question), None)

    async def recover(self, lost: Sequence[TranscriptEntry], memorability: Memorability) -> None:
        """Remember `lost`, the last messages without a reply, newest first, if their turns were killed.

        Every other turn left a receipt. What was remembered before, even if it was erased since, is not added again.
        """
        if not lost or (session := self._session) is None:
            return
        self._refresh()
        memory, tombstones = self._memory, self._memory.scope.environment.tombstones
        since, began = min(each.at for each in lost), {each.at for each in lost}  # earlier turns may have later times
        is_copy = session.record.parent or (session.record.origin and not session.record.origin.startswith(KEYED))
        unkept = await session.times_not_kept(since)
        rows = await memory.every(session_id=session.id, after=since, sensitivities=SENSITIVITIES, statuses=STATUSES)
        if (
            is_copy
            or any(parse_time(each["at"]) in began for each in await session.receipts_since(since))
            or any(row.created_at in began for row in rows)
        ):
            return
        for each in reversed(lost):
            text = with_file_names(each.content)
            row, _ = memory.prepare(Draft(type=EXCHANGE, user_text=without_blocks(text)))
            is_barred = tombstones is not None and await asyncio.to_thread(tombstones.barred, list(marks_of(row)))
            if not (is_barred or format_time(each.at) in unkept):
                await self.remember(each.at, text, memorability=memorability)

    def last_changes(self, recalled: PromptMemory, row: str | None, reply: str) -> tuple[list[Event], tuple[str, ...]]:
        """Return the changes at a turn's end (uses of rows, the reply for `row`), and kinds of secrets in the reply."""
        scope, events, removed = self._memory.scope, list[Event](), tuple[str, ...]()
        if used := recalled.block.injected:
            events.append(Event(kind="use", at=scope.clock(), ids=used))
        if row is not None:
            fields, removed = redact_all({"assistant_text": without_blocks(reply)})
            events.append(Event(kind="update", at=scope.clock(), ids=(row,), fields=fields, who=scope.agent_id))
        return events, removed

    async def report_completed(self, outcome: Outcome) -> str | None:
        """Report the row that the reply completed; return its id, or None if it was forgotten meanwhile."""
        scope = self._memory.scope
        if outcome.error is not None:
            return None
        with observed(scope.caller.observer), span("memory", operation="keep_reply"):
            if scope.meaning is not None:
                scope.meaning.embed_soon()
            scope.changed("update", [outcome.id])
        return outcome.id

    async def take_back(self, since: datetime, *, spare: Iterable[str] = ()) -> None:
        """Erase the caller's rows of the turn begun then, and what derives from them; messages in `spare` stay."""
        self._refresh()
        memory, session, own = self._memory, self._session, self._memory.caller.principal
        self.earlier = PromptMemory()
        if session is None:
            return
        receipts, began = (await session.receipts_since(since))[::-1], format_time(since)  # newest first
        # Only those from the turn's own back: if the clock was set back, earlier turns have later times.
        later = [each["at"] for each in dropwhile(lambda each: each["at"] != began, receipts) if each["at"] > began]
        end = min(map(parse_time, later), default=max(memory.scope.clock(), since) + timedelta.resolution)
        await self._take_back_reply(since, receipts, session)
        earlier = await _unanswered_before(since, session)
        begun = min(earlier, default=since)
        rows = await memory.every(
            session_id=session.id, after=begun, before=end, sensitivities=SENSITIVITIES, statuses=STATUSES
        )
        of_turn = [row for row in rows if row.type != EXCHANGE and row.source == AUTO and row.created_at >= since]
        # An exchange may hold several messages, from the first one's time on.
        said = [row for row in rows if row.type == EXCHANGE]
        of_turn += [
            each for each in said if each.created_at == since or (each.assistant_text and each.created_at in earlier)
        ]
        spared = set()
        for text in spare:
            with suppress(InvalidValue):  # a text that cannot be kept has no row
                spared.add(memory.prepare(Draft(type=EXCHANGE, user_text=without_blocks(text)))[0].user_text)
        ids = [row.id for row in of_turn if row.principal == own and row.user_text not in spared]
        summaries = await memory.session_summaries(session_id=session.id, sensitivities=SENSITIVITIES)
        ids += [row.id for row in summaries if row.principal == own and row.updated_at >= since]
        facts = await memory.query_facts(subject=f"{OF_SESSION}{session.id}", sensitivities=SENSITIVITIES)
        ids += [fact.id for fact in facts if fact.principal == own and since <= fact.created_at < end]
        if ids:
            memory.caller.check("erase")
            if replaced := await self._replaced_by(ids):
                await memory.restore(*replaced)
            memory.scope.changed("purge", await memory.scope.store.purge(memory.scope.write_view(), ids))

    async def _take_back_reply(
        self, since: datetime, receipts: Iterable[Mapping[str, Any]], session: SessionHandle
    ) -> None:
        """Remove the turn's reply from a row of an earlier turn that it completed, which is written anew without it."""
        scope = self._memory.scope
        for receipt in receipts:
            version = await self._version(str(receipt.get("remembered") or ""))
            written = [event.at for event in version.events if "assistant_text" in event.fields] if version else []
            if version and written and version.observation.created_at < since <= max(written):
                row = version.observation
                said = Draft(
                    type=EXCHANGE,
                    user_text=row.user_text,
                    metadata=row.metadata,
                    visibility=row.visibility,
                    sensitivity=row.sensitivity,
                    min_clearance=row.min_clearance,
                    created_at=row.created_at,
                    source=row.source,
                )
                [kept] = await self._memory.remember_all([said])  # first, so that a kill loses no words
                await session.receipt_append(handed_over({"at": format_time(row.created_at), "remembered": kept.id}))
                await scope.store.purge(scope.write_view(), [row.id])

    async def _replaced_by(self, ids: Sequence[str]) -> list[str]:
        """Return rows that were replaced or denied by facts derived from these ones, and are unchanged since."""
        replaced: list[str] = []
        for fact in await self._memory.every(derived_from=ids, sensitivities=SENSITIVITIES, statuses=STATUSES):
            if written := await self._version(fact.id):
                made = written.events[0]
                changed = [(old, await self._version(old)) for old in (made.supersedes, made.forgets) if old]
                replaced += [old for old, now in changed if now and now.events[-1].by == fact.id]
        return replaced

    async def _version(self, observation_id: str) -> Version | None:
        """Return the row with its events; None if it is gone or hidden."""
        try:
            versions = await self._memory.history(observation_id, sensitivities=SENSITIVITIES) if observation_id else []
        except UnknownObservation:
            return None
        return next((version for version in versions if version.observation.id == observation_id), None)


async def _entries_before(at: datetime, session: SessionHandle) -> list[TranscriptEntry]:
    """Return the last entries before that moment, back to a message of the user and a reply if there are any."""

    def has_both(entries: Sequence[TranscriptEntry]) -> bool:
        return {each.role for each in entries if each.at < at}.issuperset(MESSAGES)

    return [each for each in await read_back(session, has_both, _NEAR) if each.at < at]


async def _unanswered_before(since: datetime, session: SessionHandle) -> list[datetime]:
    """Return the times of the messages that share the reply to the one of that time."""
    entries = await _entries_before(since, session) if session.supports(TranscriptStore) else ()
    said = [each for each in entries if each.role in MESSAGES]
    return [each.at for each in takewhile(lambda each: each.role == USER, reversed(said))]


def _record(
    said: Sequence[str],
    judged: Judgement | None,
    considered: Sequence[RankedMemory],
    hits: Sequence[RankedMemory],
    block: MemoryBlock,
    *,
    left_out: Mapping[str, str],
    standing: Iterable[tuple[Observation, str]],
) -> dict[str, Any]:
    """Return the receipt's record of how the rows were chosen; `left_out` has reasons that the block does not know."""
    chosen = {each.id for each in hits}
    looked_at = {each.id: each for each in (*considered[:_CONSIDERED], *hits)}
    listed = [
        {
            "id": each.id,
            "score": round(each.score, 4),
            "parts": {name: round(part, 4) for name, part in each.parts.items()},
            "verdict": OVER_LIMIT if each.verdict == RECALLED and each.id not in chosen else each.verdict,
        }
        for each in looked_at.values()
    ]
    record: dict[str, Any] = {
        "query": [redact(text)[0] for text in said[-1:]],  # earlier messages are in their own receipts
        "looked_back": len(said) - 1,
        "considered": listed,
        "injected": list(block.injected),
        "left_out": [{"id": each, "why": why} for each, why in (*block.dropped, *left_out.items())],
    }
    if judged is not None and (score := judged.scores.get("needs_memory")) is not None:
        record["judged"] = {"needs_memory": score >= _NEEDLESS, "score": score}
    found: dict[str, Any] = {name: list(getattr(block, name)) for name in ("excerpts", "quoted", "listed", "profile")}
    found["standing"] = {row.id: question for row, question in standing if row.id in block.standing}
    return record | {name: ids for name, ids in found.items() if ids}


def _pinned(answers: Iterable[StandingAnswer], given: Collection[str], sent: str) -> list[tuple[Observation, str]]:
    """Return the rows that answer pinned questions, with these, except rows that the model reads anyway."""
    found = {row.id: (row, each.question) for each in answers for row in each.rows}
    return [kept for each, kept in found.items() if each not in given and not _is_in(sent, kept[0])]


def _is_in(messages: str, row: Observation | None) -> bool:
    """Return whether the messages contain all texts of a row, so that the model reads them anyway."""
    if row is None or not messages:
        return False
    texts = (row.user_text, row.assistant_text) if row.user_text else (row.title, row.narrative, *row.facts)
    return all(text.strip() in messages for text in texts)
