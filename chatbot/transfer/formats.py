"""Parsers of what other programs write: conversations of ChatGPT and Claude, Markdown notes, and facts of Memstore.

An item that cannot be imported is a `Skip`. No parser reads a file, and none raises for a value of another shape.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from chatbot.memory.people import KIND as TASK
from chatbot.memory.writing import Draft
from chatbot.stores.fields import one_line
from chatbot.stores.observation import TYPES
from chatbot.stores.records import TranscriptEntry, check_time

CHATGPT, CLAUDE, MARKDOWN, MEMSTORE = "chatgpt", "claude", "markdown", "memstore"
MARKDOWN_SUFFIXES = (".md", ".markdown")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Conversation:
    """An imported conversation. `key` is unique among its kind and the same in every export."""

    key: str
    title: str
    created_at: datetime
    used_at: datetime
    entries: tuple[TranscriptEntry, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The parts that are not imported, such as tool calls, and how many of each."""


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """An imported memory."""

    key: str
    draft: Draft
    namespace: str = ""
    place: str = ""
    """The source file, when the key is unique only within that file."""

    @property
    def address(self) -> tuple[str, str]:
        """Its place and key, unique among its kind."""
        return self.place, self.key

    def digest(self) -> str:
        """Return a hash of the content."""
        said = {found.name: getattr(self.draft, found.name) for found in fields(Draft)}
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Skip:
    """An item that is not imported, and the reason."""

    what: str
    why: str


Item = Conversation | MemoryItem | Skip


def kind_of(value: object) -> str | None:
    """Return the kind of the file whose first element this is, by its shape."""
    if not isinstance(value, dict):
        return None
    if "mapping" in value:
        return CHATGPT
    if "chat_messages" in value or _is_claude_memory(value):
        return CLAUDE
    return MEMSTORE if _is_fact(value) or isinstance(value.get("facts"), list) else None


def read(kind: str, value: Any, number: int) -> Iterator[Item]:
    """Parse one element of a JSON list of this kind; `number` names it where nothing else does."""
    if kind == CHATGPT:
        yield read_chatgpt(value, number)
    elif kind == MEMSTORE:
        facts = value.get("facts") if isinstance(value, dict) else None
        for each, fact in enumerate(facts if isinstance(facts, list) else [value], number):
            yield _read_fact(fact, each)
    elif _is_claude_memory(value):
        yield from read_claude_memory(value)
    else:
        yield read_claude(value, number)


def _key_of(*parts: object) -> str:
    """Join the parts to a key on one line, shortened with a hash if it is too long."""
    key = "/".join(text_of(str(part)) for part in parts)
    if len(key) > _LONGEST_KEY:
        key = f"{key[:100]}…{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    return one_line(key, "the key")


def text_of(value: object) -> str:
    """Return text that can be written as UTF-8; empty if the value is not text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _moment_of(value: object, default: datetime) -> datetime:
    """Parse seconds since 1970 or ISO 8601 (UTC if it has no zone); return the default for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return check_time(datetime.fromtimestamp(value, UTC))
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return check_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        return default
    return default


Message = tuple[str, Iterable[str], object]
"""Role, paragraphs and time of a message."""


def _conversation(
    number: int,
    key: object,
    title: object,
    *,
    times: tuple[object, object],
    messages: Iterable[Message],
    left_out: Counter[str],
) -> Conversation | Skip:
    """Return the conversation if it has an id and a text. `times` are when it was created and last used."""
    title = text_of(title)
    what = title or f"conversation {number}"
    if not isinstance(key, str):
        return Skip(what, "no id")
    at = created_at = _moment_of(times[0], _EPOCH)
    entries: list[TranscriptEntry] = []
    for role, paragraphs, time in messages:
        text = "\n\n".join(paragraphs).strip("\n")
        if text.strip():
            at = _moment_of(time, at)
            entries.append(TranscriptEntry(role, text, at))
    if not entries:
        return Skip(what, "no text")
    used_at = max(_moment_of(times[1], _EPOCH), entries[-1].at)
    return Conversation(_key_of(key), title, min(created_at, entries[0].at), used_at, tuple(entries), left_out)


def _branch(nodes: Mapping[str, Mapping[str, Any]], leaf: str, parent: str) -> list[str]:
    """Return the ids from the root to `leaf`; each node names its parent in the field `parent`. Stops at a cycle."""
    line: dict[str, None] = {}
    at: object = leaf
    while isinstance(at, str) and at in nodes and at not in line:
        line[at] = None
        at = nodes[at].get(parent)
    return list(line)[::-1]


# ChatGPT: each conversation is a tree; the branch shown last is read. Messages of user and assistant are imported. Tool
# calls and results, hidden messages, reasoning and pictures are counted and left out.

_SPEAKERS = ("user", "assistant")
_SHOWN = ("text", "multimodal_text")
_PICTURES = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}


def read_chatgpt(value: Any, number: int) -> Conversation | Skip:
    """Parse one element of the `conversations.json` of ChatGPT."""
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        return Skip(f"conversation {number}", "no messages")
    left_out: Counter[str] = Counter()
    return _conversation(
        number,
        value.get("conversation_id") or value.get("id"),
        value.get("title"),
        times=(value.get("create_time"), value.get("update_time")),
        messages=_chatgpt_messages(value, left_out),
        left_out=left_out,
    )


def _chatgpt_messages(value: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Message]:
    nodes = {key: node for key, node in value["mapping"].items() if isinstance(node, dict)}
    leaf = value.get("current_node")
    if not isinstance(leaf, str) or leaf not in nodes:
        leaf = max(nodes, key=lambda key: _created_at(nodes[key]), default="")
    for key in _branch(nodes, leaf, "parent"):
        message = nodes[key].get("message")
        if not isinstance(message, dict):
            continue
        role, content = _table(message, "author").get("role"), _table(message, "content")
        if why := _why_not(message, role, content):
            left_out[why] += 1
        else:
            yield str(role), _chatgpt_parts(content, left_out), message.get("create_time")


def _created_at(node: Mapping[str, Any]) -> datetime:
    return _moment_of(_table(node, "message").get("create_time"), _EPOCH)


def _why_not(message: Mapping[str, Any], role: object, content: Mapping[str, Any]) -> str:
    """Return why the message is left out; empty if it is imported."""
    if role == "tool" or (role == "assistant" and message.get("recipient", "all") != "all"):
        return "tool"
    if role not in _SPEAKERS or _table(message, "metadata").get("is_visually_hidden_from_conversation") is True:
        return "hidden"
    kind = content.get("content_type")
    return "" if kind in _SHOWN else text_of(kind)[:40] or "unknown"


def _chatgpt_parts(content: Mapping[str, Any], left_out: Counter[str]) -> Iterator[str]:
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


# Claude: messages are imported with the text of attached files; thinking and tools are counted and left out. An export
# with branches is read along the one shown last.

_ROLES = {"human": "user", "assistant": "assistant"}


def _is_claude_memory(value: object) -> bool:
    return isinstance(value, dict) and ("conversations_memory" in value or "project_memories" in value)


def read_claude(value: Any, number: int) -> Conversation | Skip:
    """Parse one element of the `conversations.json` of Claude."""
    if not isinstance(value, dict) or not isinstance(value.get("chat_messages"), list):
        return Skip(f"conversation {number}", "no messages")
    left_out: Counter[str] = Counter()
    return _conversation(
        number,
        value.get("uuid"),
        value.get("name"),
        times=(value.get("created_at"), value.get("updated_at")),
        messages=_claude_messages(value, left_out),
        left_out=left_out,
    )


def read_claude_memory(value: Mapping[str, Any]) -> Iterator[MemoryItem]:
    """Parse an element of `memories.json`: the memory of all conversations, and that of each project."""
    whole = text_of(value.get("conversations_memory"))
    account = text_of(value.get("account_uuid"))
    if whole.strip():
        key = _key_of("conversations", *([account] if account else []))
        yield MemoryItem(key, Draft(title="What Claude remembered", narrative=whole, tags=("claude",)))
    projects = value.get("project_memories")
    for project, said in projects.items() if isinstance(projects, dict) else ():
        if text_of(said).strip():
            draft = Draft(title="What Claude remembered of a project", narrative=text_of(said), tags=("claude",))
            yield MemoryItem(_key_of("project", project), draft)


def _claude_messages(value: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Message]:
    messages = [message for message in value["chat_messages"] if isinstance(message, dict)]
    nodes = {message["uuid"]: message for message in messages if isinstance(message.get("uuid"), str)}
    leaf = value.get("current_leaf_message_uuid")
    if isinstance(leaf, str) and leaf in nodes:
        messages = [nodes[key] for key in _branch(nodes, leaf, "parent_message_uuid")]
    for message in messages:
        if role := _ROLES.get(text_of(message.get("sender"))):
            yield role, [*_claude_texts(message, left_out), *_attached(message)], message.get("created_at")
        else:
            left_out["hidden"] += 1


def _claude_texts(message: Mapping[str, Any], left_out: Counter[str]) -> Iterator[str]:
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


# Markdown: a file whose front matter has a title or a description is one memory; any other file is one memory per
# section. A line such as `@other.md` is text: no other file is read.

_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST_TITLE = 300
_SHORTEST = 2

Fields = Mapping[str, str | list[str]]


def read_markdown(text: str, name: str) -> Iterator[MemoryItem]:
    """Yield the memories of one file; `name` is its path in the folder, with slashes."""
    fields, body = _front_matter(text.replace("\r\n", "\n"))
    made_at = _made_at(fields, name)
    tags = _listed(fields, "tags")
    given = _first(fields, "title", "name")
    if given or _first(fields, "description"):
        kind = _first(fields, "type")
        draft = Draft(
            title=(given or PurePosixPath(name).stem)[:_LONGEST_TITLE],
            subtitle=_first(fields, "description")[:_LONGEST_TITLE],
            narrative=body.strip(),
            type=kind if kind in TYPES else "note",
            tags=[*tags, *([kind] if kind and kind not in TYPES else [])],
            created_at=made_at,
        )
        yield MemoryItem(_key_of(PurePosixPath(name).name), draft)
        return
    seen: dict[str, int] = {}
    for headings, section in _sections(body):
        title = " › ".join(headings) or PurePosixPath(name).stem
        seen[title] = seen.get(title, 0) + 1
        key = _key_of(PurePosixPath(name).name, title, *([seen[title]] if seen[title] > 1 else []))
        yield MemoryItem(key, Draft(title=title[:_LONGEST_TITLE], narrative=section, tags=tags, created_at=made_at))


def _sections(body: str) -> Iterator[tuple[list[str], str]]:
    """Yield each section that has text, with its headings from the outermost to its own."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        if said := _section(lines):
            yield [title for _, title in headings], said
        lines = []
        level = len(heading[1])
        headings = [*[each for each in headings if each[0] < level], (level, heading[2])]
    if said := _section(lines):
        yield [title for _, title in headings], said


def _section(lines: list[str]) -> str:
    said = "\n".join(lines).strip()
    return said if len(said) >= _SHORTEST else ""


def _front_matter(text: str) -> tuple[Fields, str]:
    """Split front matter from text. Only names, texts and lists of texts are understood."""
    if not text.startswith("---\n"):
        return {}, text
    head, found, body = text[4:].partition("\n---")
    if not found or (body and not body.startswith("\n")):
        return {}, text
    fields: dict[str, str | list[str]] = {}
    last = ""
    for line in head.split("\n"):
        item = line.strip()
        if item.startswith("- ") and last:
            known = fields[last]
            fields[last] = [*(known if isinstance(known, list) else []), _plain(item[2:])]
        elif field := _FIELD.fullmatch(item):
            last = field[1].lower()
            fields[last] = _value(field[2])
    return fields, body.lstrip("\n")


def _value(text: str) -> str | list[str]:
    if text.startswith("[") and text.endswith("]"):
        return [_plain(each) for each in text[1:-1].split(",") if each.strip()]
    return _plain(text)


def _plain(text: str) -> str:
    return text.strip().strip("\"'").strip()


def _first(fields: Fields, *names: str) -> str:
    found = (fields.get(name) for name in names)
    return next((each for each in found if isinstance(each, str) and each), "")


def _listed(fields: Fields, name: str) -> list[str]:
    value = fields.get(name, [])
    return value if isinstance(value, list) else [each for each in re.split(r"[,\s]+", value) if each]


def _made_at(fields: Fields, name: str) -> datetime | None:
    """Return the date in the front matter or in the file's name, if there is one."""
    named = _DATE.search(PurePosixPath(name).name)
    for text in (_first(fields, "date", "created", "created_at"), named[0] if named else ""):
        if (moment := _moment_of(text, _EPOCH)) != _EPOCH:
            return moment
    return None


# Memstore: every store numbers its facts from 1, so a fact is known by its number and the time when it was made.
# Superseded facts are skipped because their history is not in the export, and vectors because another model made them.

_LONGEST_FACT_TITLE = 200
_USUAL_NAMESPACE = "default"
_SCOPES = ("user", "agent", "collaborative")


def _is_fact(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str) and "subject" in value


def _read_fact(value: Any, number: int) -> MemoryItem | Skip:
    """Parse one fact."""
    if not _is_fact(value) or not value["content"].strip():
        return Skip(f"fact {number}", "no content")
    if value.get("superseded_by") is not None:
        return Skip(f"fact {value.get('id', number)}", f"{text_of(str(value['superseded_by']))} replaced it")
    namespace = text_of(value.get("namespace"))
    own = [value.get("id"), value.get("created_at")]
    key = _key_of(namespace, *(own if all(own) else [text_of(value["content"])]))
    return MemoryItem(key, _fact_draft(value), "" if namespace == _USUAL_NAMESPACE else namespace)


def _fact_draft(value: Mapping[str, Any]) -> Draft:
    content = text_of(value["content"]).strip()
    category = text_of(value.get("category"))
    metadata = _metadata(value.get("metadata"))
    is_task = metadata.get("kind") == TASK
    is_short = len(content) <= _LONGEST_FACT_TITLE and "\n" not in content
    created_at = _moment_of(value.get("created_at"), _EPOCH)
    return Draft(
        title=content if is_short else content.splitlines()[0][:_LONGEST_FACT_TITLE],
        narrative="" if is_short else content,
        type="task" if is_task else category if category in TYPES else "note",
        subject=text_of(value.get("subject")),
        category=category,
        project=text_of(metadata.pop("project", "")) if is_task else "",
        metadata=_task(metadata) if is_task else metadata,
        created_at=created_at if created_at != _EPOCH else None,
    )


def _metadata(value: object) -> dict[str, Any]:
    """Return the metadata, which some exports hold as an object and some as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return dict(value) if isinstance(value, dict) else {}


def _task(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata of a task: a Memstore scope may be a person's name, which is not a scope here."""
    scope = metadata.get("scope")
    return metadata | {"scope": scope if scope in _SCOPES else "collaborative"}
