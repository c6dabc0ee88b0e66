"""Our own routes: operations on memory and sessions, the profile, conversations, files, users and events."""

from collections.abc import Iterable

from fastapi import APIRouter

from chatbot.operation import Operation
from chatbot.server.bind import router_of
from chatbot.server.native import agents, change_feed, conversation, profile, session_files, users


def routers(operations: Iterable[Operation]) -> tuple[APIRouter, ...]:
    """Return all of them."""
    own = (
        conversation.router,
        session_files.router,
        profile.router,
        users.router,
        users.usage_router,
        change_feed.router,
    )
    return agents.router, router_of(operations), *own
