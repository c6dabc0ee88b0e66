"""Rate limits that several servers share: a bucket in a document."""

import pytest

from chatbot.server.rates import SharedRates
from chatbot.stores.errors import StoreFailed
from chatbot.stores.in_memory_backend import MemoryBackend


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _servers(*clocks: Clock) -> list[SharedRates]:
    backend = MemoryBackend()
    return [SharedRates(backend.document("rates"), each) for each in clocks]


async def _accepted(servers: list[SharedRates], tries: int, rate: int) -> int:
    waits = [await servers[number % len(servers)].take("ada", rate) for number in range(tries)]
    assert all(wait >= 0 for wait in waits)
    return waits.count(0)


async def test_ten_servers_let_no_more_pass_than_one(clock: Clock) -> None:
    servers = _servers(*[clock] * 10)
    assert await _accepted(servers, 1_000, 60) == 60
    clock.now += 30
    assert await _accepted(servers, 1_000, 60) == 30
    assert [await each.take("grace", 60) for each in servers] == [0.0] * 10  # who has a bucket of her own
    assert await servers[0].take("ada", 0) == 0.0


async def test_clocks_that_differ_fill_no_bucket_twice(clock: Clock) -> None:
    ahead = Clock()
    ahead.now += 3_600
    servers = _servers(clock, ahead)
    accepted = 0
    for _ in range(10):
        accepted += await _accepted(servers, 100, 60)
        clock.now, ahead.now = clock.now + 1, ahead.now + 1
    assert accepted <= 60 + 60 + 10  # the clock that is ahead fills it once


async def test_without_its_storage_each_server_counts_by_itself(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    document = MemoryBackend().document("rates")
    rates = SharedRates(document, clock)

    def fail(*_: object, **__: object) -> bytes:
        raise StoreFailed("no PostgreSQL answers there")

    monkeypatch.setattr(document, "change", fail)
    assert await _accepted([rates], 100, 10) == 10


async def test_nobody_is_named_in_what_is_kept_and_it_stays_small(clock: Clock) -> None:
    document = MemoryBackend().document("rates")
    rates = SharedRates(document, clock)
    for number in range(100):
        await rates.take(f"token-{number}", 60)
    assert b"token" not in (document.read() or b"")
    clock.now += 120
    await rates.take("ada", 60)
    assert len(document.read() or b"") < 100
