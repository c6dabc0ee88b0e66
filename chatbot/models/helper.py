"""The helper process of `[model] keep_warm_s`: it holds LiteLLM, so that the next command need not import it.

It is the user's own: its socket is 0600 in a folder that is 0700, and each client must be the same user. It knows
nothing of memory, gets each request whole, keys included, keeps none of it, and ends when it has been idle. Its
environment has no keys. A frame is four bytes of length, and JSON.

    python -m chatbot.models.helper SOCKET IDLE_S
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec

from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ModelError, ProviderFailed
from chatbot.messages import CallOptions, Image, Message, ToolCall, ToolSpec
from chatbot.models import litellm_import
from chatbot.models.gateway import LiteLLMModel
from chatbot.stores.errors import InvalidValue

LARGEST_FRAME = 256 * 1024 * 1024
QUESTIONS = ("context_window", "price", "json_mode", "unknown_options", "check")
"""Questions to a model that have one answer, without a stream."""
_HEAD = struct.Struct(">I")


class HelperRequest(msgspec.Struct, frozen=True):
    """One request; `question` is one of `QUESTIONS`, or `stream`."""

    question: str
    settings: ModelSettings
    providers: dict[str, ProviderSettings]
    """The one provider that it is for, with its key."""
    messages: list[dict[str, Any]] = []
    tools: list[ToolSpec] = []
    most_tokens: int | None = None
    schema: dict[str, Any] | None = None
    options: CallOptions | None = None


class HelperAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an answer: a value, a delta, or an error, by its class; `is_last` ends the answer."""

    kind: str = ""
    value: Any = None
    is_last: bool = False
    error: str = ""
    retry_after_s: float | None = None


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame. Raises `IncompleteReadError` at the end, and `InvalidValue` for one that is too large."""
    (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if size > LARGEST_FRAME:
        raise InvalidValue(f"a message of {size:,} bytes is too large")
    return await reader.readexactly(size)


async def write_frame(writer: asyncio.StreamWriter, value: HelperRequest | HelperAnswer) -> None:
    """Send a frame."""
    data = msgspec.json.encode(value)
    writer.write(_HEAD.pack(len(data)) + data)
    await writer.drain()


def is_own(connected: Any) -> bool:
    """Return whether the other end of a socket is a process of the same user, as far as the system can tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder's rights see to it
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


class Helper:
    """Answers requests until there was none for `idle_s`."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._under_way = 0
        self._asked = asyncio.Event()

    async def serve(self, path: Path) -> None:
        """Listen at `path`, which is removed at the end."""
        _remove(path)  # of one that was killed
        server = await asyncio.start_unix_server(self._answer, path)
        _make_private(path)
        try:
            while await self._is_wanted():
                pass
        finally:
            _remove(path)
            server.close()

    async def _is_wanted(self) -> bool:
        self._asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._idle_s):
                await self._asked.wait()
            return True
        return self._under_way > 0

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._under_way += 1
        self._asked.set()
        try:
            if is_own(writer.get_extra_info("socket")):
                await _answer_one(reader, writer)
        except (OSError, EOFError, msgspec.MsgspecError, InvalidValue):
            pass  # the client has left, or is not ours
        finally:
            self._under_way -= 1
            self._asked.set()
            writer.close()


async def _answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = msgspec.json.decode(await read_frame(reader), type=HelperRequest)
    answering = asyncio.create_task(_send(asked, writer))
    leaving = asyncio.create_task(reader.read(1))  # nothing more is said: it ends when the client leaves
    await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
    for task in (answering, leaving):
        task.cancel()
    outcomes = await asyncio.gather(answering, leaving, return_exceptions=True)
    if isinstance(outcomes[0], OSError):
        raise outcomes[0]


async def _send(asked: HelperRequest, writer: asyncio.StreamWriter) -> None:
    try:
        async with LiteLLMModel(asked.settings, asked.providers) as model, aclosing(_parts(asked, model)) as parts:
            async for part in parts:
                await write_frame(writer, part)
    except ModelError as error:
        failed = HelperAnswer(
            kind=type(error).__name__, error=str(error), retry_after_s=error.retry_after_s, is_last=True
        )
        await write_frame(writer, failed)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - the client shall hear that it failed; nothing of what, which may hold a key
        failed = HelperAnswer(
            kind=ProviderFailed.__name__, error=f"the helper failed: {type(error).__name__}", is_last=True
        )
        await write_frame(writer, failed)


async def _parts(asked: HelperRequest, model: LiteLLMModel) -> AsyncGenerator[HelperAnswer, None]:
    if asked.question == "stream":
        deltas = model.stream(
            [_message(each) for each in asked.messages],
            tools=asked.tools,
            max_output_tokens=asked.most_tokens,
            json_schema=asked.schema,
            options=asked.options,
        )
        async with aclosing(deltas):
            async for delta in deltas:
                yield HelperAnswer(kind=type(delta).__name__, value=delta)
        yield HelperAnswer(is_last=True)
    elif asked.question in QUESTIONS:
        given = (asked.options,) if asked.options is not None else ()
        yield HelperAnswer(value=await getattr(model, asked.question)(*given), is_last=True)


def _message(told: dict[str, Any]) -> Message:
    parts = msgspec.convert(told.pop("parts", ()), tuple[str | Image, ...])  # files are not for the model
    calls = msgspec.convert(told.pop("tool_calls", ()), tuple[ToolCall, ...])
    return Message(**told, tool_calls=calls, parts=parts)


def _make_private(path: Path) -> None:
    path.chmod(0o600)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _lock(path: Path) -> int | None:
    """Hold the lock beside the socket until the process ends; None where another helper holds it."""
    held = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    return held


async def _main(path: Path, idle_s: float) -> None:
    litellm_import.begin(with_client=True)
    await Helper(idle_s).serve(path)


if __name__ == "__main__":
    os.umask(0o077)
    if _lock(Path(sys.argv[1])) is not None:
        asyncio.run(_main(Path(sys.argv[1]), float(sys.argv[2])))
