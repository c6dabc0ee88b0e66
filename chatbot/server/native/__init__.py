"""Routes of our own: those of operations, and four groups that no operation declares, each with the reason.

agents        messages, blocks of context, batches, keys and files of clients, which a terminal does not need
conversation  a running turn, which is streamed, stopped, taken back and billed, and the files of its session
machines      backup and sync, which the terminal does itself
users         all users of a server; `chatbot users` does the same for its owner
"""

from collections.abc import Iterable

from fastapi import APIRouter

from chatbot.operation import Operation
from chatbot.server.bind import router_of
from chatbot.server.native import agents, conversation, machines, users


def routers(operations: Iterable[Operation]) -> tuple[APIRouter, ...]:
    """Return the routers of all routes."""
    own = (conversation.router, users.router, users.usage_router, machines.router)
    return agents.router, router_of(operations), *own
