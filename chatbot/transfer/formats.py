"""Parsers of exports of ChatGPT and Claude, and of notes. None raises: what cannot be imported is a `Skip`."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec import Struct

from chatbot.memory.writing import DEFAULT_TYPE, Draft
from chatbot.stores.errors import MISFITS
from chatbot.stores.fields import one_line
from chatbot.stores.observation import TYPES, content_hash
from chatbot.stores.records import EPOCH, TranscriptEntry, check_time, read_time
from chatbot.stores.text.redaction import redact_beginning

CHATGPT, CLAUDE, MARKDOWN = "chatgpt", "claude", "markdown"
MARKDOWN_SUFFIXES = (".md", ".markdown")
EDITED = ("title", "subtitle", "narrative", "user_text", "assistant_text", "metadata")
"""Fields of a memory that are updated when its file was edited."""
_LONGEST_KEY = 700


class Conversation(Struct, frozen=True):
    """An imported conversation. `key` is unique among its kind and the same in every export."""

    key: str
    title: str
    created_at: datetime
    used_at: datetime
    entries: tuple[TranscriptEntry, ...]
    left_out: Mapping[str, int] = {}
    """The parts that are not imported, such as tool calls, and how many of each."""


class MemoryItem(Struct, frozen=True, dict=True):
    """An imported memory. `key` is unique among its kind; that of a note begins with the path of its file."""

    key: str
    draft: Draft

    @cached_property
    def hash(self) -> str:
        """Hash of the text for finding duplicates, hash of the exact text, and who may see the memory."""
        draft = self.draft
        exact = json.dumps([getattr(draft, name) for name in EDITED], sort_keys=True, default=str).encode()
        guard = (draft.visibility or "", draft.sensitivity, draft.min_clearance)
        return ":".join((content_hash(draft), hashlib.sha256(exact).hexdigest()[:16], *guard))


class Skip(Struct, frozen=True):
    """An item that is not imported, and the reason."""

    what: str
    why: str


Item = Conversation | MemoryItem | Skip

_MEMORIES = frozenset({"conversations_memory", "project_memories", "memory_files"})


def kind_of(value: object) -> str | None:
    """Return the kind of a file by the shape of its first element."""
    names = value.keys() if isinstance(value, dict) else set()
    if "mapping" in names:
        return CHATGPT
    return None if names.isdisjoint({"chat_messages", *_MEMORIES}) else CLAUDE


def read_element(kind: str, value: Any, number: int) -> Iterator[Item]:
    """Parse one element of a JSON list of this kind; `number` identifies one without a name."""
    try:
        if _MEMORIES.isdisjoint(value):
            yield _conversation(kind, value, number)
        else:
            yield from _claude_memories(value)
    except MISFITS as error:
        yield Skip(f"item {number}", f"not of the format {kind}: {error!r:.200}")


def _key_of(*parts: object) -> str:
    """Join the parts to a key on one line, shortened with a hash if it is too long."""
    key = "/".join(map(str, parts))
    if len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}…{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    return one_line(key, "the key")


def _moment_of(value: Any, default: datetime) -> datetime:
    """Parse seconds since 1970 or ISO 8601 (UTC if it has no zone); return the default for anything else."""
    try:
        return read_time(value) if isinstance(value, str) else check_time(datetime.fromtimestamp(value, UTC))
    except (TypeError, ValueError, OverflowError, OSError):
        return default


# Conversations are trees of messages, of which the branch shown last is read. Messages of user and assistant are
# imported, with the text of attached files. Tools, hidden messages, reasoning and pictures are counted and left out.

_NAMES = {
    CHATGPT: ("id", "title", "create_time", "update_time", "current_node", "parent"),
    CLAUDE: ("uuid", "name", "created_at", "updated_at", "current_leaf_message_uuid", "parent_message_uuid"),
}
_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
_MEDIUM = re.compile("image|audio|video")


class _Message(NamedTuple):
    """The imported part of a message, and the kinds of its other parts."""

    left_out: list[str]
    role: str = ""
    said: Sequence[str] = ()
    at: object = None


def _conversation(kind: str, value: Mapping[str, Any], number: int) -> Conversation | Skip:
    """Return the conversation, or a `Skip` if it has no id or no text. Raises one of `MISFITS`."""
    key, title, begun, used, leaf = (value.get(name) for name in _NAMES[kind][:-1])
    what = str(title or f"conversation {number}")
    found: Mapping[Any, Any] = value["mapping"] if kind == CHATGPT else _by_uuid(value["chat_messages"])
    if not isinstance(key := value.get("conversation_id") or key, str):
        return Skip(what, "no id")
    parents = {each: said.get(_NAMES[kind][-1]) if isinstance(said, dict) else None for each, said in found.items()}
    messages = {each: _message_of(kind, said) for each, said in found.items()}
    links = [*filter(None, parents.values())]  # old exports of Claude have none
    is_tree = kind == CHATGPT or (bool(links) and all(isinstance(each, str) for each in (*found, *links)))
    if leaf not in [*messages]:  # a list, as an invalid leaf may not be hashable
        leaf = max(reversed(messages), key=lambda each: _moment_of(messages[each].at, EPOCH), default="")
    branch = _branch(parents, leaf) if is_tree else []
    if not branch or (kind == CLAUDE and parents[branch[0]] != parents[next(iter(found))]):
        branch = [*messages]  # a link is broken
    shown = [messages[each] for each in branch]
    at = created_at = _moment_of(begun, EPOCH)
    entries: list[TranscriptEntry] = []
    for message in shown:
        text = "\n\n".join(each.strip("\n") for each in message.said if each)
        if text.strip():
            at = _moment_of(message.at, at)
            entries.append(TranscriptEntry(message.role, text, at))
    if not entries:
        return Skip(what, "no text")
    left_out = Counter(each for message in shown for each in message.left_out)
    times = min(created_at, entries[0].at), max(_moment_of(used, EPOCH), entries[-1].at)
    said = next((each.content for each in entries if each.role == "user"), "")
    title = str(title or " ".join(redact_beginning(said, 10_000).split())[:60])
    return Conversation(_key_of(key), title, *times, tuple(entries), left_out)


def _message_of(kind: str, value: Any) -> _Message:
    """Return a message; one of another shape is counted as `unknown`, and left out."""
    try:
        return _of_chatgpt(value) if kind == CHATGPT else _of_claude(value)
    except MISFITS:
        return _Message(["unknown"])


def _branch(parents: Mapping[Any, Any], leaf: object) -> list[Any]:
    """Return the ids from the root to `leaf`. Stops at a cycle."""
    line: dict[Any, None] = {}
    while isinstance(leaf, str) and leaf in parents and leaf not in line:
        line[leaf] = None
        leaf = parents[leaf]
    return list(line)[::-1]


def _of_chatgpt(node: Mapping[str, Any]) -> _Message:
    if (message := node.get("message")) is None:
        return _Message([])
    role, content, at = message["author"].get("role"), message["content"], message.get("create_time")
    if role == "tool" or (role == "assistant" and message.get("recipient") not in {None, "all"}):
        return _Message(["tool"], at=at)
    metadata = message.get("metadata") or {}
    if role not in _ROLES or metadata.get("is_visually_hidden_from_conversation") is True:
        return _Message(["hidden"], at=at)
    if (kind := content.get("content_type")) not in {"text", "multimodal_text"}:
        return _Message([str(kind)[:40]], at=at)
    said, left_out = [], []
    for part in content.get("parts") or ():
        text = part.get("text") if isinstance(part, dict) else part  # a transcription is a dict
        if isinstance(part, dict) and not isinstance(text, str):
            medium = _MEDIUM.search(str(part.get("content_type")))
            left_out.append(medium[0] if medium else "unknown")
            text = medium and f"[{medium[0]}]"
        said += [text] if isinstance(text, str) else []
    for file in filter(lambda each: isinstance(each, dict), _parts(metadata.get("attachments"))):
        if not str(file.get("mimeType") or file.get("mime_type")).startswith("image/"):  # which is a part, too
            left_out.append("file")
            said.append(f"[file: {file.get('name') or 'unnamed'}]")
    return _Message(left_out, _ROLES[role], said, at)


def _by_uuid(messages: Sequence[Any]) -> Mapping[Any, Any]:
    """Return the messages by uuid; by number if it is missing, not a text, or repeated."""
    found: dict[Any, Any] = {}
    for number, each in enumerate(messages):
        name = each.get("uuid") if isinstance(each, dict) else None
        found[name if isinstance(name, str) and name and name not in found else number] = each
    return found


def _of_claude(message: Mapping[str, Any]) -> _Message:
    if (role := _ROLES.get(message["sender"])) is None:
        return _Message(["hidden"])
    said, left_out = [], []
    for block in _parts(message.get("content")):
        kind = block.get("type", "text") if isinstance(block, dict) else "text"
        text = block.get("text") if isinstance(block, dict) else block
        if kind == "text" and isinstance(text, str):
            said.append(text)
        else:
            left_out.append("unknown" if kind == "text" else str(kind)[:40])
    if isinstance(text := message.get("text"), str) and not any(said) and set(left_out) <= {"unknown"}:
        said.append(text)
    for each in (*_parts(message.get("attachments")), *_parts(message.get("files"))):
        if isinstance(each, dict):
            said.append(f"[file: {each.get('file_name') or 'unnamed'}]\n{each.get('extracted_content') or ''}")
        else:
            left_out.append("unknown")
    return _Message(left_out, role, said, message.get("created_at"))


def _parts(value: Any) -> Sequence[Any]:
    """Return the parts of a list, or the value as the only part."""
    return value if isinstance(value, list) else [value] if value else []


def _claude_memories(value: Mapping[str, Any]) -> Iterator[MemoryItem]:
    """Parse the memories of an account: those of all conversations and of each project, and its files, with dates."""
    account = [value["account_uuid"]] if value.get("account_uuid") else []
    of_all = value.get("conversations_memory")
    texts: dict[tuple[str, ...], tuple[Any, Any]] = {("conversations", *account): (of_all, None)}
    texts |= {("project", project): (text, None) for project, text in (value.get("project_memories") or {}).items()}
    for file in value.get("memory_files") or ():
        texts["file", *account, file["path"]] = file["content"], file.get("updated_at")
    for key, (text, at) in texts.items():
        if isinstance(text, str) and text.strip():
            about = {"project": " of a project", "file": f" in {key[-1]}"}.get(key[0], "")
            made_at = _moment_of(at, EPOCH) if at else None
            draft = Draft(f"What Claude remembered{about}", narrative=text, tags=("claude",), created_at=made_at)
            yield MemoryItem(_key_of(*key), draft)


# Markdown: a file whose front matter has a title or a description is one memory; any other file is one memory per
# section. A line such as `@other.md` is text: no other file is read.

_HEADING = re.compile(r"(#{1,6})[ \t]++(.+)")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST_TITLE = 300

Fields = Mapping[str, list[str]]


def read_markdown(text: str, path: PurePosixPath) -> Iterator[MemoryItem]:
    """Yield the memories of one file; the keys begin with its path."""
    fields, body = _front_matter(text.replace("\r\n", "\n"))
    made_at, tags = _made_at(fields, path.name), fields.get("tags", [])
    given, about, kind = _first(fields, "title", "name"), _first(fields, "description"), _first(fields, "type")
    tags = [*tags, *([kind] if kind and kind not in TYPES else [])]
    if given or about:
        line, body = _shortened(about, body.strip())
        title, body = _shortened(given or path.stem, body)
        kind = kind if kind in TYPES else "note"
        draft = Draft(title=title, subtitle=line, narrative=body, type=kind, tags=tags, created_at=made_at)
        yield MemoryItem(_key_of(path), draft)
        return
    seen = Counter[str]()
    for headings, section in _sections(body):
        title = " › ".join(headings) or path.stem
        seen[title] += 1
        key = _key_of(path, title, *([seen[title]] if seen[title] > 1 else []))
        line, text = _shortened(title, section)
        kind = kind if kind in TYPES else DEFAULT_TYPE
        yield MemoryItem(key, Draft(title=line, narrative=text, type=kind, tags=tags, created_at=made_at))


def _shortened(line: str, text: str) -> tuple[str, str]:
    """Return a line of at most 300 characters, and the text, at whose beginning a longer line is kept whole."""
    is_long = len(line) > _LONGEST_TITLE
    return (f"{line[: _LONGEST_TITLE - 1]}…", f"{line}\n\n{text}") if is_long else (line, text)


def _sections(body: str) -> Iterator[tuple[list[str], str]]:
    """Yield each section that has text, with its headings from the outermost to its own."""
    headings: list[tuple[int, str]] = []
    found: list[tuple[list[str], list[str]]] = [([], [])]
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
        if (heading := None if fence else _HEADING.fullmatch(line)) is None:
            found[-1][1].append(line)
            continue
        level = len(heading[1])
        title = heading[2].rstrip(" \t").rstrip("#").rstrip(" \t") or "#"
        headings = [*[each for each in headings if each[0] < level], (level, title)]
        found.append(([title for _, title in headings], []))
    for titles, lines in found:
        if text := "\n".join(lines).strip():
            yield titles, text


def _front_matter(text: str) -> tuple[Fields, str]:
    """Split front matter from text. Only names, texts and lists of texts are understood."""
    if not text.startswith("---\n"):
        return {}, text
    head, found, body = text[4:].partition("\n---")
    if not found or (body and not body.startswith("\n")):
        return {}, text
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in head.split("\n"):
        item = line.strip()
        if item.startswith("- "):
            last.append(_plain(item[2:]))
        elif field := _FIELD.fullmatch(item):
            name, value = field[1].lower(), field[2]
            parts = re.split(r"[,\s]+", value) if name == "tags" else [value]
            if value.startswith("[") and value.endswith("]"):
                parts = value[1:-1].split(",")
            last = fields[name] = [each for each in map(_plain, parts) if each]
    return fields, body.lstrip("\n")


def _plain(text: str) -> str:
    return text.strip().strip("\"'").strip()


def _first(fields: Fields, *names: str) -> str:
    return next((fields[name][0] for name in names if fields.get(name)), "")


def _made_at(fields: Fields, name: str) -> datetime | None:
    """Return the date in the front matter or in the file's name, if there is one."""
    named = _DATE.search(name)
    for text in (_first(fields, "date", "created", "created_at"), named[0] if named else ""):
        if (moment := _moment_of(text, EPOCH)) != EPOCH:
            return moment
    return None
