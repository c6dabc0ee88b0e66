"""Routes for agents that run elsewhere: their conversations, a context for their prompts, and memories in bulk."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Field
from starlette.responses import PlainTextResponse

from chatbot.embed import AgentMemory, entry_of
from chatbot.memory.writing import Draft
from chatbot.operations import OPERATIONS
from chatbot.server.bind import AnyVersionHere, body_of, given_in
from chatbot.server.dependencies import AccessHere, Page, SessionId
from chatbot.server.errors import OF_MEMORY
from chatbot.server.idempotency import WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.request_values import MOST_ITEMS, Moment, Named, Text, Tokens
from chatbot.server.shapes import AddResult, MemoryRecord, RequestBody, Shape
from chatbot.stores.access import Sensitivity
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat, UnknownObservation
from chatbot.stores.observation import version_of
from chatbot.stores.records import TranscriptEntry
from chatbot.transfer.exports import MemoryExport, export_memories, read_bundle, render_memories
from chatbot.transfer.formats import Skip
from chatbot.transfer.importer import Importer, ImportReport
from chatbot.transfer.sources import BUNDLE, Source

router = APIRouter(prefix="/v1")
_MOST_MESSAGES = 500
_MOST_DRAFTS = 500
_Draft = body_of(OPERATIONS["remember"])
Sensitivities = Annotated[Sequence[Sensitivity], Query(description="Also include these sensitivities.")]


class AppendedMessage(RequestBody):
    """A message of a conversation held elsewhere."""

    role: Literal["user", "assistant", "tool", "system"]
    """Role of its author. Messages of a tool or the system are stored, but not remembered."""
    content: Text
    at: Moment | None = None
    """When it was said, not in the future; default: now."""

    def entry(self) -> TranscriptEntry:
        """Return the message as an entry of a transcript."""
        return entry_of({"role": self.role, "content": self.content}, self.at)


class AppendedMessages(RequestBody):
    """Messages to append to a session, in their order."""

    messages: list[AppendedMessage] = Field(min_length=1, max_length=_MOST_MESSAGES)
    """The messages; a reply is remembered with the question before it, also one of an earlier request."""


class AppendResult(Shape):
    """Result of appending messages."""

    added: int
    """Number of messages appended."""
    remembered: list[str]
    """The ids of the exchanges that were worth keeping."""


class PromptMessage(RequestBody):
    """A message of a prompt."""

    role: str = Field(max_length=100)
    """Role of its author; memory is searched with the messages of `user`."""
    content: Text


class ContextRequest(RequestBody):
    """Messages that a model is about to answer."""

    messages: list[PromptMessage] = Field(min_length=1, max_length=_MOST_MESSAGES)
    """The messages, the one to be answered last."""
    tokens: Tokens = 2000
    """Maximum tokens of the block."""
    rows: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 5
    """Maximum memories in the block."""
    session_id: str | None = Field(None, max_length=100)
    """The session that the messages continue: memories that they show anyway are left out."""


class ContextReport(Shape):
    """Memories about the messages."""

    text: str
    """The block for the prompt, fenced as data; empty if there are no memories about the messages."""
    receipt: dict[str, Any]
    """Memories considered, injected and left out, with scores and reasons."""
    memories: list[MemoryRecord]


class Drafts(RequestBody):
    """Things to remember."""

    memories: list[_Draft] = Field(min_length=1, max_length=_MOST_DRAFTS)  # type: ignore[valid-type]


class ImportBody(RequestBody):
    """Memories and facts to import."""

    text: str = Field(max_length=100_000_000)
    """The lines of an export."""


class ImportResult(Shape):
    """Result of an import."""

    memories: int
    """Number added, with exchanges."""
    facts: int
    already: int
    """Number that already existed."""
    skipped: int

    @classmethod
    def of(cls, report: ImportReport) -> Self:
        """Return the counts of an import."""
        added = report.memories + report.exchanges
        return cls(memories=added, facts=report.facts, already=report.already, skipped=len(report.skipped))


@router.post("/sessions/{session_id}/messages", summary="Append messages", tags=["conversation"], responses=OF_MEMORY)
async def append_messages(
    session_id: SessionId, body: Annotated[AppendedMessages, Body()], access: AccessHere, writing: WritingHere
) -> AppendResult:
    """Append messages of a conversation held elsewhere, and remember the exchanges that are worth it.

    Send an `Idempotency-Key`, so that a request that is sent again appends nothing twice.
    """
    if writing.before is not None:
        ids = [*filter(None, writing.before["ids"].split(","))]
        return AppendResult(added=len(body.messages), remembered=ids)
    session = await access.session(session_id)
    session.check("write")
    kept = await _memory(access).append(session, [each.entry() for each in body.messages])
    writing.note(ids=",".join(kept))
    return AppendResult(added=len(body.messages), remembered=kept)


@router.post("/context", summary="Get the memory block for a prompt", tags=["memory"], responses=OF_MEMORY)
async def get_context(asked: Annotated[ContextRequest, Body()], access: AccessHere) -> ContextReport:
    """Return memories about the user's last messages as a block within a token budget. Writes nothing."""
    session = None if asked.session_id is None else await access.session(asked.session_id)
    messages = [each.model_dump() for each in asked.messages]
    found = await _memory(access).context(messages, tokens=asked.tokens, rows=asked.rows, session=session)
    return ContextReport.model_validate(found)


@router.post("/memories/batch", summary="Remember many things", tags=["memory"], responses=OF_MEMORY, status_code=201)
async def remember_many(drafts: Annotated[Drafts, Body()], access: AccessHere, writing: WritingHere) -> Page[AddResult]:
    """Add memories in one write, in order. A refused one is `skipped` with the reason; the others are added."""
    context = access.context
    if writing.before is not None:
        done = json.loads(writing.before["done"])
        return Page(data=[await AddResult.again(context, each) for each in done])
    context.memories.caller.check("write")
    given = [given_in(OPERATIONS["remember"], each) for each in drafts.memories]
    rows = [Draft(**{"title": "", **each}, source=context.writer) for each in given]
    kept = [AddResult.of(each) for each in await context.memories.remember_all(rows, keep_going=True)]
    writing.note(done=json.dumps([each.stored_parts() for each in kept]))
    return Page(data=kept)


@router.get(
    "/memories/by-key/{key:path}",
    summary="Get the memory under a key",
    tags=["memory"],
    responses=OF_MEMORY,
    response_model=MemoryRecord,
)
async def get_by_key(
    key: Annotated[Named, Path(description="Your key.")],
    access: AccessHere,
    version: AnyVersionHere,
    sensitivity: Sensitivities = (),
) -> Shape:
    """Return the current version; `/history` of its id lists the earlier ones."""
    rows = await access.memories.every(metadata={"key": key}, sensitivities=("public", *sensitivity))
    if not rows:
        raise UnknownObservation(f"no memory has the key {key!r:.80}")
    version.send(version_of(rows[0]))
    record: Shape = MemoryRecord.of(rows[0])
    return record


@router.get(
    "/memories/export",
    summary="Export memories",
    tags=["memory"],
    responses={**OF_MEMORY, 200: {"content": {"application/x-ndjson": {}}, "description": "One JSON object a line."}},
    response_class=Response,
)
async def export(
    access: AccessHere,
    after: Annotated[Moment | None, Query(description="Created at or after this time.")] = None,
    before: Annotated[Moment | None, Query(description="Created before this time.")] = None,
    sensitivity: Sensitivities = (),
) -> PlainTextResponse:
    """Export current memories and facts in the format of `chatbot memory export` and `chatbot memory import`.

    Includes those of sensitivity `public`, and of each sensitivity that is given.
    """
    exported = await export_memories(access.memories, ["public", *sensitivity], after=after, before=before)
    text = await asyncio.to_thread(render_memories, exported, "jsonl")
    return PlainTextResponse(text, media_type="application/x-ndjson")


@router.post("/memories/import", summary="Import memories", tags=["memory"], responses=OF_MEMORY)
async def import_memories(given: Annotated[ImportBody, Body()], access: AccessHere) -> ImportResult:
    """Import the output of `/v1/memories/export`. Adds nothing that exists already or was purged."""
    access.memories.caller.check("write")
    setup = access.runtime.setup
    agents = {name: agent.memory for name, agent in setup.config.agents.items()}
    importer = Importer(access.memory, agent=setup.agent, agents=agents)
    report = await importer.run(Source(FilePath("text"), BUNDLE, _memories_in(given.text)))
    return ImportResult.of(report)


def _memories_in(text: str) -> Iterator[MemoryExport | Skip]:
    """Yield the memories of a bundle; its sessions are skipped. Raises `InvalidValue` if it cannot be read."""
    try:
        for each in read_bundle(text, "the text"):
            if isinstance(each, MemoryExport):
                yield each
            else:
                yield Skip(each.record.id, "only memories are imported here")
    except (DamagedFile, LaterFormat) as error:
        raise InvalidValue(str(error)) from error


def _memory(access: IdentityAccess) -> AgentMemory:
    _ = access.memories  # raises if the agent keeps none
    return AgentMemory(access.memory, access.runtime.setup, owns=False)
