"""The gate: which rows a caller may see. One pure function decides, and every read path of every store calls it.

It is applied before limits, counts and uses, and fails closed: a row that is not known to be allowed is not returned.

A clearance sees the visibilities of docs/security.md. Sensitivity narrows that further: `public` rows are returned,
`private` and `secret` ones only to a caller who asks for them, `secret` at full clearance only, and `unknown` ones
never. A caller in a project sees its rows and those of no project, a caller in no project (`""`) only the latter.

Rights (docs/security.md) limit what a caller may do with visible rows; `may` decides. A row belongs to the principal
that wrote it: the owner, a token, or a user that an application named.
"""

import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from chatbot.stores.errors import MissingRight, unknown_choice

Clearance = Literal["full", "inner", "familiar", "public"]
"""Clearances of callers, highest first."""
Visibility = Literal["private", "shared", "social"]
"""Visibilities of rows, narrowest first."""
Sensitivity = Literal["public", "private", "secret", "unknown"]
"""Sensitivities of rows, lowest first."""
GivenSensitivity = Literal["public", "private", "secret"]
"""A sensitivity that a caller may name: rows of the other one are never shown."""
Right = Literal["read", "chat", "write", "curate", "erase", "declassify"]

RIGHTS: tuple[Right, ...] = get_args(Right)
EVERY_RIGHT: frozenset[Right] = frozenset(RIGHTS)
GUEST_RIGHTS: frozenset[Right] = frozenset({"read", "chat", "write"})
"""Rights of a token that names none."""
TOOL_RIGHTS: frozenset[Right] = frozenset({"read", "write"})
"""Rights that a model's tool call may have at most, for any user."""
OWNER = "owner"
"""Principal of the owner of the files, and of rows without one."""
NO_PROJECT = "-"

CLEARANCES: tuple[Clearance, ...] = get_args(Clearance)
VISIBILITIES: tuple[Visibility, ...] = get_args(Visibility)
SENSITIVITIES: tuple[Sensitivity, ...] = get_args(Sensitivity)
NOT_SECRET: tuple[Sensitivity, ...] = ("public", "private")

_SEEN_BY: dict[str, frozenset[str]] = {
    clearance: frozenset(VISIBILITIES[position:]) for position, clearance in enumerate(CLEARANCES)
}
"""Visibilities that each clearance sees."""
_EVERYTHING: frozenset[Sensitivity] = frozenset(SENSITIVITIES)


class GuardedRow(Protocol):
    """The fields of a row that the gate checks."""

    @property
    def visibility(self) -> Visibility: ...  # noqa: D102
    @property
    def sensitivity(self) -> Sensitivity: ...  # noqa: D102
    @property
    def min_clearance(self) -> Clearance: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def project(self) -> str: ...  # noqa: D102


class Guard(NamedTuple):
    """The fields of a row that the gate checks, without the row."""

    visibility: Visibility
    sensitivity: Sensitivity
    min_clearance: Clearance
    namespace: str
    project: str

    @classmethod
    def of(cls, row: GuardedRow) -> "Guard":
        """Return the guard of `row`."""
        return cls(row.visibility, row.sensitivity, row.min_clearance, row.namespace, row.project)


class OwnedRow(Protocol):
    """A row or a session, which belongs to the principal that wrote it."""

    @property
    def principal(self) -> str: ...  # noqa: D102


class Actor(OwnedRow, Protocol):
    """A caller: the principal they act as, and their rights."""

    @property
    def rights(self) -> frozenset[Right]: ...  # noqa: D102


class View(Struct, frozen=True):
    """Caller of a store: its access, and the sensitivities that it asked for.

    `asked` may name sensitivities that the clearance does not allow; these are left out. `namespaces` is None for all.
    """

    clearance: Clearance
    now: datetime
    asked: frozenset[Sensitivity] = frozenset({"public"})
    namespaces: frozenset[str] | None = frozenset({""})
    principal: str = OWNER
    rights: frozenset[Right] = EVERY_RIGHT
    erasing: bool = False
    """True to include rows of unknown sensitivity, at full clearance, and facts that were retracted or whose source is
    not current: for deletion, never in results."""
    expects: frozenset[str] | None = None
    """Versions that a row to be changed may have, see `version_of`; `*` is any existing one, None checks nothing."""
    fresh_at: float = 0.0
    """Monotonic time at which the data must be fresh: writes of others until then are seen. 0 is now."""
    project: str | None = None
    """Project whose rows are seen, with rows of no project; None for all projects."""

    @property
    def visibilities(self) -> frozenset[str]:
        """Visibilities that the clearance sees; none for an unknown clearance."""
        return _SEEN_BY.get(self.clearance, frozenset())

    @property
    def sensitivities(self) -> frozenset[str]:
        """The asked sensitivities that may be returned."""
        if self.clearance != "full":
            return self.asked - {"unknown", "secret"}
        return self.asked | {"unknown"} if self.erasing else self.asked - {"unknown"}

    @property
    def is_owners(self) -> bool:
        """True for the owner: full clearance, and no namespace of another."""
        return self.clearance == "full" and (self.namespaces is None or "" in self.namespaces)

    def asking_all(self) -> "View":
        """Return the view for a row named by the caller, in any sensitivity."""
        return replace(self, asked=_EVERYTHING)


def may_see(row: GuardedRow, view: View) -> bool:
    """Return True if the caller may know that `row` exists."""
    return row.sensitivity in view.sensitivities and _is_in_reach(row, view)


def may_write(row: GuardedRow, view: View) -> bool:
    """Return True if the caller may write the row: the caller could ask to see it afterwards."""
    return (row.sensitivity != "secret" or view.clearance == "full") and _is_in_reach(row, view)


def _is_in_reach(row: GuardedRow, view: View) -> bool:
    """Return True if the caller may see `row`, whatever its sensitivity."""
    return (
        row.visibility in view.visibilities
        and (view.namespaces is None or row.namespace in view.namespaces)
        and is_within(row.project, view.project)
        and is_cleared(view.clearance, row.min_clearance)
    )


def is_within(project: str, reach: str | None) -> bool:
    """Return True if a caller in the project `reach` sees rows of `project`."""
    return not project or reach is None or is_same_project(project, reach)


def fold(name: str) -> str:
    """Return the form in which names, tags and subjects are compared: no case, no width, single spaces, one i."""
    wide = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return " ".join(wide.casefold().replace("i\u0307", "i").replace("ı", "i").split())


def is_same_project(one: str, other: str) -> bool:
    """Return True for names that differ in case, width or spaces at most."""
    return one == other or fold(one) == fold(other)


def project_words(project: str | None) -> str:
    """Return the project in words, for messages."""
    return f"the project {project!r:.80}" if project else "no project"


def may(caller: Actor, right: Right, row: OwnedRow | None = None) -> bool:
    """Return True if the caller has the right for `row`, or for a new row of its own if None.

    Rows of others need `curate` instead of `write` and `chat`. Rows that the caller may not see are excluded before.
    """
    return needed_right(caller, right, row) in caller.rights


def check_may(caller: Actor, right: Right, row: OwnedRow | None = None) -> None:
    """Raise `MissingRight` if `may` is false."""
    if (needed := needed_right(caller, right, row)) not in caller.rights:
        whose = " to change what another principal wrote" if needed != right else ""
        has = ", ".join(each for each in RIGHTS if each in caller.rights) or "none"
        raise MissingRight(f"the right {needed!r} is needed{whose}: the caller has {has}")


def needed_right(caller: Actor, right: Right, row: OwnedRow | None = None) -> Right:
    """Return the right that is needed: `curate` to change a row of another principal."""
    is_foreign = row is not None and row.principal != caller.principal
    return "curate" if is_foreign and right in {"write", "chat"} else right


def default_visibility(clearance: Clearance) -> Visibility:
    """Return the default visibility of a caller's rows. `public` callers cannot write."""
    return {"full": "private", "inner": "shared"}.get(clearance, "social")  # type: ignore[return-value]


def least_clearance(*clearances: Clearance) -> Clearance:
    """Return the lowest of several clearances. Raises `InvalidValue` for an unknown one."""
    for each in clearances:
        if each not in CLEARANCES:
            raise unknown_choice("the clearance", each, CLEARANCES)
    return max(clearances, key=CLEARANCES.index)


def is_cleared(clearance: str, needed: str) -> bool:
    """Return True if a clearance is at least the needed one; an unknown one never is."""
    known: tuple[str, ...] = CLEARANCES
    return clearance in known and needed in known and known.index(clearance) <= known.index(needed)


def strictest(rows: Iterable[GuardedRow]) -> Guard:
    """Return the guard of a row derived from `rows`: narrowest visibility, highest sensitivity, highest clearance.

    The namespace is that of the rows, the project that of the first. Raises `ValueError` for no rows, or rows of
    several namespaces.
    """
    rows = list(rows)
    namespaces = {row.namespace for row in rows}
    if len(namespaces) != 1:
        raise ValueError(f"derived rows need sources in one namespace, not in {sorted(namespaces)}")
    return Guard(
        min((row.visibility for row in rows), key=VISIBILITIES.index),
        max((row.sensitivity for row in rows), key=SENSITIVITIES.index),
        min((row.min_clearance for row in rows), key=CLEARANCES.index),
        namespaces.pop(),
        rows[0].project,
    )


def is_as_strict(guard: GuardedRow, other: GuardedRow) -> bool:
    """Return True if `guard` is at least as strict as `other` in visibility, sensitivity and clearance."""
    return (
        VISIBILITIES.index(guard.visibility) <= VISIBILITIES.index(other.visibility)
        and SENSITIVITIES.index(guard.sensitivity) >= SENSITIVITIES.index(other.sensitivity)
        and CLEARANCES.index(guard.min_clearance) <= CLEARANCES.index(other.min_clearance)
    )
