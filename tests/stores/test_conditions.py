"""Conditions on metadata mean the same in every store, and the same as their definition."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chatbot.memory import MemorySystem
from chatbot.stores.errors import InvalidValue
from tests.stores.reference import holds

ROWS: list[dict[str, Any]] = [
    {"status": "open", "stars": 3, "path": "docs/a"},
    {"status": "done", "stars": 4.5, "path": "docs/b", "owner": "ada"},
    {"status": "open", "stars": "5", "path": "src/a", "owner": None},
    {"status": True, "stars": -1, "tags": ["x"]},
    {},
]
ASKED: list[tuple[Mapping[str, Any], set[int]]] = [
    ({}, {0, 1, 2, 3, 4}),
    ({"status": "open"}, {0, 2}),
    ({"status": True}, {3}),
    ({"owner": None}, {2}),
    ({"tags": ["x"]}, {3}),
    ({"stars": {"$gte": 3}}, {0, 1}),
    ({"stars": {"$gt": 3, "$lt": 5}}, {1}),
    ({"stars": {"$lte": "5"}}, {2}),
    ({"path": {"$prefix": "docs/"}}, {0, 1}),
    ({"path": {"$prefix": "docs/"}, "status": "open"}, {0}),
    ({"status": {"$ne": "open"}}, {1, 3, 4}),
    ({"status": {"$in": ["done", True]}}, {1, 3}),
    ({"owner": {"$exists": False}}, {0, 3, 4}),
    ({"owner": {"$exists": True}}, {1, 2}),
    ({"$not": {"status": "open"}}, {1, 3, 4}),
    ({"$or": [{"stars": 3}, {"owner": "ada"}]}, {0, 1}),
    ({"$and": [{"status": "open"}, {"$not": {"stars": 3}}]}, {2}),
    ({"$or": [{"$and": [{"status": "open"}, {"stars": {"$lt": 4}}]}, {"tags": {"$exists": True}}]}, {0, 3}),
    ({"$or": []}, set()),
    ({"$and": []}, {0, 1, 2, 3, 4}),
]


@pytest.mark.parametrize("is_on_disk", [True, False])
async def test_conditions_choose_the_same_rows_everywhere(tmp_path: Path, *, is_on_disk: bool) -> None:
    async with MemorySystem(tmp_path if is_on_disk else None) as system:
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
        ({"stars": {"$greater": 3}}, r"unknown comparison '\$greater'"),
        ({"$nor": []}, r"unknown operator '\$nor'"),
        ({"$or": {"a": 1}}, r"\$or takes a list of conditions"),
        ({"$not": [{"a": 1}]}, r"\$not takes conditions"),
        ({"$and": ["a"]}, r"\$and takes a list"),
        ({"path": {"$prefix": 3}}, r"\$prefix takes a str"),
        ({"path": {"$in": "abc"}}, r"\$in takes a list"),
    ],
)
async def test_a_condition_that_cannot_be_asked_is_refused(wanted: Mapping[str, Any], message: str) -> None:
    async with MemorySystem(None) as system:
        with pytest.raises(InvalidValue, match=message):
            await system.memory().every(metadata=wanted)


async def test_conditions_may_not_be_endlessly_deep() -> None:
    wanted: dict[str, Any] = {"a": 1}
    for _ in range(100):
        wanted = {"$not": wanted}
    async with MemorySystem(None) as system:
        with pytest.raises(InvalidValue, match="deep"):
            await system.memory().every(metadata=wanted)
