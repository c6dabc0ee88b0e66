"""Callers of the server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from chatbot.chat.budget import NO_QUOTA, Quota
from chatbot.memory.namespaces import digest_of, joined, user_namespace
from chatbot.stores.access import EVERY_RIGHT, GUEST_RIGHTS, Clearance, Right
from chatbot.stores.access import OWNER as OWNER_PRINCIPAL
from chatbot.stores.errors import InvalidValue

if TYPE_CHECKING:
    from chatbot.memory import MemorySystem

Users = Literal["apart", "shared"]
"""Memory of a caller's users: one each, or the caller's."""
USERS: tuple[Users, ...] = get_args(Users)
Remembers = Literal["on", "off"]
"""True if calls of clients that name no session are remembered."""
REMEMBERS: tuple[Remembers, ...] = get_args(Remembers)


@dataclass(frozen=True, slots=True)
class ServerCaller:
    """An authorised caller, with identities, clearance, rights and rate."""

    key: str
    """Key of a caller: the id of the token, and a digest of the user that it names."""
    identities: frozenset[str] | None = frozenset()
    """None: all identities."""
    clearance: Clearance = "public"
    rate_per_minute: int = 0
    """0 leaves it to the server's settings."""
    reads_metrics: bool = False
    """True for a metrics token, which covers all identities."""
    rights: frozenset[Right] = GUEST_RIGHTS
    principal: str = ""
    """Principal of their rows, unless they name a user."""
    namespace: str = ""
    """The part of each identity's memory that they use."""
    users: Users = "apart"
    memory: Remembers = "off"
    """True if their calls as a client of OpenAI are remembered where they name no session."""
    user: str | None = None
    """The user that the request names, where users are apart."""
    token: str = ""
    """Id of their token; empty for the owner, who needs none."""
    quota: Quota = NO_QUOTA
    """Daily limits of the token."""
    user_quota: Quota = NO_QUOTA
    """Daily limits of each of its users without an own quota."""

    @property
    def is_owner(self) -> bool:
        """True for the owner on this machine."""
        return self.identities is None and self.user is None

    def may_enter(self, identity: str) -> bool:
        """Return True if the caller may know the identity."""
        return self.identities is None or identity in self.identities

    def for_user(self, label: str) -> ServerCaller:
        """The caller as they speak for that user; the same caller where users are shared.

        Raises `InvalidValue` for a name that cannot be used, and for a second one.
        """
        namespace = user_namespace(label, self.namespace if self.user is None else "")
        if self.users == "shared" or label == self.user:
            return self
        if self.user is not None:
            raise InvalidValue("the request names two users: send one")
        return replace(self, key=f"{self.key}/{digest_of(namespace)}", namespace=namespace, user=label)

    def memory_of(self, memory: MemorySystem, rights: frozenset[Right] = EVERY_RIGHT) -> MemorySystem:
        """The memory of an identity as the caller may use it, with no more than these rights."""
        is_named = self.user is not None or memory.caller.principal != OWNER_PRINCIPAL  # then it is the user who writes
        return memory.cleared_for(
            self.clearance,
            rights=self.rights & rights,
            principal=None if is_named else self.principal,
            namespace=joined(memory.caller.namespace, self.namespace),
        )


OWNER = ServerCaller("owner", None, "full", rights=EVERY_RIGHT, principal=OWNER_PRINCIPAL)
"""The caller on this machine while no tokens exist."""
