"""The OpenAPI document: FastAPI's, with common parts added."""

import asyncio
import re
import threading
from typing import Any

from fastapi import FastAPI

from chatbot.server.access_checks import OPEN_PATHS
from chatbot.server.errors import OF_WRITES
from chatbot.server.idempotency import HEADER, KEY_PATTERN, LONGEST_KEY

_API = "/v1/"
_WRITES = frozenset({"post", "put", "patch", "delete"})
_KEY = "IdempotencyKey"
_TAGS = {
    "openai": "Endpoints for OpenAI clients.",
    "sessions": "Conversations: begin, find, rename, fork and erase them.",
    "conversation": "Messages of a session.",
    "users": "End users that requests name: list, export and delete.",
    "memory": "Memories, people, tasks and facts.",
    "machines": "Backup, and sync with other machines.",
    "server": "The server itself.",
}
_DESCRIPTIONS = {
    "agent_id": "The agent that it belongs to.",
    "at": "When it happened.",
    "confidence": "From 0 to 1.",
    "created_at": "When it was created.",
    "due": "When it is due, as text; ISO dates sort.",
    "expires_at": "When it expires; null for never.",
    "id": "Its id.",
    "importance": "From 0 to 1.",
    "pinned": "Whether it is shown in every prompt.",
    "project": "The project that it belongs to; empty for none.",
    "session_id": "The session that it belongs to.",
    "sessions": "Number of sessions.",
    "sources": "The ids of the memories that it was taken from.",
    "surface": "`startup` shows it whenever a session begins; empty does not.",
    "user": "The user's name, as in requests; null if it is not a user's.",
    "valid_from": "When it became true.",
    "valid_to": "When it stopped being true; null if it still is.",
}
"""Descriptions of fields without one of their own; fields not listed are described by their name."""


class DocumentedApi(FastAPI):
    """App whose OpenAPI document describes tokens and the header `Idempotency-Key`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._making = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """Return the document. The first call builds it, which takes most of a second."""
        with self._making:
            if self.openapi_schema is None:
                self.openapi_schema = _complete(super().openapi())
            return self.openapi_schema


async def methods_of(app: FastAPI, path: str) -> list[str]:
    """Return the operations of a path; empty for an unknown one."""
    return sorted(map(str.upper, (await asyncio.to_thread(app.openapi))["paths"].get(path, ())))


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    components = document["components"]
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "From `chatbot token add`. While no tokens exist, requests from this machine need none.",
        }
    }
    components["parameters"] = {
        _KEY: {
            "name": HEADER,
            "in": "header",
            "description": "A request with the same key is done once and gets the same answer.",
            "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": KEY_PATTERN},
        }
    }
    for schema in components["schemas"].values():
        for name, described in schema.get("properties", {}).items():
            described.setdefault("description", _DESCRIPTIONS.get(name, f"{name.replace('_', ' ').capitalize()}."))
    document["security"] = [{"token": []}, {}]
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    operations = [
        (path, method, each) for path, methods in document["paths"].items() for method, each in methods.items()
    ]
    for path, method, operation in operations:
        place = re.sub(r"\W", "_", f"{path}_{method}")
        operation["operationId"] = operation["operationId"].removesuffix(place).strip("_")  # its function, for clients
        if path.startswith(_API) and method in _WRITES:
            operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{_KEY}"})
            for status, answer in OF_WRITES.items():
                schema = {"$ref": f"#/components/schemas/{answer['model'].__name__}"}
                described = {"description": answer["description"], "content": {"application/json": {"schema": schema}}}
                operation["responses"].setdefault(str(status), described)
    for path in OPEN_PATHS & document["paths"].keys():
        document["paths"][path]["get"]["security"] = []
    return document
