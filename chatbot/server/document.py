"""The OpenAPI document: FastAPI's, with common parts added."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from chatbot.server.document_names import with_readable_names
from chatbot.server.error_responses import OF_WRITES
from chatbot.server.idempotency import HEADER, KEY_PATTERN, LONGEST_KEY

_API = "/v1/"
_WRITES = frozenset({"post", "put", "patch", "delete"})
_KEY = "IdempotencyKey"
_TAGS = {
    "openai": "Endpoints for OpenAI clients.",
    "sessions": "Conversations: to begin, find, rename, fork and erase.",
    "conversation": "Messages of a session, and chatting.",
    "users": "End users that requests name: list, export and delete.",
    "memory": "Memories, people, tasks and facts.",
    "server": "The server itself.",
}
_FOUND_AT = {
    ("/v1/sessions", "post", "201"): ("session_id", "/id"),
    ("/v1/sessions/{session_id}/fork", "post", "201"): ("session_id", "/id"),
    ("/v1/memories", "post", "201"): ("memory_id", "/id"),
    ("/v1/tasks", "post", "201"): ("task_id", "/id"),
    ("/v1/facts", "post", "201"): ("fact_id", "/id"),
    ("/v1/people", "post", "201"): ("fact_id", "/id"),
    ("/v1/responses", "post", "200"): ("response", "/id"),
    ("/v1/models", "get", "200"): ("name", "/data/0/id"),
}
"""Links: which field of which answer is a parameter of other routes."""


class DocumentedApi(FastAPI):
    """App whose document includes tokens, `Idempotency-Key`, and links between routes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._making = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The document, made once. The first time takes a good part of a second."""
        with self._making:
            if self.openapi_schema is None:
                self.openapi_schema = _completed(super().openapi())
            return self.openapi_schema


async def parameters_of(app: FastAPI, path: str, method: str) -> frozenset[str]:
    """The names that the document knows in the query of that route."""
    operation = (await asyncio.to_thread(app.openapi))["paths"][path][method.lower()]
    return frozenset(each["name"] for each in operation.get("parameters", ()) if each.get("in") == "query")


async def methods_of(app: FastAPI, path: str) -> list[str]:
    """Return the operations of a path; empty for an unknown one."""
    return sorted(map(str.upper, (await asyncio.to_thread(app.openapi))["paths"].get(path, ())))


def _name(paths: dict[str, dict[str, Any]]) -> None:
    """Name each operation by its function alone: generated clients name theirs by it."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            place = re.sub(r"\W", "_", f"{path}_{method}")
            operation["operationId"] = operation["operationId"].removesuffix(place).strip("_")


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    _name(document["paths"])
    document = with_readable_names(document)
    components = document["components"]
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "From `chatbot token add`. While no tokens exist, everyone on this machine needs none.",
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
    document["security"] = [{"token": []}, {}]
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    for path, method, operation in _operations(document):
        if path.startswith(_API) and method in _WRITES:
            operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{_KEY}"})
            for status, answer in OF_WRITES.items():
                operation["responses"].setdefault(str(status), _as_schema(answer))
    for path in {"/health"} & document["paths"].keys():
        document["paths"][path]["get"]["security"] = []
    _add_links(document)
    return document


def _as_schema(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": answer["description"],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer['model'].__name__}"}}},
    }


def _add_links(document: dict[str, Any]) -> None:
    for (path, method, status), (name, place) in _FOUND_AT.items():
        document["paths"][path][method]["responses"][status]["links"] = {
            operation["operationId"]: {
                "operationId": operation["operationId"],
                "parameters": {name: f"$response.body#{place}"},
            }
            for _, _, operation in _operations(document)
            if any(each.get("name") == name and each["in"] == "path" for each in operation.get("parameters", ()))
        }


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation
