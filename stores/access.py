"""The gate: who may see a row. One pure function decides, and every read path of every store calls it.

It is applied before limits, counts and uses, and it fails closed: what is not known to be allowed is not returned.

    clearance   sees what is
    full        private, shared, social
    inner       shared, social
    familiar    social
    public      nothing

Sensitivity narrows that further: `public` rows are returned, `private` and `secret` ones only to a caller who asks for
them, `secret` at full clearance only, and `unknown` ones never.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeVar, get_args

Clearance = Literal["full", "inner", "familiar", "public"]
"""What a caller may see, most first."""
Visibility = Literal["private", "shared", "social"]
"""Where a row belongs, narrowest first."""
Sensitivity = Literal["public", "private", "secret", "unknown"]
"""How delicate a row is, least first."""

CLEARANCES: tuple[Clearance, ...] = get_args(Clearance)
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
SENSITIVITIES: tuple[Sensitivity, ...] = get_args(Sensitivity)

SEEN: dict[str, frozenset[str]] = {
    clearance: frozenset(VISIBILITIES[position:]) for position, clearance in enumerate(CLEARANCES)
}
"""Which visibilities each clearance sees."""
_EVERYTHING: frozenset[Sensitivity] = frozenset(SENSITIVITIES)

Word = TypeVar("Word", bound=str)


class Guarded(Protocol):
    """What the gate looks at."""

    @property
    def visibility(self) -> Visibility: ...  # noqa: D102
    @property
    def sensitivity(self) -> Sensitivity: ...  # noqa: D102
    @property
    def min_clearance(self) -> Clearance: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102


class Guard(NamedTuple):
    """The guarded properties of a row, by themselves."""

    visibility: Visibility
    sensitivity: Sensitivity
    min_clearance: Clearance
    namespace: str

    @classmethod
    def of(cls, row: Guarded) -> Guard:
        """The guard of `row`."""
        return cls(row.visibility, row.sensitivity, row.min_clearance, row.namespace)


@dataclass(frozen=True, slots=True)
class View:
    """Through which a store is read and written: what the caller may see, and what was asked for.

    `asked` are the sensitivities wanted; what the clearance does not allow is left out all the same. `namespaces` is
    None for all of them.
    """

    clearance: Clearance
    now: datetime
    asked: frozenset[Sensitivity] = frozenset({"public"})
    namespaces: frozenset[str] | None = frozenset({""})

    @property
    def visibilities(self) -> frozenset[str]:
        """What the clearance may see; nothing for a clearance that is not known."""
        return SEEN.get(self.clearance, frozenset())

    @property
    def sensitivities(self) -> frozenset[str]:
        """Of what was asked for, what may be returned."""
        never = {"unknown"} if self.clearance == "full" else {"unknown", "secret"}
        return self.asked - never

    def asking_all(self) -> View:
        """The view of a caller who names a row, and so asks for it however delicate it is."""
        return View(self.clearance, self.now, _EVERYTHING, self.namespaces)


def may_see(row: Guarded, view: View) -> bool:
    """Whether the caller may know that `row` exists."""
    return (
        row.visibility in view.visibilities
        and row.sensitivity in view.sensitivities
        and (view.namespaces is None or row.namespace in view.namespaces)
        and is_cleared(view.clearance, row.min_clearance)
    )


def may_write(row: Guarded, view: View) -> bool:
    """Whether the caller may write a row like that: nobody writes where they could not see it."""
    return (
        row.visibility in view.visibilities
        and (row.sensitivity != "secret" or view.clearance == "full")
        and (view.namespaces is None or row.namespace in view.namespaces)
        and is_cleared(view.clearance, row.min_clearance)
    )


def default_visibility(clearance: Clearance) -> Visibility:
    """Where what a caller writes belongs unless they say otherwise. `public` callers cannot write at all."""
    return {"full": "private", "inner": "shared"}.get(clearance, "social")  # type: ignore[return-value]


def least_clearance(*clearances: Clearance) -> Clearance:
    """The least of several clearances: what holds when each of them limits the others."""
    return max(clearances, key=CLEARANCES.index)


def is_cleared(clearance: str, needed: str) -> bool:
    """Whether a clearance is at least the one that is needed; one that is not known never is."""
    known: tuple[str, ...] = CLEARANCES
    return clearance in known and needed in known and known.index(clearance) <= known.index(needed)


def strictest(rows: Iterable[Guarded]) -> Guard:
    """The guard of what is derived from `rows`: narrowest visibility, highest sensitivity, highest clearance needed.

    Rows of one namespace give that namespace. Raises `ValueError` for no rows, or for rows of several namespaces.
    """
    rows = list(rows)
    namespaces = {row.namespace for row in rows}
    if len(namespaces) != 1:
        raise ValueError(f"what is derived needs sources in one namespace, not in {sorted(namespaces)}")
    return Guard(
        min((row.visibility for row in rows), key=VISIBILITIES.index),
        max((row.sensitivity for row in rows), key=SENSITIVITIES.index),
        min((row.min_clearance for row in rows), key=CLEARANCES.index),
        namespaces.pop(),
    )


def is_stricter(guard: Guarded, other: Guarded) -> bool:
    """Whether `guard` is at least as strict as `other` in everything."""
    return (
        VISIBILITIES.index(guard.visibility) <= VISIBILITIES.index(other.visibility)
        and SENSITIVITIES.index(guard.sensitivity) >= SENSITIVITIES.index(other.sensitivity)
        and CLEARANCES.index(guard.min_clearance) <= CLEARANCES.index(other.min_clearance)
    )
