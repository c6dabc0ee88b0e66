"""Slash commands that show how the conversation stands: its cost, its prompt, why something was recalled."""

from __future__ import annotations

from chatbot.cli.repl.slash import Slash
from chatbot.cli.usage import show_bill
from chatbot.cli.why import chosen, explain


class LookingSlash(Slash):
    """Looking, and changing nothing."""

    async def do_usage(self, _: str) -> None:
        """Show what this session has cost."""
        show_bill(await self.chat.bill())

    async def do_why(self, turn: str) -> None:
        """Say what the last turn recalled, and why: /why [number of the turn]."""
        await explain(self._session(), chosen(await self._session().receipts(), turn or None))

    async def do_context(self, text: str) -> None:
        """Draw what the next prompt would hold, and what is left: /context [message].

        Persona, tools, the summary of what the window left out, the window, what memory gives, what is kept free for
        the reply. Without a message, the last one is taken for the next. Nothing is sent.
        """
        from chatbot.cli.repl.context_picture import ContextPicture

        asked = text or await self.chat.asked_last() or "hello"
        bundle, _ = await self.chat.dry_run(asked)
        self._screen.draw(ContextPicture(bundle, asked))

    async def do_export(self, name: str) -> None:
        """Write this session down in a file: /export FILE.md, FILE.jsonl or FILE.html.

        All that was said, what left the transcript for the archive included, and secrets taken out. A file that is
        there is never overwritten. `chatbot sessions export` does more.
        """
        from chatbot.cli.repl.session_export import export_to

        path = await export_to(self._runtime.memory, self._session().id, name)
        self._screen.say(f"wrote {path}", "dim")

    async def do_compact(self, _: str) -> None:
        """Let a summary stand for all but the last exchange.

        The window then begins with the last exchange, and grows again. The transcript stays as it is; the summary is
        built from its most telling lines, without a model. Resuming the session later begins there too.
        """
        compacted = await self.chat.compact()
        if compacted is None:
            self._screen.say("there is nothing to sum up yet", "dim")
            return
        self._screen.say(f"{compacted.entries} entries are summed up; /context shows what that saves", "dim")
        if compacted.summary:
            self._screen.say(compacted.summary, "dim")
