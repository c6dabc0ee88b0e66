"""`/v1/sessions/{id}/…`: messages, turns, receipts, usage and files of a session."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from msgspec.structs import asdict
from pydantic import Field
from starlette.responses import JSONResponse, StreamingResponse

from chatbot.attachments import media_of
from chatbot.attachments.read import MOST_FILES, upload_of
from chatbot.chat.events import ClientCall, Notice, Phase, ToolFinished, ToolStarted, TurnEvent
from chatbot.chat.ledger import bill_of, calls_in
from chatbot.messages import ReasoningDelta, TextDelta
from chatbot.operation import ListPage
from chatbot.server import sse
from chatbot.server.callers import ServerCaller
from chatbot.server.dependencies import AccessHere, EntryCursor, Limit, Page, RankCursor, SessionId, entries_between
from chatbot.server.errors import OF_IDENTITY, OF_MODELS, Problem, no_such_page, problem_of
from chatbot.server.idempotency import IdempotentWrite, WritingHere
from chatbot.server.request_values import VISIBLE, Flag, Tokens
from chatbot.server.shapes import Entry, RequestBody, Shape
from chatbot.server.turns import KeptTurn, RemoteTurn, RunningTurn

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["conversation"], responses=OF_IDENTITY)

_STREAM = sse.describe_stream(
    "The completed turn, or its events: `phase`, `thinking`, `text`, `tool`, `tool_result`, `client_call`, `notice`, "
    "and at the end `done` or `error`."
)


class SentFile(RequestBody):
    """A file to attach to a message."""

    name: str = Field(min_length=1, max_length=255)
    data: str = Field(pattern="^data:")
    """A `data:` URL of a PNG, JPEG, GIF or WebP picture, a PDF, DOCX, ODT or text, by its content."""


class UserMessage(RequestBody):
    """Message of the user."""

    text: str = Field(pattern=VISIBLE)
    """Your message."""
    stream: Flag = True
    """True for a stream of events; false for the whole turn."""
    max_output_tokens: Tokens | None = None
    """Longest reply in tokens; the identity's settings may allow less."""
    attachments: list[SentFile] = Field(default_factory=list, max_length=MOST_FILES)
    """Files and pictures, stored with the session and linked in the message."""


class Turn(Shape):
    """A completed turn."""

    session_id: str
    reply: str
    receipt: dict[str, Any]
    """Memories recalled and why, tools, tokens and cost."""


class StopCount(Shape):
    """Number of stopped turns."""

    stopped: int


class BillReport(Shape):
    """Usage and cost of model calls."""

    calls: int
    input_tokens: int
    """Tokens that models read."""
    output_tokens: int
    """Tokens that models wrote."""
    cached_tokens: int
    """Input tokens that the provider read from its cache."""
    cost_usd: float
    """US dollars, as far as prices are known."""
    calls_of_unknown_cost: int
    """Calls of models that have no known price, or whose process was killed."""
    by_purpose: dict[str, dict[str, Any]]
    """The same for each purpose, such as `chat` or `title`."""


@router.get("/messages", summary="List messages")
async def list_messages(
    session_id: SessionId, access: AccessHere, limit: Limit = 50, cursor: EntryCursor = None
) -> Page[Entry]:
    """Return the last entries, oldest first; `next_cursor` leads to those before them."""
    session = await access.session(session_id)

    def place(total: int) -> tuple[int, int]:
        end = total if cursor is None else int(cursor)
        return end - limit, end

    entries, begin, total = await entries_between(session, place)
    if cursor is not None and int(cursor) > total:
        raise no_such_page(cursor)
    return Page(data=[Entry.model_validate(entry) for entry in entries], next_cursor=str(begin) if begin else None)


@router.delete("/messages", summary="Undo the last exchange")
async def take_back(session_id: SessionId, access: AccessHere, writing: WritingHere) -> Page[Entry]:
    """Remove your last message and all after it, and return them. To continue, send it again or send another."""
    chat = await access.chat(session_id)
    taken = [] if writing.before is not None else await chat.take_back()
    writing.note()
    return Page(data=[Entry.model_validate(entry) for entry in taken])


@router.post("/chat", summary="Send a message", response_model=Turn, responses={200: _STREAM, **OF_MODELS})
async def say(
    session_id: SessionId, said: Annotated[UserMessage, Body()], access: AccessHere, writing: WritingHere
) -> Response:
    """Run a turn. It ends and is stored even if the client disconnects. Turns of a session run in order."""
    turn: RunningTurn | KeptTurn
    writing.may_be_erased = True
    if writing.before:
        turn = await access.kept_turn(session_id, writing.before["turn"])
    else:
        files = [upload_of(each.name, each.data) for each in said.attachments]
        turn = await access.begin_turn(
            session_id, said.text, attachments=files, max_output_tokens=said.max_output_tokens
        )
    if not said.stream:
        return JSONResponse(await _result(turn, session_id, writing))
    return sse.EventStream(_events(turn, session_id, access.caller, writing), _encode_error)


@router.get(
    "/chat",
    summary="Listen to the running turn",
    response_class=Response,
    responses={200: _STREAM, 204: {"description": "No turn is running."}},
)
async def listen(session_id: SessionId, access: AccessHere) -> Response:
    """Stream all events of the turn from the first, for clients that lost the connection, or join later.

    Of a turn that another server runs, only the reply is sent, once it is complete.
    """
    turn = await access.listen(session_id)
    if turn is None:
        return Response(status_code=204)
    return sse.EventStream(_events(turn, session_id, access.caller, IdempotentWrite()), _encode_error)


@router.delete("/chat", summary="Stop the running turns")
async def stop(session_id: SessionId, access: AccessHere, writing: WritingHere) -> StopCount:
    """Stop the turns of a session. The text so far is kept."""
    stopped = int(writing.before["stopped"]) if writing.before else await access.stop(session_id)
    writing.note(stopped=str(stopped))
    return StopCount(stopped=stopped)


@router.get("/receipts", summary="List receipts")
async def list_receipts(
    session_id: SessionId, access: AccessHere, limit: Limit = 20, cursor: RankCursor = None
) -> Page[dict[str, Any]]:
    """Return the receipts, newest first: memories recalled and left out, with reasons; tools, tokens, cost."""
    receipts = (await (await access.session(session_id)).receipts())[::-1]
    part = ListPage.by_rank(receipts, limit, cursor)
    return Page(data=list(part.rows), next_cursor=part.next_cursor)


@router.get("/usage", summary="Get the cost of a session")
async def get_session_usage(session_id: SessionId, access: AccessHere) -> BillReport:
    """Return the total of all turns and other model calls."""
    bill = bill_of(calls_in(await (await access.session(session_id)).records()))
    return BillReport.model_validate(bill.as_json())


async def _events(
    turn: RunningTurn | RemoteTurn | KeptTurn, session_id: str, caller: ServerCaller, writing: IdempotentWrite
) -> AsyncGenerator[bytes, None]:
    try:
        async for event in turn.events():
            kind, data = _event_as_json(event)
            yield sse.event(data, kind)
        yield sse.event(await _result(turn, session_id, writing), "done")
    except Exception as error:  # noqa: BLE001 - a plug-in's model may raise anything; the client must get an error
        yield _encode_error(problem_of(error, caller))


def _event_as_json(event: TurnEvent) -> tuple[str, dict[str, Any]]:  # noqa: PLR0911 - one for each kind
    """Return the kind of an event and its data. What the model thinks is left out: only the asking client gets it."""
    match event:
        case ReasoningDelta():
            return "thinking", {}
        case TextDelta(text):
            return "text", {"text": text}
        case Phase(text):
            return "phase", {"text": text}
        case Notice(text):
            return "notice", {"text": text}
        case ToolStarted(call):
            return "tool", asdict(call)
        case ClientCall(call):
            return "client_call", asdict(call)
        case ToolFinished(result):
            return "tool_result", {**asdict(result.call), "content": result.content, "is_error": result.is_error}


def _encode_error(problem: Problem) -> bytes:
    return sse.event(problem.as_json(), "error")


async def _result(
    turn: RunningTurn | RemoteTurn | KeptTurn, session_id: str, writing: IdempotentWrite
) -> dict[str, Any]:
    ended = await turn.ended()
    writing.note(turn=str(ended.receipt["turn"]))
    return {"session_id": session_id, "reply": ended.reply, "receipt": ended.receipt}


AS_A_DOWNLOAD = {
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}
"""Uploaded content is never opened as a page of this server."""
_BYTES: dict[str, Any] = {
    "response_class": Response,
    "responses": {200: {"content": {"application/octet-stream": {}}, "description": "Its bytes."}},
}
"""How the schema describes a route that returns bytes."""


class StoredFile(Shape):
    """A file in a session's folder."""

    name: str
    size: int
    """In bytes."""
    modified: datetime
    """When it was last written."""


@router.get("/files", summary="List the files of a session")
async def list_files(session_id: SessionId, access: AccessHere) -> Page[StoredFile]:
    """Return all files, by name."""
    session = await access.session(session_id)
    return Page(data=[StoredFile.model_validate(file) for file in await session.list_files()])


@router.get("/files/{name}", summary="Download a file", **_BYTES)
async def get_file(
    session_id: SessionId,
    name: Annotated[str, Path(max_length=255, description="The file's name.")],
    access: AccessHere,
) -> StreamingResponse:
    """Return the stored bytes of a file."""
    session = await access.session(session_id)
    if name not in {file.name for file in await session.list_files()}:
        raise Problem(404, "file_not_found", f"the session has no file {name!r:.80}")
    return StreamingResponse(session.stream_file(name), media_type="application/octet-stream", headers=AS_A_DOWNLOAD)


class AttachedFile(Shape):
    """An attachment of a session."""

    name: str
    """Stored name: a digest of the content."""
    size: int
    """In bytes."""
    media_type: str


@router.get("/attachments", summary="List the attachments of a session")
async def list_attachments(session_id: SessionId, access: AccessHere) -> Page[AttachedFile]:
    """Return files and pictures; messages link to them as `attachments/NAME`."""
    session = await access.session(session_id)
    sizes = (await session.attachments()).items()
    return Page(data=[AttachedFile(name=name, size=size, media_type=media_of(name)) for name, size in sizes])


@router.get("/attachments/{name}", summary="Download an attachment", **_BYTES)
async def get_attachment(
    session_id: SessionId,
    name: Annotated[str, Path(max_length=64, description="The attachment's name.")],
    access: AccessHere,
) -> Response:
    """Return a picture or document as it was sent, or a text without its secrets."""
    data = await access.attachment(session_id, name)
    return Response(data, media_type=media_of(name), headers=AS_A_DOWNLOAD)
