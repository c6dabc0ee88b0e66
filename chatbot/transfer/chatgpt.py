"""Parser of the `conversations.json` of a ChatGPT data export: each conversation is a tree; the last branch is read.

Messages of user and assistant are imported. Tool calls and results, hidden messages, reasoning and pictures are
counted and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chatbot.stores.records import TranscriptEntry
from chatbot.transfer.items import Conversation, Skip, branch, key_of, moment_of, text_of

KIND = "chatgpt"
_SHOWN = {"text", "multimodal_text"}
_SPEAKERS = {"user", "assistant"}
_PICTURES = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_conversation(value: object) -> bool:
    """Return True for a value with the shape of a ChatGPT conversation."""
    return isinstance(value, dict) and "mapping" in value


def read(value: Any, number: int) -> Conversation | Skip:
    """Parse one element of the list."""
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        return Skip(f"conversation {number}", "no messages")
    title = text_of(value.get("title"))
    what = title or f"conversation {number}"
    key = value.get("conversation_id") or value.get("id")
    if not isinstance(key, str):
        return Skip(what, "no id")
    created_at = moment_of(value.get("create_time"), _EPOCH)
    left_out: Counter[str] = Counter()
    entries = tuple(_entries(_shown(value), created_at, left_out))
    if not entries:
        return Skip(what, "no text")
    used_at = max(moment_of(value.get("update_time"), _EPOCH), entries[-1].at)
    return Conversation(key_of(key), title, min(created_at, entries[0].at), used_at, entries, left_out)


def _shown(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the messages of the branch shown last, oldest first."""
    nodes = {key: node for key, node in value["mapping"].items() if isinstance(node, dict)}
    leaf = value.get("current_node")
    if not isinstance(leaf, str) or leaf not in nodes:
        leaf = max(nodes, key=lambda key: _time(nodes[key]), default="")
    messages = [nodes[key].get("message") for key in branch(nodes, leaf, "parent")]
    return [message for message in messages if isinstance(message, dict)]


def _time(node: Mapping[str, Any]) -> datetime:
    message = node.get("message")
    return moment_of(message.get("create_time"), _EPOCH) if isinstance(message, dict) else _EPOCH


def _entries(messages: Sequence[Mapping[str, Any]], at: datetime, left_out: Counter[str]) -> Iterator[TranscriptEntry]:
    for message in messages:
        role = _table(message, "author").get("role")
        content = _table(message, "content")
        if why := _why_not(message, role, content):
            left_out[why] += 1
            continue
        text = "\n\n".join(_parts(content, left_out)).strip("\n")
        if text.strip():
            at = moment_of(message.get("create_time"), at)
            yield TranscriptEntry(str(role), text, at)


def _why_not(message: Mapping[str, Any], role: object, content: Mapping[str, Any]) -> str:
    """Return why the message is left out; empty if it is imported."""
    if role == "tool" or (role == "assistant" and message.get("recipient", "all") != "all"):
        return "tool"
    if role not in _SPEAKERS or _table(message, "metadata").get("is_visually_hidden_from_conversation") is True:
        return "hidden"
    kind = content.get("content_type")
    return "" if kind in _SHOWN else text_of(kind)[:40] or "unknown"


def _parts(content: Mapping[str, Any], left_out: Counter[str]) -> Iterator[str]:
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict):
            kind = text_of(part.get("content_type"))
            if kind in _PICTURES:
                left_out[_PICTURES[kind]] += 1
                yield f"[{_PICTURES[kind]}]"
            part = part.get("text")  # noqa: PLW2901 - of a transcription
        if text := text_of(part):
            yield text


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
