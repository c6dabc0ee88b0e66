"""Round trips of a turn to the database, and what a turn sees of what others write meanwhile."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from chatbot.chat.ledger import sum_of
from chatbot.hooks.bus import Bus
from chatbot.memory import MemorySystem, SessionFilter
from chatbot.memory import handle as session_handle
from chatbot.messages import TextDelta
from chatbot.models.scripted import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.postgres.database import Database
from chatbot.stores.postgres.observations import PostgresObservations
from chatbot.stores.postgres.place import Leases
from chatbot.stores.postgres.sessions_store import PostgresSessionStore
from chatbot.stores.query import Filter, Question
from chatbot.stores.records import TranscriptEntry, vector
from chatbot.stores.testing.backend_contract import record
from chatbot.stores.testing.log_contract import event, read, row_id, write
from tests.command import project
from tests.patience import PATIENCE_S
from tests.postgres import address, open_backend, open_log, owner_url
from tests.stores.places import OWNER, adding, id_of, update
from tests.talk import begun

pytestmark = pytest.mark.usefixtures("postgres")

MOST = {"How are you?": 4, "Where do they live?": 5, "Ada has sold honey on the market since May": 5}
"""Of a warm turn by its text; all but the first are remembered; the last counts a use of what it was reminded of."""


_behind: ContextVar[bool] = ContextVar("_behind", default=False)
"""True in hooks that run in the background, which no turn waits for."""
_OWN_THREADS = {"leases"}
"""Threads of the database's own, which nobody waits for either."""


class Trips:
    """How often the database was waited for, as the wire saw it: each wait ends with `ReadyForQuery`."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self, connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[None]:
        """Count the waits on that connection within the block, which has it to itself."""
        if _behind.get() or threading.current_thread().name in _OWN_THREADS:
            yield
            return
        with TemporaryFile("w+") as trace:
            connection.pgconn.trace(trace.fileno())
            try:
                yield
            finally:
                connection.pgconn.untrace()
            trace.seek(0)
            self.count += sum("ReadyForQuery" in line.split() for line in trace)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    found = Trips()
    borrow, run = Database.connection, Bus._run

    @contextmanager
    def counted(database: Database) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        with borrow(database) as connection, found.counted(connection):
            yield connection

    async def behind(bus: Bus, *args: Any) -> None:
        _behind.set(True)
        await run(bus, *args)

    monkeypatch.setattr(Database, "connection", counted)
    monkeypatch.setattr(Bus, "_run", behind)
    return found


@pytest.mark.parametrize("others", [0, 1])  # that have just written
@pytest.mark.parametrize("text", MOST)
async def test_a_warm_turn_takes_few_round_trips(
    text: str, trips: Trips, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, others: int
) -> None:
    monkeypatch.chdir(tmp_path)
    name = address(tmp_path).identity
    project(f'[embedding]\nmodel = ""\n[storage]\nurl = "{postgres}"\n', name)
    async with Runtime(Options(config=tmp_path / "config.toml", identity=name), model=ScriptedModel()) as runtime:
        earlier = runtime.chat(await runtime.new_session())
        await earlier.turn("Ada sells honey on the market")
        chat = runtime.chat(await runtime.new_session())
        for each in ("I keep bees", "They live in the garden"):
            await chat.turn(each)
        if others:
            async with MemorySystem(f"{address(tmp_path).url}#{name}") as other:
                await other.memory("chat").remember("Trains leave on the hour")
        trips.count = 0
        monkeypatch.setattr(session_handle, "_FRESH_FOR_S", PATIENCE_S)

        def take_long(event: object) -> None:
            """As with a model that takes its time: what was read before its reply is out of date after."""
            if isinstance(event, TextDelta):
                monkeypatch.setattr(session_handle, "_FRESH_FOR_S", 0.0)

        receipt = await chat.turn(text, take_long)
        assert text in receipt.reply
        assert 0 < trips.count <= MOST[text] + 3 * others
        assert (receipt.remembered is None) == text.startswith("How")
        assert bool(receipt.memory["injected"]) == text.startswith("Ada")


def test_who_reads_while_the_first_write_of_all_is_not_committed_does_not_start_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    read(log)
    with log.locked() as writing, ThreadPoolExecutor(1) as other:
        read(log)
        writing.append(event(1))
        assert other.submit(read, log).result() == []
    again = open_log(tmp_path)
    assert read(log) == []
    assert [each for _, each in read(again)] == [row_id(1)]
    log.close()
    again.close()


def test_a_look_for_another_reason_does_not_pass_for_reading(tmp_path: Path) -> None:
    log, other = open_log(tmp_path), open_log(tmp_path)
    write(other, event(1))
    assert len(read(log)) == 1
    assert not log.is_replaced()
    write(other, event(2))
    fresh_at = time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(log.was_written).result()  # as before a snapshot is saved
    assert list(log.read_new()) or not log.is_known(fresh_at)
    log.close()
    other.close()


READS: dict[str, Callable[[PostgresObservations], Awaitable[Any]]] = {
    "match": lambda store: store.match(OWNER, ["titl"], Filter()),
    "facets": lambda store: store.facets(OWNER, "tags"),
    "history": lambda store: store.history(OWNER, id_of(1)),
    "written_at": lambda store: store.written_at(OWNER, list(map(id_of, range(200)))),
    "missing_vectors": lambda store: store.missing_vectors(OWNER, model="m"),
    "candidates": lambda store: store.candidates(
        OWNER, Question(terms=("titl",), vectors=(vector([1.0]),) * 20, model="m"), Filter()
    ),
}


async def test_many_rows_lines_or_vectors_take_no_more_round_trips_than_one(trips: Trips, tmp_path: Path) -> None:
    async with PostgresObservations(address(tmp_path)) as store:
        await store.commit(OWNER, [adding(number, tags=(f"tag {number}",)) for number in range(200)])
        await store.commit(OWNER, [update(id_of(1), title=f"title {number}") for number in range(50)])
    for name, asking in READS.items():
        async with PostgresObservations(address(tmp_path)) as store:
            trips.count = 0
            assert await asking(store)
            assert 0 < trips.count < 20, name


async def test_searching_many_sessions_takes_few_round_trips(trips: Trips, tmp_path: Path) -> None:
    async with MemorySystem(f"{address(tmp_path).url}#{address(tmp_path).identity}") as memory:
        for number in range(20):
            session = await memory.create_session(("basic_session", "observations"), "chat")
            await session.transcript_append("user", f"a hive in the garden, {number}")
        for _ in range(2):  # first, all of them have changed
            trips.count = 0
            assert len(await memory.search_sessions("hive", limit=20)) == 20
            assert 0 < trips.count <= 10
        trips.count = 0
        assert not await memory.choose_sessions(SessionFilter(min_messages=2, is_empty=False))
        assert 0 < trips.count <= 3


async def test_within_a_turn_or_a_search_others_are_looked_at_once_and_own_writes_are_seen(
    trips: Trips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_handle, "_FRESH_FOR_S", PATIENCE_S)
    home = f"{address(tmp_path).url}#{address(tmp_path).identity}"
    async with MemorySystem(home) as one, MemorySystem(home) as other:
        mine = await one.create_session(("basic_session", "observations"), "chat")
        theirs = other.memory("chat")
        await mine.memory.remember("a hive in the garden")
        async with mine.hold_turn():
            assert len(await mine.memory.search("hive")) == 1
            await theirs.remember("a hive in the yard")
            assert len(await mine.memory.search("hive")) == 1
            assert len(await one.memory("chat").search("hive")) == 2  # who takes no turn looks anew
            await mine.memory.remember("a hive in the park")
            assert len(await mine.memory.search("hive")) == 3
        assert len(await mine.memory.search("hive")) == len(await theirs.search("hive")) == 3
        for memory in (mine.memory, theirs):
            await memory.search("hive", count_use=False)
            trips.count = 0
            assert len(await memory.search("hive", count_use=False)) == 3
            assert trips.count == 1
            trips.count = 0
            assert len(await memory.standing()) > 1
            assert trips.count == 1


async def test_what_a_turn_remembers_that_began_before_its_session_was_marked_is_marked_too(tmp_path: Path) -> None:
    home = f"{address(tmp_path).url}#{address(tmp_path).identity}"
    async with MemorySystem(home) as one, MemorySystem(home) as other:
        mine = await one.create_session(("basic_session", "observations"), "chat")
        theirs = await other.load_session(mine.id, "chat")
        async with mine.hold_turn():
            marking = asyncio.create_task(theirs.mark("private"))
            await asyncio.wait([marking], timeout=session_handle._FRESH_FOR_S / 2)
            await mine.memory.remember("a hive in the garden")  # by what was read as the turn began
        await marking
        [row] = await theirs.memory.every(sensitivities=SENSITIVITIES)
        assert row.sensitivity == "private"


def test_who_leaves_a_database_waits_for_no_lock() -> None:
    """The garbage collector lets go of stores at any moment, also while this thread opens another one."""
    database = Database.of("postgresql://nobody@localhost:1/nothing")
    with Database._guard:
        database.release()
    another = Database.of(database.url)
    assert another.url == database.url
    another.release()
    third = Database.of(database.url)
    assert third is not another
    third.release()


def test_a_lease_that_was_lost_is_reported_once_and_keeps_no_database(caplog: pytest.LogCaptureFixture) -> None:
    database = Database(owner_url())
    leases = Leases.of(database)
    leases._thread = threading.Thread()  # as one that an error has ended
    leases.add(database, "nobody", "holder")
    renewing = leases._thread
    for _ in range(2):
        leases._renew_those(database, "nobody", ["holder"])
    assert caplog.text.count("1 leases expired") == 1
    renewing.join(PATIENCE_S)
    assert not renewing.is_alive()
    database.close()
    is_kept = weakref.ref(database)
    del database
    gc.collect()
    assert is_kept() is None


def test_lines_that_wait_for_others_are_kept_if_one_of_those_fails_for_any_reason(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    lines = backend.lines("usage")
    lines.append([{"n": 1}])
    with pytest.raises(ZeroDivisionError):
        backend.write_together([lambda: lines.append([{"n": 2}]), lambda: 1 // 0])
    assert lines.all() == [{"n": 1}, {"n": 2}]
    backend.close()


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """A function after which the database refuses such rows of a table, of this test's identity."""
    identity = address(tmp_path).identity
    function = f"chatbot.{identity}_refuses"
    with psycopg.connect(owner_url(), autocommit=True) as owner:

        def refuse(table: str, which: str) -> None:
            owner.execute(
                f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE disk_full USING MESSAGE = 'no space left'; END $$"
            )
            owner.execute(
                f"CREATE TRIGGER {identity} BEFORE INSERT ON chatbot.{table} FOR EACH ROW "
                f"WHEN (NEW.identity = '{identity}' AND {which}) EXECUTE FUNCTION {function}()"
            )

        yield refuse
        owner.execute(f"DROP FUNCTION IF EXISTS {function}() CASCADE")


END_OF_TURN = {
    "the cost of this call could not be written": ("line", "NEW.name = 'usage'"),
    "this could not be saved": ("message", "NEW.role = 'assistant'"),
    "this exchange could not be remembered": ("event", "true"),
    "the receipt of this turn could not be saved": ("line", "NEW.name = 'receipts'"),
}


@pytest.mark.parametrize("told", END_OF_TURN)
async def test_what_goes_along_with_a_write_that_fails_is_kept_and_that_failure_alone_is_told(
    told: str, refused: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    where = address(tmp_path)
    project(f'[embedding]\nmodel = ""\n[storage]\nurl = "{where.url}"\n', where.identity)
    options = Options(config=tmp_path / "config.toml", identity=where.identity)
    async with Runtime(options, model=ScriptedModel()) as runtime:
        session, chat = await begun(runtime)
        await chat.turn("I keep bees in the garden")
        refused(*END_OF_TURN[told])
        receipt = await chat.turn("Ada has sold honey on the market since May")
        assert [told in notice for notice in receipt.notices] == [True]
        said = [entry.content for entry in await session.transcript_read_last(10)][2:]
        remembered = await session.memory.search("honey market")
        kept = {
            "the cost of this call could not be written": sum_of((await runtime.ledger.by_session()).values()).calls
            == 2,
            "this could not be saved": said[1:] == [receipt.reply],
            "this exchange could not be remembered": len(remembered) == 1,
            "the receipt of this turn could not be saved": len(await session.receipts()) == 2,
        }
        assert kept == {each: each != told for each in END_OF_TURN}
    backend = open_backend(tmp_path)
    lease = backend.place_of(backend.sessions.ref(session.id)).lease("turn")
    assert lease.take()
    lease.release()
    backend.close()


async def test_what_a_turn_has_read_is_for_its_own_reads_alone(tmp_path: Path) -> None:
    backend, store = open_backend(tmp_path), PostgresSessionStore(address(tmp_path))
    begun = record(1)
    session = backend.sessions.begin(begun)
    backend.sessions.publish(begun)
    lease, fresh_at = backend.place_of(session).lease("turn"), time.monotonic()
    assert lease.take_with(store.turn_reads(session, fresh_at))
    entry = TranscriptEntry("user", "I keep bees", begun.created_at)
    await store.transcript_append(session, [entry])
    await PostgresSessionStore(address(tmp_path)).transcript_append(session, [entry])
    assert await store.transcript_read_last(replace(session, fresh_at=fresh_at), 20) == [entry]
    assert len(await store.transcript_read_last(session, 20)) == 2
    lease.release()
    await store.aclose()
    backend.close()


async def test_servers_that_write_at_once_without_a_lock_lose_nothing_and_keep_nothing_twice(tmp_path: Path) -> None:
    home = f"{address(tmp_path).url}#{address(tmp_path).identity}"
    async with MemorySystem(home) as one, MemorySystem(home) as other:
        mine, theirs = one.memory("chat"), other.memory("chat")
        for memories in (mine, theirs):
            assert not await memories.search("hive")
        first = await mine.remember("a hive in the garden")
        assert (await theirs.remember("a hive in the garden")).id == first.id
        await theirs.remember("a hive in the yard")
        with pytest.raises(UnknownObservation):
            await mine.forget("01900000-0000-7000-8000-000000000000")
        [found] = await theirs.search("yard")
        await mine.forget(found.observation.id)
        await asyncio.gather(*(each.remember(f"hive {n}") for n in range(8) for each in (mine, theirs)))
        for memories in (mine, theirs):
            texts = sorted(hit.observation.title for hit in await memories.search("hive", limit=50))
            assert texts == ["a hive in the garden", *(f"hive {n}" for n in range(8))]


@pytest.mark.parametrize("others", [0, 1, 4])
def test_what_a_standby_lacks_that_takes_over_is_forgotten_and_what_others_write_instead_is_read(
    tmp_path: Path, others: int
) -> None:
    one, backend = open_log(tmp_path), open_backend(tmp_path)
    bill = backend.lines("usage")
    write(one, event(1))
    bill.append([{"n": 1}])
    with psycopg.connect(owner_url(), autocommit=True) as owner:
        for table in ("event", "line", "head"):
            owner.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM chatbot.{table}")
        write(one, event(2), event(3, "a long one"))
        bill.append([{"n": 2}])
        mark = bill.since(None).mark
        for table in ("event", "line", "head"):
            owner.execute(f"DELETE FROM chatbot.{table} WHERE identity = %s", [backend.identity])
            owner.execute(f"INSERT INTO chatbot.{table} SELECT * FROM {table} WHERE identity = %s", [backend.identity])
    again = bill.since(mark)
    assert ([each["n"] for each in again.records], again.starts_over) == ([1], True)
    with closing(open_log(tmp_path)) as two:
        write(two, *(event(number) for number in range(4, 4 + others)))
    write(one, event(9))
    kept = [row_id(number) for number in (1, *range(4, 4 + others), 9)]
    one.start_again()
    with closing(open_log(tmp_path)) as two:
        assert [each for _, each in read(one)] == [each for _, each in read(two)] == kept
    one.close()
    backend.close()


def test_an_erasure_leaves_all_other_rows_where_they_are(tmp_path: Path) -> None:
    log, backend = open_log(tmp_path), open_backend(tmp_path)
    places = write(log, *map(event, range(4)))
    where = "SELECT start, ctid FROM chatbot.event WHERE identity = %(identity)s ORDER BY start"
    before = backend.rows(where)
    with log.locked() as writing:
        moved = writing.rewrite(lambda line, begin: None if begin == places[1][0] else line, [event(5)])
    assert moved == {place[0]: place for place in (places[0], *places[2:])}
    assert backend.rows(where)[:-1] == [before[0], *before[2:]]
    log.close()
    backend.close()
