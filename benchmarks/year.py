# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Simulate a year of a memory: what is still known at its end, its size, and the cost of maintenance.

    uv run benchmarks/year.py --sessions 2000

Sessions are real turns through a `Runtime` with all hooks, an injected clock, a scripted model and a tool: small talk,
statements, repetitions, near repetitions, tool runs, and facts that change and are superseded. Decisions and
preferences are remembered on the first day. At the end they are asked for, and so are the changed facts; the journal
must explain every missing row. Each claim is printed with its figure; if one fails, so does the script.

Nothing overlaps maintenance: the script waits for the hooks at the begin and end of a session before it continues. So
its time is the time that passes, and its CPU time that of the whole process. The measurements at quarters and at the
end are not counted.

    uv run benchmarks/year.py --talk locomo10.json

uses the exchanges of LoCoMo, repeated, instead of generated ones.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from clocked_runtime import Line, Voice, begin, leave, runtime_in
from locomo import conversations, exchanges

from chatbot.memory import SessionHandle
from chatbot.memory.maintenance import KINDS, MaintenanceReport
from chatbot.runtime import Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import STATUSES, Observation
from chatbot.tools.function import FunctionTool

BEGIN = datetime(2026, 1, 1, 8, tzinfo=UTC)
CAP = 1_000
DECISIONS = [
    ("Invoices are written in Typst, never in Word", "what do we write invoices with?"),
    ("The archive moves to the basement in Graz", "where does the archive move?"),
    ("Backups go to two disks, one of them at Mira's", "where do backups go?"),
    ("Payroll closes on the twentieth", "when does payroll close?"),
    ("The newsletter stays monthly", "how often does the newsletter come?"),
    ("New hires get a ThinkPad with Debian", "which laptop do new hires get?"),
    ("Support answers within four hours", "how fast does support answer?"),
    ("The logo keeps its teal heron", "which animal is in the logo?"),
]
PREFERENCES = [
    ("Ilse takes her coffee with cardamom", "how does Ilse take her coffee?"),
    ("Ilse wants reports as tables without colours", "how does Ilse want reports?"),
    ("Ilse never books flights before nine", "how early does Ilse book flights?"),
    ("Ilse likes her vegetables roasted with za'atar", "how does Ilse like vegetables?"),
    ("Ilse reads papers on the e-ink tablet", "what does Ilse read papers on?"),
    ("Ilse prefers aisle seats near the door", "which seats does Ilse prefer?"),
]
CHANGING = {
    "port of the staging server": ["8100", "8200", "8300", "9100", "9200", "9300"],
    "phone number of the plumber": ["555-0100", "555-0111", "555-0122", "555-0133"],
    "password rotation interval": ["30 days", "45 days", "60 days", "90 days"],
    "name of the release manager": ["Oda", "Pavel", "Quirin", "Rosa", "Sven"],
    "rent of the warehouse": ["900 euros", "950 euros", "1010 euros", "1100 euros"],
}
PLACES = ["kitchen", "cellar", "garden", "office", "workshop", "garage", "attic", "balcony", "studio", "barn"]
THINGS = [
    "lamp",
    "drill",
    "kettle",
    "ladder",
    "printer",
    "bicycle",
    "heater",
    "saw",
    "camera",
    "router",
    "scanner",
    "sofa",
    "shelf",
    "mower",
    "radio",
]
STATES = [
    "broken",
    "repaired",
    "painted",
    "moved",
    "sold",
    "cleaned",
    "measured",
    "borrowed",
    "returned",
    "insured",
    "photographed",
    "labelled",
]
PEOPLE = ["Anna", "Bruno", "Chiara", "Deniz", "Emil", "Farida", "Goran", "Hanne", "Ivo", "Jun"]
WHYS = [
    "before the visit",
    "after the storm",
    "for the exhibition",
    "because of the noise",
    "to save money",
    "by mistake",
]
CHATTER = ["hi", "thanks!", "good morning", "ok", "lol", "see you", "great, thank you"]
SUITES = ["api", "billing", "search", "login", "export", "mobile"]
MAINTENANCE = """
[maintenance]
erase_after_days = 30
rules = [
    {types = ["technical", "exchange", "note"], archive_after_days = 60, delete_after_days = 120},
    {archive_after_days = 90, delete_after_days = 150},
]
"""
WEIGHINGS = 40
"""How often journal and index are weighed: both grow, and shrink when they are tidied."""
MOST_GROWTH = 0.05
"""By how much their heaviest may grow in the last quarter, when what is new takes the place of what is old."""
MOST_INDEX = 2
"""How many times what is needed the index may take: it holds what was searched as well until it is written again."""
MOST_UPKEEP = 0.01
ANSWERED_IN_S = 0.1
"""Sooner than models answer; the one in the script takes no time at all."""


@dataclass(frozen=True)
class ScriptTurn:
    """One turn, and what else is remembered explicitly."""

    line: Line
    remember: dict[str, Any] = field(default_factory=dict)


class Script:
    """Lines of the sessions of a year, the same for the same seed. Statements are taken from `talk`, if given."""

    def __init__(self, seed: int, talk: Sequence[tuple[str, str]] = ()) -> None:
        self._random = random.Random(seed)
        self._talk = cycle(talk) if talk else None
        self._told: list[Line] = []

    def session(self) -> Iterator[ScriptTurn]:
        """Return the lines of a session of three to six turns."""
        for _ in range(self._random.randint(3, 6)):
            kind = self._random.choices((self.chatter, self.statement, self.repeat, self.run), (2, 5, 1, 2))[0]
            yield kind()

    def chatter(self) -> ScriptTurn:
        return ScriptTurn(Line(self._random.choice(CHATTER), "You are welcome."))

    def statement(self) -> ScriptTurn:
        line = Line(*next(self._talk)) if self._talk else self._made_up()
        self._told.append(line)
        importance = self._random.choice((0.3, 0.5, 0.7))
        return self._said(line, importance=importance) if self._random.random() < 0.5 else ScriptTurn(line)

    def repeat(self) -> ScriptTurn:
        return self._said(self._random.choice(self._told or [self._made_up()]))

    def run(self) -> ScriptTurn:
        suite = self._random.choice(SUITES)
        return ScriptTurn(Line(f"run the {suite} tests", f"The {suite} tests ran.", suite))

    def _said(self, line: Line, **more: Any) -> ScriptTurn:
        return ScriptTurn(line, {"title": line.user.rstrip(".")[:500], "type": "note", **more})

    def _made_up(self) -> Line:
        pick = self._random.choice
        text = f"{pick(PEOPLE)} says the {pick(THINGS)} in the {pick(PLACES)} was {pick(STATES)} {pick(WHYS)}"
        return Line(f"{text}.", f"Noted: {text}.")


@dataclass
class Spent:
    """Elapsed seconds, and CPU seconds of all cores."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Add the time of the block."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.process_time() - cpu


class Year:
    """A simulated year of one memory."""

    def __init__(self, home: Path, sessions: int, seed: int, cap: int, talk: Sequence[tuple[str, str]] = ()) -> None:
        self.home = home
        self.sessions = sessions
        self.cap = cap
        self.now = BEGIN
        self.step = timedelta(days=365) / sessions
        self.script = Script(seed, talk)
        self.voice = Voice()
        self.random = random.Random(seed)
        self.upkeep = Spent()
        self.lived = Spent()
        self.counts: Counter[str] = Counter()
        self.runs = 0
        self.turns = 0
        self.seen: set[str] = set()
        self.growth: list[tuple[int, int, int, int]] = []

    async def live(self) -> dict[str, Any]:
        """Run the year, and return its results."""
        async with self._runtime() as runtime:
            runtime.memory.maintain = self._timed(runtime.memory.maintain)  # type: ignore[method-assign]
            await self._first_day(runtime)
            for number in range(self.sessions):
                with self.lived.spending():
                    await self._session(runtime, number)
                if (number + 1) * WEIGHINGS // self.sessions > number * WEIGHINGS // self.sessions:
                    self.growth.append(await self._weigh(runtime, number + 1))
            return await self._look_back(runtime)

    def _runtime(self) -> Runtime:
        async def run_tests(suite: str) -> str:
            """Run a suite of tests.

            Args:
                suite: its name
            """
            failed = self.random.choice((0, 0, 0, 1, 2))
            return f"collected {40 + failed} items of {suite}: {failed} failed, {40 - failed} passed"

        return runtime_in(
            self.home,
            self.voice,
            lambda: self.now,
            cap=self.cap,
            settings=MAINTENANCE,
            tools=(FunctionTool(run_tests),),
        )

    async def _first_day(self, runtime: Runtime) -> None:
        session = await begin(runtime)
        for text, _ in DECISIONS:
            await self._remember(session, title=text, type="decision")
        for text, _ in PREFERENCES:
            await self._remember(session, title=text, type="preference")
        for subject, values in CHANGING.items():
            await self._remember(session, title=f"The {subject} is {values[0]}", type="identity", subject=subject)
        await leave(runtime, session)

    async def _session(self, runtime: Runtime, number: int) -> None:
        session = await begin(runtime)
        chat = runtime.chat(session)
        for said in self.script.session():
            self.voice.begin(said.line)
            await chat.turn(said.line.user)
            self.turns += 1
            if said.remember:
                await self._remember(session, **said.remember)
            self.now += timedelta(minutes=2)
        await self._correct(session, number)
        await leave(runtime, session)
        self.now = max(self.now, BEGIN + (number + 1) * self.step)

    async def _correct(self, session: SessionHandle, number: int) -> None:
        """Replace changed facts, spread over the year."""
        for subject, values in CHANGING.items():
            turns = [self.sessions * at // len(values) for at in range(1, len(values))]
            if number in turns:
                value = values[turns.index(number) + 1]
                [old] = (await session.memory.list_observations(subject=subject, types=("identity",))).rows
                await self._remember(
                    session, title=f"The {subject} is {value}", type="identity", subject=subject, supersedes=old.id
                )

    async def _remember(self, session: SessionHandle, **draft: Any) -> None:
        self.seen.add((await session.memory.remember(**draft)).id)

    def _timed(self, maintain: Any) -> Any:
        async def timed(*args: Any, **options: Any) -> MaintenanceReport:
            with self.upkeep.spending():
                report: MaintenanceReport = await maintain(*args, **options)
            self.runs += not report.skipped
            self.counts.update(report.counts())
            return report

        return timed

    async def _weigh(self, runtime: Runtime, number: int) -> tuple[int, int, int, int]:
        """Return the number of sessions so far, active rows, and bytes of the journal and of the index."""
        if len(self.growth) % (WEIGHINGS // 4) == 0:
            self.seen |= {row.id async for row in _all(runtime.memory.memory())}
        stats = await runtime.memory.memory().stats(sensitivities=SENSITIVITIES)
        return number, stats.by_status.get("active", 0), stats.journal_bytes or 0, self._index_bytes()

    def _index_bytes(self) -> int:
        files = (file for folder in self.home.glob("cache/*/index") for file in folder.rglob("*"))
        return sum(file.stat().st_size for file in files if file.is_file())

    async def _look_back(self, runtime: Runtime) -> dict[str, Any]:
        memories = runtime.memory.memory("chat")
        found = {}
        for name, asked in (("decisions", DECISIONS), ("preferences", PREFERENCES)):
            hits = [
                any(hit.observation and hit.observation.title == text for hit in (await memories.recall(question)).hits)
                for text, question in asked
            ]
            found[name] = (sum(hits), len(hits))
        newest = 0
        for subject, values in CHANGING.items():
            hits_now = [each.observation for each in (await memories.recall(f"what is the {subject}?")).hits]
            told = [row.title for row in hits_now if row is not None and row.subject == subject]
            newest += told == [f"The {subject} is {values[-1]}"] and await self._is_behind(
                memories, hits_now, subject, values
            )
        rows = [row async for row in _all(memories)]
        return {
            **found,
            "corrected": (newest, len(CHANGING)),
            "unexplained": await self._unexplained(memories, rows),
            "statuses": dict(Counter(row.status for row in rows)),
            "counted": dict((await memories.stats(sensitivities=SENSITIVITIES)).by_status),
            "active": sum(row.is_current(self.now) for row in rows),
            "anew": await self._anew(memories),
        }

    async def _anew(self, memories: Any) -> int:
        """Return the bytes of a new index of the same rows."""
        await memories.reindex()
        return self._index_bytes()

    async def _is_behind(self, memories: Any, hits: list[Observation | None], subject: str, values: list[str]) -> bool:
        """Return whether the recalled row carries the whole history of its fact."""
        row = next(row for row in hits if row is not None and row.subject == subject)
        line = [version.observation.title for version in await memories.history(row.id)]
        return line == [f"The {subject} is {value}" for value in values]

    async def _unexplained(self, memories: Any, rows: list[Observation]) -> list[str]:
        """Return the missing or archived rows for which the journal has no author and reason."""
        bad = []
        for row in rows:
            if row.status in {"archived", "deleted", "compressed", "superseded"}:
                version = next(
                    each
                    for each in await memories.history(row.id, sensitivities=SENSITIVITIES)
                    if each.observation.id == row.id
                )
                last = version.events[-1]
                if not (last.who and (last.why or last.by)):
                    bad.append(row.id)
        erased = dict(self._erased())
        left = {row.id for row in rows}
        bad += [each for each, why in erased.items() if not why]
        return bad + [each for each in self.seen - left if each not in erased]

    def _erased(self) -> Iterator[tuple[str, str]]:
        with (self.home / "identities/ada/memory/observations.jsonl").open(encoding="utf-8") as journal:
            for line in journal:
                event = json.loads(line)
                if event["event"] == "purge":
                    for each in event.get("ids", [event.get("id")]):
                        yield each, event.get("why", "") and event.get("who", "")


async def _all(memories: Any) -> AsyncIterator[Observation]:
    after = None
    while True:
        page = await memories.list_observations(
            limit=1000, cursor=after, sensitivities=SENSITIVITIES, statuses=STATUSES
        )
        for row in page.rows:
            yield row
        after = page.after
        if after is None:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--cap", type=int, default=CAP)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--talk", type=Path, help="a file of LoCoMo, whose exchanges are said in the place of made-up ones"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        year = Year(Path(home), args.sessions, args.seed, args.cap, real_talk(args.talk) if args.talk else ())
        held = print_result(year, asyncio.run(year.live()))
    sys.exit(not held)


def real_talk(path: Path) -> list[tuple[str, str]]:
    """Return pairs of what people said and what was answered."""
    pairs = [pair for turns, _ in conversations(path) for pair in exchanges(turns) if len(pair) > 1]
    return [(f"{one.speaker}: {one.text}", f"{other.speaker}: {other.text}") for one, other in pairs]


def print_result(year: Year, result: dict[str, Any]) -> bool:
    """Print the measurements, and each claim with its figure; return whether all hold."""
    took = f"{year.lived.wall:.1f} s, {year.lived.cpu:.1f} s of CPU"
    print(f"{year.sessions:,} sessions, {year.turns:,} turns in {took}; {result['statuses']}")
    for number, active, journal, index in year.growth[WEIGHINGS // 8 - 1 :: WEIGHINGS // 8]:
        print(f"  after {number:,} sessions: {active:,} active, journal {journal:,} bytes, index {index:,} bytes")
    print(f"  {year.runs} runs of maintenance:", ", ".join(f"{kind} {year.counts[kind]:,}" for kind in KINDS))
    found = list(claims(year, result))
    for what, figure, holds in found:
        print(f"{'holds ' if holds else 'FAILS '} {what}: {figure}")
    return all(holds for *_, holds in found)


def claims(year: Year, result: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield each claim about a year with its figure, and whether it holds."""
    most = year.cap + year.cap // 10
    active = max(active for _, active, *_ in year.growth)
    yield "active rows within the cap and a tenth", f"{active:,} of {most:,}", active <= most
    for name in ("decisions", "preferences"):
        known, asked = result[name]
        yield f"{name} of the first day found", f"{known} of {asked}", known == asked
    newest, changed = result["corrected"]
    yield "of what was corrected the newest alone, its history behind", f"{newest} of {changed}", newest == changed
    missing = len(result["unexplained"])
    yield "rows that are gone or put away, and no event says why", f"{missing} of {len(year.seen):,}", not missing
    quarter = len(year.growth) // 4
    before, after = (
        max(weighed[2] for weighed in part) for part in (year.growth[-2 * quarter : -quarter], year.growth[-quarter:])
    )
    share = after / before - 1
    yield "the journal grows no more", f"{share:+.1%} in the last quarter, to {after:,} bytes", share <= MOST_GROWTH
    heaviest, anew = max(weighed[3] for weighed in year.growth), result["anew"]
    times = heaviest / (anew or 1)
    yield (
        "the index at its heaviest, beside one that is built anew",
        f"{times:.2f} x, {heaviest:,} bytes",
        times <= MOST_INDEX,
    )
    slowly = year.lived.wall + year.turns * ANSWERED_IN_S
    for name, spent, lived in (
        (f"time, beside a model that answers in {ANSWERED_IN_S:g} s", year.upkeep.wall, slowly),
        ("time, beside one that answers at once", year.upkeep.wall, year.lived.wall),
        ("CPU, beside one that answers at once", year.upkeep.cpu, year.lived.cpu),
    ):
        yield f"maintenance's share of the {name}", f"{spent / lived:.2%}", spent / lived < MOST_UPKEEP


if __name__ == "__main__":
    main()
