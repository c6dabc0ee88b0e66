"""The chat in a terminal: reads a line, takes a turn, draws the reply; Ctrl-C stops a reply and never the chat."""

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import emacs_mode
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from chatbot.chat.dialogue import ClientRequest, last_exchange
from chatbot.cli.from_arguments import open_session, options_of
from chatbot.cli.output import error_text, on_signal
from chatbot.cli.repl import HISTORY_NAME
from chatbot.cli.repl.actions import Consent, PastedTexts, attach_named
from chatbot.cli.repl.commands import Commands, show_session
from chatbot.cli.repl.input import CommandValues, NextStep, SlashCompleter, Typeahead
from chatbot.cli.repl.screen import Screen
from chatbot.cli.run import until_interrupted
from chatbot.errors import ChatbotError, SessionNotFound
from chatbot.memory.scope import utc_now
from chatbot.options import Options
from chatbot.runtime import Runtime
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import InvalidValue, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from chatbot.attachments.read import Upload
    from chatbot.stores.backend import Backend

_ESCAPED = re.compile(r"//\w")
"""`//word`, which is sent as `/word`; a comment in code, such as `// word`, is sent unchanged."""
T = TypeVar("T")


async def run(args: argparse.Namespace) -> None:
    """Chat until the user leaves. Needs a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidValue('a chat needs a terminal: use chatbot ask "…", or pipe into chatbot ask')
    options: Options | None = options_of(args)
    while options is not None:
        options = await _chat_as(options, args)


async def _chat_as(options: Options, args: argparse.Namespace) -> Options | None:
    """Chat with one identity; return the options of the next one, if any, and set its session in `args`."""
    consent = Consent()
    async with Runtime(options, confirm=consent, is_terminal=True) as runtime:
        settings = runtime.config.terminal
        screen = Screen(markdown=settings.markdown, stream=args.stream)
        repl = Repl(runtime, screen, options, consent)
        await repl.open(args)
        identity = await repl.loop()
        kept = await repl.say_goodbye()
    for failure in runtime.hooks.last_failures:
        screen.say(failure, "ansiyellow")
    goes_on = identity == runtime.setup.identity.name  # with other settings
    args.continue_last, args.fork, args.new = False, None, goes_on and kept is None
    args.resume = kept if goes_on else None
    return None if identity is None else replace(options, identity=identity, persona=None)


class Repl:
    """A chat with one identity in the terminal."""

    def __init__(self, runtime: Runtime, screen: Screen, options: Options, consent: Consent) -> None:
        self._runtime = runtime
        self._screen = screen
        self._asked_identity = options.identity
        self._consent = consent
        self._typeahead = Typeahead(screen.say)
        self._is_interrupted = False
        self._commands = Commands(runtime, screen, options)
        self._pasted = PastedTexts()
        typed = runtime.memory.backend.private_file(HISTORY_NAME)  # an ephemeral chat keeps none
        self._prompt: PromptSession[str] = PromptSession(
            history=InMemoryHistory() if typed is None else _TypedLines(typed, runtime.memory.backend, screen.say),
            completer=SlashCompleter(Commands, CommandValues(runtime)),
            complete_while_typing=True,
            vi_mode=runtime.config.terminal.vi,
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=_key_bindings(self._pasted),
            multiline=True,
            prompt_continuation="  ",
            enable_open_in_editor=True,
            enable_suspend=True,
            mouse_support=False,
        )
        consent.before_question = lambda: self._typeahead.gather(self._prompt.input)

    async def open(self, args: argparse.Namespace) -> None:
        """Enter the session that the flags name, or the one used last."""
        self._screen.say(f"{self._runtime.setup.identity.name} · {self._runtime.model.name} · /help", "bold")
        if missing := await self._runtime.why_not_installed():
            self._screen.say(missing, "ansired")
        elif not await self._runtime.memory.list_sessions(limit=1):
            self._commands.say_hints()
        session, is_new = await open_session(self._runtime, args, last=True)
        is_old = await self._commands.enter(session, is_new=is_new)
        await show_session(self._runtime, self._screen, session, "continued" if is_old else "a new session")
        if args.resume == "":
            await self._commands.do_sessions("")

    async def loop(self) -> str | None:
        """Read and answer until the user leaves; return the identity to switch to, if any."""
        following = NextStep()
        with on_signal(signal.SIGINT, self._note_interrupt):
            while not (following.leave or following.identity):
                try:
                    following = await self._step(following)
                except KeyboardInterrupt:
                    following = NextStep()
                except EOFError:
                    return None
                except asyncio.CancelledError:  # by a signal
                    await self._commands.discard_empty()
                    raise
                except (ChatbotError, StoreError) as error:
                    await self._report(error)
                    following = NextStep()
        return following.identity

    def _note_interrupt(self, *_: object) -> None:
        """Have Ctrl-C between a prompt and what answers it stop that, and drop what was typed before."""
        self._is_interrupted = True
        self._typeahead.drop(self._prompt.input)

    async def _until_interrupted(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the outcome of `work`; None if Ctrl-C stopped it, which also drops what was typed before."""
        done = await until_interrupted(work, is_interrupted=self._is_interrupted)
        if done is None and not self._is_interrupted:
            self._typeahead.drop(self._prompt.input)
        return done

    async def _report(self, error: Exception) -> None:
        """Print the error, or that the session was deleted; then begin another."""
        if not await self._is_deleted():
            self._screen.say(error_text(error), "ansired")
            return
        self._screen.say("this session was deleted elsewhere: the up arrow brings your message back", "ansired")
        await self._commands.do_new()

    async def _is_deleted(self) -> bool:
        if (session := self._commands.session) is None:
            return False
        try:
            await self._runtime.memory.find_session(session.id)
        except (SessionNotFound, StoreError) as error:  # while the storage is away, the chat goes on
            return isinstance(error, SessionNotFound)
        return False

    async def say_goodbye(self) -> str | None:
        """Print how to resume the session, if anything was said, and return its id."""
        session = self._commands.session
        if session is None or self._runtime.memory.where is None:
            return None
        if await self._commands.discard_empty() or await self._is_deleted():
            return None
        who = "" if self._asked_identity is None else f" -i {self._asked_identity}"
        self._screen.say(f"continue with: chatbot{who} -r {session.id}", "dim")
        return session.id

    async def _step(self, following: NextStep) -> NextStep:
        text = await self._read(following.draft) if following.say is None else following.say
        if not text.strip():
            return NextStep()
        if text.startswith("/") and following.say is None and not self._pasted.are_first_in(text):
            if self._commands.is_command(text):
                done = await self._until_interrupted(self._commands.run(text.strip()))
                if done is None:
                    self._screen.say("\nstopped", "ansiyellow")  # below the ^C
                return done or NextStep()
            text = text[1:] if _ESCAPED.match(text) else text
        files: Sequence[Upload] = ()
        if following.say is None:
            notices: list[str] = []
            text, files = await asyncio.to_thread(attach_named, text, self._pasted, notices.append)
            for each in notices:
                self._screen.say(each, "ansiyellow")
        if following.replaces:
            await self._commands.chat.take_back(to_ask_again=True)
        await self._answer(text, files, again=following.again)
        return NextStep()

    async def _read(self, draft: str) -> str:
        def start_model() -> None:
            self._is_interrupted = False
            # After the prompt is drawn: importing the model's libraries must not delay it.
            asyncio.get_running_loop().call_later(0.1, self._runtime.warm)

        self._typeahead.release(self._prompt.input)
        text = await self._prompt.prompt_async("❯ ", default=draft, pre_run=start_model)
        self._is_interrupted |= self._typeahead.is_interrupted(self._prompt.input)
        return text

    async def _answer(self, text: str, files: "Sequence[Upload]", *, again: bool) -> None:
        client, begun, session = ClientRequest(again=again), utc_now(), self._commands.session
        with self._screen.reply() as reply:
            self._consent.reply = reply
            self._consent.session = None if session is None else session.id
            turn = self._commands.chat.turn(text, reply, attachments=files, client=client)
            receipt = await self._until_interrupted(turn)
        if receipt is None:
            is_kept = again or await self._has_message_since(begun)
            lost = "stopped before your message was stored: the up arrow brings it back"
            self._screen.say("stopped; the text so far is kept" if is_kept else lost, "ansiyellow")
        elif self._runtime.config.terminal.show_usage:
            self._screen.show_receipt(receipt)

    async def _has_message_since(self, moment: datetime) -> bool:
        """Return whether a message was stored since then; one that waits for another turn is not."""
        session = self._commands.session
        if session is None or not session.supports(TranscriptStore):
            return False
        return any(each.at >= moment for each in (await last_exchange(session))[:1])


class _TypedLines(FileHistory):
    """History that continues in memory if its file cannot be written, and says so once."""

    def __init__(self, path: "Path", backend: "Backend", say: Callable[[str], None]) -> None:
        super().__init__(path)
        self._backend = backend
        self._say: Callable[[str], None] | None = say

    def store_string(self, string: str) -> None:
        """Override `FileHistory`, which would fail within the prompt."""
        try:
            self._backend.private_file(HISTORY_NAME)  # it may have been deleted meanwhile
            super().store_string(string)
        except (OSError, StoreError, UnicodeEncodeError) as error:
            if self._say is not None:
                self._say(f"typed lines are not kept for the next chat: {error_text(error)}")
            self._say = None


def _key_bindings(pasted: PastedTexts) -> KeyBindings:
    keys = KeyBindings()
    pasted.bind(keys)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        # What was typed is not lost: the up arrow brings it back.
        event.current_buffer.append_to_history()
        event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    @keys.add("escape", "enter", filter=emacs_mode)
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
