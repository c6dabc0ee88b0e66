"""Export files in the shape in which the services write them, in miniature; and their import."""

import json
from pathlib import Path
from typing import Any

from chatbot.memory import MemorySystem
from chatbot.transfer.importer import Importer, ImportReport
from chatbot.transfer.sources import open_source

AGENTS = {"chat": ["basic_session", "observations"], "bare": []}


async def imported(memory: MemorySystem, path: Path, **options: Any) -> ImportReport:
    """Import what is at a path, for the agent `chat` unless another is named."""
    options = {"agent": "chat", "agents": AGENTS} | options
    return await Importer(memory, **options).run(open_source(path))


def chatgpt_message(
    role: str, *parts: Any, at: float | None = 1_700_000_000.5, kind: str = "text", **more: Any
) -> dict[str, Any]:
    said = {"parts": list(parts)} if kind in {"text", "multimodal_text"} else {"language": "python", "text": parts[0]}
    return {
        "id": f"m-{role}-{parts!r:.20}",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": {"content_type": kind, **said},
        "status": "finished_successfully",
        "metadata": {},
        "recipient": "all",
        **more,
    }


def chatgpt(*messages: dict[str, Any], key: str = "c-1", title: str = "Deploy timeout", **more: Any) -> dict[str, Any]:
    """A conversation in one line, below a root without a message and a hidden system message."""
    hidden = chatgpt_message("system", "", at=None, metadata={"is_visually_hidden_from_conversation": True})
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    for number, message in enumerate((hidden, *messages)):
        last = list(mapping)[-1]
        mapping[f"n{number}"] = {"id": f"n{number}", "message": message, "parent": last, "children": []}
        mapping[last]["children"].append(f"n{number}")
    times = {"create_time": 1_700_000_000.5, "update_time": 1_700_000_900.25}
    ids = {"current_node": list(mapping)[-1], "conversation_id": key, "id": key}
    return {"title": title, **times, "mapping": mapping, **ids, "is_archived": False, **more}


def claude_message(sender: str, text: str, **more: Any) -> dict[str, Any]:
    at = "2024-05-06T07:08:09.123456Z"
    block = {"start_timestamp": at, "stop_timestamp": at, "type": "text", "text": text, "citations": []}
    own = {"uuid": f"u-{sender}-{text[:10]}", "text": text, "content": [block], "sender": sender}
    return {**own, "created_at": at, "updated_at": at, "attachments": [], "files": [], **more}


def claude(*messages: dict[str, Any], key: str = "k-1", name: str = "Bread", **more: Any) -> dict[str, Any]:
    times = {"created_at": "2024-05-06T07:08:09.123456Z", "updated_at": "2024-05-06T08:00:00.000000Z"}
    return {"uuid": key, "name": name, "summary": "", **times, "chat_messages": list(messages), **more}


def row(number: int, title: str, **more: Any) -> dict[str, Any]:
    """A line of a bundle."""
    at = "2026-01-02T03:04:05.000000Z"
    own = {"id": f"019b7c2d-0000-7000-8000-{number:012x}", "created_at": at, "updated_at": at, "sensitivity": "public"}
    return {"kind": "observation", **own, "title": title, **more}


def bundle(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, [{"kind": "memories", "format": 1}, *rows, {"kind": "end"}])).encode()


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
