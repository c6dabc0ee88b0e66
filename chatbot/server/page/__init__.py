"""The page for people: rendered on the server, usable without JavaScript."""

from __future__ import annotations

from fastapi import APIRouter

from chatbot.server.doors import LOGIN
from chatbot.server.page import chat, login, memories, profile, saying, sessions, settings, why
from chatbot.server.page.sheets import FOLDER, Assets

OPEN_PATHS = frozenset({LOGIN, f"{FOLDER}/"})
"""Paths that need no token: the login and the assets."""
PARTS = (login, chat, saying, sessions, memories, profile, why, settings)


def add_page(app: APIRouter) -> None:
    """Serve the page at `/`. Its routes are not part of the documented API."""
    for part in PARTS:
        app.include_router(part.router, include_in_schema=False)
    app.mount(FOLDER, Assets(), name="assets")
