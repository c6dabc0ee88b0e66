"""Routes of our own: those of operations, and three groups that no operation declares, each with the reason.

administration  all users of a server, backup and sync: the commands `users`, `backup` and `sync` do the same here
agents          messages, blocks of context, batches, keys and files of clients, which a terminal does not need
conversation    a running turn, which is streamed, stopped, taken back and billed, and the files of its session
"""

from collections.abc import Iterable

from fastapi import APIRouter

from chatbot.operation import Operation
from chatbot.server.bind import router_of
from chatbot.server.native import administration, agents, conversation


def routers(operations: Iterable[Operation]) -> tuple[APIRouter, ...]:
    """Return the routers of all routes."""
    administering = (administration.users_router, administration.usage_router, administration.machines_router)
    return agents.router, router_of(operations), conversation.router, *administering
