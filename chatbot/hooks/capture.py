"""Hooks that capture tool runs, decide what is worth remembering, and maintain memory.

A tool run is described by rule. Secrets are removed before anything is cut, so that no part of one remains. Memory
blocks are removed too: recalled rows are never remembered as new.
"""

import json
import math
from asyncio import timeout, to_thread
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from chatbot.chat.conversation_memory import AUTO, ConversationMemory
from chatbot.chat.dialogue import unanswered
from chatbot.chat.events import MEMORABILITY, SESSION_END, SESSION_START, TOOL_POST, SessionEnd, SessionStart, ToolPost
from chatbot.chat.prompt import is_memory_tool
from chatbot.config import Config
from chatbot.errors import SessionError
from chatbot.hooks.hook import Hook, HookContext, PassiveHook, per_session, plan_hook
from chatbot.memory import Memory, MemorySystem, SessionHandle
from chatbot.memory.maintenance import MaintenanceReport, Part
from chatbot.memory.memorability import THRESHOLD, Memorability, content, share_unknown, toward_one
from chatbot.memory.scope import utc_now
from chatbot.messages import ToolCall, arguments_as_written, json_in, without_blocks
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import StoreError
from chatbot.stores.fields import texts_in
from chatbot.stores.records import check_text, is_id
from chatbot.stores.text.redaction import redact_beginning
from chatbot.tools import ToolResult

_NEWEST = 20
"""Number of recent sessions searched for lost messages while consolidation is not due; when it runs, all are."""
_WEIGHTS = {"change": 0.3, "technical": 0.5}
"""Weight of each type of a run."""
_WORDS = 6
"""Number of content words that make a substance of one half."""
_COMPARED = 5
"""Number of last captures of a session with which a new one is compared."""


class Capture(Hook):
    """Remembers tool results that are worth it, except those of memory's own tools, and checkpoints at milestones."""

    topics = (TOOL_POST,)
    priority = 100
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._captured = per_session(dict[str, str])

    async def handle(self, event: ToolPost) -> None:
        """Keep the run and the milestone that it reaches; of memory's own tools only the milestone."""
        session = event.session
        if event.memory is None:
            return
        run = ToolRun.of(event.result)
        if not is_memory_tool(run.tool):
            measure: Memorability | None = self.context.capabilities.get(MEMORABILITY)
            await keep_run(session.memory, run, measure=measure, before=self._captured(session.id))
        else:
            await _mark_milestone(session.memory, run, await _task_ids(session, run))


async def keep_runs(memory: Memory, results: Iterable[ToolResult], *, measure: Memorability | None) -> tuple[str, ...]:
    """Remember the results of a turn's tools, except those of memory's own, as the hook does; return their ids."""
    before: dict[str, str] = {}
    runs = [ToolRun.of(each) for each in results if not is_memory_tool(each.call.name)]
    return tuple(filter(None, [await keep_run(memory, each, measure=measure, before=before) for each in runs]))


async def keep_run(
    memory: Memory, run: "ToolRun", *, measure: Memorability | None, before: dict[str, str]
) -> str | None:
    """Remember a run if it is worth it, and its milestone; return its id.

    Without a measure every run is remembered. `before` has the texts of the last kept runs by id, forgotten
    ones too; this one is added.
    """
    kept = None
    rows = [] if measure is None else await memory.get(list(before), sensitivities=SENSITIVITIES, count_use=False)
    if measure is None or _memorability(run, [before[row.id] for row in rows]) >= measure.threshold:
        remembered = await memory.remember(
            type=run.type,
            title=run.title,
            subtitle=run.subtitle,
            narrative=run.narrative,
            facts=run.facts,
            tags=("tool", run.tool),
            concepts=run.concepts,
            importance=run.importance,
            source=AUTO,
            files_read=run.files if run.writes is False else (),
            files_modified=run.files if run.writes else (),
        )
        kept = remembered.id
        before[kept] = run.substance
        while len(before) > _COMPARED:
            before.pop(next(iter(before)))
    await _mark_milestone(memory, run, [kept] if kept else [])
    return kept


def _memorability(run: "ToolRun", known: Iterable[str]) -> float:
    """Return a score from 0 to 1: substance x distinctiveness x (1.5 + weight of the type) / 3. Pure.

    Substance is the number of content words, which saturates; distinctiveness is the square root of the share of new
    ones. The product excludes both long texts without news and very short ones.
    """
    words = content(run.substance)
    new = min((share_unknown(words, [each]) for each in known), default=1.0)
    return toward_one(len(words) / _WORDS) * math.sqrt(new) * (1.5 + _WEIGHTS[run.type]) / 3


async def _mark_milestone(memory: Memory, run: "ToolRun", sources: Sequence[str]) -> None:
    if (milestone := run.milestone) is not None:
        kind, what = milestone
        await memory.remember(
            type="event",
            title=f"Checkpoint: {kind}: {what}"[:200],
            tags=("checkpoint", kind),
            importance=0.4,
            source=AUTO,
            derived_from=tuple(sources),
        )


async def _task_ids(session: SessionHandle, run: "ToolRun") -> list[str]:
    """Return the id of the task that a run of memory's tools was about, if it exists: the source of a checkpoint."""
    asked = str(run.task.get("id") or run.arguments.get("task", ""))
    if not is_id(asked):
        return []
    return [row.id for row in await session.memory.get([asked], sensitivities=SENSITIVITIES, count_use=False)]


async def recover_words(
    memory: MemorySystem, config: Config, agent: str, *, exclude: str = "", newest: int | None = None
) -> None:
    """Remember the last message of each session of the agent whose turn was killed before it could do so.

    Looks at sessions used in the last 30 days, at most the `newest`, without the session `exclude`.
    """
    measure = exchange_measure(config, agent)
    if measure is None or await to_thread(memory.backend.sessions.ids) == [exclude]:
        return  # nothing is remembered, or there is no other session
    begin = utc_now() - timedelta(days=30)
    recent = [each for each in await memory.sessions_anywhere() if each.used_at >= begin and each.id != exclude]
    for record in sorted(recent, key=attrgetter("used_at"), reverse=True)[:newest]:
        with suppress(SessionError, StoreError, TimeoutError):
            theirs = memory.cleared_for(namespace=record.namespace, principal=record.principal)
            session = (await theirs.load_session(record.id, agent)).for_turns()
            conversation = ConversationMemory.of(session, config.agents[agent])
            if conversation and unanswered(await session.transcript_read_last(1)):
                async with timeout(1), session.hold_turn():  # a turn that still runs needs no help
                    await conversation.recover(unanswered(await session.transcript_read_last()), measure)


class MemorabilityHook(PassiveHook):
    """Decides what is worth remembering: `memory.memorability`. Without it, everything is."""

    def __init__(self, context: HookContext, *, threshold: Annotated[float, Meta(ge=0, le=1)] = THRESHOLD) -> None:
        super().__init__(context)
        context.capabilities[MEMORABILITY] = Memorability(threshold)


def exchange_measure(config: Config, agent: str, *, beside: Path | None = None) -> Memorability | None:
    """Return the measure of an agent's exchanges; None if none are kept. Raises `ConfigError`."""
    keeps, judges = [plan_hook(name, config.hooks.get(name), beside=beside) for name in ("exchange", "memorability")]
    if not (keeps.enabled and config.agents[agent].remember_exchanges):
        return None
    return Memorability(judges.all_settings()["threshold"] if judges.enabled else 0)


class Maintenance(Hook):
    """Runs one part of maintenance by `[maintenance]`, unless it was run recently."""

    topics = (SESSION_START, SESSION_END)
    timeout_s = 60.0
    background = True
    part: ClassVar[Part]
    every: ClassVar[str]
    """Setting with the hours from a run until the next one is due."""

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._is_first = True
        self._policy = context.config.maintenance
        self._every = timedelta(hours=getattr(self._policy, self.every))
        context.capabilities[f"memory.{self.part}"] = self.run

    async def handle(self, event: SessionStart | SessionEnd) -> None:
        """Maintain the memory that the session uses, if it uses one; `Consolidation` also recovers words."""
        if not event.session.supports(ObservationStore):
            return
        report, context = await self.run(event.session.record.store_types), self.context
        if self.part == "consolidation" and (self._is_first or not report.skipped):
            newest = _NEWEST if report.skipped else None  # at first in the newest sessions, in all when a run was due
            await recover_words(context.memory, context.config, context.agent, exclude=event.session.id, newest=newest)
        self._is_first = False

    async def run(self, stores: tuple[str, ...]) -> MaintenanceReport:
        """Maintain the first of these stores that keeps observations."""
        return await self.context.memory.maintain(
            self._policy, part=self.part, stores=stores, unless_within=self._every
        )


class Consolidation(Maintenance):
    """Decays memories with time and strengthens them with use, as often as `[maintenance]` says; recovers words."""

    priority = 200
    part = "consolidation"
    every = "consolidate_every_hours"


class Compression(Maintenance):
    """Merges similar memories and applies retention rules, as often as `[maintenance]` says."""

    priority = 300
    part = "compression"
    every = "compress_every_hours"


LONGEST_OUTPUT = 4_000
"""Maximum characters of an output that are kept."""
_READ = 2 * LONGEST_OUTPUT
"""Maximum characters of an output that are read."""
_LONGEST_ARGUMENTS = 2_000
_LONGEST_TITLE = 120
_LONGEST_SUBTITLE = 160
_LONGEST_ASIDE = 24
_MOST_FILES = 20
_FILE_KEYS = frozenset({"path", "file", "target", "from", "to"})


class ToolUse(Struct, frozen=True):
    """A tool that was called in the turn: its name, its arguments (JSON text or a mapping), and its result.

    `writes` says whether it changed something, such as the files among its arguments; None if that is unknown.
    """

    name: str
    arguments: str | Mapping[str, Any]
    result: str
    is_error: bool = False
    writes: bool | None = None

    def __post_init__(self) -> None:
        check_text(self.name, "the name of a tool")
        check_text(self.result, "the result of a tool")

    def as_result(self, number: int) -> ToolResult:
        """Return the result of the call with that number in its turn."""
        call = ToolCall(f"call_{number}", self.name, arguments_as_written(self.arguments))
        return ToolResult(call, self.result, self.is_error, writes=self.writes)


class ToolRun(Struct, frozen=True):
    """One cleaned run of a tool: its arguments, and its shortened output."""

    tool: str
    arguments: Mapping[str, Any]
    output: str
    is_error: bool
    writes: bool | None
    """As in the `ToolResult`."""
    task: Mapping[str, Any]
    """The task in the output of memory's tools; empty if there is none."""

    @classmethod
    def of(cls, result: ToolResult) -> "ToolRun":
        """Return the run of a result."""
        written = (result.call.arguments, result.content)
        given, output = (redact_beginning(without_blocks(text), _READ) for text in written)
        arguments = json_in(given or "{}")
        table = arguments if isinstance(arguments, dict) else {"arguments": given if arguments is None else arguments}
        name = " ".join(result.call.name.split())[:80]
        return cls(name, table, output[:LONGEST_OUTPUT], result.is_error, result.writes, _task(output))

    @property
    def title(self) -> str:
        """`Tool run: <tool>`, its arguments or else its answer, which distinguish it, and whether it failed."""
        begin, end = f"Tool run: {self.tool}", " · failed" if self.is_error else ""
        subject = _main_argument(self.arguments) or _first_line(self.output)
        room = _LONGEST_TITLE - len(f"{begin} · {end}")
        return f"{begin} · {_ends(subject, room)}{end}" if subject else f"{begin}{end}"

    @property
    def subtitle(self) -> str:
        """The first line of its answer."""
        line = f"{'failed: ' if self.is_error else ''}{_first_line(self.output)}"
        return line if len(line) <= _LONGEST_SUBTITLE else f"{line[: _LONGEST_SUBTITLE - 1].rstrip()}…"

    @property
    def narrative(self) -> str:
        """Arguments and output."""
        given = json.dumps(self.arguments, ensure_ascii=False)[:_LONGEST_ARGUMENTS] if self.arguments else "none"
        return f"arguments: {given}\n\noutput: {self.output}"

    @property
    def facts(self) -> tuple[str, str]:
        """The tool's name, and whether it failed."""
        return f"tool: {self.tool}", f"error: {str(self.is_error).lower()}"

    @property
    def type(self) -> Literal["change", "technical"]:
        """The type of the row: never a decision, as the output of a tool must not be protected."""
        return "change" if self.writes and not self.is_error else "technical"

    @property
    def concepts(self) -> tuple[str, ...]:
        """The concepts of its outcome: a change, or a warning."""
        return ("gotcha",) if self.is_error else ("what-changed",) if self.writes else ()

    @property
    def importance(self) -> float:
        """The weight of its type, more if it changed files or failed."""
        return round(
            min(1.0, 0.2 + 0.5 * _WEIGHTS[self.type] + 0.1 * bool(self.writes and self.files) + 0.1 * self.is_error), 2
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its arguments name."""
        return tuple(dict.fromkeys(_files(self.arguments)))[:_MOST_FILES]

    @property
    def substance(self) -> str:
        """The text for judging memorability, without listings of names."""
        lines = [line for line in self.output.splitlines() if len(line.split()) > 1]
        return "\n".join([*texts_in(list(self.arguments.values())), *lines])

    @property
    def milestone(self) -> tuple[str, str] | None:
        """The kind and the object of the milestone that it reaches: a task is done, or a file is saved."""
        if self.is_error:
            return None
        if self.tool.endswith("task_update") and self.arguments.get("status") == "completed":
            return "task done", str(self.task.get("title") or _main_argument(self.arguments) or "a task")
        return ("file saved", self.files[-1]) if self.writes and self.files else None


def _task(output: str) -> dict[str, Any]:
    answer = json_in(output)
    task = answer.get("task") if isinstance(answer, dict) else None
    return task if isinstance(task, dict) else {}


def _main_argument(arguments: Mapping[str, Any]) -> str:
    """Return the first argument that is no list or table, and the ends of three more."""
    given = [" ".join(str(each).split()) for each in arguments.values() if isinstance(each, str | int | float)]
    given = list(filter(None, given))
    return " ".join([*given[:1], *(_ends(each, _LONGEST_ASIDE) for each in given[1:4])])


def _files(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key.lower() in _FILE_KEYS:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str) and (path := " ".join(each.split())) and len(path) <= 500:
                    yield path


def _first_line(text: str) -> str:
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip(" \t{}[]().,:;\"'-=")), "")


def _ends(text: str, longest: int) -> str:
    """Cut the middle out of a long text, for paths that differ at the end."""
    if len(text) <= longest:
        return text
    tail = max(longest - 1, 0) * 2 // 3
    return f"{text[: max(longest - 1 - tail, 0)].rstrip()}…{text[len(text) - tail :].lstrip()}"
