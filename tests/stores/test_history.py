"""History of a row for a caller: what was written while they could not see the row stays hidden."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter
from chatbot.stores.row_events import Event
from tests.stores.places import NOW, OWNER, Place, adding_all, id_of, row, update

INNER, FAMILIAR = (replace(OWNER, clearance=each, namespaces=frozenset({""})) for each in ("inner", "familiar"))
A, B, C, D, MISSING = map(id_of, range(5))


def social(row_id: str, title: str, visibility: str = "social", **fields: object) -> Observation:
    return row(0, id=row_id, title=title, visibility=visibility, **fields)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObservationStore]:
    async with Place(tmp_path).open() as store:
        yield store


async def test_the_wording_of_a_row_before_it_was_widened_stays_hidden(store: ObservationStore) -> None:
    reworded, widened, later = (
        update(A, title="in treatment"),
        update(A, title="is away", visibility="shared"),
        update(A, title="is back", visibility="social"),
    )
    await store.commit(
        OWNER, [*adding_all(social(A, "drinks", "private")), reworded, widened, later, update(A, title="well")]
    )
    told = {}
    for view in (OWNER, INNER, FAMILIAR):
        [found] = await store.history(view, A)
        told[view.clearance] = [changes["title"] for _, changes in found.steps() if "title" in changes]
        words = repr(found)
        assert ("drinks" in words) == ("in treatment" in words) == (view is OWNER)
    assert told == {
        "full": [("drinks", "in treatment"), ("in treatment", "is away"), ("is away", "is back"), ("is back", "well")],
        "inner": [("is away", "is back"), ("is back", "well")],
        "familiar": [("is back", "well")],
    }


@pytest.mark.parametrize("hidden", [A, C], ids=["the replaced row", "the new row"])
@pytest.mark.parametrize(
    "guard", [{"visibility": "private"}, {"sensitivity": "secret"}, {"min_clearance": "full"}], ids=str
)
async def test_ids_of_hidden_rows_are_named_nowhere(
    store: ObservationStore, guard: dict[str, str], hidden: str
) -> None:
    await store.commit(OWNER, adding_all(social(A, "old"), social(B, "source")))
    await store.commit(OWNER, adding_all(social(C, "new", derived_from=(B,)), supersedes=A))
    await store.commit(OWNER, [Event(kind="archive", at=NOW, ids=(A, B, C), why=f"as {hidden}")])
    await store.commit(OWNER, [update(hidden, **guard)])
    everything = Filter(statuses=("active", "superseded", "archived"))
    seen = [each for each in (A, B, C) if each != hidden]
    said = [await store.history(FAMILIAR, each) for each in seen]
    page = await store.find(FAMILIAR, everything, ascending=True)
    assert [version.observation.id for versions in said for version in versions] == seen
    assert {each.id for each in page.rows} == set(seen)
    assert hidden not in repr((said, page))
    assert hidden in repr(await store.history(OWNER, seen[0] if hidden == C else C))


async def test_a_hidden_source_an_erased_one_and_one_that_never_was_are_the_same_error(
    store: ObservationStore,
) -> None:
    await store.commit(
        OWNER, adding_all(social(A, "private", "private"), social(B, "elsewhere", namespace="work"), social(C, "c"))
    )
    await store.commit(OWNER, adding_all(social(D, "gone")))
    await store.purge(OWNER, [D])
    for source in (A, B, D, MISSING):
        new = social("01900000-0000-7000-8000-0000000000ff", "made", derived_from=(source,))
        for outcome in await store.commit(FAMILIAR, [*adding_all(new), update(C, derived_from=[source])]):
            assert type(outcome.error) is UnknownObservation
            assert outcome.reason == f"no memory has the id {source}"
