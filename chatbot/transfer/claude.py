"""Parser of the `conversations.json` and `memories.json` of a Claude data export.

Messages are imported with the text of attached files; thinking and tools are counted and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chatbot.memory.writing import Draft
from chatbot.stores.records import TranscriptEntry
from chatbot.transfer.items import Conversation, MemoryItem, Skip, branch, key_of, moment_of, text_of

KIND = "claude"
_ROLES = {"human": "user", "assistant": "assistant"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_conversation(value: object) -> bool:
    """Return True for a value with the shape of a Claude conversation."""
    return isinstance(value, dict) and "chat_messages" in value


def is_memory(value: object) -> bool:
    """Return True for a value with the shape of Claude's memories."""
    return isinstance(value, dict) and ("conversations_memory" in value or "project_memories" in value)


def read(value: Any, number: int) -> Conversation | Skip:
    """Parse one element of the list of conversations."""
    if not isinstance(value, dict) or not isinstance(value.get("chat_messages"), list):
        return Skip(f"conversation {number}", "no messages")
    title = text_of(value.get("name"))
    what = title or f"conversation {number}"
    if not isinstance(value.get("uuid"), str):
        return Skip(what, "no id")
    created_at = moment_of(value.get("created_at"), _EPOCH)
    left_out: Counter[str] = Counter()
    entries = tuple(_entries(_shown(value), created_at, left_out))
    if not entries:
        return Skip(what, "no text")
    used_at = max(moment_of(value.get("updated_at"), _EPOCH), entries[-1].at)
    return Conversation(key_of(value["uuid"]), title, min(created_at, entries[0].at), used_at, entries, left_out)


def read_memory(value: Mapping[str, Any]) -> Iterator[MemoryItem]:
    """Yield the memory of all conversations, and that of each project."""
    whole = text_of(value.get("conversations_memory"))
    account = text_of(value.get("account_uuid"))
    if whole.strip():
        key = key_of("conversations", *([account] if account else []))
        yield MemoryItem(key, Draft(title="What Claude remembered", narrative=whole, tags=("claude",)))
    projects = value.get("project_memories")
    for project, said in projects.items() if isinstance(projects, dict) else ():
        if text_of(said).strip():
            draft = Draft(title="What Claude remembered of a project", narrative=text_of(said), tags=("claude",))
            yield MemoryItem(key_of("project", project), draft)


def _shown(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the messages in order; if the export has branches, those of the branch shown last."""
    messages = [message for message in value["chat_messages"] if isinstance(message, dict)]
    nodes = {message["uuid"]: message for message in messages if isinstance(message.get("uuid"), str)}
    leaf = value.get("current_leaf_message_uuid")
    if not isinstance(leaf, str) or leaf not in nodes:
        return messages
    return [nodes[key] for key in branch(nodes, leaf, "parent_message_uuid")]


def _entries(messages: Sequence[Mapping[str, Any]], at: datetime, left_out: Counter[str]) -> Iterator[TranscriptEntry]:
    for message in messages:
        role = _ROLES.get(text_of(message.get("sender")))
        if role is None:
            left_out["hidden"] += 1
            continue
        text = "\n\n".join([*_said(message, left_out), *_attached(message)]).strip("\n")
        if text.strip():
            at = moment_of(message.get("created_at"), at)
            yield TranscriptEntry(role, text, at)


def _said(message: Mapping[str, Any], left_out: Counter[str]) -> Iterator[str]:
    blocks = message.get("content")
    blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    for block in blocks:
        if block.get("type") == "text":
            if text := text_of(block.get("text")):
                yield text
        else:
            left_out[text_of(block.get("type"))[:40] or "unknown"] += 1
    if not blocks and (text := text_of(message.get("text"))):
        yield text


def _attached(message: Mapping[str, Any]) -> Iterator[str]:
    for name in ("attachments", "files"):
        files = message.get(name)
        for file in files if isinstance(files, list) else ():
            if isinstance(file, dict):
                said = text_of(file.get("extracted_content"))
                title = f"[file: {text_of(file.get('file_name')) or 'unnamed'}]"
                yield f"{title}\n{said}" if said else title
