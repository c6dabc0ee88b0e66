"""Finding stores by name and identities by address: entry points, `module:Class`, settings, and faults said plainly."""

import re
import sys
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from chatbot.stores.errors import BrokenStore, InvalidSettings, UnknownStore
from chatbot.stores.home import Address, parse_address, parse_home, without_password
from chatbot.stores.plugins import STORES, load, open_store
from chatbot.stores.postgres.database_connection import explain

OWN = """
from typing import Literal
from chatbot.stores import KeyValueStore

class Unfinished(KeyValueStore):
    async def kv_get(self, session, key): ...
    async def kv_set(self, session, entry): ...
    async def kv_delete(self, session, key): ...
    async def kv_entries(self, session): ...

class Own(Unfinished):
    def __init__(self, home: "OnlyForTypeCheckers", *, greeting: Literal["hi", "hello"] = "hi", size: int = 3):
        super().__init__(home)
        self.greeting, self.size = greeting, size
    async def forget_session(self, session): ...

class Plain(Unfinished):
    async def forget_session(self, session): ...
    def kv_set(self, session, entry): ...

class Other(Own):
    async def kv_set(self, session, key, value): ...

class Needs(Own):
    def __init__(self, home, *, url):
        super().__init__(home)
"""


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / f"own_{tmp_path.name}.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def test_a_class_beside_the_configuration_is_found_and_gets_its_settings(beside: Path) -> None:
    store = open_store(f"own_{beside.name}:Own", beside, {"size": "7"}, beside=beside)
    assert (store.home, store.greeting, store.size) == (beside, "hi", 7)  # type: ignore[attr-defined]
    with pytest.raises(InvalidSettings, match="greeting = 5: it must be one of 'hi', 'hello'"):
        open_store(f"own_{beside.name}:Own", beside, {"greeting": 5}, beside=beside)
    with pytest.raises(InvalidSettings, match="needs the setting 'url', which has no default"):
        open_store(f"own_{beside.name}:Needs", beside, {}, beside=beside)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("no_such_module:Store", UnknownStore, "module 'no_such_module' .*not found: save it in "),
        ("{own}:Missing", BrokenStore, "Missing"),
        ("{own}:Unfinished", BrokenStore, "lacks forget_session: write `async def forget_session.self, session.`. Del"),
        ("{own}:Plain", BrokenStore, "kv_set, which is not async: write `async def kv_set.self, session, entry.`. Ke"),
        ("{own}:Other", BrokenStore, "kv_set, which takes other arguments: write `async def kv_set.self, session, e"),
        ("chatbot.stores.base:Store", BrokenStore, "implements no contract"),
        ("chatbot.stores.base:CLOSED", BrokenStore, "not a class that inherits"),
        (":", BrokenStore, "cannot be loaded"),
        ("postgres", UnknownStore, "choose from .*basic_session, in_memory"),
    ],
)
def test_a_store_that_cannot_be_used_says_why(beside: Path, name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load(name.format(own=f"own_{beside.name}"), beside=beside)


@pytest.mark.parametrize(
    ("store", "settings", "words"),
    [
        ("basic_session", {"kv_kap": 1}, "did you mean 'kv_cap'"),
        ("basic_session", {"kv_cap": "many"}, r"\[memory.basic_session\] kv_cap = 'many'"),
        ("basic_session", {"transcript_cap": 0}, r"\[memory.basic_session\] transcript_cap = 0"),
        ("observations", {"max_observations": -1}, r"\[memory.observations\] max_observations = -1"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, store: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        open_store(store, tmp_path, settings)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("print('hello'); raise RuntimeError('set TOKEN first')", "RuntimeError: set TOKEN first"),
        ("class (", "cannot be loaded: SyntaxError"),
        ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
    ],
)
def test_whatever_a_module_raises_when_it_is_imported_names_the_store(
    tmp_path: Path, source: str, words: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    module = f"raising_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
    with pytest.raises(BrokenStore, match=f"{module}.*{words}"):
        load(f"{module}:Store", beside=tmp_path)
    assert f"{module}.py" in caplog.text  # the traceback
    assert not capsys.readouterr().out, "standard output may be the protocol, or JSON"


def test_plug_ins_that_two_threads_import_leave_standard_output_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates, before = SimpleNamespace(first=Event(), second=Event(), done=Event()), sys.stdout
    monkeypatch.setitem(sys.modules, "gates", gates)
    sources = "gates.first.set(); gates.second.wait(0.2)", "gates.second.set(); gates.done.wait(5)"
    for number, source in enumerate(sources):
        (tmp_path / f"thread_{number}.py").write_text(f"import gates; {source}", encoding="utf-8")
    loads = [Thread(target=STORES.load, args=[f"thread_{each}:gates"], kwargs={"beside": tmp_path}) for each in (0, 1)]
    for load_one, gate in zip(loads, (gates.first, gates.second), strict=True):
        load_one.start()
        assert gate.wait(5)
    loads[0].join()
    gates.done.set()
    loads[1].join()
    assert sys.stdout is before


def test_annotations_that_cannot_be_read_are_said_to_be_the_trouble(tmp_path: Path) -> None:
    source = "from __future__ import annotations\n" + OWN.replace("size: int", "size: Nowhere")
    (tmp_path / f"hints_{tmp_path.name}.py").write_text(source, encoding="utf-8")
    with pytest.raises(BrokenStore, match=r"annotation of size in .*Nowhere"):
        open_store(f"hints_{tmp_path.name}:Own", tmp_path, {"size": 3}, beside=tmp_path)


def test_installed_plug_ins_are_listed_and_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, broken = f"installed_{tmp_path.name}", f"installed_broken_{tmp_path.name}"
    (tmp_path / f"{own}.py").write_text(OWN, encoding="utf-8")
    (tmp_path / f"{broken}.py").write_text("import a_module_that_is_not_there", encoding="utf-8")
    points = f"mine = {own}:Own\nbroken = {broken}:Own\nmissing = {own}:Missing\nboth = {own}:Plain"
    for package, offered in (("stranger", points), ("other", f"mine = {own}:Own\nboth = {own}:Own")):
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[chatbot.stores]\n{offered}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert {"mine", "broken", "missing", "basic_session"} <= STORES.installed().keys()
    assert own not in sys.modules
    assert open_store("mine", tmp_path, {"greeting": "hello"}).greeting == "hello"  # type: ignore[attr-defined]
    with pytest.raises(BrokenStore, match=rf"'broken' \({broken}:Own\).*a_module_that_is_not_there"):
        load("broken")
    with pytest.raises(BrokenStore, match="Missing"):
        load("missing")
    with pytest.raises(BrokenStore, match=f"packages offer the store 'both': name one as {own}:Own or {own}:Plain"):
        load("both")
    with pytest.raises(UnknownStore, match="did you mean 'mine'"):
        load("mines")


def test_an_address_names_a_database_and_an_identity() -> None:
    assert parse_address("postgresql://ada@db:5432/chat#ben") == Address("postgresql://ada@db:5432/chat", "ben")
    assert parse_address("postgres:///chat").identity == "default"
    assert parse_address("postgresql://a:1,b:2/chat").url == "postgresql://a:1,b:2/chat"
    assert parse_home("identities/ada/memory") == Path("identities/ada/memory")
    assert parse_home("postgresql:///chat#ada") == Address("postgresql:///chat", "ada")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("postgre://db/chat", "did you mean 'postgres'"),
        ("mysql://db/chat", "unknown storage 'mysql'"),
        ("localhost", "is not the URL of a database"),
        ("postgresql://db:port/chat", "port"),
        ("postgresql://db/chat#../etc", "is not an identity"),
    ],
)
def test_a_wrong_address_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        parse_address(text)


@pytest.mark.parametrize("between", ["", "/", "?", "#", "@", ":", " ", "\n", "%zz", "%", "[", "@:/#?"])
@pytest.mark.parametrize(
    "form", ["postgresql://ada:{}@db/chat", "mysql://ada:{}@db", "postgresql:/ada:{}@db", "postgres://:{}@[::1/chat"]
)
def test_no_password_is_shown_however_it_is_written(form: str, between: str) -> None:
    text = form.format(f"sec{between}ret")
    try:
        told = f"{parse_address(text)} {parse_address(text)!r}"
    except InvalidSettings as error:
        told = f"{error} {error.__cause__}"
    try:
        psycopg.conninfo.conninfo_to_dict(text)
    except psycopg.Error as error:
        told += str(explain(error, without_password(text)))
    assert not re.search("sec|ret", told)


def test_a_password_among_the_parameters_is_not_shown() -> None:
    for text in ("postgresql://db/chat?PassWord=sec#ret", "postgresql://db/chat?x=1&sslpassword=sec/ret&y=2"):
        assert not re.search("sec|ret", without_password(text))
