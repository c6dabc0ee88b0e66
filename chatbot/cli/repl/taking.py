"""Slash commands that take a reply or a session out of the chat: into the clipboard, or into a file."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app_session

from chatbot.cli.repl.slash import Slash, needed
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.files import opened

if TYPE_CHECKING:
    from chatbot.memory import MemorySystem

_FENCED = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)
_CODE = "code"
_READ = 50
_MOST_COPIED = 74_000
"""Bytes that terminals take for the clipboard at once."""


class TakingSlash(Slash):
    """Taking replies and sessions along."""

    async def do_copy(self, what: str) -> None:
        """Copy the last reply to the clipboard: /copy, or /copy code for its last block of code.

        The terminal does it (OSC 52), so it works over SSH too; some terminals have to be told to allow it.
        """
        if what not in {"", _CODE}:
            raise InvalidValue("usage: /copy or /copy code")
        text = await self._reply(only_code=what == _CODE)
        data = text.encode()
        if len(data) > _MOST_COPIED:
            raise InvalidValue(f"the reply has {len(data):,} bytes, too many for a clipboard: use /save FILE")
        output = get_app_session().output
        output.write_raw(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        output.flush()
        self._screen.say(f"copied {len(text):,} characters", "dim")

    async def do_save(self, text: str) -> None:
        """Write the last reply to a new file: /save FILE, or /save FILE code for its last block of code."""
        name, _, what = needed(text, "/save FILE").rpartition(" ")
        only_code = bool(name) and what == _CODE
        reply = await self._reply(only_code=only_code)
        path = await asyncio.to_thread(create, name if only_code else text, f"{reply}\n".encode())
        self._screen.say(f"wrote {path}", "dim")

    async def do_export(self, name: str) -> None:
        """Export this session to a file: /export FILE.md, FILE.jsonl or FILE.html.

        All messages, archived ones included, without secrets. Existing files are never overwritten.
        `chatbot sessions export` has more options.
        """
        path = await export_to(self._runtime.memory, self._session().id, name)
        self._screen.say(f"wrote {path}", "dim")

    async def _reply(self, *, only_code: bool) -> str:
        session = self._session()
        entries = await session.transcript_read_last(_READ) if session.supports(TranscriptStore) else []
        said = [entry.content for entry in entries if entry.role == "assistant" and entry.content.strip()]
        if not said:
            raise InvalidValue("no reply yet")
        if not only_code:
            return said[-1]
        blocks = _FENCED.findall(said[-1])
        if not blocks:
            raise InvalidValue("the last reply has no block of code")
        return str(blocks[-1][1]).rstrip("\n")


async def export_to(memory: MemorySystem, session_id: str, name: str) -> Path:
    """Write the session to a new file, in the form that its ending tells; Markdown for one that tells none.

    Raises `InvalidValue` where there is a file of that name already.
    """
    from chatbot.transfer.exports import SUFFIXES, export_session, render_session

    if not name:
        raise InvalidValue("usage: /export FILE")
    form = next((form for form, suffix in SUFFIXES.items() if name.endswith(suffix)), "markdown")
    text = render_session(await export_session(memory, session_id, memories=False), form)
    return await asyncio.to_thread(create, name, text.encode())


def create(name: str, data: bytes) -> Path:
    """Write a new file. Raises `InvalidValue` where there is a file of that name already."""
    path = Path(name).expanduser().absolute()
    with opened(path.parent) as folder:
        if folder.stamp(path.name):
            raise InvalidValue(f"{path} already exists: name another file")
        folder.create(path.name, data)
    return path
