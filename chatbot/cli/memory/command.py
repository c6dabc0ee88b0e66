"""Verbs of memories, sessions and projects, run with the arguments of the command line, for one caller."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import get_args

from msgspec import Struct

from chatbot import operation as kinds
from chatbot.cli.arguments import load_function
from chatbot.cli.bind import OF_MEMORY, OF_OPERATIONS, OF_SESSIONS, given_of
from chatbot.cli.from_arguments import setup_of
from chatbot.cli.memory.tables import say_numbered
from chatbot.cli.output import ask_line, fitted, progress, say, warn
from chatbot.cli.repl import HISTORY_NAME
from chatbot.memory import Hit, Memory, MemorySystem
from chatbot.messages import TaskStatus
from chatbot.operations import OPERATIONS, Context
from chatbot.options import Setup
from chatbot.stores.access import SENSITIVITIES, fold
from chatbot.stores.errors import InvalidValue, UnknownObservation, UnsafePath
from chatbot.stores.observation import STATUSES, Observation, Type
from chatbot.stores.query import EVERY, Progress
from chatbot.stores.records import is_id
from chatbot.stores.text.redaction import redact_all

_ID = re.compile(r"(?=.*\d)[0-9a-f]{4,8}(-[0-9a-f-]*)?", re.IGNORECASE)
_MATCHES = 10
"""Number of matching memories from which one is chosen."""
_NEAR = 0.3
"""Least evidence of a match without a word of the text; few unrelated memories reach it."""


class VerbRun(Struct, frozen=True, dict=True):
    """One run of a verb. Its user sees every row that their clearance permits, whatever its sensitivity."""

    args: argparse.Namespace
    setup: Setup
    system: MemorySystem
    session_memory: Memory | None = None
    """The memory to work on, if it is not the agent's."""
    progress: Progress | None = None

    @cached_property
    def memories(self) -> Memory:
        """The memories in the requested namespace."""
        if self.session_memory is not None:
            return self.session_memory
        memories = self.system.memory(self.setup.agent)
        return memories.within(namespace=self.args.namespace, across=self.args.all_namespaces)

    @property
    def context(self) -> Context:
        """The context of operations."""
        return Context(lambda: self.memories, self.system, self.setup.agent, progress=self.progress)

    async def id(self, text: str) -> str:
        """Return the id that begins with `text`, or that of the chosen match for it."""
        return (await self.ids([text]))[0]

    async def ids(self, given: Sequence[str], noun: str = "memory") -> list[str]:
        """Return the ids with these beginnings; other texts are searched for, and the user chooses one of the matches.

        Whole ids of anything but a memory are left to the operation, which reports missing ones. Raises
        `UnknownObservation` if nothing matches, and `InvalidValue` if nobody can choose, or nothing is chosen.
        """
        if noun != "memory" and all(map(is_id, given)):
            return list(given)
        try:
            return [await self.memories.resolve(each, sensitivities=SENSITIVITIES) for each in given]
        except UnknownObservation:
            if not (text := " ".join(given).strip()):
                raise InvalidValue(f"name a {noun}, by its id or by words in it") from None
            if all(_ID.fullmatch(each) for each in given):
                raise
        is_first = getattr(self.args, "first", False)
        if not (rows := await self._matches(text, noun, by_words=is_first)):
            raise UnknownObservation(f"no {noun} has the id {text!r}, and none matches it")
        if is_first:
            return [rows[0].id]
        if self.args.json or not sys.stdin.isatty():
            named = ", ".join(f"{row.id} {fitted(row.headline, 40).strip()!r}" for row in rows[:3])
            otherwise = ", or add --first for the best match" if hasattr(self.args, "first") else ""
            otherwise += ", or --text for all that contain it" if hasattr(self.args, "text") else ""
            raise InvalidValue(f"{text!r} is not an id: name one, such as {named}{otherwise}")
        say_numbered(rows)
        chosen = ask_line("which one? number: ")
        if not (chosen.isdecimal() and 0 < int(chosen) <= len(rows)):
            raise InvalidValue("none was chosen: nothing was done")
        return [rows[int(chosen) - 1].id]

    async def _matches(self, text: str, noun: str, *, by_words: bool) -> list[Observation]:
        """Return the best matches to choose from: with a word of the text or, unless `by_words`, of a similar meaning.

        A proposal, and a hidden memory for `restore`, must have every word; the latest comes first.
        """
        memories = self.memories
        is_restore = getattr(self.args, "operation", "") == "restore_memory"
        if is_restore or noun == "proposal":
            words = fold(text).split()
            if is_restore:
                rows = await memories.every(statuses=STATUSES[1:], sensitivities=SENSITIVITIES)
            else:
                rows = await memories.profile_proposals()
            found = [row for row in rows if all(word in fold(row.text()) for word in words)]
            return sorted(found, key=lambda row: row.updated_at, reverse=True)[:_MATCHES]
        types: list[Type] = ["task"] if noun == "task" else []
        hits = await memories.search(text, types=types, limit=_MATCHES, sensitivities=SENSITIVITIES, count_use=False)

        def fits(hit: Hit) -> bool:
            is_near = hit.parts.get("evidence", 0) >= _NEAR or fold(text) in fold(hit.observation.text())
            return bool(hit.parts.get("lexical")) or (is_near and not by_words)

        return [hit.observation for hit in hits if fits(hit)]

    async def fact_id(self, text: str) -> str:
        """Return the id of the one fact whose id begins with `text`. Raises `UnknownObservation`."""
        prefix = text.lower()
        if is_id(prefix):
            return prefix
        facts = await self.memories.query_facts(limit=EVERY, sensitivities=SENSITIVITIES)
        found = sorted(fact.id for fact in facts if prefix and fact.id.startswith(prefix))
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownObservation(f"several facts begin with {prefix!r}: {', '.join(found[:5])}")
        raise UnknownObservation.of([prefix], "fact")

    async def line_key(self, text: str) -> str:
        """Return the text if it is a key of the profile, else the id that begins with it, else the text."""
        if any(line.folded_key == fold(text) for line in await self.memories.profile(sensitivities=SENSITIVITIES)):
            return text
        try:
            return await self.memories.resolve(text, sensitivities=SENSITIVITIES)
        except UnknownObservation:
            return text

    def say_typed_lines(self) -> None:
        """After a permanent deletion, say where the lines typed in the chat are, as they stay."""
        with suppress(UnsafePath, FileNotFoundError):  # such as a link, with which no chat starts
            typed = self.system.backend.private_file(HISTORY_NAME, creates=False)
            if typed is not None and typed.stat().st_size and not self.args.json:
                say(f"lines typed in the chat stay in {typed}: delete that file to remove them")


def warn_redacted(found: Iterable[str]) -> None:
    """Report on standard error that secrets were removed."""
    if what := ", ".join(found):
        warn(f"SECRETS WERE REMOVED before storing: {what}. The memory does not contain them.")


_TEXTS = (kinds.Line, kinds.Name)
"""Fields that may hold secrets, which are removed."""


async def run(args: argparse.Namespace) -> None:
    """Run a verb of memories, sessions or projects. Only `extract` needs a model."""
    setup = setup_of(args, model=args.model)
    name = getattr(args, "operation", "")
    is_of_memory = args.command == "memory"
    own = OF_OPERATIONS.get(name) if name else (OF_MEMORY if is_of_memory else OF_SESSIONS)[args.action]
    observations = setup.observation_store() if is_of_memory else setup.observations
    async with setup.open_memory(observations=observations) as memory:
        with progress("reading", waits=True) as advance:
            verb = VerbRun(args, setup, memory, progress=advance)
            await (load_function(own.runs)(verb) if own else run_operation(verb, name))
        sys.stdout.flush()  # the answer, before caches are written


async def run_operation(run: VerbRun, name: str) -> None:
    """Run an operation with the values of the command line, and show its result."""
    from chatbot.cli.memory.results import show

    operation = OPERATIONS[name]
    given = await given_of(run, operation.at("cli").values())
    if any(each.name == "sensitivities" for each in operation.parameters):
        given["sensitivities"] = SENSITIVITIES
    if operation.effect == "adds" and name != "set_profile":  # a profile refuses secrets
        kept = [each.name for each in operation.parameters if each.item in _TEXTS and each.name in given]
        redacted, found = redact_all([given[name] for name in kept])
        warn_redacted(found)
        given |= dict(zip(kept, redacted, strict=True))
    if name == "list_tasks" and getattr(run.args, "all", False):
        given["statuses"] = get_args(TaskStatus)
    result = await operation.run(run.context, "cli", given)
    show(run, operation, result, given)
    args, is_list = run.args, name in {"list_memories", "search_memories"}
    if is_list and not (result.rows or args.json or args.namespace or args.all_namespaces):
        await name_other_namespace(run)


async def name_other_namespace(run: VerbRun) -> None:
    """Say where there are memories besides those in the owner's namespace."""
    from chatbot.memory.users_and_projects import users_in

    if other := next((each.namespace for each in await users_in(run.system) if each.memories), ""):
        named = f"--namespace {shlex.quote(other)}, or --all-namespaces"
        warn(f"memories in other namespaces: {named}; `chatbot users list` lists them")
