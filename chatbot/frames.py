"""Messages between processes of one user, over a private Unix socket: four bytes of length, and JSON."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

from chatbot.stores.errors import InvalidValue

LARGEST_FRAME = 256 * 1024 * 1024
_HEAD = struct.Struct(">I")


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame. Raises `IncompleteReadError` at the end, and `InvalidValue` for one that is too large."""
    (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if size > LARGEST_FRAME:
        raise InvalidValue(f"a message of {size:,} bytes is too large")
    return await reader.readexactly(size)


async def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a frame."""
    writer.write(_HEAD.pack(len(data)) + data)
    await writer.drain()


async def connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a socket. Raises `OSError`, also where a process of another user listens."""
    reader, writer = await asyncio.open_unix_connection(path)
    if not is_own(writer.get_extra_info("socket")):
        writer.close()
        raise PermissionError(f"{path} is not this user's")
    return reader, writer


def is_own(connected: Any) -> bool:
    """Return whether the other end of a socket is a process of the same user, as far as the system can tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the rights of the folder ensure it
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())
