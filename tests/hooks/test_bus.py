"""The bus: who is called in which order, and that a failure stays where it happened."""

import asyncio
import re
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.events import OwnHook
from chatbot.hooks.bus import Bus, Subscription
from chatbot.hooks.hook import Failures


@dataclass(frozen=True)
class Happened:
    topic: str = "tool:post"
    session_id: str = "s"
    notices: list[str] = field(default_factory=list)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def failures(tmp_path: Path) -> Failures:
    return Failures(tmp_path / "memory")


@pytest.fixture
def bus(failures: Failures) -> Bus:
    return Bus(failures, lambda: datetime(2026, 1, 2, tzinfo=UTC))


def listen(bus: Bus, name: str, handle: Any, *, topics: tuple[str, ...] = ("tool:post",), **options: Any) -> None:
    bus.subscribe(Subscription(name, topics, handle, **options))


async def test_what_raises_hangs_or_cancels_itself_disturbs_none_and_is_told_once(bus: Bus, failures: Failures) -> None:
    async def fails() -> None:
        raise ValueError("token=ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8 \ud800")

    async def raises(_: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    async def hangs(_: Any) -> None:
        await asyncio.Event().wait()

    async def cancels(_: Any) -> None:
        if (task := asyncio.current_task()) is not None:
            task.cancel()
        await asyncio.sleep(0)

    async def leaves(_: Any) -> None:
        sys.exit(3)

    async def panics(_: Any) -> None:
        raise BaseException("as Rust does")  # noqa: TRY002

    async def answers(_: Any) -> str:
        return "here"

    listen(bus, "inject", answers, priority=110, timeout_s=0.01)  # one of our own, for which a turn does the work
    listen(bus, "f", panics, priority=5)
    listen(bus, "d", leaves, priority=4)
    listen(bus, "c", cancels, priority=4)
    listen(bus, "b", hangs, priority=4, timeout_s=0.01)
    listen(bus, "a", raises, priority=1)
    listen(bus, "e", answers, priority=5)
    first, second, own = Happened(), Happened(), OwnHook("inject", asyncio.Event().wait)
    assert await bus.publish(first, own) == ["here"]
    assert await bus.publish(second, own) == ["here"]
    in_order = ["a", "b", "c", "d", "f", "inject"]  # by priority, equals by name
    assert [notice.split("'")[1] for notice in first.notices] == in_order
    assert second.notices == []
    kept = failures.read()
    assert [failure.hook for failure in kept] == in_order * 2
    assert "did not finish within 0.01 s" in kept[1].message
    assert kept[3].message == "SystemExit: 3"
    assert kept[0].message.startswith("ValueError: token=")
    assert "ghp_" not in kept[0].message


async def test_what_blocks_everything_is_told_of_as_slow_and_its_answer_counts(bus: Bus, failures: Failures) -> None:
    async def blocks(_: Any) -> str:
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 - that is what it does
        await asyncio.sleep(0)
        return "here"

    async def waits(_: Any) -> str:
        await asyncio.sleep(0.06)
        await asyncio.sleep(0.06)
        return "there"

    listen(bus, "a", blocks, timeout_s=0.1)
    listen(bus, "b", waits, timeout_s=30)
    event = Happened()
    assert await bus.publish(event) in (["here", "there"], ["there"])  # its time-out may strike where it awaits again
    assert re.match(r".*it blocked everything for [\d.]+ s; its limit is 0\.1 s", failures.read()[-1].message)
    assert {failure.hook for failure in failures.read()} == {"a"}
    assert event.notices[0].startswith("the hook 'a' ")


async def test_an_interrupt_goes_through_and_so_does_an_end_from_outside(bus: Bus, failures: Failures) -> None:
    async def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    listen(bus, "b", lambda _: asyncio.Event().wait())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bus.publish(Happened()), 0.01)
    listen(bus, "a", interrupted)
    with pytest.raises(KeyboardInterrupt):
        await bus.publish(Happened())
    assert failures.read() == []


async def test_a_hook_never_hears_what_arises_from_its_own_run(bus: Bus) -> None:
    heard: list[str] = []

    async def echoes(name: str, event: Happened) -> None:
        heard.append(name)
        await bus.publish(event)
        bus.notify(event)

    for name in ("a", "b", "c"):
        listen(bus, name, lambda event, name=name: echoes(name, event))
    await bus.publish(Happened())
    await bus.wait_idle()
    assert 3 <= len(heard) <= 60
    await bus.publish(Happened())
    assert heard.count("a") >= 2


async def test_the_background_keeps_the_order_within_a_session_and_no_other_waits(bus: Bus) -> None:
    heard: list[str] = []
    gate = asyncio.Event()

    async def slow(event: Happened) -> None:
        if event.session_id == "slow":
            await gate.wait()
        heard.append(event.session_id)

    async def second(event: Happened) -> None:
        heard.append(f"{event.session_id}+")

    listen(bus, "a", slow, background=True)
    listen(bus, "b", second, background=True)
    for session in ("slow", "slow", "fast"):
        await bus.publish(Happened(session_id=session))
    await bus.wait_idle("fast")
    assert heard == ["fast", "fast+"]
    gate.set()
    await bus.wait_idle()
    assert heard[2:] == ["slow", "slow+", "slow", "slow+"]


async def test_the_file_of_failures_is_bounded_and_outlives_damage(failures: Failures, tmp_path: Path) -> None:
    bus = Bus(failures, lambda: datetime(2026, 1, 2, tzinfo=UTC))
    for number in range(130):
        await bus.note_failure("a", Happened(), f"number {number} " + "x" * 5_000)
    path = tmp_path / "memory" / "hook_failures.jsonl"
    assert len(path.read_bytes().splitlines()) <= 100
    assert path.stat().st_mode & 0o077 == 0
    with path.open("ab") as file:
        file.write(b"no json\n[1]\n")
    kept = Failures(tmp_path / "memory").read()
    assert kept[-1].message.startswith("number 129 ")
    assert len(kept[-1].message) <= 500


async def test_a_failure_in_the_background_is_told_with_the_next_event(bus: Bus) -> None:
    async def raises(_: Any) -> None:
        raise ValueError("no")

    listen(bus, "a", raises, background=True)
    await bus.publish(Happened())
    await bus.wait_idle()
    later, elsewhere = Happened(topic="turn:end"), Happened(topic="turn:end", session_id="other")
    await bus.publish(elsewhere)
    await bus.publish(later)
    assert elsewhere.notices == []
    assert later.notices == ["the hook 'a' failed and was skipped: ValueError: no"]
