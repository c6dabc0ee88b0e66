"""Slash commands that are those of the command line: what they print, and the grammar behind them, is the same."""

from __future__ import annotations

import shlex

from chatbot.cli.repl.slash import Next, Slash
from chatbot.runtime import Options, Setup
from chatbot.stores.errors import InvalidValue

_OF_WHAT_IS_KEPT = frozenset({"memory", "sessions", "maintain"})


class CommandLineSlash(Slash):
    """Each runs for the identity and the agent of the chat, unless the line says otherwise."""

    _options: Options

    async def do_memory(self, text: str) -> None:
        """Run a `chatbot memory` command: /memory ACTION …, such as timeline, edit, restore, import, export, stats.

        /memory --help lists the actions, /memory ACTION --help explains one.
        """
        await self._command("memory", text)

    async def do_doctor(self, text: str) -> None:
        """Check configuration, files and models: /doctor [--fix]."""
        await self._command("doctor", text)

    async def do_config(self, text: str) -> None:
        """Show or change settings: /config [set KEY VALUE|edit]. The chat uses them from the next start."""
        await self._command("config", text)

    async def do_tools(self, text: str) -> None:
        """List the tools of the model: /tools."""
        await self._command("tools", f"{text or 'list'} -m {shlex.quote(self._runtime.model_asked_for)}")

    async def do_models(self, text: str) -> None:
        """List models: /models [list TEXT|--find|alias …]."""
        await self._command("models", text)

    async def do_keys(self, text: str) -> None:
        """Store, list or remove keys of providers: /keys [set|remove PROVIDER]."""
        await self._command("keys", text or "list")

    async def do_personas(self, text: str) -> Next:
        """List or choose personas: /personas [use NAME]."""
        return await self._begin_again("personas", text or "list")

    async def do_setup(self, text: str) -> Next:
        """Find keys and local model servers, and choose a model: /setup."""
        return await self._begin_again("setup", text)

    async def do_hooks(self, text: str) -> None:
        """List hooks in the order in which they run: /hooks."""
        await self._command("hooks", text)

    async def do_stores(self, text: str) -> None:
        """List the store plug-ins, what they keep and their settings: /stores."""
        await self._command("stores", text)

    async def do_maintain(self, text: str) -> None:
        """Decay, merge and archive memories now: /maintain [--dry-run]."""
        await self._command("maintain", text)

    async def _begin_again(self, name: str, text: str) -> Next:
        """Run a command, and go on with what it wrote, if anything."""
        before = self._written()
        await self._command(name, text)
        return Next() if self._written() == before else Next(identity=self._runtime.setup.identity.name)

    def _written(self) -> list[object]:
        setup = Setup.resolve(self._options)
        return [setup.config, setup.identity.persona]

    async def _command(self, name: str, text: str) -> None:
        from chatbot.cli.arguments import build_parser
        from chatbot.cli.main import run_command

        if name in _OF_WHAT_IS_KEPT and self._runtime.memory.where is None:
            raise InvalidValue(
                f"/{name} works on what is kept, and this chat keeps nothing: leave it, then chatbot {name}"
            )
        try:
            words = [name, *self._place(), *shlex.split(text)]
        except ValueError as error:
            raise InvalidValue(f"{text!r} cannot be read: {error}") from error
        try:
            await run_command(build_parser(words).parse_args(words))
        except SystemExit:
            return  # the parser has said what it wants, or helped
        except KeyboardInterrupt:
            self._screen.say("")  # the prompt begins on a line of its own

    def _place(self) -> list[str]:
        config = ["--config", str(self._options.config)] if self._options.config else []
        return [*config, "-i", self._runtime.setup.identity.name, "--agent", self._runtime.agent]
