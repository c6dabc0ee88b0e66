"""Completion at the prompt: commands, and what may stand behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from chatbot.cli.output import age, printable
from chatbot.errors import ChatbotError
from chatbot.identity import list_identities, load_identity
from chatbot.memory import SessionFilter
from chatbot.runtime import Runtime
from chatbot.stores.errors import StoreError

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


class _Known(Protocol):
    @classmethod
    def all(cls) -> dict[str, str]: ...

    @classmethod
    def named(cls, name: str) -> list[str]: ...


class Completions:
    """Values to complete from, loaded when the user completes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def resumable(self) -> list[Candidate]:
        """The sessions used last: by title where it is the only one of that title, else by id."""
        wanted = SessionFilter(agent_id=self._runtime.agent, is_archived=False, limit=_MOST_SESSIONS)
        records = await self._runtime.memory.choose_sessions(wanted)
        titles = [record.title.casefold() for record in records]
        found = []
        for record in records:
            is_unique = record.title and titles.count(record.title.casefold()) == 1
            value = record.title if is_unique else record.id
            found.append((value, printable(record.title or record.id), f"{age(record.used_at)} · {record.id[:13]}"))
        return found

    async def models(self) -> list[Candidate]:
        """The models of the configuration and of the identities, aliases, and all chat models that have a key."""
        from chatbot.cli.models import price
        from chatbot.models.catalog import usable_models

        setup = self._runtime.setup
        names = [self._runtime.model_asked_for, setup.config.model.name, *_ALWAYS]
        for identity in list_identities(setup.identities):
            try:
                found = load_identity(setup.identities, identity, setup.config.nameable_providers)
                names.append(found.overrides.get("model", {}).get("name"))
            except ChatbotError:
                continue  # one that is malformed has no model to offer
        names += setup.config.aliases
        usable = await asyncio.to_thread(usable_models, setup.config)
        about = {model.name: f"{price(model)} · {place}" for model, place in usable}
        return [(name, name, about.get(name, "")) for name in dict.fromkeys((*filter(None, names), *about))]

    async def identities(self) -> list[Candidate]:
        """Return every identity."""
        return [(name, name, "") for name in list_identities(self._runtime.setup.identities)]


class SlashCompleter(Completer):
    """Completes the names of commands, and sessions, models, identities and files behind them."""

    def __init__(self, commands: type[_Known], candidates: Completions) -> None:
        self._commands = commands
        self._candidates = candidates
        self._asked: dict[str, Sequence[Candidate]] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """The names of commands."""
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            self._asked.clear()
            for name, description in self._commands.all().items():
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed), display_meta=description)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The names of commands, or what may stand behind the one that is typed."""
        for name in self.get_completions(document, complete_event):
            yield name
        typed = document.text_before_cursor
        if path := _typed_path(typed):
            for each in _files(path, complete_event):
                yield each
            return
        command, space, argument = typed.partition(" ")
        named = self._commands.named(command) if typed.startswith("/") and space and "\n" not in typed else []
        kind = _KINDS.get(named[0]) if len(named) == 1 else None
        if kind == "files":
            for each in _files(argument, complete_event):
                yield each
        elif kind:
            for value, shown, about in _fitting(argument, await self._of(kind)):
                yield Completion(value, start_position=-len(argument), display=shown, display_meta=about)

    async def _of(self, kind: str) -> Sequence[Candidate]:
        """Asked for once, for as long as the argument is being typed."""
        if kind == "commands":
            return [(name[1:], name[1:], about) for name, about in self._commands.all().items()]
        if kind in {"memory", "sessions"}:
            from chatbot.cli.completion import actions_of

            return [(name, name, about) for name, about in actions_of(kind)]
        if kind not in self._asked:
            try:
                self._asked[kind] = await getattr(self._candidates, kind)()
            except (ChatbotError, StoreError):
                self._asked[kind] = ()  # the command itself will say what is wrong
        return self._asked[kind]


def _fitting(typed: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that begin with the typed text, then those that hold it; an id only by its beginning."""
    typed = typed.casefold()
    candidates = list(candidates)
    first = [each for each in candidates if each[1].casefold().startswith(typed)]
    later = [each for each in candidates if each not in first and any(typed in part.casefold() for part in each)]
    return [*first, *later][:_MOST_SHOWN]


def _typed_path(typed: str) -> str:
    """Return what stands behind the last `@` that begins a word, where the cursor is still in it."""
    at = max(typed.rfind(" @"), typed.rfind("\n@")) + 1 if not typed.startswith("@") or " " in typed else 0
    word = typed[at:]
    return word[1:] if word.startswith("@") and not any(map(str.isspace, word)) else ""


def _files(typed: str, complete_event: CompleteEvent) -> Iterable[Completion]:
    from prompt_toolkit.completion import PathCompleter

    return PathCompleter(expanduser=True).get_completions(Document(typed, len(typed)), complete_event)
