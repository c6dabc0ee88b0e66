"""PostgreSQL keeps identities apart by construction, and says in words what is wrong with a database."""

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Self

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chatbot.memory import MemorySystem
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.backend import Examination
from chatbot.stores.errors import (
    BrokenStore,
    FullDisk,
    InvalidSettings,
    LaterFormat,
    StoreAway,
    StoreError,
    StoreFailed,
)
from chatbot.stores.home import Address
from chatbot.stores.observation import STATUSES
from chatbot.stores.postgres import database, database_connection, schema, statements
from chatbot.stores.postgres.backend import PostgresBackend
from chatbot.stores.postgres.observations import PostgresObservations
from chatbot.stores.postgres.schema import TABLES
from chatbot.stores.postgres.sessions_store import escape_nul, unescape_nul
from chatbot.stores.query import status_now
from chatbot.stores.row_events import Event
from chatbot.stores.testing.backend_contract import record
from tests.postgres import ROLE, address, open_backend, owner_url
from tests.stores.places import OWNER, adding, id_of

pytestmark = pytest.mark.usefixtures("postgres")

STATEMENTS = {
    f"{name}{number}": each
    for name, value in vars(statements).items()
    if name.isupper() and isinstance(value, str | tuple) and not name.startswith("_") and name != "ACT"
    for number, each in enumerate([value] if isinstance(value, str) else value)
}
_SOURCE = re.compile(r"\b(?:FROM|JOIN|UPDATE) chatbot\.(\w+)")
_TARGET = re.compile(r"INSERT INTO chatbot\.\w+(?: AS \w+)? \(identity,")


def test_every_statement_names_the_identity_of_every_table_it_touches() -> None:
    for name, text in STATEMENTS.items():
        sources = len(_SOURCE.findall(text)) + len(re.findall(r"DO UPDATE SET", text))
        assert len(re.findall(r"identity = %\(identity\)s", text)) >= sources, name
        assert text.count("INSERT INTO") == len(_TARGET.findall(text)), name
        assert not re.search(r"advisory|nextval|currval", text)


def test_no_statement_is_written_elsewhere() -> None:
    folder = Path(statements.__file__).parent
    for path in folder.glob("*.py"):
        if path.name not in {"statements.py", "schema.py"}:
            code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
            assert not re.search(r"chatbot\.(?:%s)\b[^`]" % "|".join(TABLES), code), path  # noqa: UP031


def test_every_plan_reads_one_partition(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    values, touched = _VALUES | {"identity": f"'{backend.identity}'"}, 0  # the planner looks at values
    with psycopg.connect(owner_url(), autocommit=True) as connection:
        for name, text in STATEMENTS.items():
            whole = re.sub(r"%\((\w+)\)s", lambda found: values.get(found[1], "'x'"), text)
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {whole}"))
            parts = set(re.findall(r"\bon ((?:%s)_\d)\b" % "|".join(TABLES), plan))  # noqa: UP031
            assert len({part.rpartition("_")[2] for part in parts}) <= 1, f"{name}: {plan}"
            touched += bool(parts)
    assert touched > 30
    backend.close()


def test_a_forgotten_where_sees_no_other_identity(tmp_path: Path) -> None:
    ours, theirs = open_backend(tmp_path / "ours"), open_backend(tmp_path / "theirs")
    for backend in (ours, theirs):
        backend.lines("usage").append([{"of": backend.identity}])
    everything = "SELECT DISTINCT identity FROM chatbot.line"
    assert ours.database.rows(ours.identity, everything) == [(ours.identity,)]
    assert ours.database.rows("nobody", everything) == []
    with pytest.raises(StoreError, match="row-level security"):
        ours.database.run(ours.identity, _INTRUDING, victim=theirs.identity)
    with ours.database.connection() as connection:  # and without any identity
        assert connection.execute(everything).fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM chatbot.line_0")
        parts = "FROM pg_class WHERE relnamespace = 'chatbot'::regnamespace AND relispartition AND relkind = 'r'"
        assert connection.execute(f"SELECT bool_and(relrowsecurity), count(*) {parts}").fetchone() == (True, 72)
    ours.close()
    theirs.close()


_INTRUDING = "INSERT INTO chatbot.line (identity, session, name, n, record) VALUES (%(victim)s, '', 'usage', 99, '{}')"


def test_a_role_that_could_see_everything_is_told(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    assert backend.why_not_isolated() == ""
    backend.close()
    backend = PostgresBackend(Address(owner_url(), "x"))
    assert "is a superuser" in backend.why_not_isolated()
    assert "chatbot storage create --role NAME" in backend.why_not_isolated()
    backend.close()


def test_the_views_say_what_people_ask_for(tmp_path: Path) -> None:
    backend = open_backend(tmp_path)
    backend.sessions.begin(record(1))
    backend.sessions.publish(replace(record(1), title="the garden of Ada"))
    backend.lines("usage").append(
        [{"at": "2026-03-04T05:06:07Z", "model": "m", "purpose": "chat", "input_tokens": n, "output_tokens": 1,
          "cost_usd": 0.25} for n in (1, 2)]
    )  # fmt: skip
    rows = backend.rows("SELECT title, agent FROM chatbot.sessions")
    assert rows == [("the garden of Ada", "chat")]
    rows = backend.rows("SELECT day::text, calls, input_tokens, cost_usd::float FROM chatbot.cost_by_day")
    assert rows == [("2026-03-04", 2, 3, 0.5)]
    backend.close()


async def test_the_view_of_memories_says_what_the_store_says(tmp_path: Path) -> None:
    where = address(tmp_path)
    async with MemorySystem(f"{where.url}#{where.identity}") as system:
        memories = system.memory("chat")
        hives = [(await memories.remember(f"the {n} hive")).id for n in ("red", "blue", "old", "new")]
        await memories.update(hives[0], title="the green hive")
        await memories.forget(hives[1], hives[2])
        await memories.restore(hives[2])
        newer = (await memories.remember("the newest hive", supersedes=hives[3])).id
        await memories.remember("what it is made of", derived_from=[hives[0]])
        await memories.update(hives[0], visibility="shared")
        await memories.update(hives[0], sensitivity="secret")
        past = datetime(2020, 3, 4, tzinfo=UTC)
        times = {"created_at": past, "updated_at": past, "expires_at": past + timedelta(days=1)}
        changes = [Event(kind=kind, at=past, ids=(id_of(1),)) for kind in ("delete", "restore")]
        async with PostgresObservations(where) as store:
            await store.commit(replace(OWNER, now=past), [adding(1, title="the past hive", **times), *changes])
        every = await memories.every(statuses=STATUSES, sensitivities=SENSITIVITIES)
        now = datetime.now(UTC)
        kept = {each.id: (status_now(each, now), each.title, each.visibility, each.sensitivity) for each in every}
        await memories.reindex()
        assert (await memories.stats()).cache_bytes
    backend = open_backend(tmp_path)
    assert backend.sizes() == {"sessions": 0}
    rows = backend.rows("SELECT id, status, title, visibility, sensitivity FROM chatbot.memories")
    assert {each: tuple(rest) for each, *rest in rows} == kept
    assert (kept[hives[0]][1], kept[id_of(1)][0]) == ("the green hive", "expired")
    assert {*backend.rows("SELECT id FROM chatbot.memory_events WHERE kind = 'update'")} == {(hives[0],)}
    assert backend.rows("SELECT superseded_by FROM chatbot.memories WHERE status = 'superseded'") == [(newer,)]
    backend.close()


@given(st.text())
def test_any_text_is_kept(text: str) -> None:
    assert unescape_nul(escape_nul(text)) == text
    assert "\0" not in escape_nul(text)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database, for its owner; a parameter is its encoding."""
    with psycopg.connect(owner_url(), autocommit=True) as connection:
        name = f"fresh_{os.getpid()}"  # each worker has its own
        made = f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY"
        connection.execute(made + getattr(request, "param", ""))
        yield owner_url().replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_several_at_once_create_the_tables_once(fresh: str) -> None:
    create = partial(schema.create, role=ROLE)
    with ThreadPoolExecutor(4) as threads, psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET default_transaction_isolation = serializable")
        assert sorted(threads.map(create, [fresh] * 4)) == ["created", *["unchanged"] * 3]
    with pytest.raises(InvalidSettings, match='role "nobody" does not exist'):
        schema.create(fresh, role="nobody")


@pytest.mark.parametrize("fresh", [" LOCALE 'C' ENCODING 'SQL_ASCII'", " LOCALE 'C' ENCODING 'LATIN1'"], indirect=True)
def test_a_database_that_cannot_hold_every_text_is_refused(fresh: str) -> None:
    with pytest.raises(InvalidSettings, match=r"the database is encoded in .*: use one .*--encoding=UTF8"):
        schema.create(fresh, role=ROLE)


def test_tables_of_another_version_are_refused_in_words(fresh: str) -> None:
    with pytest.raises(StoreFailed, match="has no tables of chatbot yet: run `chatbot storage create`"):
        _use(fresh)
    with pytest.raises(StoreFailed, match="run `chatbot storage create --url` with the owner of the database"):
        schema.create(fresh.replace("//postgres@", f"//{ROLE}@"))
    schema.create(fresh, role=ROLE)
    _use(fresh)
    with psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute("UPDATE chatbot.version SET number = 9999")
        for refused in (_use, schema.create):
            with pytest.raises(LaterFormat, match=r"of another release \(version 9999, this one knows \d+\)"):
                refused(fresh)
        connection.execute("DROP TABLE chatbot.version")
        connection.execute("CREATE TABLE chatbot.version (id text)")
    for refused in (_use, schema.create):
        with pytest.raises(BrokenStore, match="belongs to another program"):
            refused(fresh)


def test_an_examination_names_the_tables_to_which_the_role_lacks_rights(fresh: str) -> None:
    schema.create(fresh, role=ROLE)
    with psycopg.connect(fresh, autocommit=True) as owner:
        owner.execute(f"REVOKE DELETE ON chatbot.event, chatbot.line FROM {ROLE}")
    backend = PostgresBackend(Address(fresh.replace("//postgres@", f"//{ROLE}@"), "ada"))
    [told] = [flaw.message for flaw in backend.examine(Examination()) if flaw.state == "bad"]
    assert "its role lacks rights to event, line: run `chatbot storage create --role NAME`" in told
    schema.create(fresh, role=ROLE)
    assert not [flaw for flaw in backend.examine(Examination()) if flaw.state == "bad"]
    backend.close()
    read_only = f"{backend._address.url}&options=-c%20default_transaction_read_only%3Don"
    with closing(PostgresBackend(Address(read_only, "ada"))) as reading:
        [told] = [flaw.message for flaw in reading.examine(Examination()) if flaw.state == "bad"]
    assert "is read-only: name the primary server" in told


def test_a_clock_that_goes_wrong_later_is_refused_until_mended(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time() + seconds, tz)

    monkeypatch.setattr(database_connection, "datetime", Clock)
    monkeypatch.setattr(database, "COMPARED_EVERY_S", 0)
    backend = PostgresBackend(Address(f"{postgres}&application_name=clock", "ada"))  # a pool of its own
    backend.is_there()
    seconds = 3_600
    with pytest.raises(StoreFailed, match=r"the clock here is 3,600 s ahead of that of .*NTP"):
        backend.is_there()
    seconds = 0
    backend.is_there()
    backend.close()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("57P01", StoreAway), ("57P05", StoreAway), ("25P03", StoreAway), ("25P04", StoreAway), ("53100", FullDisk)],
)
def test_a_database_that_ended_the_connection_is_away_and_one_whose_disk_is_full_says_so(
    state: str, kind: type[StoreError]
) -> None:
    assert type(database_connection.explain(psycopg.errors.lookup(state)("too long"), "db")) is kind


def test_whoever_waits_for_another_writer_sees_what_that_one_wrote(postgres: str) -> None:
    where = Address(f"{postgres}&options=-c%20default_transaction_isolation%3Dserializable", "ada")
    with closing(PostgresBackend(where)) as backend:
        assert backend.rows("SELECT current_setting('transaction_isolation')") == [("read committed",)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("/postgres?", "/nowhere?"), "the database does not exist"),
        ((f"//{ROLE}@", "//nobody@"), "the role does not exist"),
        (("?host=", "?host=/nowhere&was="), "the address cannot be read"),
        (("?host=", "?host=/nowhere"), "no PostgreSQL answers there"),
    ],
)
def test_a_wrong_url_says_what_to_do(postgres: str, wrong: tuple[str, str], told: str) -> None:
    with pytest.raises(StoreError, match=told):
        _use(postgres.replace(*wrong))


def test_the_key_of_every_table_begins_with_the_identity() -> None:
    tables = re.findall(r"CREATE TABLE chatbot\.(\w+) \(\n    identity text NOT NULL", schema.text())
    assert tuple(tables) == TABLES
    assert len(re.findall(r"PRIMARY KEY \(identity,", schema.text())) == len(TABLES)


def _use(url: str) -> None:
    backend = PostgresBackend(Address(url, address(Path("x")).identity))
    try:
        backend.lines("usage").all()
    finally:
        backend.close()


_VALUES = {
    **dict.fromkeys(("generation", "count", "n", "before", "limit", "version", "cap", "start", "end", "next"), "1"),
    **dict.fromkeys(("records", "roles", "contents", "lines", "holders", "pieces", "sessions"), "ARRAY['x']"),
    **dict.fromkeys(("starts", "numbers"), "ARRAY[1::bigint]"),
    **dict.fromkeys(("at", "used_at"), "now()"),
    "times": "ARRAY[now()]",
    "ttl": "1",
    **dict.fromkeys(("value", "data"), "'x'"),
}
