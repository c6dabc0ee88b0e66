"""The page: what a person sees in a browser. Made on the server, readable without a script, livelier with one."""

from __future__ import annotations

from fastapi import FastAPI

from chatbot.server.doors import LOGIN
from chatbot.server.page import chat, cost, login, memories, memory, people, saying, sessions, tasks, why
from chatbot.server.page.assets import FOLDER, Assets

OPEN_PATHS = frozenset({LOGIN, f"{FOLDER}/"})
"""What needs no token: where one is typed in, and what every page is drawn with."""


def add_page(app: FastAPI) -> None:
    """Serve the page at `/`. Its routes are no part of the documented API."""
    for part in (login, chat, saying, sessions, memories, memory, tasks, people, why, cost):
        app.include_router(part.router, include_in_schema=False)
    app.mount(FOLDER, Assets(), name="assets")
