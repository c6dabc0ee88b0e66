"""Slash commands that show how the conversation stands: its cost, its prompt, why something was recalled."""

from __future__ import annotations

from chatbot.cli.repl.slash import Slash


class LookingSlash(Slash):
    """Looking, and changing nothing."""

    async def do_usage(self, _: str) -> None:
        """Show the cost of this session."""
        from chatbot.cli.usage import show_bill

        show_bill(await self.chat.bill())

    async def do_why(self, turn: str) -> None:
        """Explain what the last turn recalled: /why [turn number]."""
        from chatbot.cli.why import chosen, explain

        await explain(self._session(), chosen(await self._session().receipts(), turn or None))

    async def do_context(self, text: str) -> None:
        """Show the parts of the next prompt and the room left: /context [message].

        Persona, tools, the summary of older messages, the window, the memory block, and the room for the reply.
        Without a message, the last one is used. Nothing is sent.
        """
        from chatbot.cli.repl.context_picture import ContextPicture

        asked = text or await self.chat.asked_last() or "hello"
        bundle, _ = await self.chat.dry_run(asked)
        self._screen.draw(ContextPicture(bundle, asked))

    async def do_export(self, name: str) -> None:
        """Export this session to a file: /export FILE.md, FILE.jsonl or FILE.html.

        All messages, archived ones included, without secrets. Existing files are never overwritten.
        `chatbot sessions export` has more options.
        """
        from chatbot.cli.repl.session_export import export_to

        path = await export_to(self._runtime.memory, self._session().id, name)
        self._screen.say(f"wrote {path}", "dim")

    async def do_compact(self, _: str) -> None:
        """Replace all but the last exchange with a summary.

        The window then starts with the last exchange and grows again. The transcript is unchanged; the summary is
        made of its most important lines, without a model. A resumed session starts there too.
        """
        compacted = await self.chat.compact()
        if compacted is None:
            self._screen.say("nothing to summarize yet", "dim")
            return
        self._screen.say(f"{compacted.entries} entries are summarized; /context shows what that saves", "dim")
        if compacted.summary:
            self._screen.say(compacted.summary, "dim")
