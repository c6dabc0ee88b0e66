"""The slash commands of the chat: each is one method, found by its name, described by its first line."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chatbot.chat import Chat
from chatbot.cli.output import SESSION_HEAD, say_table, session_rows
from chatbot.cli.screen import Screen
from chatbot.cli.usage import show_bill
from chatbot.cli.why import chosen, explain
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle
from chatbot.runtime import Runtime
from stores.base import TranscriptStore
from stores.errors import did_you_mean
from stores.records import TranscriptEntry

_LISTED = 20


@dataclass(slots=True)
class Next:
    """What the chat does after a command: take a turn with `say`, offer `draft` for editing, or leave."""

    say: str | None = None
    draft: str = ""
    leave: bool = False


class Commands:
    """Commands act on the conversation in `chat`, and may put another in its place."""

    def __init__(self, runtime: Runtime, screen: Screen, chat: Chat) -> None:
        self.chat = chat
        self._runtime = runtime
        self._screen = screen
        self._listed: list[str] = []

    @classmethod
    def all(cls) -> dict[str, str]:
        """Every command and its description."""
        methods = {name.removeprefix("do_"): method for name, method in vars(cls).items() if name.startswith("do_")}
        return {f"/{name}": (inspect.getdoc(method) or "").partition("\n")[0] for name, method in methods.items()}

    async def run(self, line: str) -> Next:
        """Run the command in `line`, which begins with a slash."""
        name, _, argument = line.partition(" ")
        command: Callable[[str], Awaitable[Next | None]] | None = getattr(self, f"do_{name[1:]}", None)
        if command is None:
            self._screen.say(f"there is no {name}{did_you_mean(name, self.all())}", "yellow")
            return Next()
        return await command(argument.strip()) or Next()

    async def do_help(self, _: str) -> None:
        """Show the commands and the keys."""
        for name, description in self.all().items():
            self._screen.say(f"{name:10} {description}")
        self._screen.say("Enter sends, Alt-Enter begins a new line, Ctrl-C stops a reply, Ctrl-D leaves.", "dim")

    async def do_new(self, _: str) -> None:
        """Begin a new session."""
        await self._enter(await self._runtime.new_session(), "a new session")

    async def do_resume(self, which: str) -> None:
        """Go on with another session: /resume ID, title, or number in /sessions."""
        if not which:
            return await self.do_sessions("")
        text = self._listed[int(which) - 1] if which.isdecimal() and 0 < int(which) <= len(self._listed) else which
        return await self._enter(await self._runtime.resume(text), "going on")

    async def do_fork(self, title: str) -> None:
        """Go on in a copy of this session: /fork [title]."""
        session = self._session()
        fork = await self._runtime.memory.fork_session(session.id, title=title)
        await self._enter(fork, f"a copy of {session.id}")

    async def do_sessions(self, _: str) -> None:
        """List the sessions used last."""
        records = await self._runtime.memory.list_sessions(self._runtime.agent, limit=_LISTED)
        self._listed = [record.id for record in records]
        say_table(SESSION_HEAD, session_rows(records))
        self._screen.say("/resume and a number goes on with one of them", "dim")

    async def do_rename(self, title: str) -> None:
        """Give this session a title: /rename TITLE."""
        await self._session().rename(title)
        self._screen.say(f"now called {self._session().record.title!r}", "dim")

    async def do_usage(self, _: str) -> None:
        """Show what this session has cost."""
        show_bill(await self.chat.bill())

    async def do_why(self, turn: str) -> None:
        """Say what the last turn recalled, and why: /why [number of the turn]."""
        await explain(self._session(), chosen(await self._session().receipts(), turn or None))

    async def do_undo(self, _: str) -> None:
        """Take back the last exchange, for good."""
        taken = await self.chat.take_back()
        self._screen.say(f"took back {_first_line(taken)!r}" if taken else "there is nothing to take back", "dim")

    async def do_retry(self, _: str) -> Next:
        """Ask the last question again, in place of the reply."""
        taken = await self.chat.take_back()
        if not taken:
            self._screen.say("there is nothing to ask again", "dim")
            return Next()
        return Next(say=taken[0].content)

    async def do_edit(self, _: str) -> Next:
        """Take back the last exchange and change the question (Ctrl-X Ctrl-E opens your editor)."""
        taken = await self.chat.take_back()
        return Next(draft=taken[0].content if taken else "")

    async def do_exit(self, _: str) -> Next:
        """Leave; the session stays."""
        return Next(leave=True)

    async def _enter(self, session: SessionHandle | None, how: str) -> None:
        former = self.chat.session
        self.chat = self._runtime.chat(session)
        if former is not None and (session is None or former.id != session.id):
            await self._runtime.leave(former)
        await show_session(self._screen, session, how, self._runtime.config.terminal.shown_on_resume)

    def _session(self) -> SessionHandle:
        if self.chat.session is None:
            raise SessionNotFound("this agent keeps no sessions: give it stores in [agents] memory")
        return self.chat.session


async def show_session(screen: Screen, session: SessionHandle | None, how: str, shown: int) -> None:
    """Say which session this is, and what was said last."""
    if session is None:
        screen.say("this agent has no stores: it remembers nothing, not even the last message", "yellow")
        return
    screen.say(" · ".join(part for part in (how, session.record.title, session.id) if part), "dim")
    if shown and session.supports(TranscriptStore):
        screen.show_entries(await session.transcript_read_last(shown))


def _first_line(entries: list[TranscriptEntry]) -> str:
    return entries[0].content.partition("\n")[0][:60]
