"""Who comes in."""

from __future__ import annotations

from dataclasses import dataclass

from stores.access import Clearance


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone who was let in: to which identities, with what clearance, and how often a minute they may ask."""

    key: str
    """What tells callers apart: the id of their token."""
    identities: frozenset[str] | None = frozenset()
    """None stands for all of them."""
    clearance: Clearance = "public"
    rate_per_minute: int = 0
    """0 leaves it to the server's settings."""
    reads_metrics: bool = False
    """Whether their token is for the metrics, which are those of all identities together."""

    @property
    def is_owner(self) -> bool:
        """Whether it is the person at this machine, to whom nothing needs to be hidden."""
        return self.identities is None

    def may_enter(self, identity: str) -> bool:
        """Whether that identity may be known to them at all."""
        return self.identities is None or identity in self.identities


OWNER = Caller("owner", None, "full")
"""Who comes from this machine, as long as there are no tokens."""
