"""Hidden rows make no difference to a caller: two memories that differ in hidden rows alone answer alike.

One holds rows of every guard, the other those that the caller may see: all answers, outcomes and errors are equal.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatbot.memory.memory import Memory
from chatbot.memory.profile import PROPOSED
from chatbot.memory.profile_lines import ProfileLine
from chatbot.memory.scope import Caller, Environment, Scope
from chatbot.stores.access import CLEARANCES, SENSITIVITIES, VISIBILITIES, Clearance, Sensitivity, View, may_see
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import StoreError
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observation import LINE, PROFILE, STATUSES, Observation, Triple
from chatbot.stores.query import EVERY, FactFilter, Filter
from chatbot.stores.row_events import HELD, Event
from tests.effort import by_day, examples
from tests.stores.places import NOW, OWNER, id_of, update
from tests.stores.places import row as made

SINCE = "2025-03-04T00:00:00Z"
CALLERS: tuple[tuple[Clearance, str | None], ...] = (
    ("inner", "House"), ("inner", ""), ("familiar", None), ("inner", None), ("public", None)
)  # fmt: skip
"""Clearances and projects."""
MOST = 6
IDS = [id_of(number) for number in range(MOST)]
FACTS = [id_of(1000 + number) for number in range(MOST)]

Spec = dict[str, Any]
SPECS = st.lists(
    st.fixed_dictionaries(
        {
            "visibility": st.sampled_from([*VISIBILITIES, "social"]),
            "sensitivity": st.sampled_from(["public", "public", *SENSITIVITIES]),
            "min_clearance": st.sampled_from(["public", "public", "public", *CLEARANCES]),
            "namespace": st.sampled_from(["", "", "", "work"]),
            "project": st.sampled_from(["", "", "house", "boat"]),
            "status": st.sampled_from(["active", "active", "superseded", "superseded", "archived", "deleted"]),
            "after": st.integers(0, 2),
            "source": st.integers(-1, MOST - 1),
            "widened": st.booleans(),
            "person": st.sampled_from(["Anna", "Bob"]),
            "kind": st.sampled_from(["task", "task", LINE, PROPOSED]),
            "key": st.sampled_from(["home", "speaks"]),
        }
    ),
    min_size=2,
    max_size=MOST,
)


def row_of(number: int, spec: Spec) -> Observation:
    is_task, key, value = spec["kind"] == "task", spec["key"], f"zebra {number}"
    sources = (IDS[spec["source"]],) if 0 <= spec["source"] < number else ()
    line: dict[str, Any] = {"kind": spec["kind"], "line": key, HELD: {"value": value, "since": SINCE}}
    return made(
        number,
        title=value if is_task else f"{key}: {value}",
        type="task" if is_task else "identity",
        category="" if is_task else PROFILE,
        subject="" if is_task else key,
        visibility=spec["visibility"],
        sensitivity=spec["sensitivity"],
        min_clearance=spec["min_clearance"],
        namespace=spec["namespace"],
        project="" if sources else spec["project"],  # that of its source: what is seen has no hidden source
        status=spec["status"],
        superseded_at=NOW if spec["status"] == "superseded" else None,
        superseded_by=IDS[spec["after"]] if spec["status"] == "superseded" else None,
        derived_from=sources,
        people=(spec["person"],),
        session_id=f"s{number % 2}",
        metadata={"key": "k", **({"kind": "task", "status": "pending", "surface": "startup"} if is_task else line)},
    )


def events_of(specs: Sequence[Spec]) -> Iterator[Event]:
    for number, spec in enumerate(specs):
        row = row_of(number, spec)
        yield Event(kind="add", at=NOW, row=row)
        if spec["widened"] and spec["status"] != "deleted":
            yield update(row.id, title=f"zebra {number} again", visibility="social")
        yield Event(
            kind="triple",
            at=NOW,
            triple=Triple(
                id=FACTS[number], subject=spec["person"], predicate="is", object=f"fact {number}", created_at=NOW,
                source=row.id, namespace=row.namespace, visibility="social", sensitivity="public",
            ),
        )  # fmt: skip


class World:
    """A memory, as one caller sees it, with ids and times that are the same in every world."""

    def __init__(self, store: ObservationStore, clearance: Clearance, project: str | None) -> None:
        self.store = store
        ids = count(5_000)
        environment = Environment(lambda: NOW, lambda: id_of(next(ids)))
        caller = Caller(clearance=clearance, project=project)
        self.memories = Memory(Scope(store, caller, environment, agent_id="chat"))


async def filled(world: World, specs: Sequence[Spec], only: frozenset[str] | None = None) -> None:
    for event in events_of(specs):
        about = (
            event.ids[0] if event.ids else event.row.id if event.row else event.triple.source if event.triple else ""
        )
        if only is None or about in only:
            await world.store.commit(OWNER, [event])


Operation = Callable[[Memory, str], Awaitable[Any]]
"""An operation on a memory about the row of an id."""


def reads(wanted: Sequence[Sensitivity]) -> dict[str, Operation]:
    """The operations that read, which ask for these sensitivities where they let a caller choose."""
    return {
        "search": lambda memories, _: memories.search("zebra", limit=50, sensitivities=wanted, count_use=False),
        "search_batch": lambda memories, _: memories.search_batch(
            ["zebra", ""], limit=50, sensitivities=wanted, count_use=False
        ),
        "recall": lambda memories, _: memories.recall("zebra again", limit=50, sensitivities=wanted),
        "nearest": lambda memories, _: memories.nearest([("zebra", Filter())], sensitivities=wanted),
        "get": lambda memories, each: memories.get([each, *IDS], sensitivities=wanted, count_use=False),
        "list_observations": lambda memories, each: memories.list_observations(
            cursor=each, sensitivities=wanted, statuses=STATUSES
        ),
        "every": lambda memories, _: memories.every(sensitivities=wanted, statuses=STATUSES),
        "timeline": lambda memories, each: memories.timeline(each, sensitivities=wanted),
        "history": lambda memories, each: memories.history(each, sensitivities=wanted),
        "row": lambda memories, each: memories.row(each, sensitivities=wanted),
        "resolve": lambda memories, each: memories.resolve(each[:-1], sensitivities=wanted),
        "stats": lambda memories, _: memories.stats(sensitivities=wanted),
        "vector_stats": lambda memories, _: memories.vector_stats(sensitivities=wanted),
        "people": lambda memories, _: memories.people(sensitivities=wanted),
        "query_facts": lambda memories, _: memories.query_facts(sensitivities=wanted),
        "tasks": lambda memories, _: memories.tasks(sensitivities=wanted),
        "session_summaries": lambda memories, _: memories.session_summaries(sensitivities=wanted),
        "profile": lambda memories, _: _profile(memories, wanted),
        "standing": lambda memories, _: memories.standing(sensitivities=wanted),
        "profile_for": lambda memories, each: memories.profile_for("Where did I live in 2025?", [each]),
        "profile_proposals": lambda memories, _: memories.profile_proposals(),
        "profile_history": lambda memories, each: memories.profile_history(("home", "speaks")[int(each[-1], 16) % 2]),
        "preview_purge": lambda memories, each: memories.preview_purge(each),
        "reindex": lambda memories, _: memories.reindex(),
        "embed_memories": lambda memories, _: memories.embed_memories(),
        "note_use": lambda memories, each: memories.note_use([each]),
    }


async def _profile(memories: Memory, sensitivities: Sequence[Sensitivity]) -> list[list[ProfileLine]]:
    asked: list[dict[str, Any]] = [{}, {"key": "home"}, {"as_of": NOW}, {"known_at": NOW}]
    return [await memories.profile(sensitivities=sensitivities, **each) for each in asked]


READS = reads(SENSITIVITIES)
WRITES: dict[str, Operation] = {
    "update": lambda memories, each: memories.update(each, title="mine"),
    "update_task": lambda memories, each: memories.update_task(each, status="completed"),
    "supersede": lambda memories, each: memories.supersede(each, IDS[0]),
    "confirm": lambda memories, each: memories.confirm(each),
    "forget": lambda memories, each: memories.forget(each),
    "restore": lambda memories, each: memories.restore(each),
    "remember": lambda memories, each: memories.remember(f"from {each}", derived_from=[each]),
    "remember_all": lambda memories, each: memories.remember(f"after {each}", supersedes=each),
    "profile_set": lambda memories, each: memories.profile_set("home", f"zebra {int(each[-1], 16)}"),
    "profile_accept": lambda memories, each: memories.profile_accept(each),
    "profile_reject": lambda memories, each: memories.profile_reject(each),
    "profile_pin": lambda memories, each: memories.profile_pin(each),
    "profile_learn": lambda memories, each: memories.profile_learn([("home", "Lisbon")], each, NOW),
    "profile_forget": lambda memories, each: memories.profile_forget(each),
    "upsert": lambda memories, each: memories.upsert("k", f"zebra {int(each[-1], 16)} again"),
    "add_task": lambda memories, each: memories.add_task(f"zebra {int(each[-1], 16)}"),
    "store_fact": lambda memories, each: memories.store_fact("s", "p", "o", source=each),
    "add_alias": lambda memories, each: memories.add_alias("Anna", f"A. {each[-1]}"),
    "retract_fact": lambda memories, each: memories.retract_fact(FACTS[IDS.index(each)]),
    "purge_fact": lambda memories, each: memories.purge_fact(FACTS[IDS.index(each)]),
    "purge": lambda memories, each: memories.purge(each),
    "move": lambda memories, each: memories.move("garden", session_id=f"s{int(each[-1], 16) % 2}"),
    "summarize_session": lambda memories, _: memories.summarize_session("what", session_id="s0"),
}


async def answer(operation: Operation, memories: Memory, about: str) -> str:
    try:
        return repr(await operation(memories, about))
    except StoreError as error:
        return f"{type(error).__name__}: {error}"


async def compared(specs: Sequence[Spec], clearance: Clearance, project: str | None) -> None:
    whole, seen = (World(InMemoryStore(Path()), clearance, project) for _ in range(2))
    async with whole.store, seen.store:
        await filled(whole, specs)
        view = View(clearance, NOW, frozenset(SENSITIVITIES), project=project)
        rows = (await whole.store.find(OWNER, Filter(statuses=STATUSES), limit=MOST)).rows
        shown = {row.id for row in rows if may_see(row, view)}
        hidden = [each for each in IDS[: len(specs)] if each not in shown]
        await filled(seen, specs, frozenset(IDS) - frozenset(hidden))
        await alike(READS, whole, seen, IDS, hidden)
        await alike(WRITES, whole, seen, hidden, [])
        await alike(READS, whole, seen, IDS, hidden)
        facts = await whole.store.facts(OWNER, FactFilter(), limit=EVERY)
        assert {fact.source for fact in facts} >= {row.id for row in rows if row.id in hidden and row.status == "active"
                                                   and row.sensitivity != "unknown"}  # fmt: skip


async def alike(
    operations: dict[str, Operation], whole: World, seen: World, ids: Sequence[str], hidden: Sequence[str]
) -> None:
    for name, operation in operations.items():
        is_about_a_row = "each" in inspect.signature(operation).parameters
        for each in ids if is_about_a_row else ids[:1]:
            answers = [await answer(operation, world.memories, each) for world in (whole, seen)]
            assert answers[0] == answers[1], name
            assert not [other for other in hidden if other != each and other in answers[0]], name


@pytest.mark.parametrize("caller", by_day(CALLERS, *CALLERS[::4]))
@settings(max_examples=examples(64), deadline=None)
@given(specs=SPECS)
def test_hidden_rows_make_no_difference(caller: tuple[Clearance, str | None], specs: list[Spec]) -> None:
    asyncio.run(compared(specs, *caller))


def test_every_operation_on_memory_is_compared_here() -> None:
    there = {name for name, _ in inspect.getmembers(Memory, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert there == READS.keys() | WRITES.keys(), "add a call of it to READS or WRITES"
