"""The composition root: opens an identity with its memory, model, hooks and chats, and closes what it opens."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec.structs import replace

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger, Payer
from chatbot.config import ModelSettings
from chatbot.embedder import Embedder
from chatbot.errors import ChatbotError, ModelError, UnknownModel
from chatbot.hooks import HookContext
from chatbot.hooks.bus import Hooks
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.memory.scope import utc_now
from chatbot.messages import ToolSpec
from chatbot.models import Model, open_model, warn_without_encoders
from chatbot.options import IN_MEMORY, Options, Setup
from chatbot.stores.access import NO_PROJECT, TOOL_RIGHTS
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import StoreError
from chatbot.stores.records import check_text, check_type
from chatbot.stores.span import observed
from chatbot.telemetry import open_telemetry
from chatbot.tools import Confirm, Tool, Toolbox
from chatbot.tools.mcp.server import McpServers
from chatbot.tools.toolbox import TOOLS, tools_of
from chatbot.trust import PROVIDERS, is_model

if TYPE_CHECKING:
    from chatbot.chat.chat import Chat

__all__ = ["Options", "Runtime", "Setup"]


class Runtime(AsyncResource):
    """An open identity: its memory and its model. Use with `async with`.

    `model` and `embedder` take the place of those of the settings, and are closed. `confirm` asks the user about tool
    calls that need consent; without it they are refused. File tools are offered only with `is_terminal`.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        model: Model | None = None,
        embedder: Embedder | None = None,
        tools: Sequence[Tool] = (),
        confirm: Confirm | None = None,
        is_terminal: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        check_type(options, Options | None, "options")
        check_type(model, Model | None, "model", ": `open_model(name)` returns one")
        check_type(confirm, Callable | None, "confirm")
        for tool in check_type(tools, Sequence, "tools"):
            check_type(tool, Tool, "a tool", ": `FunctionTool(function)` makes one")
        options = options or Options()
        self.setup = Setup.resolve(options)
        """Settings and identity; `config` and `agent` are those in force."""
        self.setup.check()
        self.config, self.agent = self.setup.config, self.setup.agent
        warn_without_encoders("" if embedder else self.config.embedding.model)
        self.persona = options.persona or self.setup.identity.persona
        self._ephemeral = options.ephemeral
        self._asked_project = None if options.project is None else self.setup.project
        self._telemetry = None if options.telemetry else open_telemetry(self.config.telemetry)
        telemetry = options.telemetry or self._telemetry
        self._observer = telemetry.observer if telemetry else None
        self.model = model or open_model(self.config.model, self.config.providers)
        self.model_asked_for = model.name if model else self.config.model.name
        """The name under which the model was opened; `model.name` lacks the folders of a model file."""
        self.memory = self.setup.open_memory(
            ephemeral=options.ephemeral,
            observations=None if self._ephemeral else self.setup.observations,
            on_event=lambda event: self.hooks.notify(event),  # noqa: PLW0108 - the hooks are made after the memory
            embedder=embedder,
            clock=clock,
            observer=self._observer,
            namespace=options.namespace,
        )
        self._clock = clock
        self.ledger = Ledger(self.setup.home, names_sessions=not self._ephemeral)
        self._tools = tools
        self.confirm = confirm
        self._is_terminal = is_terminal
        self._models = [self.model]
        """Open models: chats may go on with those that `use_model` replaced."""
        self._others: dict[str, Model] = {}
        """Models of single sessions, by name."""
        self._chats: WeakSet[Chat] = WeakSet()
        self._servers = McpServers(self.config.mcp.servers, self.setup.settings.folder, _judge, _clean)
        identity, beside = self.setup.identity.name, self.setup.settings.plugins_beside
        context = HookContext(self.config, identity, self.agent, self.memory, self.model, self.ledger, clock)
        self.hooks = Hooks(context, plugins_beside=beside)

    def __repr__(self) -> str:
        return f"Runtime({self.setup.identity.name!r}, agent={self.agent!r}, model={self.model.name!r})"

    @property
    def store_types(self) -> tuple[str, ...]:
        """The stores of new sessions."""
        asked = self.setup.agent_settings.memory
        return (IN_MEMORY,) if asked and self._ephemeral else asked

    def warm(self) -> None:
        """Begin to load, in the background, what a turn will need."""
        self.model.warm()
        if self.uses_tools:
            self._servers.start_in_background()

    async def ready(self) -> None:
        """Wait until everything that a turn needs is loaded, and the servers of tools have started or failed."""
        self.warm()
        await self.model.ready()
        if not self.memory.embeds_away:  # a provider would be paid
            with suppress(ChatbotError, StoreError):  # missing encoders are reported where they are needed
                await self.memory.embed(["It loads the encoders."])
        if self.uses_tools:
            await self._servers.tools()

    @property
    def remembers(self) -> bool:
        """True if the agent has a memory beyond a session."""
        return self._ephemeral or self.setup.observations is not None

    async def new_session(self, *, for_dry_run: bool = False) -> SessionHandle | None:
        """Create a session of the agent; return None for an agent without stores, which chats without a memory."""
        if not self.store_types:
            return None
        return await self.memory.create_session(self.store_types, self.agent, for_dry_run=for_dry_run)

    async def resume(self, text: str) -> SessionHandle:
        """Load the agent's session of that id or title, or the beginning of one. Raises a `SessionError`."""
        return await self.memory.load_session((await self.find(text)).id, self.agent)

    async def latest_session(self) -> SessionHandle | None:
        """Load the agent's most recently used session; None if there is none, or the agent has no stores."""
        project = self.setup.project or NO_PROJECT
        return await self.memory.latest_session(self.agent, project=project) if self.store_types else None

    async def find(self, text: str) -> SessionRecord:
        """Return the agent's session with that id or title, or the beginning of one, in the project asked for."""
        return await self.memory.cleared_for(project=self._asked_project).find_session(text, self.agent, cut_title=True)

    def warning(self, session: SessionHandle | None) -> str:
        """Return a warning for a chat in `session` that keeps nothing, unless that was asked for."""
        return "" if self._ephemeral else self.setup.why_lost(session.record.store_types if session else ())

    @property
    def uses_embedded_model(self) -> bool:
        """True if the agent answers with the embedded model, which knows little."""
        return self.model.name == ModelSettings().name

    async def why_not_installed(self) -> str:
        """Return why the embedded model cannot answer; empty if it can, and for another model."""
        try:
            if self.uses_embedded_model:
                await self.model.check()
        except ModelError as error:
            return str(error)
        return ""

    def chat(self, session: SessionHandle | None) -> "Chat":
        """Return a conversation in `session`. Raises `MissingRight` without `chat`, `ConfigError` for wrong tools."""
        from chatbot.chat.chat import Chat, Rules

        check_type(session, SessionHandle | None, "session", ": `await runtime.new_session()` returns one")
        rules = Rules(
            persona=self.persona,
            agent=self.agent,
            settings=self.setup.agent_settings,
            budget=self.config.budget,
            max_output_tokens=self.config.model.max_output_tokens,
        )
        chat = Chat(
            model=self.model,
            session=session and session.for_turns(),
            rules=rules,
            ledger=self.ledger,
            tools=self.tools(session),
            publisher=self.hooks,
            clock=self._clock,
            observer=self._observer,
        )
        self._chats.add(chat)
        return chat

    async def end_session(self, session: SessionHandle | None) -> list[str]:
        """Run the hooks at the end of a session; return their failures, which no turn can report."""
        return [] if session is None else await self.hooks.end_session(session.id)

    def calls(self, *, reply_tokens: int, payers: Sequence[Payer] = ()) -> Calls:
        """Return the calls of the model for replies without a session, of which only the bill is kept."""
        budget = self.config.budget
        with observed(self._observer):
            return Calls(self.model, self.ledger, budget, reply_tokens=reply_tokens, payers=payers, clock=self._clock)

    async def use_model(self, name: str) -> None:
        """Switch to another model, from the next `chat` on. On a `ModelError` or `ConfigError` nothing changes.

        The model gets the settings of `[model]`, as with the option `model`, and those of its own provider in
        `[providers]`. Hooks keep the model they began with.
        """
        model = await self._open_model(name)
        self.model, self.model_asked_for = model, name

    async def model_named(self, name: str) -> Model:
        """Return another model for single sessions, or this one for its own name. Raises like `use_model`.

        A session may come from elsewhere, so it may name only what an untrusted file may, or what the owner configured.
        """
        if name in {"", self.model_asked_for}:
            return self.model
        config = self.config
        if name not in config.aliases and not is_model(name, PROVIDERS.union(config.providers)):
            raise UnknownModel(
                f"a session may not choose the model {name!r:.80}: name it in [aliases] or in [providers], "
                "or choose another one"
            )
        if name not in self._others:
            self._others[name] = await self._open_model(name)
        return self._others[name]

    async def _open_model(self, name: str) -> Model:
        name = self.config.aliases.get(check_text(name, "the model"), name)
        model = open_model(replace(self.config.model, name=name), self.config.providers)
        try:
            await model.check()
        except BaseException:
            await model.aclose()
            raise
        self._models.append(model)
        return model

    def tools(self, session: SessionHandle | None, model: Model | None = None) -> Toolbox:
        """Return the tools of `session`: those of the caller, those that the agent names, and those of MCP servers.

        Empty if the model supports no tools; the model is `model`, or else the identity's. Raises `ConfigError`.
        """
        from chatbot.chat.prompt import withheld_tools

        model = model or self.model
        if not model.supports_tools:
            return Toolbox()
        names = self.setup.agent_settings.tools
        withheld = withheld_tools(model.disclosure)
        given = (*self._tools, *self._file_tools())

        def named() -> list[Tool]:
            from chatbot.chat.memory_tools import ToolContext

            own = session and session.for_tools()
            memory = self.memory if own else self.memory.cleared_for(rights=TOOL_RIGHTS)
            context = ToolContext(own, memory, self.agent, self.setup.identity.name)
            tools = tools_of(names, context, beside=self.setup.settings.plugins_beside)
            return [kept for tool in tools if (kept := tool.without(withheld)) is not None]

        async def ours() -> tuple[list[Tool], list[str]]:
            return named(), []

        # Tools that ship need no check, unless a given one has the same name: they are made later, as a source.
        is_ours = TOOLS.own.keys() >= set(names) and not self._tools
        sources = [ours, self._servers.tools] if is_ours else [self._servers.tools]
        tools = given if is_ours else (*given, *named())
        return Toolbox(tools, sources=sources if names else [], confirm=self.confirm)

    def _file_tools(self) -> list[Tool]:
        """Return the tools for the folder that the user named; only in a terminal, where each call is shown."""
        folder, file = self.config.files.folder, self.setup.settings.path
        if not (folder and self._is_terminal and self.setup.agent_settings.tools):
            return []
        from chatbot.tools.file_tools import file_tools

        ours = (self.setup.identities, *([file] if file else []))
        return file_tools(Path(folder), ours=ours)

    async def aclose(self) -> None:
        """Stop the turns that run, end the sessions that were used, close everything. May be called twice."""
        async with AsyncExitStack() as closing:  # the last one first; one that fails leaves no other open
            for each in (self._telemetry, *self._models, self.memory, self._servers, self.hooks):
                if each is not None:
                    closing.push_async_callback(each.aclose)
            await asyncio.gather(*(chat.stop() for chat in list(self._chats)))

    @property
    def uses_tools(self) -> bool:
        """True if the agent has tools, and its model supports them."""
        return bool(self.setup.agent_settings.tools and self.model.supports_tools)


def _judge(spec: ToolSpec) -> str | None:
    from chatbot.chat.governor import judge_tool  # loaded late: its patterns take long to compile

    return judge_tool(spec)


def _clean(text: str) -> str:
    from chatbot.chat.governor import without_role_marks

    return without_role_marks(text)
