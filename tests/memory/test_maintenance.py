"""Maintenance of a memory, through `MemorySystem`, on files."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.config import MaintenanceSettings, RetentionSettings
from chatbot.memory import MemorySystem
from chatbot.memory.maintenance import NAME, MaintenanceReport, Run, Upkeep
from chatbot.memory.memory import Memory
from chatbot.memory.merging import groups, jaccard
from chatbot.memory.scope import Caller
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import LaterFormat
from chatbot.stores.files import locked
from chatbot.stores.observation import Observation, estimate_tokens

BEGIN = datetime(2026, 3, 4, tzinfo=UTC)


class Maintained:
    """A memory on files, with a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = BEGIN
        self.home = folder / "memory"
        self.settings = {"observations": {"cache": str(folder / "cache")}}
        self.system = self.opened()

    def opened(self) -> MemorySystem:
        return MemorySystem(self.home, settings=self.settings, clock=lambda: self.now)

    @property
    def memories(self) -> Memory:
        return self.system.memory("chat")

    async def keep(self, title: str, **draft: Any) -> str:
        return (await self.memories.remember(title, **draft)).id

    async def row(self, observation_id: str) -> Observation:
        line = await self.memories.within(across=True).history(observation_id, sensitivities=SENSITIVITIES)
        return next(each.observation for each in line if each.observation.id == observation_id)

    async def why(self, observation_id: str) -> tuple[str, str, str]:
        line = await self.memories.history(observation_id)
        event = next(each.events[-1] for each in line if each.observation.id == observation_id)
        return event.kind, event.who, event.why

    async def alike(self, n: int, **draft: Any) -> list[str]:
        words = "the green kettle in the workshop kitchen leaks again, number"
        return [await self.keep(f"{words} {number}", **draft) for number in range(n)]

    async def after(self, days: float, policy: MaintenanceSettings | None = None, **options: Any) -> MaintenanceReport:
        self.now += timedelta(days=days)
        return await self.system.maintain(policy, **options)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Maintained]:
    memory = Maintained(tmp_path)
    yield memory
    await memory.system.aclose()


async def test_what_is_alike_and_old_becomes_one_that_says_it_all(memory: Maintained) -> None:
    ids = await memory.alike(3, tags=["house"], people=["Ada"], facts=["it leaks"])
    young = await memory.after(6)
    assert young.counts()["compress"] == 0
    report = await memory.after(1)
    [change] = [change for change in report.changes if change.kind == "compress"]
    assert set(change.ids) == set(ids)
    assert change.by is not None
    [summary] = (await memory.memories.list_observations()).rows
    assert (summary.id, summary.type, set(summary.derived_from)) == (change.by, "compressed_summary", set(ids))
    assert all(f"number {number}" in summary.narrative for number in range(3))
    assert (summary.tags, summary.people, summary.facts) == (("house",), ("Ada",), ("it leaks",))
    assert summary.title.startswith("3 memories alike: ")
    for each in ids:
        assert await memory.why(each) == ("compress", "maintenance", "alike")
        assert (await memory.memories.history(each))[-1].observation.id == summary.id
    [hit] = await memory.memories.search("kettle leaks number 1")
    assert hit.observation.id == summary.id
    lines = map(json.loads, (memory.home / "observations.jsonl").read_bytes().splitlines())
    [line] = [each for each in lines if "compresses" in each]  # one, which a kill leaves whole or not at all
    assert (line["event"], line["row"]["id"], set(line["compresses"])) == ("add", summary.id, set(ids))


async def test_a_summary_says_what_was_said_again_with_its_last_day(memory: Maintained) -> None:
    days = []
    for rent, reply in ((870, "Noted."), (910, "Noted."), (870, "I see."), (910, "I see."), (870, "Noted.")):
        text = f"Our monthly rent in Ghent for the flat is {rent}."
        await memory.memories.remember(type="exchange", user_text=text, assistant_text=reply)
        days.append(f"{memory.now:%Y-%m-%d}")
        memory.now += timedelta(days=2)
    assert (await memory.after(8)).counts()["compress"] == 4, "the fifth is a mention of the first"
    [summary] = (await memory.memories.list_observations()).rows
    text = "Our monthly rent in Ghent for the flat is"
    assert summary.user_text == f"{days[3]}: {text} 910.\n{days[4]}: {text} 870."
    assert f"{summary.last_said_at:%Y-%m-%d}" == days[4]


async def test_what_is_meant_to_last_is_found_as_important_as_ever_and_fades_for_caps_alone(memory: Maintained) -> None:
    note, decision = [await memory.keep(f"the blue door is a {each}", type=each) for each in ("note", "decision")]
    for _ in range(2):  # of which each takes what one run would have taken for its days
        await memory.after(2)
    assert [(await memory.row(each)).strength for each in (note, decision)] == [0.3, 0.4]
    await memory.after(400)
    assert [(await memory.row(each)).strength for each in (note, decision)] == [0.1, 0.1]
    hits = (await memory.memories.recall("the blue door")).hits
    assert {hit.id: hit.parts["importance"] for hit in hits} == {note: 0.1, decision: 0.5}


WAYS = (
    "My blood type is AB negative.",
    "Blood type: AB negative, by the way.",
    "AB negative is my blood type, note it.",
)
BESIDE = ("The blood test at the clinic is on Monday.", "I gave blood at the hospital.", "Coffee of the dark type.")


async def test_what_was_said_in_several_sessions_ranks_no_lower_as_one(memory: Maintained) -> None:
    async def place() -> int:
        hits = (await memory.memories.recall("What is my blood type?", limit=10, sensitivities=SENSITIVITIES)).hits
        texts = [hit.observation.user_text if hit.observation else "" for hit in hits]
        return next(at for at, text in enumerate(texts, 1) if "AB negative" in text)

    sessions = []
    for said in WAYS:
        session = await memory.system.create_session(["basic_session", "observations"], "chat")
        for text in (said, *BESIDE):
            await session.memory.remember(type="exchange", user_text=text, assistant_text=f"So {len(text)}.")
            memory.now += timedelta(minutes=1)
        sessions.append(session.id)
        memory.now += timedelta(days=1)
    memory.now += timedelta(days=7)
    before = await place()
    [change] = [each for each in (await memory.after(0)).changes if each.kind == "compress" and len(each.ids) == 3]
    assert await place() <= max(before, 3)
    assert change.by is not None
    summary = await memory.row(change.by)
    assert summary.session_id == sessions[-1]
    assert (summary.importance, summary.rank) == (0.5, 0.5)
    for day, said in enumerate(WAYS):
        assert f"{BEGIN + timedelta(days=day):%Y-%m-%d}: {said}" in summary.user_text
    await memory.after(300)
    assert (await memory.row(change.by)).rank == 0.5


@pytest.mark.parametrize(
    "texts",
    [
        ("Ada: Sure!", "Ada: Sure, thanks!", "Ada: Sure, great!"),
        ("Ada: See you soon, Bob!", "Ada: See you, Bob!", "Ada: Bye, see you, Bob!"),
        ("Glad everyone had fun!", "Glad you had fun!", "Have fun, everyone!"),
    ],
)
async def test_small_talk_is_not_alike(memory: Maintained, texts: tuple[str, ...]) -> None:
    for text in texts:
        await memory.keep(text)
    assert not (await memory.after(30)).counts()["compress"]


@pytest.mark.parametrize("kind", ["compress", "summarize"])
@pytest.mark.parametrize("length", [20, 200, 900, 2_000])
async def test_a_digest_takes_250_tokens_at_most_and_says_it_all(memory: Maintained, kind: str, length: int) -> None:
    session = await memory.system.create_session(["basic_session", "observations"], "chat")
    texts = [f"The green kettle {n} in the workshop of Mr. Li costs {n}.50. ".ljust(length, "x") for n in range(12)]
    for text in texts:
        await session.memory.remember(type="exchange", user_text=text, assistant_text=f"Noted, {text[:24]}")
    rolling_up = MaintenanceSettings(similarity=0, summarize_after_days=20)
    await memory.after(40, MaintenanceSettings(similarity=0.3) if kind == "compress" else rolling_up)
    rows = (await memory.memories.list_observations(limit=100)).rows
    shown = "\n".join(row.text() for row in rows)
    assert all(estimate_tokens(row.text()) <= 250 for row in rows if row.type == "compressed_summary")
    assert all(text.strip() in shown for text in texts)
    assert (len(rows) < len(texts)) is (length < 250)


async def test_a_second_run_does_nothing_nor_does_one_after_the_clock_jumped_back(memory: Maintained) -> None:
    await memory.alike(3)
    await memory.keep("something else")
    first = await memory.after(10)
    assert first.changes
    before = (memory.home / "observations.jsonl").read_bytes()
    assert not (await memory.after(0)).changes
    report = await memory.after(-5_000, unless_within=timedelta(days=1))
    assert (report.skipped, report.changes) == ("", ())
    assert (memory.home / "observations.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "other",
    [
        {"visibility": "shared"}, {"sensitivity": "private"}, {"min_clearance": "inner"}, {"project": "other"},
        {"type": "decision"}, {"type": "task", "metadata": {"kind": "task"}}, {"metadata": {"key": "kettle"}},
        {"expires_at": BEGIN + timedelta(days=400)},
    ],
)  # fmt: skip
async def test_what_is_guarded_or_meant_otherwise_is_never_merged_in(memory: Maintained, other: dict[str, Any]) -> None:
    await memory.alike(2)
    odd = await memory.keep("the green kettle in the workshop kitchen leaks again, number 7", **other)
    assert not (await memory.after(30)).counts()["compress"]
    await memory.keep("the green kettle in the workshop kitchen leaks again, number 8")
    assert (await memory.after(30)).counts()["compress"] == 3
    assert (await memory.row(odd)).status == "active"


async def test_namespaces_agents_and_principals_are_never_mixed(memory: Maintained) -> None:
    words, system = "the green kettle in the workshop kitchen leaks again, number", memory.system
    writers = [
        system.memory("a"),
        system.memory("b"),
        system.memory("a").within(namespace="work"),
        system.cleared_for(principal="token:1").memory("a"),
        system.cleared_for(namespace="user:alice").memory("a"),
    ]
    for number in range(2):
        for memories in writers:
            await memories.remember(f"{words} {number}")
    assert not (await memory.after(30)).counts()["compress"]
    for memories in writers:
        await memories.remember(f"{words} 9")
    report = await memory.after(30)
    assert report.counts()["compress"] == 3 * len(writers)
    for change in report.changes:
        if change.by is not None:
            rows = [await memory.row(each) for each in (*change.ids, change.by)]
            assert len({(row.agent_id, row.namespace, row.principal) for row in rows}) == 1


async def test_what_facts_were_taken_from_stays_and_so_do_they(memory: Maintained) -> None:
    ids = await memory.alike(4)
    await memory.memories.store_fact("kettle", "is", "green", source=ids[1])
    report = await memory.after(30)
    assert report.counts()["compress"] == 3
    assert (await memory.row(ids[1])).status == "active"
    assert len(await memory.memories.query_facts(subject="kettle")) == 1


async def test_rules_put_away_and_delete_by_type_and_age_and_say_why(memory: Maintained) -> None:
    note, event, decision = [await memory.keep(f"a {each}", type=each) for each in ("note", "event", "decision")]
    of_events = RetentionSettings(types=("event",), archive_after_days=10, delete_after_days=40)
    policy = MaintenanceSettings(rules=(of_events, RetentionSettings(archive_after_days=30)))
    used = await memory.keep("an event that is used", type="event")
    assert (await memory.after(10 - 1e-6, policy)).counts()["archive"] == 0
    await memory.memories.get([used])
    await memory.after(2e-6, policy)
    assert [(await memory.row(each)).status for each in (event, used)] == ["archived", "active"]
    await memory.after(10 - 1e-6, policy)
    assert [(await memory.row(each)).status for each in (note, event, decision)] == ["active", "archived", "active"]
    await memory.after(20, policy)
    assert [(await memory.row(each)).status for each in (note, event, decision)] == ["archived", "deleted", "active"]
    assert await memory.why(event) == ("delete", "maintenance", "event untouched for 40 days")
    assert await memory.why(note) == ("archive", "maintenance", "note untouched for 30 days")


async def test_a_run_puts_away_however_many_are_due_a_thousand_in_a_line(memory: Maintained) -> None:
    await asyncio.gather(*(memory.keep(f"event {number}", type="event") for number in range(1_500)))
    policy = MaintenanceSettings(
        rules=(RetentionSettings(types=("event",), archive_after_days=10),), rows_per_run=100, similarity=0
    )
    report = await memory.after(30, policy)
    assert (report.counts()["archive"], report.counts()["consolidate"], report.finished) == (1_500, 100, False)
    lines = map(json.loads, (memory.home / "observations.jsonl").read_bytes().splitlines())
    assert [len(line["ids"]) for line in lines if line["event"] == "archive"] == [1_000, 500]
    assert (await memory.after(0, policy)).finished  # for what is put away does not fade any more


async def test_the_first_rule_that_covers_a_row_holds_when_it_rests_too(memory: Maintained) -> None:
    clerk = await memory.system.create_session(["observations"], "clerk")
    theirs = (await clerk.memory.remember("a note of the clerk")).id
    note, event = [await memory.keep(f"a {each}", type=each) for each in ("note", "event")]
    policy = MaintenanceSettings(
        rules=(
            RetentionSettings(agent="clerk", archive_after_days=5),
            RetentionSettings(types=("event",), archive_after_days=5),
            RetentionSettings(archive_after_days=5, delete_after_days=10),
        )
    )
    await memory.after(6, policy)
    await memory.after(50, policy)
    assert [(await memory.row(each)).status for each in (theirs, event, note)] == ["archived", "archived", "deleted"]


async def test_caps_of_rules_and_sessions_put_away_what_matters_least(memory: Maintained) -> None:
    session = await memory.system.create_session(["observations"], "chat")
    ids = [(await session.memory.remember(f"thing{n} word{n}", importance=n / 10)).id for n in range(6)]
    others = [await memory.keep(f"other{n} text{n}", type="event", importance=n / 10) for n in range(4)]
    report = await memory.after(
        0.5, MaintenanceSettings(max_per_session=4, rules=(RetentionSettings(types=("event",), max_rows=3),))
    )
    assert report.counts()["archive"] == 3
    assert [(await memory.row(each)).status for each in (*ids[:2], others[0])] == ["archived"] * 3
    assert "more than 4 in one session" in await memory.why(ids[0])
    both = MaintenanceSettings(max_per_session=3, rules=(RetentionSettings(types=("discovery",), max_rows=2),))
    assert (await memory.after(0, both)).counts()["archive"] == 2, "a row over two caps is put away once"


async def test_old_sessions_are_rolled_up_and_young_ones_are_not(memory: Maintained) -> None:
    old = await memory.system.create_session(["observations"], "chat")
    ids = [(await old.memory.remember(f"thing{n} word{n} topic{n}")).id for n in range(4)]
    kept = (await old.memory.remember("we decided on oak", type="decision")).id
    memory.now += timedelta(days=25)
    young = await memory.system.create_session(["observations"], "chat")
    for n in range(3):
        await young.memory.remember(f"matter{n} issue{n} point{n}")
    report = await memory.after(6, MaintenanceSettings(summarize_after_days=30, decay_per_day=0))
    [change] = report.changes
    assert (change.kind, set(change.ids)) == ("summarize", set(ids))
    assert change.by is not None
    summary = await memory.row(change.by)
    assert summary.session_id == old.id
    assert all(f"thing{n} word{n} topic{n}" in summary.narrative for n in range(4))
    assert (await memory.row(kept)).status == "active"


@pytest.mark.parametrize(("waits", "more", "whole"), [(20, 20, True), (59, 2, False)])
async def test_what_was_deleted_is_erased_in_time_but_not_what_something_was_made_from(
    memory: Maintained, waits: float, more: float, *, whole: bool
) -> None:
    gone, source = await memory.keep("a secret plan"), await memory.keep("a source")
    await memory.keep("made of it", derived_from=[source])
    await memory.memories.forget(gone, source)
    policy, journal = MaintenanceSettings(erase_after_days=30), memory.home / "observations.jsonl"
    assert not _erased(await memory.after(waits, policy, whole=whole))
    assert _erased(await memory.after(more, policy, whole=whole)) == [(gone,)]
    written, inode = journal.read_text(encoding="utf-8"), journal.stat().st_ino
    assert "secret plan" not in written
    [line] = [json.loads(line) for line in written.splitlines() if '"purge"' in line]
    assert (line["id"], line["who"], line["why"]) == (gone, "maintenance", "deleted or expired for 30 days")
    assert (await memory.row(source)).status == "deleted"
    await memory.after(7, policy, whole=whole)
    assert journal.stat().st_ino == inode, "what is needed does not have the journal rewritten again and again"


async def test_merged_originals_go_in_time_and_leave_their_summary_and_the_reason(memory: Maintained) -> None:
    ids = await memory.alike(4)
    [change] = (await memory.after(8, MaintenanceSettings())).changes[-1:]
    assert (change.kind, set(change.ids)) == ("compress", set(ids))
    assert change.by is not None
    policy = MaintenanceSettings(
        erase_after_days=30, rules=(RetentionSettings(types=("discovery",), delete_after_days=20),)
    )
    assert not (await memory.after(19, policy, whole=True)).counts()["delete"]  # days since they were merged
    assert (await memory.after(1, policy, whole=True)).counts()["delete"] == 4
    assert await memory.why(ids[0]) == ("delete", "maintenance", "discovery untouched for 20 days")
    assert [each.observation.id for each in await memory.memories.history(ids[0])][-1] == change.by
    before = await memory.row(change.by)
    assert (await memory.after(30, policy, whole=True)).counts()["erase"] == 4
    assert (await memory.row(change.by)).narrative == before.narrative
    assert not (await memory.after(30, policy, whole=True)).counts()["erase"]
    events = [json.loads(line) for line in (memory.home / "observations.jsonl").read_bytes().splitlines()]
    purges = {(each["id"], each["who"], each["why"]) for each in events if each["event"] == "purge"}
    assert purges == {(each, "maintenance", "deleted or expired for 30 days") for each in ids}
    assert await memory.memories.purge(ids[0]) == [change.by]  # who erases what was said erases what is left of it


async def test_a_clock_that_jumps_ahead_erases_nothing_until_it_has_gone_on(memory: Maintained) -> None:
    forgotten, kept = await memory.keep("a typo"), await memory.keep("a note")
    await memory.memories.forget(forgotten)
    policy = MaintenanceSettings(erase_after_days=30, rules=(RetentionSettings(delete_after_days=90),))
    for days in (1, 900):
        assert not (await memory.after(days, policy, whole=True)).changes[1:]  # they fade
        assert (await memory.row(kept)).status == "active"
    report = await memory.after(7, policy, whole=True)
    assert (report.counts()["erase"], (await memory.row(kept)).status) == (1, "deleted")


async def test_the_history_of_what_is_meant_to_last_stays(memory: Maintained) -> None:
    old = await memory.keep("the port is 1", type="identity", subject="port")
    await memory.keep("the port is 2", type="identity", subject="port", supersedes=old)
    policy = MaintenanceSettings(erase_after_days=1, rules=(RetentionSettings(delete_after_days=1),))
    for _ in range(3):
        await memory.after(100, policy, whole=True)
    assert [each.observation.title for each in await memory.memories.history(old)] == ["the port is 1", "the port is 2"]


def _erased(report: MaintenanceReport) -> list[tuple[str, ...]]:
    return [change.ids for change in report.changes if change.kind == "erase"]


@pytest.mark.parametrize("rows_per_run", [2_000, 4])
async def test_a_dry_run_tells_what_would_be_done_and_does_nothing(memory: Maintained, rows_per_run: int) -> None:
    await memory.alike(3)
    await memory.keep("old event", type="event")
    put_away, forgotten = [await memory.keep(f"an old {each}", type="bugfix") for each in ("bug", "typo")]
    await memory.memories.scope.change("archive", put_away)
    await memory.memories.forget(forgotten)
    await memory.keep("an old crash", type="bugfix", expires_at=BEGIN + timedelta(days=1))
    rules = (
        RetentionSettings(types=("event",), archive_after_days=10),
        RetentionSettings(types=("bugfix",), archive_after_days=5, delete_after_days=10),
    )
    policy = MaintenanceSettings(rules=rules, erase_after_days=20, rows_per_run=rows_per_run, seconds_per_run=1e-9)
    for number in range(4):
        await memory.keep(f"thing{number} word{number}")
    memory.now += timedelta(days=30)

    def files() -> dict[Path, bytes]:
        kept = (path for path in memory.home.iterdir() if path.is_file() and path.name != ".maintenance.lock")
        return {path: path.read_bytes() for path in kept}

    before = files()
    told = await memory.after(0, policy, dry_run=True, whole=True)
    assert files() == before
    done = await memory.after(0, policy, whole=True)
    assert dict(told.counts()) == dict(done.counts())
    counts = told.counts()
    assert (counts["compress"], counts["archive"], counts["delete"], counts["erase"]) == (3, 1, 2, 1)


async def test_a_run_looks_at_so_many_rows_and_the_next_one_goes_on(memory: Maintained) -> None:
    ids = [await memory.keep(f"thing{n} word{n}") for n in range(5)]
    memory.now += timedelta(days=30)
    seen = []
    for _ in range(4):
        report = await memory.after(0, MaintenanceSettings(rows_per_run=2))
        seen.append((report.looked_at, report.finished))
        await memory.system.aclose()
        memory.system = memory.opened()  # as another process would
    assert seen == [(4, False), (4, False), (2, True), (2, False)]  # what fades, and what is read to be compared
    assert [(await memory.row(each)).strength for each in ids] == [0.1] * 5


async def test_a_cursor_whose_row_was_erased_begins_again(memory: Maintained) -> None:
    ids = [await memory.keep(f"thing{n} word{n}") for n in range(4)]
    policy = MaintenanceSettings(rows_per_run=2, decay_per_day=0)
    assert (await memory.after(30, policy)).looked_at == 2
    await memory.memories.purge(ids[1])
    assert (await memory.after(0, policy)).looked_at == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"consolidation": {}}', b'{"consolidation": 3}', b"\xff"])
async def test_a_damaged_note_of_the_last_run_costs_only_a_new_beginning(
    memory: Maintained, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await memory.keep("something")
    (memory.home / NAME).write_bytes(damage)
    report = await memory.after(30, unless_within=timedelta(days=1), part="consolidation")
    assert report.counts()["consolidate"] == 1
    assert sum("begins again" in each for each in caplog.messages) == (len(damage) in {1, 2, 20})
    assert (await memory.after(0, unless_within=timedelta(days=1), part="consolidation")).skipped == "not due"
    assert (await memory.after(0, unless_within=timedelta(days=1), part="compression")).skipped == ""


async def test_a_note_of_a_later_release_is_left_as_it_is(memory: Maintained) -> None:
    await memory.keep("something")
    (memory.home / NAME).write_bytes(later := b'{"v": 2, "consolidation": 3}')
    with pytest.raises(LaterFormat, match="later release: upgrade chatbot"):
        await memory.after(30)
    assert (memory.home / NAME).read_bytes() == later


async def test_a_doubt_during_a_run_and_the_position_of_that_run_are_both_kept(
    memory: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.keep("something")
    do_round, expiry, doubts = Run.do_round, memory.now, list[datetime]()

    async def doubting(run: Run, after: str | None) -> str | None:
        doubts.append(await Upkeep(memory.system.backend).doubt(expiry, memory.now))
        return await do_round(run, after)

    monkeypatch.setattr(Run, "do_round", doubting)
    await memory.after(30)
    [doubted] = doubts
    memory.now += timedelta(hours=1)
    assert await Upkeep(memory.system.backend).doubt(expiry, memory.now) == doubted
    assert (await memory.after(0, unless_within=timedelta(days=1))).skipped == "not due"


async def test_two_at_once_are_one_who_does_it_and_one_who_says_so(memory: Maintained) -> None:
    await memory.alike(3)
    memory.now += timedelta(days=30)
    first, second = await asyncio.gather(memory.system.maintain(), memory.system.maintain())
    assert [report.counts()["compress"] for report in (first, second) if report.changes] == [3]
    with locked(memory.home, name=".maintenance.lock"):
        async with memory.opened() as other:
            assert (await other.maintain()).skipped == "under way"


async def test_a_caller_maintains_only_what_it_may_see(memory: Maintained) -> None:
    ids = await memory.alike(3)
    memory.now += timedelta(days=30)
    async with MemorySystem(
        memory.home, Caller(clearance="familiar"), settings=memory.settings, clock=lambda: memory.now
    ) as guest:
        assert not (await guest.maintain()).changes
    assert [(await memory.row(each)).status for each in ids] == ["active"] * 3


_TEXTS = st.lists(st.frozensets(st.sampled_from("abcdefghij"), max_size=6), max_size=25)
_SHARES = st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0])


def _naive(texts: list[frozenset[str]], similarity: float, least: int) -> list[list[int]]:
    left = list(range(len(texts)))
    found = []
    while left:
        group = [left.pop(0)]
        for each in group:
            near = [other for other in left if jaccard(texts[each], texts[other]) >= similarity]
            group += near
            left = [other for other in left if other not in near]
        found.append(sorted(group))
    return sorted(group for group in found if len(group) >= least)


@given(texts=_TEXTS, similarity=_SHARES, least=st.integers(2, 4))
def test_groups_are_those_of_comparing_all_with_all(texts: list[frozenset[str]], similarity: float, least: int) -> None:
    assert groups(texts, similarity, least=least) == _naive(texts, similarity, least)


def test_few_pairs_are_compared_where_most_words_are_rare() -> None:
    """Ten thousand texts that all share a word are grouped without fifty million comparisons."""
    texts = [frozenset({"common", *(f"{number // 3}-{at}" for at in range(9))}) for number in range(9_999)]
    found = groups(texts, 0.5, least=3)
    assert len(found) == 3_333
    assert all(len(group) == 3 for group in found)
