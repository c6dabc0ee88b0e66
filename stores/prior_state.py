"""State of the rows before a change, and which of them its caller may see, change or erase. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Protocol

from chatbot.stores.access import View, may_see
from chatbot.stores.errors import ChangedMeanwhile, UnknownObservation
from chatbot.stores.observation import Observation, RowState, Triple, version_of


class PriorState(Protocol):
    """State before the change, as far as `decide` needs it."""

    def observation(self, observation_id: str) -> Observation | None:
        """The observation, whatever its status."""

    def state(self, observation_id: str) -> RowState | None:
        """Return the state of the observation, which is known without reading it."""

    def settled(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        """Return the strength by `consolidated` of an existing row, and its touches; None if it is unchanged."""

    def twin(self, row: Observation, view: View) -> Observation | None:
        """Return the current observation with the same content, if the writer may see it.

        It has the same agent, namespace, visibility and principal.
        """

    def triple(self, triple_id: str) -> Triple | None:
        """The fact, unless it was taken back."""

    def derived_from(self, observation_id: str) -> Iterable[str]:
        """Return the observations that name it as a source, whatever their status, even if it does not exist."""


def check_expected(ids: Iterable[str], view: View, known: PriorState) -> None:
    """Raise `ChangedMeanwhile` for a row in a version that the caller does not expect."""
    if view.expects is None:
        return
    for each in ids:
        if not view.expects & {version_of(visible(each, view, known)), "*"}:
            raise ChangedMeanwhile(f"{each} was changed since it was read: nothing was changed now; read it again")


def visible(observation_id: str | None, view: View, known: PriorState) -> Observation:
    """Return a row that the caller may see, whatever its status. Raises `UnknownObservation` for any other."""
    row = seen_row(observation_id, view, known) if observation_id else None
    if row is None:
        raise UnknownObservation(f"no memory has the id {observation_id}")
    return row


def each_visible(ids: Iterable[str], view: View, known: PriorState) -> list[Observation]:
    """Return those of the rows that the caller may see. Raises `UnknownObservation` for none."""
    states = each_state(ids, view, known)
    return [row for state in states if (row := known.observation(state.id)) is not None]


def each_state(ids: Iterable[str], view: View, known: PriorState) -> list[RowState]:
    """Return the states of those of the rows that the caller may see. Raises `UnknownObservation` for none."""
    everything = view.asking_all()
    found = [known.state(each) for each in dict.fromkeys(ids)]
    seen = [state for state in found if state is not None and may_see(state.guard, everything)]
    if not seen:
        raise UnknownObservation.of(ids)
    return seen


def seen_row(observation_id: str, view: View, known: PriorState) -> Observation | None:
    """Return a visible row. A hidden one is not read, so that it takes no longer than a missing one."""
    return known.observation(observation_id) if is_seen(observation_id, view.asking_all(), known) else None


def is_seen(observation_id: str, view: View, known: PriorState) -> bool:
    """Return whether there is a row of that id that the view shows."""
    state = known.state(observation_id)
    return state is not None and may_see(state.guard, view)


def may_name(triple: Triple, view: View, known: PriorState) -> bool:
    """Return whether the caller may know of this fact: they may see it and its source."""
    source = known.state(triple.source) if triple.source else None
    everything = view.asking_all()
    return may_see(triple, everything) and (source is None or may_see(source.guard, everything))


def made_from(ids: Iterable[str], derived_from: Callable[[str], Iterable[str]]) -> list[str]:
    """Return all rows derived, directly or not, from the rows in `ids`, excluding `ids`."""
    waiting = list(ids)
    found = dict.fromkeys(waiting)
    sources = len(found)
    while waiting:
        new = [each for each in derived_from(waiting.pop()) if each not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)[sources:]


def erased_by(
    ids: Collection[str], view: View, known: PriorState, facts: Mapping[str, Triple], *, alone: bool
) -> tuple[list[str], list[str], list[str]]:
    """Return what purging `ids` erases: all rows, those of them that the caller may see, and facts.

    Rows derived from these go too, unless `alone`. `facts` are all facts by id. Raises `UnknownObservation` for none.
    """
    everything, ids = view.asking_all(), list(dict.fromkeys(ids))
    asked = [each for each in ids if _is_seen_or_behind(each, everything, known)]
    stated = [each for each in ids if each in facts and may_name(facts[each], view, known)]
    there = [each for each in asked if known.state(each) is not None]
    gone = there if alone else there + made_from(asked, known.derived_from)
    if not gone and not stated:
        raise UnknownObservation.of(ids)
    check_expected(there, everything, known)
    return gone, [each for each in gone if is_seen(each, everything, known)], stated


def _is_seen_or_behind(observation_id: str, view: View, known: PriorState) -> bool:
    """Return whether the caller may see the row or, if it was erased, a row derived from it."""
    asked = [observation_id] if known.state(observation_id) is not None else known.derived_from(observation_id)
    return any(is_seen(each, view, known) for each in asked)
