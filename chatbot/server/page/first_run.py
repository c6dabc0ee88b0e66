"""The empty state of a new chat: three things to try, what is remembered, and where it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from chatbot.server.identity_access import IdentityAccess

_SUGGESTIONS = (
    "My name is Alex, I live in Graz, and I am learning Italian.",
    "What do you know about me?",
    "Remind me to water the plants on Friday.",
)


@dataclass(frozen=True, slots=True)
class Welcome:
    """Content of the first visit; `folder` is empty for callers who may not know it."""

    is_new: bool
    remembers: bool
    folder: str
    suggestions: tuple[str, ...] = _SUGGESTIONS


async def welcome(access: IdentityAccess) -> Welcome:
    """Return the empty state; only a caller without sessions is new."""
    is_new = not await access.sessions(limit=1)
    folder = str(access.runtime.setup.identity.memory) if access.caller.is_owner else ""
    return Welcome(is_new, access.runtime.remembers, folder)
