"""The input line: its slash commands, its completions, and keys typed before the prompt was drawn.

The terminal translates Enter into a line feed unless raw mode is on, and a line feed means "new line" at the prompt.
So waiting input is read before the prompt reads it, and its line feeds become Enter again.
"""

import argparse
import asyncio
import inspect
import os
import select
import shlex
import termios
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from chatbot.cli.arguments import build_parser
from chatbot.cli.output import SHORTEST_ID, age, printable, terminal_without
from chatbot.cli.repl.screen import Screen
from chatbot.cli.run import run_command
from chatbot.errors import ChatbotError, SessionNotFound
from chatbot.identity import list_identities
from chatbot.memory import SessionFilter, SessionHandle
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.stores.access import fold
from chatbot.stores.errors import InvalidValue, StoreError

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat


class NextStep(Struct):
    """Next step of the chat after a command: take a turn, offer a draft for editing, change the identity, or leave."""

    say: str | None = None
    draft: str = ""
    replaces: bool = False
    """True if the next message replaces the last exchange, which stays until then."""
    again: bool = False
    """True if the last message is answered again."""
    identity: str | None = None
    leave: bool = False


class Slash:
    """Commands on the conversation in `session`, which they may replace with another.

    Each is a method `do_<name>` that gets the text after the name; one without a parameter refuses a text. The first
    line of its docstring describes it; `/help NAME` shows all of it.
    """

    def __init__(self, runtime: Runtime, screen: Screen) -> None:
        self.session: SessionHandle | None = None
        self._chat: Chat | None = None
        self._runtime = runtime
        self._screen = screen

    @property
    def chat(self) -> "Chat":
        """The conversation, made on first use: the first prompt is drawn without it."""
        if self._chat is None:
            self._chat = self._runtime.chat(self.session)
        return self._chat

    def _session(self) -> SessionHandle:
        if self.session is None:
            raise SessionNotFound("this agent keeps no sessions: give it stores in [agents] memory")
        return self.session


def resolve_number(text: str, listed: Sequence[str]) -> str:
    """Return the id with that number in the list that was shown last; any other text unchanged."""
    return listed[int(text) - 1] if text.isdecimal() and 0 < int(text) <= len(listed) else text


def require(text: str, usage: str) -> str:
    """Return the text. Raises `InvalidValue` with the usage if it is empty."""
    if not text:
        raise InvalidValue(f"usage: {usage}")
    return text


_SYNONYMS = {"/": "/help", "/?": "/help", "/bye": "/exit", "/clear": "/new", "/q": "/exit", "/quit": "/exit"}
"""Names that other chats use, and our command for each."""
_NEED_STORAGE = frozenset({"memory", "sessions", "maintain"})


class CommandLineSlash(Slash):
    """Commands of the shell. Each runs for the identity and the agent of the chat, unless the line says otherwise."""

    _options: Options
    SHELL: ClassVar[dict[str, str]] = {
        "config": "Show or change settings: /config [set KEY VALUE|edit]. The chat uses them from the next start.",
        "doctor": "Check configuration, files and models: /doctor [--fix].",
        "hooks": "List hooks in the order in which they run: /hooks.",
        "keys": "Store, list or remove keys of providers: /keys [set|remove PROVIDER].",
        "maintain": "Decay, merge and archive memories now: /maintain [--dry-run].",
        "models": "List models: /models [list TEXT|--find].",
        "stores": "List the store plug-ins, what they keep and their settings: /stores.",
    }
    """Commands that are run unchanged, each with its help."""

    @classmethod
    def all(cls) -> dict[str, str]:
        """Return every command and its description, alphabetically."""
        return {name: document.partition("\n")[0].partition(": /")[0] for name, document in documents(cls).items()}

    @classmethod
    def named(cls, name: str) -> list[str]:
        """Return the commands that `name` can mean: the one of that name, or all that begin with it."""
        known, name = cls.all(), _SYNONYMS.get(name, name)
        if name in known:
            return [name]
        return [each for each in known if each.startswith(name)]

    async def do_tools(self, text: str) -> None:
        """List the tools of the model: /tools."""
        await self._command("tools", f"{text or 'list'} -m {shlex.quote(self._runtime.model_asked_for)}")

    async def do_export(self, name: str) -> None:
        """Export this session to a file: /export FILE.md or FILE.jsonl.

        All messages, archived ones included, without secrets. Existing files are never overwritten.
        `chatbot sessions export` has more options.
        """
        output = shlex.quote(require(name, "/export FILE.md or FILE.jsonl"))
        text = f"export {self._session().id} --no-memories --output {output}"
        await self._command("sessions", text, force=None)

    async def do_memory(self, text: str) -> None:
        """Run a `chatbot memory` command, or turn memory off in this session: /memory ACTION …, or /memory off.

        /memory --help lists the actions. While memory is off nothing is recalled or remembered in this session, whose
        transcript is kept. /memory on turns it on again.
        """
        if text in {"on", "off"}:
            session = self._session()
            await session.choose(replace(await session.choices(), memory=text == "on"))
            self._screen.say(f"memory is {text} in this session, from the next message on", "dim")
        else:
            await self._command("memory", text)

    async def do_personas(self, text: str) -> NextStep:
        """List or choose personas: /personas [use NAME]."""
        return await self._run_and_reopen("personas", text)

    async def do_setup(self, text: str) -> NextStep:
        """Find keys and local model servers, and choose a model: /setup."""
        return await self._run_and_reopen("setup", text)

    async def _run_and_reopen(self, name: str, text: str) -> NextStep:
        """Run a command; if it changed settings, open the identity again with them."""
        before = self._settings()
        await self._command(name, text)
        return NextStep() if self._settings() == before else NextStep(identity=self._runtime.setup.identity.name)

    def _settings(self) -> list[object]:
        setup = Setup.resolve(self._options)
        return [setup.config, setup.identity.persona]

    async def _command(self, name: str, text: str, **fixed: object) -> None:
        """Run a command of the shell; `fixed` are arguments that the text cannot set."""
        if name in _NEED_STORAGE and self._runtime.memory.where is None:
            raise InvalidValue(f"/{name} needs stored data, but this chat stores nothing: run chatbot {name} instead")
        try:
            words = [name, *self._flags(), *shlex.split(text)]
        except ValueError as error:
            raise InvalidValue(f"{text!r} cannot be read: {error}") from error
        try:
            args = build_parser(words).in_chat().parse_args(words)
            vars(args).update(fixed)
            await run_command(args)
        except SystemExit:
            return  # the parser has printed an error, or help

    def _flags(self) -> list[str]:
        config = ["--config", str(self._options.config)] if self._options.config else []
        return [*config, "-i", self._runtime.setup.identity.name, "--agent", self._runtime.agent]


def documents(commands: type[CommandLineSlash]) -> dict[str, str]:
    """Return the help of every command, alphabetically."""
    names = (name.removeprefix("do_") for name in dir(commands) if name.startswith("do_"))
    known = {name: inspect.getdoc(getattr(commands, f"do_{name}")) or "" for name in names} | commands.SHELL
    return {f"/{name}": _help_text(known[name]) for name in sorted(known)}


def _help_text(docstring: str) -> str:
    """Return each paragraph on one line, for a terminal of any width; the first is a phrase without a full stop."""
    first, *more = (" ".join(paragraph.split()) for paragraph in docstring.split("\n\n"))
    return "\n".join([first.removesuffix("."), *more])


_MOST_SESSIONS = 200
_MOST_SHOWN = 50
_ALWAYS = ("local/smollm2-135m", "scripted")
_KINDS = {
    "/resume": "resumable",
    "/model": "models",
    "/identity": "identities",
    "/help": "commands",
    "/export": "files",
    "/memory": "memory",
    "/sessions": "sessions",
}
"""Values that may follow a command."""

Candidate = tuple[str, str, str]
"""Text to insert, text to show, and a short description."""


class CommandValues:
    """Values to complete from, loaded when the user completes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def resumable(self) -> list[Candidate]:
        """Return the sessions used last: by title if no other has it, else by id."""
        wanted = SessionFilter(agent_id=self._runtime.agent, is_archived=False, limit=_MOST_SESSIONS)
        records = await self._runtime.memory.choose_sessions(wanted)
        titles = [fold(record.title) for record in records]
        found = []
        for record in records:
            is_unique = record.title and titles.count(fold(record.title)) == 1
            value = record.title if is_unique else record.id
            about = f"{age(record.used_at)} · {record.id[:SHORTEST_ID]}"
            found.append((value, printable(record.title or record.id), about))
        return found

    async def models(self) -> list[Candidate]:
        """Return the models of the configuration, aliases, and all chat models that can be used."""
        from chatbot.models.catalog import usable_models

        setup = self._runtime.setup
        names = (self._runtime.model_asked_for, setup.config.model.name, *_ALWAYS, *setup.config.aliases)
        usable = await asyncio.to_thread(usable_models, setup.config)
        about = {model.name: f"{model.price} · {place}" for model, place in usable}
        return [(name, name, about.get(name, "")) for name in dict.fromkeys((*names, *about))]

    async def identities(self) -> list[Candidate]:
        """Return every identity."""
        return [(name, name, "") for name in list_identities(self._runtime.setup.identities)]


class SlashCompleter(Completer):
    """Completes the names of commands, and sessions, models, identities and files after them."""

    def __init__(self, commands: type[CommandLineSlash], candidates: CommandValues) -> None:
        self._commands = commands
        self._candidates = candidates
        self._loaded: dict[str, Sequence[Candidate]] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yield the names of commands."""
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            self._loaded.clear()
            for name, description in self._commands.all().items():
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed), display_meta=description)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the names of commands, or the values that may follow the typed one."""
        for name in self.get_completions(document, complete_event):
            yield name
        typed = document.text_before_cursor
        if path := _typed_path(typed):
            for each in _attachable(path, complete_event):
                yield each
            return
        command, space, argument = typed.partition(" ")
        named = self._commands.named(command) if typed.startswith("/") and space and "\n" not in typed else []
        kind = _KINDS.get(named[0]) if len(named) == 1 else None
        if kind == "files":
            for each in _files(argument, complete_event):
                yield each
        elif kind:
            for value, shown, about in _matches(argument, await self._candidates_of(kind)):
                yield Completion(value, start_position=-len(argument), display=shown, display_meta=about)

    async def _candidates_of(self, kind: str) -> Sequence[Candidate]:
        """Return candidates, loaded once while the argument is being typed."""
        if kind == "commands":
            return [(name[1:], name[1:], about) for name, about in self._commands.all().items()]
        if kind in {"memory", "sessions"}:
            return [(name, name, about) for name, about in _actions_of(kind)]
        if kind not in self._loaded:
            try:
                self._loaded[kind] = await getattr(self._candidates, kind)()
            except (ChatbotError, StoreError):
                self._loaded[kind] = ()  # the command itself reports the error
        return self._loaded[kind]


def _actions_of(command: str) -> list[tuple[str, str]]:
    parser = build_parser([command]).actions[command]
    [actions] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
    return [(each.dest, each.help or "") for each in actions._choices_actions]  # noqa: SLF001 - argparse has no other way


def _matches(typed: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates whose shown text begins with `typed`, then those that contain it in any part."""
    typed = fold(typed)
    candidates = list(candidates)
    first = [each for each in candidates if fold(each[1]).startswith(typed)]
    later = [each for each in candidates if each not in first and any(typed in fold(part) for part in each)]
    return [*first, *later][:_MOST_SHOWN]


def _typed_path(typed: str) -> str:
    """Return the text after the last `@` that begins a word, with its opening quote, if the cursor is still in it."""
    at = max(typed.rfind(" @"), typed.rfind("\n@")) + 1
    word = typed[at:]
    is_in = '"' not in word[2:] if word.startswith('@"') else not any(map(str.isspace, word))
    return word[1:] if word.startswith("@") and is_in else ""


def _attachable(typed: str, complete_event: CompleteEvent) -> Iterator[Completion]:
    """Yield the files whose path begins with the typed text, in quotes if it has a space."""
    path = typed.removeprefix('"')
    for each in _files(path, complete_event):
        whole = path + each.text
        if path == typed and not any(map(str.isspace, whole)):
            yield each
        else:
            end = "" if each.display_text.endswith("/") else '"'
            yield Completion(f'"{whole}{end}', start_position=-len(typed), display=each.display)


def _files(typed: str, complete_event: CompleteEvent) -> Iterable[Completion]:
    return PathCompleter(expanduser=True).get_completions(Document(typed, len(typed)), complete_event)


_AT_ONCE = 65_536
_LONGEST_LINE = 4095
"""Bytes that Linux keeps of a line typed while neither a prompt nor a reply is shown, such as at the start."""


class Typeahead:
    """Keys that wait for the main prompt. Other questions must not be answered by them; `say` gets a warning."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._waiting: list[KeyPress] = []

    def gather(self, terminal: Input) -> None:
        """Take over unread keys, so that they do not answer a question asked now."""
        self._waiting += get_typeahead(terminal)
        data = b""
        with terminal_without(termios.ICANON) as raw:
            while raw is not None:
                is_pasting = data.rfind(b"\x1b[200~") > data.rfind(b"\x1b[201~")
                wait_s = 1 if is_pasting else 0  # for the rest of the pasted block
                if not select.select([raw], [], [], wait_s)[0] or not (more := os.read(raw, _AT_ONCE)):
                    break
                data += more
        if any(len(line) == _LONGEST_LINE for line in data.split(b"\n")):
            self._say(f"the terminal cut a pasted line after {_LONGEST_LINE:,} bytes: paste it again", "ansired")
        typed = data.decode(errors="replace").replace("\r\n", "\r").replace("\n", "\r")
        Vt100Parser(self._waiting.append).feed_and_flush(typed)

    def is_interrupted(self, terminal: Input) -> bool:
        """Return whether Ctrl-C is among the unread keys of a prompt that has ended; forget the keys up to it."""
        self.gather(terminal)
        after = next((at for at, each in enumerate(self._waiting, 1) if each.key == Keys.ControlC), 0)
        del self._waiting[:after]
        return after > 0

    def drop(self, terminal: Input) -> None:
        """Forget the keys that were read; the terminal has dropped the others."""
        get_typeahead(terminal)
        self._waiting = []

    def release(self, terminal: Input) -> None:
        """Give all waiting keys to the next prompt, in the order in which they were typed."""
        self.gather(terminal)
        store_typeahead(terminal, self._waiting)
        self._waiting = []
