"""The composition root: from settings to an open identity with its memory, model and chats. Closes what it opens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import asdict, replace

from chatbot.chat import Chat, Rules
from chatbot.chat.answer import answer
from chatbot.chat.ledger import Ledger
from chatbot.chat.tool_context import ToolContext
from chatbot.chat.usage import Call
from chatbot.config import AgentSettings, Config, EmbeddingSettings, Settings, Table
from chatbot.embedding import Embedder
from chatbot.errors import ConfigError
from chatbot.identity import Identity, load_identity
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.record import utc_now
from chatbot.memory.remembering import Memories
from chatbot.memory.scoring import PROFILES, Profile, tuned
from chatbot.memory.told import MemoryEvent, Tell
from chatbot.messages import Delta, Message, ToolSpec, Usage
from chatbot.models import open_model
from chatbot.models.base import Model
from chatbot.pipeline.pipeline import Pipeline
from chatbot.pipeline.plugins import plan
from chatbot.tools import Confirm, Tool, Toolbox
from chatbot.tools.mcp import McpServers
from chatbot.tools.plugins import TOOLS, tools_of
from chatbot.tools.plugins import load as load_tools
from stores.access import Clearance, least_clearance
from stores.base import ObservationStore
from stores.errors import InvalidValue, StoreError, did_you_mean
from stores.lifecycle import AsyncResource
from stores.plugins import check_settings, load

if TYPE_CHECKING:
    from chatbot.memory.maintenance.policy import Policy

IN_MEMORY = "in_memory"


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may ask for beyond the configuration; each is stronger than it."""

    config: Path | None = None
    identity: str | None = None
    agent: str = "chat"
    model: str | None = None
    persona: str | None = None
    ephemeral: bool = False
    budget_usd: float | None = None
    host: str | None = None
    port: int | None = None

    def as_table(self) -> Table:
        """The options that are settings, in the form of the configuration file."""
        table: Table = {}
        if self.identity is not None:
            table["identity"] = self.identity
        if self.model is not None:
            table["model"] = {"name": self.model}
        if self.budget_usd is not None:
            table["budget"] = {"session_usd": self.budget_usd}
        if server := {name: value for name in ("host", "port") if (value := getattr(self, name)) is not None}:
            table["server"] = server
        return table


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings and identity, resolved and checked; nothing is open yet."""

    settings: Settings
    config: Config
    identity: Identity
    identities: Path
    agent: str
    is_default_identity: bool
    """Whether this identity answers when none is asked for."""

    @classmethod
    def resolve(cls, options: Options | None = None) -> Setup:
        """Read the configuration and the identity that it names. Raises `ConfigError` or `IdentityError`."""
        options = options or Options()
        settings = Settings.read(options.config, flags=options.as_table())
        outline = settings.combined()
        root = settings.folder / outline.identities
        identity = load_identity(root, outline.identity)
        config = settings.combined(identity.overrides, identity.file)
        if options.agent not in config.agents:
            raise ConfigError(f"no agent is called {options.agent!r}{did_you_mean(options.agent, config.agents)}")
        return cls(settings, config, identity, root, options.agent, is_default_identity=options.identity is None)

    @property
    def agent_settings(self) -> AgentSettings:
        """The settings of the agent that was asked for."""
        return self.config.agents[self.agent]

    def check_stores(self) -> None:
        """Check that every store named in the configuration exists and knows its settings. Raises `ConfigError`."""
        used = {name for agent in self.config.agents.values() for name in agent.memory}
        try:
            for name in sorted(used | self.config.memory.keys()):
                check_settings(name, load(name, beside=self.settings.folder), self.config.memory.get(name, {}))
        except StoreError as error:
            raise ConfigError(f"{self.settings.path or 'the configuration'}: {error}") from error

    def observation_store(self) -> str:
        """The first of the agent's stores that keeps observations in files. Raises `ConfigError` where it has none."""
        for name in self.agent_settings.memory:
            store = load(name, beside=self.settings.folder)
            if issubclass(store, ObservationStore) and store.keeps_files:
                return name
        stores = ", ".join(f'"{name}"' for name in (*self.agent_settings.memory, "observations"))
        raise ConfigError(
            f"no store of the agent {self.agent!r} keeps observations: set [agents.{self.agent}] memory = [{stores}]"
        )

    @property
    def policy(self) -> Policy:
        """What maintenance goes by."""
        from chatbot.memory.maintenance.policy import configured

        return configured(self.config.maintenance)

    def check_tools(self) -> None:
        """Check that the tools of every agent can be loaded. Raises `ConfigError`."""
        names = {name for agent in self.config.agents.values() for name in agent.tools}
        for name in sorted(names - TOOLS.own.keys()):
            load_tools(name, beside=self.settings.folder)

    def clearance(self, asked: Clearance | None = None) -> Clearance:
        """What a caller may see: what the identity allows, or less. Raises `ConfigError` where more was asked for."""
        allowed = self.identity.clearance
        if asked is not None and least_clearance(asked, allowed) != asked:
            raise ConfigError(f"the identity {self.identity.name!r} allows {allowed}, and {asked} is more than that")
        return asked or allowed

    def check_hooks(self) -> None:
        """Check that every hook in the configuration exists and knows its settings. Raises `ConfigError`."""
        for name, table in self.config.hooks.items():
            plan(name, table, beside=self.settings.folder)

    def open_memory(
        self,
        *,
        ephemeral: bool = False,
        observations: str | None = None,
        clearance: Clearance | None = None,
        tell: Tell | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> MemorySystem:
        """The identity's sessions, or a memory that writes nothing; `observations` is the store of what is remembered.

        Nobody sees more through it than the identity's clearance allows, or less where `clearance` says so.
        """
        ttl = self.config.sessions.ttl_days
        embedding = self.config.embedding
        return MemorySystem(
            None if ephemeral else self.identity.memory,
            settings=self.config.memory,
            ttl=timedelta(days=ttl) if ttl else None,
            plugins_beside=self.settings.folder,
            clearance=self.clearance(clearance),
            observations=observations,
            embedder=_open_embedder(embedding) if embedding.model else None,
            meaning_weight=embedding.weight,
            bill=self._bill_embedding,
            profiles=self._profiles(),
            tell=tell,
            clock=clock,
        )

    def _profiles(self) -> dict[str, Profile]:
        """The ways of ranking, as the configuration changes them. Raises `ConfigError`."""
        profiles = dict(PROFILES)
        for name, settings in asdict(self.config.profiles).items():
            changes = {key: value for key, value in asdict(settings).items() if value is not None}
            try:
                profiles[name] = tuned(profiles[name], changes)
            except InvalidValue as error:
                raise ConfigError(f"[profiles.{name}] half_lives: {error}") from error
        return profiles

    async def _bill_embedding(self, model: str, usage: Usage, seconds: float) -> None:
        await Ledger(self.identity.memory).add(Call(utc_now(), "", "embed", model, usage, seconds))


def _open_embedder(settings: EmbeddingSettings) -> Embedder | None:
    from chatbot.models.embedding import open_embedder

    return open_embedder(settings)


class Runtime(AsyncResource):
    """An identity, open: its memory and its model. Open with `async with`.

    `confirm` asks the user about the calls of tools that are not to be made unasked; without it they are refused.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        model: Model | None = None,
        tools: tuple[Tool, ...] = (),
        confirm: Confirm | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        options = options or Options()
        self.setup = Setup.resolve(options)
        self.setup.check_stores()
        self.setup.check_tools()
        self.setup.check_hooks()
        self._persona = options.persona or self.setup.identity.persona
        self._ephemeral = options.ephemeral
        self.model = model or open_model(self.setup.config.model)
        self.memory = self.setup.open_memory(
            ephemeral=options.ephemeral, observations=self._observations(), tell=self._tell, clock=clock
        )
        self._clock = clock
        self.ledger = Ledger(self.setup.identity.memory)
        self._tools = tools
        self._confirm = confirm
        self._former: list[Model] = []
        self._servers = McpServers(self.config.mcp.servers, self.setup.settings.folder)
        self.pipeline = Pipeline(
            config=self.config,
            identity=self.setup.identity.name,
            agent=self.agent,
            memory=self.memory,
            model=self.model,
            ledger=self.ledger,
            home=self.memory.home,
            plugins_beside=self.setup.settings.folder,
            clock=clock,
        )

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.setup.config

    @property
    def agent(self) -> str:
        """The agent in use."""
        return self.setup.agent

    @property
    def store_types(self) -> tuple[str, ...]:
        """The stores of new sessions."""
        asked = self.setup.agent_settings.memory
        return (IN_MEMORY,) if asked and self._ephemeral else asked

    def warm(self) -> None:
        """Begin to load, in the background, what a turn will need."""
        self.model.warm()
        if self._uses_servers:
            self._servers.begin()

    def memories(self) -> Memories:
        """What is remembered, for a caller without a session. Raises `ConfigError` where the agent keeps nothing."""
        if not self._ephemeral:
            self.setup.observation_store()
        return self.memory.memories(self.agent)

    async def new_session(self) -> SessionHandle | None:
        """A new session of the agent; None for an agent without stores, which then chats without a memory."""
        if not self.store_types:
            return None
        return await self.memory.create_session(self.store_types, self.agent)

    async def resume(self, text: str | None = None) -> SessionHandle | None:
        """The session with that id, beginning of an id, or title; without a text the one used last, or a new one.

        Raises a `SessionError` where the text does not name one session of this agent.
        """
        if text is not None:
            record = await self.memory.find_session(text, self.agent)
            return await self.memory.load_session(record.id, self.agent)
        if not self.store_types:
            return None
        return await self.memory.latest_session(self.agent) or await self.new_session()

    def chat(self, session: SessionHandle | None) -> Chat:
        """A conversation in `session`, by the rules of the agent."""
        rules = Rules(
            persona=self._persona,
            agent=self.agent,
            settings=self.setup.agent_settings,
            budget=self.config.budget,
            max_output_tokens=self.config.model.max_output_tokens,
        )
        return Chat(
            model=self.model,
            session=session,
            rules=rules,
            ledger=self.ledger,
            tools=self.tools(session),
            publisher=self.pipeline,
            clock=self._clock,
        )

    def _tell(self, event: MemoryEvent) -> None:
        self.pipeline.tell(event)

    async def leave(self, session: SessionHandle | None) -> None:
        """Tell the hooks that a session is over for now, if it began. What is left open ends with `aclose`."""
        if session is not None:
            await self.pipeline.end(session.id)

    def answer(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), max_output_tokens: int | None = None
    ) -> AsyncGenerator[Delta, None]:
        """Ask the model just that, without a session; see `answer`. The persona speaks first, unless a system does."""
        if not any(message.role == "system" for message in messages):
            messages = (Message("system", self._persona), *messages)
        most = self.config.model.max_output_tokens
        return answer(
            self.model,
            messages,
            tools=tools,
            max_output_tokens=min(max_output_tokens or most, most),
            budget=self.config.budget,
            ledger=self.ledger,
        )

    async def use_model(self, name: str) -> None:
        """Go on with another model: the next `chat` has it. Raises `ModelError` or `ConfigError`, and changes nothing.

        It is called by the settings of `[model]`, as with the option `model`. Hooks keep the model they began with.
        """
        model = open_model(replace(self.config.model, name=name))
        try:
            await model.check()
        except BaseException:
            await model.aclose()
            raise
        self._former.append(self.model)
        self.model = model

    def tools(self, session: SessionHandle | None) -> Toolbox:
        """What the model is offered in `session`: what the caller gave, what the agent names, those of servers.

        Nothing where the model takes no tools. Raises `ConfigError`.
        """
        if not self.model.supports_tools:
            return Toolbox()
        context = ToolContext(session, self.memory, self.agent, self.setup.identity.name)
        names = self.setup.agent_settings.tools
        return Toolbox(
            (*self._tools, *tools_of(names, context, beside=self.setup.settings.folder)),
            sources=[self._servers] if self._uses_servers else [],
            confirm=self._confirm,
        )

    def _observations(self) -> str | None:
        try:
            return None if self._ephemeral else self.setup.observation_store()
        except ConfigError:
            return None  # the agent keeps none, and `memories` says so

    async def aclose(self) -> None:
        """End the sessions that were used, close memory and model, end the servers of tools. May be called twice."""
        try:
            await self.pipeline.aclose()
            await self._servers.aclose()
        finally:
            await self.memory.aclose()
            for model in (self.model, *self._former):
                await model.aclose()

    @property
    def _uses_servers(self) -> bool:
        """An agent that is to have no tools has none of theirs either."""
        return bool(self.setup.agent_settings.tools and self.model.supports_tools)

    async def __aenter__(self) -> Self:
        if self.config.sessions.ttl_days:
            await self.memory.expire_sessions()
        return self
