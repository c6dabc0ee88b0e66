"""Values of an observation: what is impossible is refused before it is kept, all else comes back as it was."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import Observation, Triple, changed, parse_observation
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import FactFilter, Filter
from chatbot.stores.row_events import Event
from tests.effort import examples
from tests.stores.reference import ReferenceStore

NOW = datetime(2026, 3, 4, tzinfo=UTC)
OWNER = View("full", NOW, frozenset(SENSITIVITIES), None)
ID = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"

Result = TypeVar("Result")


def row(**given: Any) -> Observation:
    usual: dict[str, Any] = {"id": ID, "created_at": NOW, "updated_at": NOW, "title": "t", "sensitivity": "public"}
    return Observation(**usual | given)


def fact(**given: Any) -> Triple:
    usual: dict[str, Any] = {"id": ID, "subject": "s", "predicate": "p", "object": "o", "created_at": NOW}
    return Triple(**usual | given)


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


@pytest.mark.parametrize(
    "given",
    [
        {"subject": ""},
        {"object": "x" * 1001},
        {"predicate": "\ud800"},
        {"confidence": math.nan},
        {"confidence": True},
        {"confidence": -0.1},
        {"source": "me"},
        {"agent_id": 5},
        {"namespace": ["a"]},
        {"session_id": 5},
        {"created_at": "now"},
    ],
)
def test_an_impossible_fact_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        fact(**given)


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
    kept = row(**KEPT[what])
    assert run(tmp_path, lambda store: store.commit(OWNER, [Event(kind="add", at=NOW, row=kept)]))[0].kind == "added"
    view = replace(OWNER, now=kept.created_at)
    for _ in range(2):
        assert run(tmp_path, lambda store: store.get(view, [ID])) == [kept]
        run(tmp_path, lambda store: store.reindex())


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
    assert changed(kept, kept.as_json()) == kept


def test_every_field_of_an_update_may_be_wrong_without_a_trace(tmp_path: Path) -> None:
    async def check(store: Any) -> None:
        await store.commit(OWNER, [Event(kind="add", at=NOW, row=row())])
        for found in fields(Observation):
            for value in (5, {}, [[]], object(), "\ud800", None, math.nan, True, -(2**70), nested(200)):
                event = Event(kind="update", at=NOW, ids=(ID,), fields={found.name: value})
                [outcome] = await store.commit(OWNER, [event])
                [kept] = await store.get(OWNER, [ID])
                assert outcome.kind == "skipped" or kept != row(), (found.name, value)
        [before] = await store.get(OWNER, [ID])
        assert before.title == "t"

    run(tmp_path, check)
    assert len(run(tmp_path, lambda store: store.get(OWNER, [ID]))) == 1


@pytest.mark.parametrize("open_store", ["reference", "observations"])
def test_limits_without_end_are_those_of_the_longest_page(tmp_path: Path, open_store: str) -> None:
    async def check(store: Any) -> None:
        rows = [row(id=f"01900000-0000-7000-8000-{number:012x}", title=f"tea {number}") for number in range(1001)]
        await store.commit(OWNER, [Event(kind="add", at=NOW, row=each) for each in rows])
        for limit in (10**9, 2**70):
            page = await store.find(OWNER, Filter(), limit=limit)
            assert (len(page.rows), page.after) == (1000, page.rows[-1].id)
            assert len(await store.match(OWNER, ["tea"], Filter(), limit=limit)) == 1001
            assert len(await store.resolve(OWNER, "0", limit=limit)) == 1001
            assert await store.facets(OWNER, "tags", limit=limit) == []
            assert await store.facts(OWNER, FactFilter(), limit=limit) == []

    if open_store == "reference":
        asyncio.run(check(ReferenceStore(tmp_path)))
    else:
        run(tmp_path, check)


def test_purging_a_source_takes_along_what_came_to_derive_from_it_later(tmp_path: Path) -> None:
    async def ask(store: Any) -> list[str]:
        rows = [row(), row(id=OTHER, title="other")]
        await store.commit(OWNER, [Event(kind="add", at=NOW, row=each) for each in rows])
        last = row(id=OTHER[:-1] + "3", title="last", derived_from=(OTHER,))
        await store.commit(OWNER, [Event(kind="add", at=NOW, row=last)])
        deriving = Event(kind="update", at=NOW, ids=(ID,), fields={"derived_from": [last.id]})
        await store.commit(OWNER, [deriving])
        gone: list[str] = await store.purge(OWNER, [OTHER])
        assert (await store.find(OWNER, Filter())).rows == ()
        return gone

    assert run(tmp_path, ask) == asyncio.run(ask(ReferenceStore(tmp_path)))


def test_a_time_to_live_that_ends_after_all_time_ends_never(tmp_path: Path) -> None:
    last = datetime.max.replace(tzinfo=UTC)

    async def check(store: Any) -> None:
        late = row(created_at=last)
        assert [each.kind for each in await store.commit(OWNER, [Event(kind="add", at=NOW, row=late)])] == ["added"]

    run(tmp_path, check, ttl_days=5)
    run(tmp_path / "b", check, ttl_days=1e300)
    asyncio.run(check(ReferenceStore(tmp_path, ttl_days=5)))


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
def test_what_one_caller_asks_in_vain_harms_no_other_who_writes_at_that_moment(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    event = Event(**{"at": NOW} | bad)

    async def check(store: Any) -> None:
        await store.commit(OWNER, [Event(kind="add", at=NOW, row=row())])
        adding = [Event(kind="add", at=NOW, row=row(id=OTHER, title="other"))]
        first = [Event(kind="add", at=NOW, row=row(id=OTHER[:-1] + "3", title="first"))]
        # While the first is under way, the others gather.
        [_, [refused], [added]] = await asyncio.gather(
            store.commit(OWNER, first), store.commit(OWNER, [event]), store.commit(OWNER, adding)
        )
        assert (refused.kind, added.kind) == ("skipped", "added")

    run(tmp_path, check)
    asyncio.run(check(ReferenceStore(tmp_path)))


def run(home: Path, work: Callable[[Any], Awaitable[Result]], **caps: float) -> Result:
    async def opened() -> Result:
        store = ObservationFileStore(home / "memory", cache=str(home / "cache"), **caps)  # type: ignore[arg-type]
        async with store:
            return await work(store)

    return asyncio.run(opened())
