"""Our own routes: sessions and conversations, what is remembered, people, tasks and facts."""

from chatbot.server.native import conversation, facts, files, memories, people, sessions, tasks

ROUTERS = (
    sessions.router,
    conversation.router,
    files.router,
    memories.router,
    people.router,
    tasks.router,
    facts.router,
)
"""All of them."""
