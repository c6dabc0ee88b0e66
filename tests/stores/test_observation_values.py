"""Values, strength, conditions and fields of an observation: what is impossible is refused before it is kept."""

import asyncio
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from chatbot.memory import MemorySystem
from chatbot.stores.access import Guard
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import FLOOR, Observation, next_strength, parse_observation, with_fields
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.observations.table import Table
from chatbot.stores.query import FactFilter, Filter
from chatbot.stores.row_events import Event
from tests.effort import examples
from tests.stores.places import NOW, OWNER, Place, adding, adding_all, id_of, update
from tests.stores.places import row as made
from tests.stores.reference import holds

ID, OTHER, THIRD = map(id_of, (1, 2, 3))


def row(**given: Any) -> Observation:
    return made(1, **{"title": "t"} | given)


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return {"a": value}


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "a title of 50 KB": {"title": "x" * 50_000},
    "a narrative of 10 MB": {"narrative": "x" * 10_000_000},
    "no text": {"title": ""},
    "white space alone": {"title": " \t\n"},
    "a title of control characters": {"title": "\x00\x01\u202e"},
    "a lone surrogate": {"title": "\ud800"},
    "a lone surrogate in the metadata": {"metadata": {"a": "\ud800"}},
    "a lone surrogate in a session's id": {"session_id": "\ud800"},
    "1,001 tags": {"tags": [str(number) for number in range(1001)]},
    "tags that are one text": {"tags": "tea"},
    "tags that are numbers": {"tags": [1]},
    "no tags": {"tags": None},
    "a title that is a number": {"title": 5},
    "NaN": {"importance": math.nan},
    "too important": {"importance": 1.01},
    "a truth as a number": {"importance": True},
    "a share as a count": {"token_count": 2.5},
    "a count without end": {"token_count": 2**70},
    "a time without zone": {"created_at": datetime(2026, 3, 4)},  # noqa: DTZ001 - that is what is wrong with it
    "a time that is text": {"created_at": "2026-03-04T00:00:00Z"},
    "no time": {"updated_at": None},
    "a time before all journals": {"created_at": datetime(1, 1, 1, tzinfo=UTC)},
    "an id in capitals": {"id": "01900000-0000-7000-8000-00000000000A"},
    "an id that leaves its folder": {"id": "../../etc"},
    "metadata that is a list": {"metadata": []},
    "metadata with NaN": {"metadata": {"a": math.nan}},
    "metadata with an object": {"metadata": {"a": object()}},
    "metadata with keys that are none": {"metadata": {(1, 2): 3}},
    "metadata that is deep": {"metadata": nested(200)},
    "metadata that is very deep": {"metadata": nested(100_000)},
    "metadata that is long": {"metadata": {"a": "x" * 1_000_001}},
    "an unknown type": {"type": "poem"},
    "an unknown visibility": {"visibility": "everyone"},
    "a session that is a table": {"session_id": {}},
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_kept_is_refused(what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        row(**IMPOSSIBLE[what])
    assert len(str(caught.value)) < 500


KEPT: dict[str, dict[str, Any]] = {
    "a narrative of a million characters": {"narrative": "é" * 1_000_000},
    "a title of a thousand": {"title": "x" * 1000},
    "1,000 tags": {"tags": tuple(str(number) for number in range(1000))},
    "every script": {"title": "东京 🦜 مرحبا עברית ก็ é", "narrative": "a\u200fb\u202ec\u2028d\u0085e"},
    "keys that are numbers": {"metadata": {1: 2, False: 3, None: 4}},
    "nothing but null": {"metadata": {"a": None, "b": [None]}},
    "large numbers": {"metadata": {"a": 2**200, "b": -1e300, "c": 0.1}},
    "text that looks like lines": {"narrative": 'a\r\nb\rc\n{"event":"delete"}\n', "facts": ["a\nb", "\u2029"]},
    "text that looks like escapes": {"title": "\\u0000 \\n %s {} \\", "narrative": "\\\\"},
    "deep metadata": {"metadata": nested(90)},
    "the last moment": {"expires_at": datetime.max.replace(tzinfo=UTC), "created_at": datetime(1000, 1, 1, tzinfo=UTC)},
    "importance as a whole number": {"importance": 1},
}


@pytest.mark.parametrize("what", KEPT)
def test_what_can_be_kept_comes_back_as_it_was_after_any_number_of_readings(what: str, tmp_path: Path) -> None:
    kept, place = row(**KEPT[what]), Place(tmp_path)
    place.commit(*adding_all(kept))
    view = structs.replace(OWNER, now=kept.created_at)
    for _ in range(2):
        assert place.run(lambda store: store.get(view, [ID])) == [kept]
        place.run(lambda store: store.reindex())


def test_single_lines_lose_what_nobody_sees_and_texts_what_nobody_wants() -> None:
    kept = row(
        title=" a\u202e\tb\x00\n c ", narrative="a\u202eb\x00\r\n\tc\x7f", tags=["\x01", " a ", "a"], facts=["", "f"]
    )
    assert (kept.title, kept.narrative, kept.tags, kept.facts) == ("a b c", "a\u202eb\n\tc", ("a",), ("f",))


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=examples(150))
@given(
    given_fields=st.fixed_dictionaries(
        {"title": _TEXT.map(lambda text: f"t{text}")},
        optional={
            "narrative": _TEXT,
            "facts": st.lists(_TEXT, max_size=3),
            "tags": st.lists(_TEXT, max_size=3),
            "metadata": st.dictionaries(_TEXT, _JSON, max_size=3),
            "importance": st.floats(0, 1),
            "expires_at": st.datetimes(datetime(1000, 1, 2), timezones=st.just(UTC)),  # noqa: DTZ001 - given one
            "token_count": st.integers(-5, 2**31),
            "people": st.lists(_TEXT, max_size=2),
        },
    )
)
def test_what_is_written_is_read_as_the_same(given_fields: dict[str, Any]) -> None:
    kept = row(**given_fields)
    assert parse_observation(kept.as_json()) == kept
    assert with_fields(kept, kept.as_json()) == kept


def test_every_field_of_an_update_may_be_wrong_without_a_trace(tmp_path: Path) -> None:
    async def check(store: ObservationFileStore) -> None:
        await store.commit(OWNER, adding_all(row()))
        for found in fields(Observation):
            for value in (5, {}, [[]], object(), "\ud800", None, math.nan, True, -(2**70), nested(200)):
                [outcome] = await store.commit(OWNER, [update(ID, **{found.name: value})])
                [kept] = await store.get(OWNER, [ID])
                assert outcome.kind == "skipped" or kept != row(), (found.name, value)
        [before] = await store.get(OWNER, [ID])
        assert before.title == "t"

    Place(tmp_path).run(check)
    assert len(Place(tmp_path).run(lambda store: store.get(OWNER, [ID]))) == 1


def test_limits_without_end_are_those_of_the_longest_page(tmp_path: Path) -> None:
    async def check(store: ObservationFileStore) -> None:
        rows = [adding(number, title=f"tea {number}", tags=(f"t{number}",)) for number in range(1001)]
        await store.commit(OWNER, rows)
        for limit in (10**9, 2**70):
            page = await store.find(OWNER, Filter(), limit=limit)
            assert (len(page.rows), page.after) == (1000, page.rows[-1].id)
            assert len(await store.match(OWNER, ["tea"], Filter(), limit=limit)) == 1001
            assert len(await store.resolve(OWNER, "0", limit=limit)) == 1001
            assert len(await store.states(OWNER, Filter(), limit=limit)) == 1001
            assert len(await store.missing_vectors(OWNER, model="m", limit=limit)) == 1001
            assert len(await store.facets(OWNER, "tags", limit=limit)) == 1001
            assert await store.facts(OWNER, FactFilter(), limit=limit) == []

    Place(tmp_path).run(check)


def test_there_may_be_any_number_of_projects() -> None:
    table = Table()
    table.classes += [("active", Guard("private", "public", "public", "", f"project {n}")) for n in range(1 << 16)]
    number = table.add(row(project="one more"), (0, 1))
    assert table.guard(number)[1].project == "one more"


@pytest.mark.parametrize("ttl_days", [5, 1e300])
def test_a_time_to_live_that_ends_after_all_time_ends_never(tmp_path: Path, ttl_days: float) -> None:
    late = adding(1, created_at=datetime.max.replace(tzinfo=UTC))
    place = Place(tmp_path)
    assert [each.kind for each in place.run(lambda store: store.commit(OWNER, [late]), ttl_days=ttl_days)] == ["added"]


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "update"},
        {"kind": "delete", "ids": (["a"],)},
        {"kind": "supersede", "ids": (ID,), "by": ["a"]},
        {"kind": "delete", "ids": (ID,), "who": "\ud800"},
        {"kind": "confirm", "ids": (ID,), "at": datetime(2026, 3, 4)},  # noqa: DTZ001 - that is what is wrong with it
    ],
)
def test_what_one_caller_asks_in_vain_harms_no_other_who_writes_just_then(tmp_path: Path, bad: dict[str, Any]) -> None:
    event = Event(**{"at": NOW} | bad)

    async def check(store: ObservationFileStore) -> None:
        await store.commit(OWNER, [adding(1)])
        # While the first is under way, the others gather.
        [_, [refused], [added]] = await asyncio.gather(
            store.commit(OWNER, [adding(3)]), store.commit(OWNER, [event]), store.commit(OWNER, [adding(2)])
        )
        assert (refused.kind, added.kind) == ("skipped", "added")

    Place(tmp_path).run(check)


_SHARES = st.floats(0, 1)
_SECONDS = st.floats(0, 4_000 * 86_400)


@given(_SHARES, _SHARES, st.integers(0, 1_000_000), _SECONDS, st.sampled_from([0.0, 0.01, 0.05, 1.0, 999_999.0]))
def test_strength_stays_between_its_floor_and_one(
    held: float, importance: float, new: int, seconds: float, rate: float
) -> None:
    least = FLOOR * importance
    strength = next_strength(max(held, least), importance, new, elapsed=seconds, quiet=seconds, rate=rate)
    assert strength is None or least - 0.0001 <= strength <= 1


ROWS: list[dict[str, Any]] = [
    {"status": "open", "stars": 3, "path": "docs/a"},
    {"status": "done", "stars": 4.5, "path": "docs/b", "owner": "ada"},
    {"status": "open", "stars": "5", "path": "src/a", "owner": None},
    {"status": True, "stars": -1, "tags": ["x"]},
    {},
]
ASKED: list[tuple[Mapping[str, Any], set[int]]] = [
    ({}, {0, 1, 2, 3, 4}), ({"status": "open"}, {0, 2}), ({"status": True}, {3}), ({"owner": None}, {2}),
    ({"tags": ["x"]}, {3}), ({"stars": {"$gte": 3}}, {0, 1}), ({"stars": {"$gt": 3, "$lt": 5}}, {1}),
    ({"stars": {"$lte": "5"}}, {2}), ({"path": {"$prefix": "docs/"}}, {0, 1}),
    ({"path": {"$prefix": "docs/"}, "status": "open"}, {0}), ({"status": {"$ne": "open"}}, {1, 3, 4}),
    ({"status": {"$in": ("done", True)}}, {1, 3}), ({"owner": {"$exists": False}}, {0, 3, 4}),
    ({"owner": {"$exists": True}}, {1, 2}), ({"$not": {"status": "open"}}, {1, 3, 4}),
    ({"$or": [{"stars": 3}, {"owner": "ada"}]}, {0, 1}), ({"$and": [{"status": "open"}, {"$not": {"stars": 3}}]}, {2}),
    ({"$or": [{"$and": [{"status": "open"}, {"stars": {"$lt": 4}}]}, {"tags": {"$exists": True}}]}, {0, 3}),
    ({"$or": []}, set()), ({"$and": []}, {0, 1, 2, 3, 4}),
]  # fmt: skip


async def test_conditions_choose_the_same_rows_everywhere() -> None:
    async with MemorySystem(None) as system:
        memory = system.memory("chat")
        ids = [(await memory.remember(f"green tea {n}", metadata=row)).id for n, row in enumerate(ROWS)]
        for wanted, expected in ASKED:
            assert {n for n, row in enumerate(ROWS) if holds(row, wanted)} == expected
            assert {ids.index(row.id) for row in await memory.every(metadata=wanted)} == expected, wanted
            hits = await memory.search("tea", metadata=wanted, limit=9)
            assert {ids.index(hit.observation.id) for hit in hits} == expected, wanted


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"stars": {"$greater": 3}}, r"unknown comparison '\$greater'"), ({"day": NOW}, "cannot be written as JSON"),
        ({"$nor": []}, r"unknown operator '\$nor'"), ({"$or": {"a": 1}}, r"\$or takes a list of conditions"),
        ({"$not": [{"a": 1}]}, r"\$not takes conditions"), ({"$and": ["a"]}, r"\$and takes a list"),
        ({"path": {"$prefix": 3}}, r"\$prefix takes text"), ({"path": {"$in": "abc"}}, r"\$in takes a list"),
        (json.loads('{"$not":' * 100 + "{}" + "}" * 100), "deep"),
    ],
)  # fmt: skip
async def test_a_condition_that_cannot_be_asked_is_refused(wanted: Mapping[str, Any], message: str) -> None:
    async with MemorySystem(None) as system:
        with pytest.raises(InvalidValue, match=message):
            await system.memory().every(metadata=wanted)


_ROOT = Path(__file__).parents[2]
_LINES = """
    mood: Annotated[Line, Label(), SearchField("narrative")] = ""
    allies: Annotated[Lines[Many], MERGED] = NONE
    weight: Annotated[Count, InTable()] = 0
"""
_BEFORE = '    project: Annotated[Line, Label()] = ""\n'
_USE = """
import asyncio, inspect, json, sys
from pathlib import Path

from chatbot.memory import MemorySystem
from chatbot.stores.observations.lookups import COLUMNS

async def use():
    settings = {"observations": {"cache": sys.argv[2]}}
    async with MemorySystem(Path(sys.argv[1]), settings=settings) as memory:
        kept = await memory.memory().remember("tea", mood="Exuberant", allies=["Ada"], weight=3)
        again = await memory.memory().remember("tea", allies=["Bob"])
        for number in range(150):
            await memory.memory().remember(f"row {number}")  # enough for a snapshot
        await memory.memory().update(kept.id, weight=4)
    async with MemorySystem(Path(sys.argv[1]), settings=settings) as memory:
        [row] = await memory.memory().get([kept.id])
        [hit] = await memory.memory().search("exuberant")
        [*_, life] = await memory.memory().history(kept.id)
        parameters = inspect.signature(memory.memory().remember).parameters
        refused = ""
        try:
            await memory.memory().remember("milk", weight="heavy")
        except ValueError as error:
            refused = str(error)
    return {
        "row": [row.mood, row.allies, row.weight],
        "same": again.id == kept.id,
        "found": hit.observation.id == kept.id,
        "changes": [dict(changes) for event, changes in life.steps if event.kind == "update"],
        "parameters": sorted({"mood", "allies", "weight"} & set(parameters)),
        "column": "weight" in COLUMNS,
        "refused": refused,
    }

print(json.dumps(asyncio.run(use())))
"""


@pytest.mark.nightly
def test_a_field_of_a_row_is_one_line(tmp_path: Path) -> None:
    code = tmp_path / "code"
    shutil.copytree(_ROOT / "chatbot", code / "chatbot", ignore=shutil.ignore_patterns("__pycache__"))
    declaration = code / "chatbot" / "stores" / "observation.py"
    text = declaration.read_text()
    assert text.count(_BEFORE) == 1
    declaration.write_text(text.replace(_BEFORE, _BEFORE + _LINES.lstrip("\n")))
    used = subprocess.run(
        [sys.executable, "-c", _USE, str(tmp_path / "memory"), str(tmp_path / "cache")],
        env={"PYTHONPATH": str(code), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(used.stdout or "null") == {
        "row": ["Exuberant", ["Ada", "Bob"], 4],
        "same": True,
        "found": True,
        "changes": [{"weight": [3, 4]}],
        "parameters": ["allies", "mood", "weight"],
        "column": True,
        "refused": "weight is 'heavy': it must be a whole number of at most 2,147,483,648",
    }, used.stderr
