"""Attachments and consent in the terminal chat, and its commands on memories and replies.

Only typed text names a file: pasted text may come from anywhere, and must not make the chat read one.
"""

import argparse
import asyncio
import base64
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application.current import get_app_session
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from chatbot.cli.from_arguments import file_named, no_file, upload_from_file
from chatbot.cli.memory.tables import say_numbered
from chatbot.cli.output import SHORTEST_ID, printable, wrapped
from chatbot.cli.repl.input import Slash, require, resolve_number
from chatbot.messages import ToolCall, json_in
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import expand_home
from chatbot.tools.toolbox import Permission

if TYPE_CHECKING:
    from chatbot.attachments.read import Upload
    from chatbot.cli.repl.reply import LiveReply

_NAMED = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))""")
_ENDS = ".,;:!?)"
"""Characters that end a sentence, not the name of a file."""


class PastedTexts:
    """Texts that were pasted during this chat."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def bind(self, keys: KeyBindings) -> None:
        """Note each paste, and insert it as usual."""

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            self.note(text)
            event.current_buffer.insert_text(text)

    def note(self, text: str) -> None:
        """Remember a pasted text if it could name a file or begin with a command."""
        if "@" in text or text.startswith("/"):
            self._texts.append(text)

    def holds(self, text: str) -> bool:
        """Return whether the text was pasted, alone or in another."""
        return any(text in each for each in self._texts)

    def are_first_in(self, text: str) -> bool:
        """Return whether the text begins with pasted lines: these are a message, never a command."""
        return any("\n" in each.strip() and text.startswith(each.strip()) for each in self._texts)


def attach_named(text: str, pasted: PastedTexts, notice: Callable[[str], None]) -> "tuple[str, list[Upload]]":
    """Return the message with the names of its files in place of their paths, and the files.

    A name without a file is left unchanged, with a notice if it has an extension; `InvalidValue` is raised if it looks
    like a path. Blocking.
    """
    files: list[Upload] = []

    def named(found: re.Match[str]) -> str:
        if pasted.holds(found[0]):
            return found[0]
        quoted, typed = found[1], found[2] or ""
        without_end = typed.rstrip(_ENDS)
        for name in [quoted] if quoted else dict.fromkeys([typed, without_end]):
            if file_named(name) is not None:
                files.append(upload_from_file(name))
                return files[-1].name + typed[len(name) :]  # with the end of the sentence
        if quoted or "/" in typed:
            raise InvalidValue(f"{no_file(quoted or typed)}; correct its name, or leave out the @")
        if Path(without_end).suffix:
            notice(f"{no_file(without_end)}: its name is sent as text")
        return found[0]

    return _NAMED.sub(named, text), files


_LONGEST_SHOWN = 600
"""Maximum characters of a call in a question."""
_SHORTEST_SHOWN = 120
"""Minimum characters shown of each argument of a longer call."""
_LONGEST_GRANT = 300
"""Maximum characters that say which calls are allowed for the session."""
_MOST_SHOWN = 20
"""Maximum arguments that are shown one by one."""
_ANSWERS: dict[str, Permission] = {"y": "once", "yes": "once", "s": "session", "session": "session"}


class Consent:
    """Asks in the terminal whether a model may make a call, one question after the other.

    Every call is shown. The question says which calls an answer allows for the rest of the session; these are not asked
    about again in it.
    """

    def __init__(self) -> None:
        self.reply: LiveReply | None = None
        """The reply that is being drawn, which pauses meanwhile."""
        self.before_question: Callable[[], None] = lambda: None
        """Called before each question: keys typed earlier must not answer it."""
        self.session: str | None = None
        """The id of the current session."""
        self._allowed: set[tuple[str | None, str]] = set()
        self._order = asyncio.Lock()

    async def __call__(self, call: ToolCall) -> Permission:
        """Return the user's answer; anything but a clear yes is a no."""
        from chatbot.tools.file_tools import lasting_consent

        key, what = lasting_consent(call)
        async with self._order:
            with nullcontext() if self.reply is None else self.reply.paused():
                self.before_question()
                if (self.session, key) in self._allowed:
                    print_formatted_text(f"the model calls {_call_text(call)}: allowed for this session")
                    return "session"
                lasting = _cut(printable(what), _LONGEST_GRANT)
                answer = await _answer(f"may the model call {_call_text(call)}? [y/N, s: {lasting}, for this session]")
        if answer == "session":
            self._allowed.add((self.session, key))
        return answer


async def _answer(question: str) -> Permission:
    try:
        # Ctrl-C belongs to the turn, which it stops.
        said = await PromptSession[str]().prompt_async(f"{wrapped(question)} ", handle_sigint=False)
    except (EOFError, KeyboardInterrupt):
        return "denied"
    return _ANSWERS.get(said.strip().lower(), "denied")


def _call_text(call: ToolCall) -> str:
    """Return the call as text, of a long call a part of each argument, so that a long one hides no other."""
    given = _arguments(call.arguments)
    text = printable(f"{call.name} {call.arguments}")
    if len(text) <= _LONGEST_SHOWN or not given:
        return _cut(text, _LONGEST_SHOWN)
    most = max(_SHORTEST_SHOWN, _LONGEST_SHOWN // len(given))
    shown = ", ".join(f"{_cut(name, most)}: {_cut(value, most)}" for name, value in given.items())
    return printable(f"{call.name} {{{shown}}}")


def _arguments(written: str) -> dict[str, str]:
    """Return each argument as JSON, by name; none if they are not an object, or too many to show."""
    found = json_in(written)
    if not isinstance(found, dict) or len(found) > _MOST_SHOWN:
        return {}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more)"


FOUND = 10
"""Maximum hits of a search, of memories and of sessions."""


class MemorySlash(Slash):
    """Commands that show and change memories."""

    _found: tuple[str, ...] = ()
    """The ids that were listed last, for `/forget NUMBER`."""
    _tasks: tuple[str, ...] = ()
    """The ids of the tasks in the order of their list, for `/tasks done NUMBER`."""

    async def do_remember(self, text: str) -> None:
        """Add a memory: /remember TEXT.

        The first line is its title. It can be recalled at once, here and in every other session.
        """
        title, _, rest = require(text, "/remember TEXT").partition("\n")
        result = await self._session().memory.remember(title=title, narrative=rest.strip(), source="user")
        if result.redacted:
            self._screen.say(f"secrets were removed before storing: {', '.join(result.redacted)}", "ansiyellow")
        if result.warning:
            self._screen.say(result.warning, "ansiyellow")
        done = "remembered" if result.outcome == "added" else "already remembered"
        self._screen.say(f"{done} ({result.id[:SHORTEST_ID]}); /forget {result.id[:SHORTEST_ID]} hides it again", "dim")

    async def do_recall(self, text: str) -> None:
        """Search memories: /recall TEXT.

        Best first, numbered for /forget; not counted as use. Without a text, the newest.
        """
        hits = await self._session().memory.search(text, limit=FOUND, sensitivities=SENSITIVITIES, count_use=False)
        self._found = tuple(hit.observation.id for hit in hits)
        if hits:
            say_numbered([hit.observation for hit in hits])
        else:
            self._screen.say("No memories found", "dim")

    async def do_forget(self, text: str) -> None:
        """Hide a memory: /forget TEXT, the start of an id, or a number in /recall.

        Matches of a text are listed, to choose by number. `/memory restore ID` restores one; `/memory purge ID`
        deletes it permanently.
        """
        which = resolve_number(require(text, "/forget TEXT or ID"), self._found)
        await self._run("forget_memory", ids=[which])

    async def do_people(self, text: str) -> None:
        """List people: /people [part of a name]."""
        await self._run("list_people", query=[text] if text else [])

    async def do_tasks(self, text: str) -> None:
        """List, add or complete tasks: /tasks, /tasks add TITLE, or /tasks done NUMBER."""
        verb, _, rest = text.partition(" ")
        if verb == "add":
            await self._run("add_task", title=require(rest.strip(), "/tasks add TITLE"))
        elif verb == "done":
            one = resolve_number(require(rest.strip(), "/tasks done NUMBER"), self._tasks)
            await self._run("finish_task", task_id=one)
        elif verb:
            raise InvalidValue("usage: /tasks, /tasks add TITLE, or /tasks done NUMBER")
        found = await self._session().memory.tasks(sensitivities=SENSITIVITIES)  # as the list below
        self._tasks = tuple(task.id for task in found)
        await self._run("list_tasks")
        if self._tasks:
            self._screen.say("/tasks done NUMBER completes one, counted from the top", "dim")

    async def do_facts(self, subject: str) -> None:
        """List facts (subject, predicate, object): /facts [SUBJECT]."""
        await self._run("list_facts", subject=subject or None)

    async def do_history(self, which: str) -> None:
        """Show the versions and events of a memory: /history ID, or a number in /recall."""
        await self._run("get_history", observation_id=resolve_number(require(which, "/history ID"), self._found))

    async def _run(self, operation: str, **asked: object) -> None:
        """Run an operation as `chatbot memory` does, and show its result."""
        from chatbot.cli.memory.command import VerbRun, run_operation

        args = argparse.Namespace(json=False, **asked)
        run = VerbRun(args, self._runtime.setup, self._runtime.memory, self._session().memory.within())
        await run_operation(run, operation)


_FENCED = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)
_CODE = "code"
_READ = 50
"""Number of the last entries among which the last reply is searched."""
_MOST_COPIED = 74_000
"""Maximum bytes that terminals accept for the clipboard."""


class ReplySlash(Slash):
    """Commands that copy and save replies."""

    async def do_copy(self, what: str) -> None:
        """Copy the last reply to the clipboard: /copy, or /copy code for its last block of code.

        The terminal does it (OSC 52), so it works over SSH too; some terminals must be set to allow it.
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
        name = require("" if text == _CODE else text, "/save FILE, or /save FILE code").removesuffix(f" {_CODE}")
        reply = await self._reply(only_code=name != text)
        path = await asyncio.to_thread(_create, name.rstrip(), f"{reply}\n".encode())
        self._screen.say(f"wrote {path}", "dim")

    async def _reply(self, *, only_code: bool) -> str:
        session = self._session()
        entries = await session.transcript_read_last(_READ) if session.supports(TranscriptStore) else []
        said = [entry.content for entry in entries if entry.role == "assistant" and entry.content.strip()]
        if not said:
            raise InvalidValue("no reply yet" if len(entries) < _READ else f"no reply in the last {_READ} entries")
        if not only_code:
            return said[-1]
        blocks = _FENCED.findall(said[-1])
        if not blocks:
            raise InvalidValue("the last reply has no block of code")
        return str(blocks[-1][1]).rstrip("\n")


def _create(name: str, data: bytes) -> Path:
    """Write a new file; return its path. Raises `InvalidValue` if a file of that name exists."""
    from chatbot.cli.sessions.moving import new_file

    path = expand_home(name).absolute()
    with new_file(path) as file:
        file.write(data)
    return path
