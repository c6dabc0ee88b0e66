"""The contract kit for observations: what an `ObservationStore` promises, at two levels: `nearest` and `erasure`."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from operator import mul
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs

from chatbot.stores.access import CLEARANCES, GUEST_RIGHTS, SENSITIVITIES, VISIBILITIES, Sensitivity, View, may_see
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import ConflictingChange, InvalidValue, MissingRight, OtherEmbedder, UnknownObservation
from chatbot.stores.observation import STATUSES, Decay, Observation, RowState, Status, Triple, version_of
from chatbot.stores.query import FactFilter, Filter, Order, Question, VectorStats
from chatbot.stores.records import format_time, unit
from chatbot.stores.row_events import Event, Outcome
from chatbot.stores.testing.observation_machine import (
    COSINE_ERROR,
    EVERY_SENSITIVITY,
    IDS,
    NOW,
    OWNER,
    RECALL,
    Nearest,
    adding,
    fact,
    observation,
    stating,
)
from chatbot.stores.testing.processes import StoreTests
from chatbot.stores.text.analysis import terms


class ObservationStoreContract(StoreTests):
    """Tests of the contract of an `ObservationStore`."""

    promised_by = (ObservationStore,)

    nearest: ClassVar[Nearest] = "exact"

    async def test_what_was_added_comes_back_as_it_was(self, store: ObservationStore) -> None:
        row = observation(
            1,
            type="decision",
            subtitle="why",
            narrative="Ada chose green tea.\n\tIt is calmer.",
            facts=("Ada drinks green tea", "東京タワー 🦜"),
            tags=("Tea",),
            concepts=("trade-off",),
            subject="tea",
            category="food",
            metadata={"a": [1, {"b": None}]},
            source="agent",
            people=("Ada",),
            files_read=("a.py",),
            importance=0.8,
            agent_id="chat",
            session_id=IDS[30],
            user_text="tea?",
            assistant_text="green",
        )
        assert await store.commit(OWNER, adding(row)) == [Outcome("added", row.id)]
        assert await store.get(OWNER, [row.id]) == [row]

    async def test_getting_keeps_the_order_and_leaves_out_what_is_missing(self, store: ObservationStore) -> None:
        await store.commit(OWNER, adding(observation(1), observation(2), observation(3)))
        await store.commit(OWNER, [Event(kind="delete", at=NOW, ids=(IDS[2],))])
        found = await store.get(OWNER, [IDS[3], IDS[9], IDS[2], IDS[1]])
        assert [row.id for row in found] == [IDS[3], IDS[1]]
        every = await store.get(OWNER, [IDS[3], IDS[9], IDS[2]], current=False)
        assert [(row.id, row.status) for row in every] == [(IDS[3], "active"), (IDS[2], "deleted")]

    async def test_the_same_said_again_is_a_mention_unless_agent_or_visibility_differ(
        self, store: ObservationStore
    ) -> None:
        await store.commit(OWNER, adding(observation(1, title="Tea is  GREEN", tags=("a",))))
        again = observation(2, title="tea is green", tags=("b",), sensitivity="private")
        [outcome] = await store.commit(OWNER, adding(again))
        assert (outcome.kind, outcome.id) == ("exact_dup", IDS[1])
        [row] = await store.get(OWNER.asking_all(), [IDS[1]])
        assert (row.mention_count, row.tags, row.sensitivity) == (1, ("a", "b"), "private")
        assert await store.get(OWNER.asking_all(), [IDS[2]]) == []
        others = replace(again, id=IDS[3], agent_id="other"), replace(again, id=IDS[4], visibility="shared")
        assert [outcome.kind for outcome in await store.commit(OWNER, adding(*others))] == ["added"] * 2

    def test_each_principal_has_rows_of_their_own_and_changes_no_others(self, tmp_path: Path) -> None:
        guest = structs.replace(OWNER, principal="token:1", rights=GUEST_RIGHTS)

        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, [*adding(observation(1, title="tea")), *stating(fact(20))])
            own = [observation(each, title="Tea", principal="token:1", tags=("x",)) for each in (2, 3)]
            outcomes = await store.commit(guest, adding(*own))
            assert [(each.kind, each.id) for each in outcomes] == [("added", IDS[2]), ("exact_dup", IDS[2])]
            refused: list[Event] = [
                *adding(observation(4, title="in the owner's name")),
                *(Event(kind=kind, at=NOW, ids=(IDS[2], IDS[1])) for kind in ("delete", "archive", "confirm")),
                Event(kind="update", at=NOW, ids=(IDS[1],), fields={"title": "coffee"}),
                Event(kind="supersede", at=NOW, ids=(IDS[1],), by=IDS[2]),
                Event(kind="retract", at=NOW, ids=(IDS[20],)),
                Event(kind="consolidate", at=NOW, ids=(IDS[2],), fields={"decay_per_day": 0.5}),
            ]
            outcomes = await store.commit(guest, refused)
            assert [type(each.error) for each in outcomes] == [MissingRight] * len(refused)
            [loose] = await store.commit(guest, [Event(kind="update", at=NOW, ids=(IDS[2],), fields={"tags": ["y"]})])
            assert loose.kind == "updated"

        async def check(store: ObservationStore) -> None:
            rows = {row.id: (row.principal, row.tags, row.status) for row in await store.get(OWNER, IDS[:5])}
            assert rows == {IDS[1]: ("owner", (), "active"), IDS[2]: ("token:1", ("y",), "active")}
            [again] = await store.commit(guest, adding(observation(5, title="tea", principal="token:1")))
            assert (again.kind, again.id) == ("exact_dup", IDS[2])

        self.survives(tmp_path, write, check)

    def test_a_fact_stated_again_under_its_id_is_counted_and_nothing_else_of_it_changes(self, tmp_path: Path) -> None:
        again = fact(20, count=2)

        async def write(store: ObservationStore) -> None:
            outcomes = await store.commit(OWNER, stating(fact(20), again, replace(again, object="c")))
            assert [each.error is None for each in outcomes] == [True, True, False]
            await check(store)

        async def check(store: ObservationStore) -> None:
            assert await store.facts(OWNER, FactFilter()) == [again]

        self.survives(tmp_path, write, check)

    async def test_a_fact_is_made_less_strict_only_by_who_may_declassify(self, store: ObservationStore) -> None:
        writer = structs.replace(OWNER.asking_all(), rights=OWNER.rights - {"declassify"})
        private = fact(20, sensitivity="private")
        await store.commit(writer, stating(private))
        [refused] = await store.commit(writer, stating(replace(private, sensitivity="public")))
        assert isinstance(refused.error, MissingRight)
        assert await store.facts(writer, FactFilter()) == [private]

    async def test_what_is_past_its_time_is_not_found_and_no_twin(self, store: ObservationStore) -> None:
        row = observation(1, title="tea", expires_at=NOW + timedelta(hours=1))
        await store.commit(OWNER, adding(row))
        later = structs.replace(OWNER, now=NOW + timedelta(hours=2))
        assert [found.id for found in await store.match(OWNER, ["tea"], Filter())] == [row.id]
        assert await store.match(later, ["tea"], Filter()) == []
        assert await store.get(later, [row.id]) == []
        again = Event(kind="add", at=later.now, row=observation(2, title="tea"))
        assert [outcome.kind for outcome in await store.commit(later, [again])] == ["added"]

    async def test_a_superseded_row_leaves_the_search_and_stays_in_the_history(self, store: ObservationStore) -> None:
        await store.commit(OWNER, adding(observation(1, title="tea is black")))
        new = Event(kind="add", at=NOW, row=observation(2, title="tea is green"), supersedes=IDS[1])
        await store.commit(OWNER, [new])
        assert [found.id for found in await store.match(OWNER, ["tea"], Filter())] == [IDS[2]]
        for each in IDS[1:3]:
            line = await store.history(OWNER, each)
            assert [version.observation.id for version in line] == IDS[1:3]
            assert [event.kind for event in line[0].events] == ["add", "supersede"]

    async def test_a_change_reports_the_version_that_it_made_not_a_later_one(self, store: ObservationStore) -> None:
        tea, mate = ({"title": title} for title in ("tea", "mate"))

        def changing(number: int) -> list[Event]:
            ids = (IDS[number],)
            changes = [Event(kind="update", at=NOW, ids=ids, fields=fields) for fields in (tea, tea, mate)]
            return [*changes, *(Event(kind=kind, at=NOW, ids=ids) for kind in ("delete", "restore", "confirm"))]

        outcomes = await store.commit(OWNER, [*adding(observation(1, title="milk")), *changing(1)])
        left = [(outcome.row.title, outcome.row.status) for outcome in outcomes if outcome.row]
        mates = [("mate", status) for status in ("active", "deleted", "active", "active")]
        assert left == [("milk", "active"), ("tea", "active"), ("tea", "active"), *mates]
        assert len({outcome.version for outcome in outcomes}) == 4
        await store.commit(OWNER, adding(observation(2, title="milk")))
        for event in changing(2):
            [outcome] = await store.commit(OWNER, [event])
            [version] = await store.history(OWNER, IDS[2])
            assert outcome.version == version_of(version.observation)

    async def test_a_summary_replaces_its_sources_in_one_step(self, store: ObservationStore) -> None:
        rows = [observation(number, agent_id="chat") for number in range(1, 4)]
        await store.commit(OWNER, adding(*rows))
        [outcome] = await store.commit(OWNER, [_compress_event(observation(5, agent_id="chat"), *IDS[1:4])])
        assert outcome == Outcome("added", IDS[5])
        assert [row.id for row in (await store.find(OWNER, Filter())).rows] == [IDS[5]]
        compressed = await store.find(OWNER, Filter(statuses=("compressed",)), order="created", ascending=True)
        assert [(row.id, row.superseded_by) for row in compressed.rows] == [(each, IDS[5]) for each in IDS[1:4]]
        line = await store.history(OWNER, IDS[5])
        assert {version.observation.id for version in line} == {*IDS[1:4], IDS[5]}
        old, new = await store.history(OWNER, IDS[2])
        assert (old.observation.id, new.observation.id) == (IDS[2], IDS[5])
        [last] = old.events[1:]
        assert (last.kind, last.by, last.who, last.why) == ("compress", IDS[5], "maintenance", "alike")
        made_from = await store.find(OWNER, Filter(derived_from=(IDS[2], IDS[9])))
        assert [row.id for row in made_from.rows] == [IDS[5]]
        assert (await store.find(OWNER, Filter(derived_from=(IDS[5],)))).rows == ()

    def test_what_was_replaced_stays_replaced_since_then_when_its_successor_is_erased(self, tmp_path: Path) -> None:
        at = NOW + timedelta(days=1)

        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, adding(*(observation(number) for number in range(6))))
            await store.commit(OWNER, [_compress_event(observation(6), *IDS[:3])])
            newer = Event(kind="add", at=at, row=observation(7), supersedes=IDS[3])
            await store.commit(OWNER, [newer, Event(kind="supersede", at=at, ids=(IDS[4],), by=IDS[5])])
            later = structs.replace(OWNER, now=NOW + timedelta(days=90))
            await store.purge(later, IDS[5:8], who="maintenance", why="old")
            await check(store)

        async def check(store: ObservationStore) -> None:
            found = (await store.find(OWNER, Filter(statuses=STATUSES), order="created", ascending=True)).rows
            assert [row.id for row in found] == IDS[:5]
            left = [(row.status, row.superseded_at) for row in found]
            assert left == [("compressed", NOW)] * 3 + [("superseded", at)] * 2
            assert await store.get(OWNER, IDS[:8]) == []

        self.survives(tmp_path, write, check)

    async def test_a_summary_replaces_nothing_that_is_gone_or_guarded_otherwise(self, store: ObservationStore) -> None:
        everything = structs.replace(OWNER, asked=EVERY_SENSITIVITY, namespaces=None)
        others: list[dict[str, Any]] = [
            {"agent_id": "other"},
            {"visibility": "shared"},
            {"sensitivity": "private"},
            {"min_clearance": "inner"},
            {"namespace": "work"},
        ]
        rows = [observation(number, **fields) for number, fields in enumerate(others, 2)]
        await store.commit(everything, adding(observation(0), observation(1), *rows, observation(8)))
        await store.commit(everything, [Event(kind="archive", at=NOW, ids=(IDS[8],))])
        for other in (*(row.id for row in rows), IDS[8], IDS[20]):
            [outcome] = await store.commit(everything, [_compress_event(observation(9), IDS[0], IDS[1], other)])
            assert outcome.kind == "skipped", other
            assert outcome.error is not None
        active = await store.find(everything, Filter(), order="created", ascending=True)
        assert [row.id for row in active.rows] == IDS[:7]

    def test_what_is_used_grows_stronger_and_what_is_not_fades_once_for_the_same_time(self, tmp_path: Path) -> None:
        later = structs.replace(OWNER, now=NOW + timedelta(days=4))

        async def write(store: ObservationStore) -> None:
            rows = [observation(0), observation(1, type="discovery"), observation(2, type="decision")]
            await store.commit(OWNER, adding(*rows, observation(3, sensitivity="secret")))
            await store.commit(later, [Event(kind="use", at=later.now, ids=(IDS[0],))])
            [outcome] = await store.commit(later, [_consolidate_event(later, *IDS[:3])])
            assert outcome.kind == "updated"
            used, unused, decided = await store.get(later, IDS[:3])
            assert (used.strength, unused.strength, decided.strength) == (0.5693, 0.4, 0.4)
            assert (used.importance, used.updated_at) == (0.5, rows[0].updated_at)
            [outcome] = await store.commit(later, [_consolidate_event(later, *IDS[:3])])
            assert outcome.kind == "skipped"
            back = structs.replace(later, now=NOW)
            [outcome] = await store.commit(back, [_consolidate_event(back, *IDS[:3])])
            assert outcome.kind == "skipped"
            assert await store.get(later, IDS[:3]) == [used, unused, decided]
            found = await store.match(later, ["titl"], Filter())
            assert {each.id: each.importance for each in found} == {IDS[0]: 0.5693, IDS[1]: 0.4, IDS[2]: 0.5}
            await store.commit(later, [Event(kind="update", at=later.now, ids=(IDS[1],), fields={"importance": 0.9})])
            [unused] = await store.get(later, [IDS[1]])
            assert unused.current_strength == 0.9
            hidden = structs.replace(later, clearance="familiar")
            [outcome] = await store.commit(hidden, [_consolidate_event(hidden, IDS[3])])
            assert isinstance(outcome.error, UnknownObservation)
            for rate in (-1, float("nan"), float("inf"), True, "x"):
                [outcome] = await store.commit(later, [_consolidate_event(later, IDS[0], rate=rate)])
                assert isinstance(outcome.error, InvalidValue)

        async def check(store: ObservationStore) -> None:
            assert [row.current_strength for row in await store.get(later, IDS[:3])] == [0.5693, 0.9, 0.4]

        self.survives(tmp_path, write, check)

    async def test_a_negative_limit_is_an_error(self, store: ObservationStore) -> None:
        await store.commit(OWNER, adding(observation(1)))
        for reading in (
            store.find(OWNER, Filter(), limit=-1),
            store.match(OWNER, ["title"], Filter(), limit=-1),
            store.facts(OWNER, FactFilter(), limit=-(2**70)),
            store.facets(OWNER, "tags", limit=-(2**70)),
        ):
            with pytest.raises(InvalidValue, match="negative"):
                await reading

    async def test_what_is_found_is_filtered_limited_and_in_order(self, store: ObservationStore) -> None:
        rows = [observation(1, title="tea"), observation(2, title="black tea", tags=("b", "a"))]
        await store.commit(OWNER, adding(*rows, observation(3, title="green tea", tags=("b",))))
        later = structs.replace(OWNER, now=NOW + timedelta(days=1))
        await store.commit(later, [Event(kind="update", at=later.now, ids=(IDS[1],), fields={"category": "x"})])
        assert [each.id for each in await store.match(later, ["tea"], Filter())] == [IDS[1], IDS[3], IDS[2]]
        assert [each.id for each in await store.match(later, ["tea"], Filter(), limit=1)] == [IDS[1]]
        assert [each.id for each in await store.match(later, ["tea"], Filter(tags=("a",)))] == [IDS[2]]
        question = Question(terms=("tea",))
        assert (await store.candidates(later, question, Filter())).rows.keys() == {*IDS[1:4]}
        assert (await store.candidates(later, question, Filter(tags=("a",)))).rows.keys() == {IDS[2]}
        orders: list[tuple[Order, list[str]]] = [("updated", [IDS[1], IDS[3], IDS[2]]), ("created", IDS[3:0:-1])]
        for order, wanted in orders:
            assert [row.id for row in (await store.find(later, Filter(), order=order)).rows] == wanted
            assert [row.id for row in (await store.find(later, Filter(), order=order, limit=2)).rows] == wanted[:2]
        assert [each.value for each in await store.facets(later, "tags")] == ["b", "a"]
        assert [each.value for each in await store.facets(later, "tags", limit=1)] == ["b"]
        assert await store.resolve(later, IDS[0][:-1], limit=2) == IDS[1:3]
        assert await store.written_at(later, IDS[1:2]) == {IDS[1]: rows[0].created_at}

    async def test_pages_follow_each_other_without_gap_or_repetition(self, store: ObservationStore) -> None:
        await store.commit(OWNER, adding(*(observation(number) for number in range(7))))
        for ascending in (False, True):
            after, ids = None, IDS[:7] if ascending else IDS[6::-1]
            for wanted in (ids[:3], ids[3:6], ids[6:]):
                page = await store.find(OWNER, Filter(), order="created", ascending=ascending, limit=3, after=after)
                assert [row.id for row in page.rows] == wanted
                after = page.after
            assert after is None
        with pytest.raises(UnknownObservation):
            await store.find(OWNER, Filter(), after=IDS[39])

    @pytest.mark.parametrize("visibility", VISIBILITIES)
    @pytest.mark.parametrize("status", STATUSES)
    async def test_no_way_of_reading_passes_the_gate(
        self, store: ObservationStore, visibility: Any, status: Status
    ) -> None:
        """Tries the paths of `read_everything` with a row of each sensitivity."""
        rows = [
            observation(
                n, title=f"zebra{n}", visibility=visibility, sensitivity=each, people=(f"Zed {n}",), tags=(f"z{n}",)
            )
            for n, each in enumerate(SENSITIVITIES, 10)
            if each != "unknown" or status == "active"
        ]
        author = structs.replace(OWNER, asked=EVERY_SENSITIVITY)
        await store.commit(author, adding(*rows, observation(3, title="xerus", visibility=visibility)))
        for number, row in enumerate(rows, 20):
            [stated] = await store.commit(author, stating(fact(number, subject=row.title, source=row.id)))
            assert (stated.kind == "added") == (row.sensitivity != "unknown")
            await store.commit(author, _events_to(status, row))
        askings: list[frozenset[Sensitivity]] = [frozenset({"public"}), EVERY_SENSITIVITY]
        views = [structs.replace(OWNER, clearance=each, asked=asked) for each in CLEARANCES for asked in askings]
        views.append(structs.replace(author, namespaces=frozenset({"other"})))
        for view, row in product(views, rows):
            found = await read_everything(store, view, row)
            wanted = found.keys() & {"get any", "history", "written_at", "resolve", f"find {status}"}
            if status == "active":
                wanted = found.keys() - {f"find {other}" for other in STATUSES if other != "active"}
            is_seen = row.sensitivity != "unknown" and may_see(row, view)
            assert {name for name, ids in found.items() if row.id in ids} == (wanted if is_seen else set()), view

    async def test_nobody_writes_where_they_could_not_see_it(self, store: ObservationStore) -> None:
        for clearance in CLEARANCES:
            view = structs.replace(OWNER, clearance=clearance)
            for number, visibility in enumerate(VISIBILITIES):
                row = observation(number, title=f"{clearance} {visibility}", visibility=visibility)
                [outcome] = await store.commit(view, adding(row))
                assert (outcome.kind == "added") == (visibility in view.visibilities)
                assert (outcome.error is None) == (visibility in view.visibilities)
                if outcome.kind == "added":
                    await store.purge(view, [row.id])

    async def test_what_is_derived_inherits_the_strictest_gate(self, store: ObservationStore) -> None:
        author = structs.replace(OWNER, asked=EVERY_SENSITIVITY)
        sources = [
            observation(1, title="a", visibility="social", sensitivity="private"),
            observation(2, title="b", visibility="private", min_clearance="inner"),
        ]
        summary = observation(3, title="a and b", visibility="social", derived_from=(IDS[1], IDS[2]))
        await store.commit(author, adding(*sources, summary))
        [row] = await store.get(author, [IDS[3]])
        assert (row.visibility, row.sensitivity, row.min_clearance) == ("private", "private", "inner")
        loosened = Event(kind="update", at=NOW, ids=(IDS[3],), fields={"sensitivity": "public"})
        await store.commit(author, [loosened])
        [row] = await store.get(author, [IDS[3]])
        assert row.sensitivity == "private"

    @pytest.mark.parametrize(
        ("stricter", "clearance"),
        [
            ({"visibility": "private"}, "inner"),
            ({"sensitivity": "secret"}, "full"),
            ({"min_clearance": "full"}, "inner"),
        ],
    )
    def test_what_is_made_stricter_later_takes_along_what_was_derived_from_it(
        self, tmp_path: Path, stricter: dict[str, Any], clearance: Any
    ) -> None:
        """Applies at once and permanently, also to summaries of summaries, in any status."""
        author = structs.replace(OWNER, asked=EVERY_SENSITIVITY, namespaces=None)
        reader = structs.replace(OWNER, clearance=clearance)
        retracted: list[Triple] = []
        striped = fact(20, subject="zebra 4", source=IDS[4])

        async def write(store: ObservationStore) -> None:
            rows = [observation(number, title=f"zebra {number}", visibility="social") for number in range(8)]
            sources = {3: (IDS[0],), 4: (IDS[3], IDS[1]), 5: (IDS[4],), 6: (IDS[1],), 7: (IDS[5],)}
            rows = [replace(row, derived_from=sources.get(number, ())) for number, row in enumerate(rows)]
            await store.commit(author, [*adding(*rows), *stating(striped)])
            await store.commit(author, [Event(kind="archive", at=NOW, ids=(IDS[5],))])
            before = await store.get(author, [IDS[7]])
            await store.commit(author, [Event(kind="update", at=NOW, ids=(IDS[0],), fields=stricter)])
            [after] = await store.get(author, [IDS[7]])
            assert [after] == [replace(row, **stricter) for row in before]  # not as if it had been written anew
            await check(store)
            loose = {"visibility": "social", "sensitivity": "public", "min_clearance": "public"}
            await store.commit(author, [Event(kind="update", at=NOW, ids=(IDS[0],), fields=loose)])
            await store.commit(author, [Event(kind="restore", at=NOW, ids=(IDS[5],))])
            await check(store, more=[IDS[0]])
            await store.reindex()
            await check(store, more=[IDS[0]])

        async def check(store: ObservationStore, more: Sequence[str] = ()) -> None:
            wanted = {IDS[1], IDS[2], IDS[6], *more}
            for number in range(8):
                found = await read_everything(store, reader, observation(number, title=f"zebra {number}"))
                shown = {name for name, ids in found.items() if IDS[number] in ids}
                assert bool(shown) == (IDS[number] in wanted), (number, shown)
            assert await store.facts(reader, FactFilter()) == []
            assert await store.facts(author, FactFilter()) == ([replace(striped, **stricter)] if not retracted else [])
            [outcome] = await store.commit(reader, [Event(kind="retract", at=NOW, ids=(striped.id,))])
            if clearance == "full":  # naming it asks for its sensitivity
                retracted.append(striped)
            else:
                assert isinstance(outcome.error, UnknownObservation)

        self.survives(tmp_path, write, lambda store: check(store, [IDS[0]]))

    async def test_a_source_that_is_said_again_or_named_later_tightens_what_names_it(
        self, store: ObservationStore
    ) -> None:
        author = structs.replace(OWNER, asked=EVERY_SENSITIVITY, namespaces=None)
        rows = [observation(number, title=f"t{number}", derived_from=(IDS[number + 4],)) for number in range(2)]
        strict = observation(4, title="a", sensitivity="private")
        other = observation(5, title="b")
        again = replace(other, id=IDS[8], sensitivity="secret")
        elsewhere = observation(9, title="t9", derived_from=(IDS[4],), namespace="work")
        outcomes = await store.commit(author, adding(strict, other, *rows, elsewhere))
        assert [outcome.kind for outcome in outcomes] == ["added"] * 4 + ["skipped"]
        found = await store.get(author, [IDS[0], IDS[1], IDS[9]])
        assert [row.sensitivity for row in found] == ["private", "public"]
        [outcome] = await store.commit(author, adding(again))
        assert outcome.kind == "exact_dup"
        assert [row.sensitivity for row in await store.get(author, IDS[:2])] == ["private", "secret"]
        naming = Event(kind="update", at=NOW, ids=(IDS[1],), fields={"derived_from": IDS[5:7]})
        [outcome] = await store.commit(author, [naming])
        assert isinstance(outcome.error, UnknownObservation)
        await store.commit(author, adding(observation(6, title="c", visibility="private", min_clearance="inner")))
        await store.commit(author, [naming])
        [row] = await store.get(author, [IDS[1]])
        assert (row.sensitivity, row.min_clearance) == ("secret", "inner")
        for source in (IDS[1], IDS[5]):  # which is made from it, and itself
            circular = Event(kind="update", at=NOW, ids=(IDS[5],), fields={"derived_from": [source]})
            [outcome] = await store.commit(author, [circular])
            assert isinstance(outcome.error, ConflictingChange)
        await store.commit(author, adding(observation(9, title="t9", namespace="work")))
        [outcome] = await store.commit(author, stating(fact(20, source=IDS[9])))
        assert "another namespace" in outcome.reason
        [outcome] = await store.commit(author, [Event(kind="tighten", at=NOW, ids=(IDS[1],))])
        assert isinstance(outcome.error, InvalidValue)

    def test_a_row_and_the_one_that_is_forgotten_for_it_change_places_in_one_step(self, tmp_path: Path) -> None:
        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, adding(*(observation(number) for number in range(4))))
            new = Event(kind="add", at=NOW, row=observation(5), supersedes=IDS[1], forgets=IDS[1], who="model")
            assert [outcome.kind for outcome in await store.commit(OWNER, [new])] == ["added"]
            again = Event(kind="add", at=NOW, row=replace(observation(6), title="title 0"), forgets=IDS[2])
            itself = Event(kind="add", at=NOW, row=replace(observation(7), title="title 3"), forgets=IDS[3])
            assert [outcome.kind for outcome in await store.commit(OWNER, [again, itself])] == ["exact_dup"] * 2
            for gone in (IDS[1], IDS[9]):
                [outcome] = await store.commit(OWNER, [Event(kind="add", at=NOW, row=observation(8), forgets=gone)])
                assert outcome.kind == "skipped"
            await check(store)
            [version] = await store.history(OWNER, IDS[1])
            assert [(event.kind, event.who) for event in version.events] == [("add", ""), ("delete", "model")]
            await store.purge(OWNER, [IDS[5]])  # the row that it replaced does not come back

        async def check(store: ObservationStore) -> None:
            found = await store.find(OWNER, Filter(statuses=("deleted",)), order="created", ascending=True)
            assert [row.id for row in found.rows] == IDS[1:3]
            assert {row.id for row in (await store.find(OWNER, Filter())).rows} >= {IDS[0], IDS[3]}

        self.survives(tmp_path, write, check)

    def test_a_fact_can_be_erased_by_itself_by_who_sees_it_and_its_source(self, tmp_path: Path) -> None:
        async def erase(store: ObservationStore) -> None:
            facts = [
                fact(20, object="xyzzy 20", source=IDS[1]),
                fact(21, object="xyzzy 21"),
                fact(22, object="xyzzy 22"),
            ]
            await store.commit(OWNER, [*adding(observation(1), observation(2)), *stating(*facts)])
            with pytest.raises(UnknownObservation):
                await store.purge(structs.replace(OWNER, clearance="familiar"), [IDS[20]])
            with pytest.raises(UnknownObservation, match=rf"{IDS[30]}, .* or 6 others$"):
                await store.purge(OWNER, IDS[30:39])
            assert await store.purge(OWNER, [IDS[20], IDS[2], IDS[21]]) == [IDS[2], IDS[20], IDS[21]]
            assert await store.facts(OWNER, FactFilter()) == facts[2:]
            assert [row.id for row in await store.get(OWNER, IDS[:3])] == [IDS[1]]

        self.run(tmp_path, erase)
        self.check_erased(tmp_path, b"xyzzy 20", b"xyzzy 21")

    def test_what_was_purged_is_found_by_nobody_and_as_gone_as_the_level_says(self, tmp_path: Path) -> None:
        words, vector = "the combination is 4711", (0.123, 0.456)

        async def purge(store: ObservationStore) -> None:
            gone, kept = observation(1, title=words, narrative=words * 20), observation(2, title="a combination")
            await store.commit(OWNER, adding(gone, kept))
            await store.put_vectors("m", [(gone, vector), (kept, (1, 0))])
            assert len(await store.match(OWNER, terms(words), Filter())) == 2
            await store.purge(OWNER, [gone.id])
            assert [each.id for each in await store.match(OWNER, terms(words), Filter())] == [kept.id]
            assert await store.history(OWNER, gone.id) == []
            assert [each.id for each in await store.nearest(OWNER, vector, Filter(), model="m")] == [kept.id]

        self.run(tmp_path, purge)
        self.check_erased(tmp_path, words.encode(), b"4711", unit(vector).tobytes())

    def test_nothing_is_made_of_what_was_erased_meanwhile(self, tmp_path: Path) -> None:
        late = observation(5, title="made late", derived_from=IDS[1:3])

        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, adding(observation(1), observation(2), observation(3)))
            await store.purge(OWNER, [IDS[1]])
            await check(store)
            await store.reindex()

        async def check(store: ObservationStore) -> None:
            change = Event(kind="update", at=NOW, ids=(IDS[3],), fields={"derived_from": [IDS[1]]})
            outcomes = await store.commit(OWNER, [*adding(late), change])
            assert [outcome.kind for outcome in outcomes] == ["skipped"] * 2
            assert {outcome.reason for outcome in outcomes} == {f"no memory has the id {IDS[1]}"}

        self.survives(tmp_path, write, check)

    async def test_purging_takes_what_was_derived_along(self, store: ObservationStore) -> None:
        rows = [
            observation(1, title="source"),
            observation(2, title="derived", derived_from=(IDS[1],)),
            observation(3, title="twice derived", derived_from=(IDS[2],)),
            observation(4, title="other"),
            observation(5, title="derived later"),
        ]
        later = Event(kind="update", at=NOW, ids=(IDS[5],), fields={"derived_from": [IDS[3]]})
        await store.commit(OWNER, [*adding(*rows), *stating(fact(20, source=IDS[1])), later])
        assert len(await store.facts(OWNER, FactFilter())) == 1
        assert await store.purge(OWNER, [IDS[1]]) == [*IDS[1:4], IDS[5]]
        assert await store.history(OWNER, IDS[2]) == []
        assert await store.facts(OWNER, FactFilter()) == []
        assert [row.id for row in (await store.find(OWNER, Filter())).rows] == [IDS[4]]
        with pytest.raises(UnknownObservation):
            await store.purge(OWNER, [IDS[1]])

    async def test_a_fact_that_was_taken_back_is_found_and_erased_by_who_erases(self, store: ObservationStore) -> None:
        erasing = structs.replace(OWNER, erasing=True)
        await store.commit(OWNER, [*stating(fact(20)), Event(kind="retract", at=NOW, ids=(IDS[20],))])
        assert await store.facts(OWNER, FactFilter()) == []
        assert [each.id for each in await store.facts(erasing, FactFilter())] == [IDS[20]]
        again = fact(20, subject="another")
        await store.commit(OWNER, stating(again))
        words = FactFilter(subject=again.subject, predicate=again.predicate, object=again.object)
        assert [each.id for each in await store.facts(OWNER, words)] == [IDS[20]]
        assert await store.purge(OWNER, [IDS[20]]) == [IDS[20]]
        assert await store.facts(erasing, FactFilter()) == []
        with pytest.raises(UnknownObservation):
            await store.purge(OWNER, [IDS[20]])

    def test_what_is_purged_alone_leaves_what_was_derived_as_strict_as_it_was(self, tmp_path: Path) -> None:
        source = observation(1, sensitivity="private")
        derived = observation(2, derived_from=(IDS[1],), sensitivity="private")

        everything = OWNER.asking_all()

        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, adding(source, derived, observation(3, derived_from=(IDS[2],))))
            assert await store.purge(everything, [IDS[1]], alone=True) == [IDS[1]]
            assert [row.id for row in await store.get(everything, IDS[:4])] == IDS[2:4]
            loosening = Event(kind="update", at=NOW, ids=(IDS[2],), fields={"sensitivity": "public", "title": "new"})
            await store.commit(OWNER, [loosening])
            [row] = await store.get(everything, [IDS[2]])
            assert (row.title, row.sensitivity) == ("new", "private")

        async def purge_again(store: ObservationStore) -> None:
            with pytest.raises(UnknownObservation):
                await store.purge(structs.replace(OWNER, clearance="public"), [IDS[1]])
            assert await store.purge(OWNER, [IDS[1]]) == IDS[2:4]
            assert await store.get(everything, IDS[:4]) == []
            with pytest.raises(UnknownObservation):
                await store.purge(OWNER, [IDS[1]])

        self.survives(tmp_path, write, purge_again)

    def test_rows_are_found_by_how_long_nothing_happened_to_them_and_by_what_fades(self, tmp_path: Path) -> None:
        later = NOW + timedelta(days=9)
        view = structs.replace(OWNER, now=later)

        async def quiet(store: ObservationStore, *statuses: Status) -> list[str]:
            wanted = Filter(quiet_since=NOW + timedelta(days=1), statuses=statuses)
            return [row.id for row in (await store.find(view, wanted, order="created", ascending=True)).rows]

        async def write(store: ObservationStore) -> None:
            await store.commit(OWNER, adding(*(observation(number) for number in range(9))))
            for number, kind in enumerate(("use", "mention", "confirm", "delete", "archive"), 1):
                await store.commit(view, [Event(kind=kind, at=later, ids=(IDS[number],))])  # type: ignore[arg-type]
            await store.commit(view, [Event(kind="supersede", at=later, ids=(IDS[6],), by=IDS[7])])
            await store.commit(view, [Event(kind="delete", at=NOW, ids=(IDS[8],))])

        async def look(store: ObservationStore) -> None:
            assert await quiet(store, "active") == [IDS[0], IDS[7]]
            assert await quiet(store, "deleted") == [IDS[8]]
            assert await quiet(store, "archived", "superseded") == [IDS[5]]
            everything = Filter(statuses=STATUSES)
            rows = (await store.find(view, everything, order="created", ascending=True)).rows
            assert await store.states(view, everything, limit=100) == list(map(RowState.of, rows))
            assert await store.states(view, everything, limit=3, after=IDS[2]) == list(map(RowState.of, rows[3:6]))
            fading = Filter(fading=Decay(later, 0.05))
            found = tuple(row.id for row in (await store.find(view, fading)).rows)
            assert IDS[0] in found
            changing = Event(kind="consolidate", at=later, ids=found, fields={"decay_per_day": 0.05})
            await store.commit(view, [changing])
            assert (await store.find(view, fading)).rows == ()

        self.survives(tmp_path, write, look)

    async def test_facts_are_found_by_any_of_their_ids_or_sources(self, store: ObservationStore) -> None:
        await store.commit(OWNER, adding(*(observation(number) for number in range(3))))
        sources = enumerate([*IDS[:3], None], 20)
        await store.commit(OWNER, stating(*(fact(number, source=source) for number, source in sources)))
        await store.commit(OWNER, stating(fact(24, subject="session:1")))
        assert len(await store.facts(OWNER, FactFilter())) == 5
        assert len(await store.facts(OWNER, FactFilter(about_sessions=False), limit=4)) == 4
        found = await store.facts(OWNER, FactFilter(sources=frozenset(IDS[1:9])))
        assert {each.source for each in found} == {*IDS[1:3]}
        found = await store.facts(OWNER, FactFilter(ids=frozenset({IDS[0], IDS[20], IDS[23]})))
        assert [each.id for each in found] == [IDS[23], IDS[20]]

    async def test_later_rows_that_are_like_a_row_are_found_by_row_if_the_store_can(
        self, store: ObservationStore
    ) -> None:
        rows = [observation(number) for number in range(5)]
        await store.commit(OWNER, adding(*rows))
        given = [(1, 0), (3, 4), (0, 1), (-1, 0)]
        await store.put_vectors("m", list(zip(rows[:4], given, strict=True)))
        found = await store.later_alike(OWNER, [IDS[1], IDS[0], IDS[4]], Filter(), model="m")
        if found:
            off = COSINE_ERROR if self.nearest == "approximate" else 0.0
            assert {each: [match.id for match in later] for each, later in found.items()} == {
                IDS[0]: [IDS[1]],
                IDS[1]: [IDS[2]],
            }
            assert found[IDS[1]][0].score == pytest.approx(0.8, abs=off + 1e-6, rel=0)
        few = await store.later_alike(OWNER, [IDS[0]], Filter(types=("decision",)), model="m", limit=1)
        assert not any(few.values())

    async def test_the_nearest_vectors_come_first_and_what_is_not_alike_not_at_all(
        self, store: ObservationStore
    ) -> None:
        rows = [observation(number) for number in range(6)]
        await store.commit(OWNER, adding(*rows))
        given = [(1, 0), (3, 4), (0, 1), (-1, 0), (0, 0), (2, 0)]
        assert await store.put_vectors("m", list(zip(rows, given, strict=True))) == 6
        found = await store.nearest(OWNER, (2, 0), Filter(), model="m")
        off = COSINE_ERROR if self.nearest == "approximate" else 0.0
        assert [each.id for each in found] == [IDS[5], IDS[0], IDS[1]]
        assert [each.score for each in found] == pytest.approx([1.0, 1.0, 0.6], abs=off, rel=0)
        assert found[1].created_at == rows[0].created_at
        assert await store.nearest(OWNER, (2, 0), Filter(), model="m", limit=1) == found[:1]
        for odd in [(0, 0), (), (float("nan"), 1), (float("inf"), 1)]:
            assert await store.nearest(OWNER, odd, Filter(), model="m") == []

    async def test_of_several_vectors_of_a_row_the_nearest_counts_until_its_text_changes(
        self, store: ObservationStore
    ) -> None:
        rows = [observation(number) for number in range(2)]
        await store.commit(OWNER, adding(*rows))
        given = [(rows[0], (1, 0)), (rows[0], (0, 1)), (rows[1], (3, 4)), (rows[0], (1, 1))]
        assert await store.put_vectors("m", given) == 2
        assert await store.put_vectors("m", given) == 0
        assert await store.vector_stats(OWNER) == VectorStats("m", 2, 2, 0)
        for asked, best in (((1, 0), [(IDS[0], 1.0), (IDS[1], 0.6)]), ((3, 4), [(IDS[1], 1.0), (IDS[0], 0.99)])):
            found = await store.nearest(OWNER, asked, Filter(), model="m")
            off = COSINE_ERROR if self.nearest == "approximate" else 0.0
            assert [each.id for each in found] == [each for each, _ in best]
            assert [each.score for each in found] == pytest.approx([score for _, score in best], abs=off + 1e-3)
        await store.commit(OWNER, [Event(kind="update", at=NOW, ids=(IDS[0],), fields={"title": "tea"})])
        assert [each.id for each in await store.nearest(OWNER, (1, 0), Filter(), model="m")] == [IDS[1]]

    @pytest.mark.parametrize("wanted", [Filter(), Filter(tags=("third",))])
    async def test_of_many_rows_the_nearest_are_found_as_surely_as_the_level_says(
        self, store: ObservationStore, wanted: Filter
    ) -> None:
        rows, vectors, queries = _many(store.max_observations or 300)
        await store.commit(OWNER, adding(*rows))
        await store.put_vectors("m", list(zip(rows, vectors, strict=True)))
        ids = {row.id: vector for row, vector in zip(rows, vectors, strict=True) if not wanted.tags or row.tags}
        found = expected = 0
        for query in queries:
            nearest = sorted(ids, key=lambda each: -_cosine(ids[each], query))
            nearest = [each for each in nearest[:10] if _cosine(ids[each], query) > 0]
            expected += len(nearest)
            answer = await store.nearest(OWNER, query, wanted, model="m", limit=10)
            found += len({match.id for match in answer} & {*nearest})
        assert expected
        assert found / expected >= (RECALL if self.nearest == "approximate" else 1.0)

    async def test_the_gate_is_passed_before_the_nearest_are_counted(self, store: ObservationStore) -> None:
        secret = observation(1, visibility="private", sensitivity="secret")
        far = observation(2, visibility="social", type="decision")
        deleted = observation(3)
        await store.commit(OWNER, adding(secret, far, deleted))
        await store.commit(OWNER, [Event(kind="delete", at=NOW, ids=(IDS[3],))])
        await store.put_vectors("m", [(secret, (1, 0)), (far, (1, 1)), (deleted, (1, 0))])
        guest = structs.replace(OWNER.asking_all(), clearance="public")
        found = await store.nearest(OWNER, (1, 0), Filter(), model="m", limit=1)
        assert [each.id for each in found] == [far.id]
        assert await store.nearest(guest, (1, 0), Filter(), model="m", limit=1) == []
        found = await store.nearest(OWNER.asking_all(), (1, 0), Filter(), model="m")
        assert [each.id for each in found] == [secret.id, far.id]
        found = await store.nearest(OWNER.asking_all(), (1, 0), Filter(types=("decision",)), model="m", limit=1)
        assert [each.id for each in found] == [far.id]

    async def test_a_vector_is_missing_until_it_is_put_and_again_when_the_text_changes(
        self, store: ObservationStore
    ) -> None:
        rows = [observation(number) for number in range(3)]
        secret = observation(4, sensitivity="secret")
        await store.commit(OWNER, adding(*rows, secret))
        assert await store.missing_vectors(OWNER, model="m") == rows[::-1]
        assert await store.missing_vectors(OWNER, model="m", limit=1) == rows[2:]
        assert await store.put_vectors("m", [(row, (1, 2)) for row in rows]) == 3
        assert await store.put_vectors("m", [(row, (2, 1)) for row in rows]) == 0
        assert await store.vector_stats(OWNER) == VectorStats("m", 2, 3, 0)
        await store.commit(OWNER, [Event(kind="update", at=NOW, ids=(IDS[1],), fields={"title": "tea"})])
        [changed] = await store.missing_vectors(OWNER, model="m")
        assert (changed.id, changed.title) == (IDS[1], "tea")
        assert await store.put_vectors("m", [(rows[1], (1, 0))]) == 0  # of the text that it had before
        assert await store.put_vectors("m", [(changed, (1, 0))]) == 1
        assert await store.missing_vectors(OWNER.asking_all(), model="m") == [secret]

    async def test_vectors_of_another_model_are_refused_and_never_mixed(self, store: ObservationStore) -> None:
        rows = [observation(number) for number in range(2)]
        await store.commit(OWNER, adding(*rows))
        await store.put_vectors("m", [(rows[0], (1, 0))])
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: store.put_vectors("other", [(rows[1], (1, 0))]),
            lambda: store.put_vectors("m", [(rows[1], (1, 0, 0))]),
            lambda: store.nearest(OWNER, (1, 0), Filter(), model="other"),
            lambda: store.nearest(OWNER, (1, 0, 0), Filter(), model="m"),
            lambda: store.missing_vectors(OWNER, model="other"),
        ]
        for each in refused:
            with pytest.raises(OtherEmbedder, match="chatbot memory reindex --embed"):
                await each()
        with pytest.raises(InvalidValue, match="one length"):
            await store.put_vectors("m", [(rows[0], (1, 0)), (rows[1], (1,))])
        await store.forget_vectors()
        assert await store.vector_stats(OWNER) == VectorStats("", 0, 0, 2)
        assert await store.put_vectors("other", [(rows[1], (1, 0, 0))]) == 1

    async def test_past_the_cap_what_matters_least_is_archived(self, store: ObservationStore) -> None:
        if not store.max_observations:
            pytest.skip("this store was opened without a cap")
        cap = store.max_observations
        rows = [
            observation(number, importance=0.1 if number % 2 else 0.9, type="task" if number < 2 else "note")
            for number in range(cap + cap // 10 + 1)
        ]
        await store.commit(OWNER, adding(*rows))
        left = {row.id for row in (await store.find(OWNER, Filter(), limit=1000)).rows}
        assert len(left) == cap
        assert {rows[0].id, rows[1].id} <= left
        gone = [row for row in rows if row.id not in left]
        assert all(row.importance == 0.1 for row in gone)

    async def test_writes_from_many_tasks_are_all_kept(self, store: ObservationStore) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(store.commit(OWNER, adding(observation(number))))
        kept = {row.id for row in (await store.find(OWNER, Filter(statuses=STATUSES), limit=100)).rows}
        assert kept == set(IDS[:30])


def _many(count: int) -> tuple[list[Observation], list[list[float]], list[list[float]]]:
    """Return rows, every third with a tag, their vectors, and vectors to search for, clustered as those of texts."""
    numbers = random.Random(2)  # noqa: S311 - for tests
    topics = [[numbers.gauss(0, 1) for _ in range(24)] for _ in range(12)]
    vectors = [[each + numbers.gauss(0, 0.7) for each in numbers.choice(topics)] for _ in range(count + 20)]
    rows = [
        replace(
            observation(0, title=f"row {number}", tags=() if number % 3 else ("third",)),
            id=f"{IDS[0][:-6]}{number:06x}",
        )
        for number in range(count)
    ]
    return rows, vectors[:count], vectors[count:]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot: float = sum(map(mul, one, other))
    return dot / math.hypot(*one) / math.hypot(*other)


async def read_everything(store: ObservationStore, view: View, row: Observation) -> dict[str, set[str]]:
    """Return for each of many read paths the ids of the rows whose existence it reveals."""
    word = terms(row.title)
    found = {
        "get": {each.id for each in await store.get(view, [row.id])},
        "get any": {each.id for each in await store.get(view, [row.id], current=False)},
        "match": {each.id for each in await store.match(view, word, Filter())},
        "candidates": {*(await store.candidates(view, Question(terms=tuple(word)), Filter())).rows},
    }
    for status in STATUSES:
        page = await store.find(view, Filter(statuses=(status,)), limit=100)
        found[f"find {status}"] = {each.id for each in page.rows}
    found["history"] = {version.observation.id for version in await store.history(view, row.id)}
    found["written_at"] = set(await store.written_at(view, [row.id]))
    found["resolve"] = set(await store.resolve(view, row.id))
    for name in ("people", "tags"):
        values = {facet.value for facet in await store.facets(view, name)}
        found[f"facets {name}"] = {row.id} if values & set(getattr(row, name)) else set()
    facts = await store.facts(view, FactFilter(subject=row.title))
    found["facts"] = {fact.source for fact in facts if fact.source}
    stats = await store.stats(view)
    page = await store.find(view, Filter(statuses=STATUSES), limit=1000)
    assert sum(stats.by_status.values()) == len(page.rows)
    return found


def _events_to(status: str, row: Observation) -> list[Event]:
    ids = (row.id,)
    summary = replace(row, id=f"{row.id[:-3]}f{row.id[-2:]}", title=f"{row.title} and more")
    return {
        "active": [],
        "superseded": [Event(kind="supersede", at=NOW, ids=ids, by=IDS[3])],
        "expired": [Event(kind="update", at=NOW, ids=ids, fields={"expires_at": format_time(NOW)})],
        "archived": [Event(kind="archive", at=NOW, ids=ids)],
        "deleted": [Event(kind="delete", at=NOW, ids=ids)],
        "compressed": [_compress_event(replace(summary, people=(), tags=()), row.id)],
    }[status]


def _compress_event(summary: Observation, *ids: str) -> Event:
    row = replace(summary, type="compressed_summary", derived_from=ids)
    return Event(kind="add", at=NOW, row=row, compresses=ids, who="maintenance", why="alike")


def _consolidate_event(view: View, *ids: str, rate: Any = 0.05) -> Event:
    return Event(kind="consolidate", at=view.now, ids=ids, fields={"decay_per_day": rate})
