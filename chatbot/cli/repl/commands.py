"""The slash commands of the chat: each is one method, found by its name, described by its first line."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from chatbot.chat.dialogue import unanswered
from chatbot.cli.from_arguments import discard_empty, hints_about_model
from chatbot.cli.output import fitted, say_hit, say_sessions
from chatbot.cli.repl.actions import FOUND, MemorySlash, ReplySlash
from chatbot.cli.repl.editor import edit_text, named_editor
from chatbot.cli.repl.input import CommandLineSlash, NextStep, documents, require, resolve_number
from chatbot.cli.repl.screen import Screen
from chatbot.identity import list_identities
from chatbot.memory import SessionFilter, SessionHandle
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.stores.access import project_words
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue, StoreError, did_you_mean
from chatbot.stores.fields import how_many
from chatbot.stores.records import TranscriptEntry

_LISTED = 20


class Commands(MemorySlash, ReplySlash, CommandLineSlash):
    """All commands of the chat."""

    def __init__(self, runtime: Runtime, screen: Screen, options: Options) -> None:
        super().__init__(runtime, screen)
        self._options = options
        self._listed: list[str] = []
        self._entered_new: dict[str, tuple[Sequence[TranscriptEntry], str]] = {}
        """Last entry and title of sessions that were empty, or copied by --fork, when this chat entered them."""

    @classmethod
    def is_command(cls, text: str) -> bool:
        """Return whether a text is a command: it names one, or is one line and does not begin with a path."""
        name = text.split(maxsplit=1)[0]
        return bool(cls.named(name)) or not ("/" in name[1:] or "\n" in text.strip())

    async def run(self, line: str) -> NextStep:
        """Run the command in `line`, which begins with a slash; the beginning of its name is enough.

        Ctrl-C at a question that the command asks cancels the command.
        """
        try:
            return await self._run_line(line)
        except KeyboardInterrupt:  # it would end the loop
            raise asyncio.CancelledError from None

    async def _run_line(self, line: str) -> NextStep:
        name = line.split(maxsplit=1)[0]
        found = self._command_named(name)
        if found is None:
            return NextStep()
        verb, rest = found.removeprefix("/"), line[len(name) :].strip()
        if verb in self.SHELL:
            await self._command(verb, rest)
            return NextStep()
        command: Callable[..., Awaitable[NextStep | None]] = getattr(self, f"do_{verb}")
        texts = [rest] if inspect.signature(command).parameters else []
        if rest and not texts:
            raise InvalidValue(f"{found} takes no text: nothing was done (type //{line[1:]} to send it as text)")
        return await command(*texts) or NextStep()

    async def do_help(self, name: str) -> None:
        """List commands and keys, or explain a command: /help [NAME]."""
        if name:
            if found := self._command_named(f"/{name.removeprefix('/')}"):
                self._screen.say(f"{found}: {documents(type(self))[found]}")
            return
        for each, description in self.all().items():
            self._screen.say(f"{each:10} {description}", indent=" " * 11)
        self._screen.say("/help NAME explains a command. The start of a name is enough; Tab completes it.", "dim")
        self._screen.say("A path and pasted lines are sent as text; //word sends /word.", "dim")
        self._screen.say("Enter sends, Alt-Enter starts a new line, Ctrl-C stops a reply, Ctrl-D quits.", "dim")

    async def do_new(self) -> None:
        """Start a new session, in the same project: /new or /clear."""
        await self._start_session(self.session)

    async def do_resume(self, which: str) -> None:
        """Resume another session: /resume ID, title, or number in /sessions."""
        if not which:
            return await self.do_sessions("")
        text = resolve_number(which, self._listed)
        return await self._go_to(await self._runtime.resume(text), "continued")

    async def do_fork(self, title: str) -> None:
        """Continue in a copy of this session: /fork [title]."""
        session = self._session()
        fork = await self._runtime.memory.fork_session(session.id, title=title)
        await self._go_to(fork, f"a copy of {session.id}")

    async def do_sessions(self, text: str) -> None:
        """List recent sessions, or run a `chatbot sessions` command: /sessions [ACTION …].

        /sessions --help lists the actions, such as show, archive, import and delete.
        """
        if text:
            await self._command("sessions", text)
            if (session := self.session) and not await self._runtime.memory.is_taken(session.id):
                self.session = None  # it was deleted
                await self._start_session(session)
            return
        wanted = SessionFilter(agent_id=self._runtime.agent, is_archived=False, limit=_LISTED)
        records = await self._runtime.memory.choose_sessions(wanted)
        self._listed = [record.id for record in records]
        say_sessions(records, numbered=True)
        self._screen.say("/resume NUMBER resumes one", "dim")

    async def do_search(self, text: str) -> None:
        """Search sessions: /search TEXT."""
        wanted = SessionFilter(agent_id=self._runtime.agent, is_archived=False)
        hits = await self._runtime.memory.search_sessions(require(text, "/search TEXT"), limit=FOUND, wanted=wanted)
        self._listed = [hit.record.id for hit in hits]
        for number, hit in enumerate(hits, 1):
            say_hit(hit, f"/resume {number}")
        if not hits:
            self._screen.say("No sessions found", "dim")

    async def do_rename(self, title: str) -> None:
        """Rename this session: /rename TITLE."""
        await self._session().rename(require(title, "/rename TITLE"))
        self._screen.say(f"renamed to {self._session().record.title!r}", "dim")

    async def do_project(self, name: str) -> None:
        """Show the project of this session, or move the session to one: /project [NAME].

        The memories of the session move with it. /project - removes it from its project.
        """
        session = self._session()
        moved = await session.move(name) if name else 0
        self.chat.use(self.chat.model, self._runtime.tools(session, self.chat.model))
        more = ", with its memories" if moved else "" if name else "; /project NAME moves it"
        self._screen.say(f"this session is in {project_words(session.record.project)}{more}", "dim")

    async def do_undo(self) -> None:
        """Remove the last exchange permanently.

        Its memories, its part of summaries and a title made from it are removed too. The effects of its tools, memories
        that the model added with them, and its cost stay.
        """
        taken = await self.chat.take_back()
        if not taken:
            self._screen.say("nothing to remove", "dim")
            return
        first_line = taken[0].content.partition("\n")[0]
        self._screen.say(f"removed {fitted(first_line, 60).strip()!r}", "dim")

    async def do_retry(self) -> NextStep:
        """Ask the last question again.

        The transcript keeps the earlier reply, which no model is shown.
        """
        return NextStep(say=await self._last_question(), again=True)

    async def do_edit(self) -> NextStep:
        """Change the last question and ask it again, in your editor.

        The text from $VISUAL or $EDITOR replaces the last exchange; an unchanged text changes nothing.
        Without an editor, the question is edited at the prompt.
        """
        asked = await self._last_question()
        if not named_editor():
            return NextStep(draft=asked, replaces=True)
        text = await edit_text(asked)
        if not text.strip() or text == asked:
            self._screen.say("nothing was changed", "dim")
            return NextStep()
        self._screen.say(f"❯ {text}")
        return NextStep(say=text, replaces=True)

    async def _last_question(self) -> str:
        if (asked := await self.chat.last_message()) is None:
            raise InvalidValue("nothing was asked in this session yet")
        return asked

    async def do_model(self, name: str) -> None:
        """Show or switch the model: /model [NAME].

        The session continues. Lasts until you quit; set [model] name to keep it.
        """
        if name:
            self._screen.say(f"checking {name:.80}…", "dim")  # the library of providers takes seconds to load
            await self._runtime.use_model(name)
            self.chat.use(self._runtime.model, self._runtime.tools(self.session))
            self._runtime.model.warm()
        model = self._runtime.model
        window = "" if name else f" · a window of {await model.context_window():,} tokens"
        self._screen.say(f"{model.name} answers{' from now on' if name else ''}{window}", "dim")
        self.say_hints()

    def say_hints(self) -> None:
        """Print what the user should know about the model."""
        for hint in hints_about_model(self._runtime, "/setup", "/forget, /remember and /tasks"):
            self._screen.say(hint, "dim")

    async def do_identity(self, name: str) -> NextStep:
        """Show or switch the identity: /identity [NAME].

        Opens the last session of that identity. Nothing is shared between identities.
        """
        setup = self._runtime.setup
        if not name:
            others = [each for each in list_identities(setup.identities) if each != setup.identity.name]
            besides = f"; others: {', '.join(others)}" if others else ""
            self._screen.say(f"{setup.identity.name} answers{besides}", "dim")
            return NextStep()
        if name == setup.identity.name:
            self._screen.say(f"{name} is already the identity", "dim")
            return NextStep()
        Setup.resolve(replace(self._options, identity=name))  # reports an unknown name before anything is closed
        return NextStep(identity=name)

    async def do_usage(self) -> None:
        """Show the cost of this session."""
        from chatbot.cli.why import show_bill

        show_bill(await self.chat.bill())

    async def do_why(self, turn: str) -> None:
        """Explain what the last turn recalled: /why [turn number]."""
        from chatbot.cli.why import explain, receipt_of_turn

        await explain(self._session(), receipt_of_turn(await self._session().receipts(), turn or None))

    async def do_context(self, text: str) -> None:
        """Show the parts of the next prompt and the room left: /context [message].

        Persona, tools, the summary of older messages, the window, the memory block, and the room for the reply.
        Without a message, the last one is used. Nothing is sent.
        """
        from chatbot.cli.repl.reply import context_picture

        asked = text or await self.chat.last_message()
        bundle, _ = await self.chat.dry_run(asked or "hello")
        self._screen.draw(context_picture(bundle, asked or "a message such as hello"))

    async def do_compact(self) -> None:
        """Replace all but the last exchange with a summary.

        The window then starts with the last exchange and grows again. The transcript is unchanged; the summary is
        made of its most important lines, without a model. A resumed session starts there too.
        """
        compacted = await self.chat.compact()
        if compacted is None:
            self._screen.say("nothing to summarize yet", "dim")
            return
        self._screen.say(f"summarized {how_many(compacted.entries, 'entry')}; /context shows what that saves", "dim")
        if compacted.summary:
            self._screen.say(compacted.summary, "dim")

    async def do_exit(self) -> NextStep:
        """Quit; the session is kept: /exit, /quit, /q or /bye."""
        return NextStep(leave=True)

    async def enter(self, session: SessionHandle | None, *, is_new: bool = False) -> bool:
        """Begin a conversation in that session, made by the start of the chat if `is_new`; return whether it is old."""
        self.session, self._chat = session, None
        if session is None or not session.supports(TranscriptStore) or (session.record.title and not is_new):
            return session is not None and bool(session.record.title)
        last = await session.transcript_read_last(1)
        if is_new or not last:
            self._entered_new[session.id] = last, session.record.title
        return bool(last)

    async def discard_empty(self) -> bool:
        """Delete the session if this chat entered it new, and it was not renamed, nor anything said or remembered."""
        session = self.session
        if session is None or session.id not in self._entered_new:
            return False
        last, title = self._entered_new[session.id]
        return session.record.title == title and await discard_empty(self._runtime, session, last)

    def _command_named(self, name: str) -> str | None:
        """Return the one command that is named `name` or begins with it; otherwise print what could be meant."""
        from chatbot.operations import OPERATIONS

        found = self.named(name)
        if len(found) == 1:
            return found[0]
        could = f"{name} could be {', '.join(found)}"
        verbs = [f"/{each.cli}" for each in OPERATIONS.values() if each.cli.split()[1:] == [name[1:]]]
        meant = f": did you mean {' or '.join(verbs)}?" if verbs else did_you_mean(name, self.all())
        unknown = f"no command {name:.80}{meant} (type /{name:.80} to send it as text)"
        self._screen.say(could if found else unknown, "ansiyellow")
        return None

    async def _start_session(self, former: SessionHandle | None) -> None:
        session = await self._runtime.new_session()
        if session and former and former.record.project != session.record.project:
            await session.move(former.record.project)
        await self._go_to(session, "a new session")

    async def _go_to(self, session: SessionHandle | None, how: str) -> None:
        former = self.session
        is_left = former is not None and (session is None or former.id != session.id)
        if is_left and not await self.discard_empty():
            for failure in await self._runtime.end_session(former):
                self._screen.say(failure, "ansiyellow")
        await self.enter(session)
        await show_session(self._runtime, self._screen, session, how)


async def show_session(runtime: Runtime, screen: Screen, session: SessionHandle | None, how: str) -> None:
    """Show the session, its last messages, and a warning if nothing of it is kept."""
    if warning := runtime.warning(session):
        screen.say(warning, "ansiyellow")
    if session is None:
        return
    record = session.record
    screen.say(" · ".join(part for part in (how, record.title, record.project, record.id) if part), "dim")
    with suppress(StoreError):  # a turn reports it
        if not (await session.choices()).memory:
            screen.say("memory is off in this session: /memory on turns it on", "ansiyellow")
    if (shown := runtime.config.terminal.shown_on_resume) and session.supports(TranscriptStore):
        last = await session.transcript_read_last(shown)
        screen.show_entries(entries := [each for each in last if not each.role.startswith(("reply-", "tool"))])
        if unanswered(entries):
            says = "the last message has no reply: /retry asks it again"
            with suppress(StoreError):  # a read-only folder has no order
                if not await session.turn_order.is_free():
                    says = "another program is answering the last message; its reply will be in this session"
            screen.say(says, "ansiyellow")
