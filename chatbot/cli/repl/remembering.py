"""Slash commands about what is remembered. What they need is imported when they are used: the first prompt waits."""

from __future__ import annotations

import argparse

from chatbot.cli.repl.slash import Slash, needed, numbered
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import InvalidValue

_FOUND = 10


class MemorySlash(Slash):
    """Looking at what is remembered, and changing it."""

    _found: tuple[str, ...] = ()
    """The ids that were listed last, for `/forget NUMBER`."""
    _tasks: tuple[str, ...] = ()

    async def do_remember(self, text: str) -> None:
        """Add a memory: /remember TEXT.

        The first line is its title. It can be recalled at once, here and in every other session.
        """
        title, _, rest = needed(text, "/remember TEXT").partition("\n")
        became = await self._session().remember(title=title, narrative=rest.strip(), source="user")
        if became.redacted:
            self._screen.say(f"secrets were removed before storing: {', '.join(became.redacted)}", "yellow")
        if became.warning:
            self._screen.say(became.warning, "yellow")
        told = "remembered" if became.outcome == "added" else "already remembered"
        self._screen.say(f"{told} ({became.id[:13]}); /forget {became.id[:13]} hides it again", "dim")

    async def do_recall(self, text: str) -> None:
        """Search memories: /recall TEXT.

        Best first, numbered for /forget; not counted as use. Without a text, the newest.
        """
        from chatbot.cli.memory.tables import say_numbered

        hits = await self._session().search(text, limit=_FOUND, ask=SENSITIVITIES, count_use=False)
        self._found = tuple(hit.observation.id for hit in hits)
        if hits:
            say_numbered([hit.observation for hit in hits])
        else:
            self._screen.say("no memories match", "dim")

    async def do_forget(self, text: str) -> None:
        """Hide a memory: /forget TEXT, the start of an id, or a number in /recall.

        What matches a text is listed, and a number chooses. `/memory restore ID` restores one; `/memory purge ID`
        deletes it permanently.
        """
        which = numbered(needed(text, "/forget TEXT or ID"), list(self._found))
        await self._run("forget_memory", ids=[which])

    async def do_people(self, text: str) -> None:
        """List people: /people [part of a name]."""
        await self._run("list_people", query=[text] if text else [])

    async def do_tasks(self, text: str) -> None:
        """List, add or complete tasks: /tasks, /tasks add TITLE, or /tasks done NUMBER."""
        verb, _, rest = text.partition(" ")
        session = self._session()
        if verb == "add":
            await session.add_task(needed(rest.strip(), "/tasks add TITLE"))
        elif verb == "done":
            one = numbered(needed(rest.strip(), "/tasks done NUMBER"), list(self._tasks))
            await session.update_task(await session.resolve(one, ask=SENSITIVITIES), status="completed")
        elif verb:
            raise InvalidValue("usage: /tasks, /tasks add TITLE, or /tasks done NUMBER")
        self._tasks = tuple(task.id for task in await session.tasks())
        await self._run("list_tasks")
        if self._tasks:
            self._screen.say("/tasks done NUMBER completes one, counted from the top", "dim")

    async def do_facts(self, subject: str) -> None:
        """List facts (subject, predicate, object): /facts [SUBJECT]."""
        await self._run("list_facts", subject=subject or None)

    async def do_history(self, which: str) -> None:
        """Show the versions and events of a memory: /history ID, or a number in /recall."""
        await self._run("get_history", observation_id=numbered(needed(which, "/history ID"), list(self._found)))

    async def _run(self, operation: str, **asked: object) -> None:
        """Run an operation as `chatbot memory` does, and show what it gives."""
        from chatbot.cli.memory.command import run_operation
        from chatbot.cli.memory.verb_run import VerbRun
        from chatbot.operations import OPERATIONS

        args = argparse.Namespace(json=False, **asked)
        run = VerbRun(args, self._runtime.setup, self._runtime.memory, self._session().within())
        await run_operation(run, OPERATIONS[operation])
