"""Finding stores by name: entry points, `module:Class`, settings, and what is wrong said plainly."""

from pathlib import Path

import pytest

from stores import BrokenStore, InvalidSettings, UnknownStore
from stores.basic_session import BasicSessionStore
from stores.in_memory import InMemoryStore
from stores.plugins import check_settings, installed, load, open_store, settings_of

OWN = """
from stores import KeyValueStore

class Own(KeyValueStore):
    def __init__(self, home, *, greeting: str = "hi", size: int = 3):
        super().__init__(home)
        self.greeting, self.size = greeting, size
    async def kv_get(self, session, key): ...
    async def kv_set(self, session, entry): ...
    async def kv_delete(self, session, key): ...
    async def kv_entries(self, session): ...

class NoStore: ...

def function(): ...
"""


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / f"own_{tmp_path.name}.py").write_text(OWN, encoding="utf-8")
    (tmp_path / f"broken_{tmp_path.name}.py").write_text("import a_module_that_is_not_there", encoding="utf-8")
    (tmp_path / f"typo_{tmp_path.name}.py").write_text("class (", encoding="utf-8")
    return tmp_path


def test_our_stores_are_registered_like_any_strangers() -> None:
    assert {"basic_session", "in_memory"} <= installed().keys()
    assert load("basic_session") is BasicSessionStore
    assert load("in_memory") is InMemoryStore


def test_a_class_beside_the_configuration_is_found_and_gets_its_settings(beside: Path) -> None:
    store = open_store(f"own_{beside.name}:Own", beside, {"size": "7"}, beside=beside)
    assert (store.home, store.greeting, store.size) == (beside, "hi", 7)  # type: ignore[attr-defined]


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownStore, match="did you mean 'basic_session'"):
        load("basic_sesion")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("no_such_module:Store", UnknownStore, "no module 'no_such_module'"),
        ("{own}:Missing", BrokenStore, "Missing"),
        ("{own}:NoStore", BrokenStore, "not a class that inherits"),
        ("{own}:function", BrokenStore, "not a class that inherits"),
        ("{broken}:Store", BrokenStore, "a_module_that_is_not_there"),
        ("{typo}:Store", BrokenStore, "cannot be loaded"),
        ("stores.base:Store", BrokenStore, "keeps no contract"),
        (":", BrokenStore, "cannot be loaded"),
    ],
)
def test_a_store_that_cannot_be_used_says_why(beside: Path, name: str, error: type[Exception], words: str) -> None:
    names = {kind: f"{kind}_{beside.name}" for kind in ("own", "broken", "typo")}
    with pytest.raises(error, match=words):
        load(name.format(**names), beside=beside)


def test_settings_are_the_keyword_only_arguments() -> None:
    assert set(settings_of(BasicSessionStore)) == {"kv_cap", "transcript_cap"}


def test_an_unknown_setting_suggests_the_nearest() -> None:
    with pytest.raises(InvalidSettings, match="did you mean 'kv_cap'"):
        check_settings("basic_session", BasicSessionStore, {"kv_kap": 1})


def test_a_setting_of_the_wrong_type_is_named_with_its_value() -> None:
    with pytest.raises(InvalidSettings, match=r"\[memory.basic_session\] kv_cap = 'many'"):
        check_settings("basic_session", BasicSessionStore, {"kv_cap": "many"})


def test_a_setting_that_the_store_itself_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"\[memory.basic_session\]: kv_cap is 0"):
        open_store("basic_session", tmp_path, {"kv_cap": 0})
