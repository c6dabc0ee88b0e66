"""Styles, scripts and the icon: all from here, none from elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = "/page"
_FILES = Path(__file__).with_name("static")
_FOR_A_YEAR = "public, max-age=31536000, immutable"


class Assets(StaticFiles):
    """Serve the files; browsers cache them because `address` changes with their content."""

    def __init__(self) -> None:
        super().__init__(directory=_FILES)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with caching headers."""
        response = await super().get_response(path, scope)
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["cache-control"] = _FOR_A_YEAR
        return response


def addresses() -> dict[str, str]:
    """Return the address of each file."""
    return {file.name: f"{FOLDER}/{file.name}?v={_digest(file)}" for file in _FILES.iterdir()}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
