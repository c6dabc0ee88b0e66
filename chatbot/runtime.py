"""The composition root: from options to an open identity with its memory, model, hooks and chats.

Everything is wired here. `Setup` resolves and checks the settings and opens a memory, for commands that need no more;
`Runtime` opens the rest, and closes what it opens.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Self

from chatbot.allowed import is_harmless_model
from chatbot.config import AgentSettings, Config, ModelSettings, Settings, Table, from_variable, parse_toml, renamed
from chatbot.errors import ChatbotError, ConfigError, SessionError, UnknownModel
from chatbot.identity import FILE_NAME, Identity, check_name, load_identity, parse_identity
from chatbot.memory import SessionHandle, SessionRecord
from chatbot.memory.memory import Memory
from chatbot.memory.scope import Caller, MemoryEvent, Tell, utc_now
from chatbot.memory.scoring import PROFILES
from chatbot.memory.system import MemorySystem, SystemOptions
from chatbot.messages import CallOptions, Delta, Message, ToolSpec
from chatbot.stores.access import TOOL_RIGHTS, Clearance, least_clearance
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import StoreError, did_you_mean
from chatbot.stores.files import locked, make_folder
from chatbot.stores.home import Home, parse_address
from chatbot.stores.lifecycle import AsyncResource
from chatbot.stores.plugins import STORES, check_settings, load
from chatbot.stores.span import Observer, observed
from chatbot.telemetry import open_telemetry

if TYPE_CHECKING:
    from chatbot.chat import Chat
    from chatbot.chat.ledger import Payer
    from chatbot.embedding import Embedder, EmbeddingResult
    from chatbot.memory.memorability import Memorability
    from chatbot.messages import Usage
    from chatbot.models.model import Model
    from chatbot.telemetry.telemetry import Telemetry
    from chatbot.tools import Confirm, Tool, Toolbox

logger = logging.getLogger(__name__)

IN_MEMORY = "in_memory"
SERVER = ".server"
"""Place of tokens and requests, beside the identities."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a caller, which override the configuration."""

    config: Path | None = None
    identity: str | None = None
    agent: str = "chat"
    model: str | None = None
    persona: str | None = None
    ephemeral: bool = False
    budget_usd: float | None = None
    host: str | None = None
    port: int | None = None
    namespace: str = ""
    """The part of the memory to use; see `chatbot.memory.scope`."""
    project: str | None = None
    """Project of sessions; `-` for none, None for that of the agent's settings."""
    settings: Settings | None = None
    """The configuration, where it was read already; `config` is then not read."""
    telemetry: Telemetry | None = None
    """Telemetry that the caller closes; without it, what `[telemetry]` asks for."""

    def as_table(self) -> Table:
        """Return the options that are settings, in the form of the configuration file."""
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
    owners: Config
    """The configuration without that of the identity."""
    identity: Identity
    identities: Path
    agent: str
    is_default_identity: bool
    """True for the identity that is used when none is asked for."""
    project: str | None = None
    """The project that was asked for or configured; empty for none, None where nothing says which."""

    @classmethod
    def resolve(cls, options: Options | None = None) -> Setup:
        """Read the configuration and the identity that it names. Raises `ConfigError` or `IdentityError`."""
        options = options or Options()
        flags = options.as_table()
        settings = (
            options.settings.with_flags(flags) if options.settings else Settings.read(options.config, flags=flags)
        )
        owners = settings.combined()
        root = _identities(settings, owners)
        identity = load_identity(root, owners.identity, owners.nameable_providers)
        settings = settings.with_identity(identity.overrides, identity.file)
        config = settings.combined()
        if config.providers:
            _check_providers(settings, config)
        _check_agent(options.agent, config)
        project = config.agents[options.agent].project or None if options.project is None else options.project
        is_default = options.identity is None
        project = Caller(project=project).project
        return cls(
            settings, config, owners, identity, root, options.agent, is_default_identity=is_default, project=project
        )

    @classmethod
    @contextmanager
    def with_identity(cls, options: Options, name: str, text: str) -> Iterator[Setup]:
        """Yield the setup of an identity, which is made with this `identity.toml` where there is none.

        What was made is deleted again where an error shows that it is none.
        """
        check_name(name)
        settings = options.settings or Settings.read(options.config)
        folder = _identities(settings, settings.combined()) / name
        is_new = not os.path.lexists(folder)
        if not (folder / FILE_NAME).exists():
            make_folder(folder)
            with locked(folder) as opened:
                opened.replace(FILE_NAME, text.encode())
        try:
            yield cls.resolve(replace(options, identity=name))
        except (ChatbotError, StoreError):
            if is_new:
                rmtree(folder)
            raise

    def with_file(self, text: str) -> Setup:
        """Return the setup that another text of `identity.toml` gives; nothing is written. Raises `ConfigError`."""
        own = self.identity
        table = parse_toml(text, own.file)
        identity = parse_identity(own.name, own.folder, table, self.owners.nameable_providers)
        settings = self.settings.with_identity(identity.overrides, identity.file)
        changed = replace(self, identity=identity, settings=settings, config=settings.combined())
        _check_agent(changed.agent, changed.config)
        changed.check()
        return changed

    @property
    def agent_settings(self) -> AgentSettings:
        """The settings of the agent that was asked for."""
        return self.config.agents[self.agent]

    def source(self, *place: str) -> Path | str:
        """Return the file or the variable that sets `place` in the configuration; empty where none does."""
        return self.settings.source(*place)

    @property
    def home(self) -> Home:
        """Return the home of the identity, which holds all of it. Raises `ConfigError` for an invalid address."""
        return self._home(self.config, self.identity.name, self.identity.memory)

    @property
    def server_home(self) -> Home:
        """Return the home of tokens and requests, which belong to no identity. Raises `ConfigError`."""
        return self._home(self.owners, SERVER, self.identities / SERVER)

    def _home(self, config: Config, name: str, folder: Path) -> Home:
        url = from_variable(config.storage.url, "url in [storage]")
        try:
            return parse_address(url).of(name) if url else folder
        except StoreError as error:
            raise self._wrong(("storage", "url"), error) from error

    def check(self) -> None:
        """Raise the first of the `mistakes`, if there are any."""
        for mistake in self.mistakes():
            raise mistake

    def mistakes(self) -> Iterator[ConfigError]:
        """Yield an error for each store, tool and hook in the configuration that is missing or set wrong."""
        agents, beside = self.config.agents, self.settings.plugins_beside
        stores = {name for agent in agents.values() for name in agent.memory} - STORES.own.keys()
        for name in sorted(stores | self.config.memory.keys()):
            agent = next((each for each, settings in agents.items() if name in settings.memory), "")
            table = ("memory", name) if name in self.config.memory else ("agents", agent, "memory")
            yield from self._mistake(table, partial(self._check_store, name))
        from chatbot.hooks.hook import plan_hook
        from chatbot.tools.toolbox import TOOLS
        from chatbot.tools.toolbox import load as load_tools

        for agent, settings in agents.items():
            for name in sorted({*settings.tools} - TOOLS.own.keys()):
                yield from self._mistake(("agents", agent, "tools"), partial(load_tools, name, beside=beside))
        for name, hook in self.config.hooks.items():
            yield from self._mistake(("hooks", name), partial(plan_hook, name, hook, beside=beside))

    def _check_store(self, name: str) -> None:
        check_settings(name, load(name, beside=self.settings.plugins_beside), self.config.memory.get(name, {}))

    def _mistake(self, table: tuple[str, ...], check: Callable[[], object]) -> Iterator[ConfigError]:
        """Yield the error that a check raises, with the source of the setting in that table."""
        try:
            check()
        except (StoreError, ConfigError) as error:
            yield self._wrong(table, error)

    @property
    def observations(self) -> str | None:
        """The first of the agent's stores that keeps observations in files."""
        for name in self.agent_settings.memory:
            store = load(name, beside=self.settings.plugins_beside)
            if issubclass(store, ObservationStore) and store.keeps_files:
                return name
        return None

    def observation_store(self) -> str:
        """Return the same. Raises `ConfigError` where there is none."""
        if (name := self.observations) is not None:
            return name
        stores = ", ".join(f'"{name}"' for name in (*self.agent_settings.memory, "observations"))
        raise ConfigError(
            f"no store of the agent {self.agent!r} keeps memories: set [agents.{self.agent}] memory = [{stores}]"
        )

    def why_lost(self, stores: Sequence[str]) -> str:
        """Return why a session that uses these stores keeps nothing; empty where one of them keeps files."""
        if any(load(name, beside=self.settings.plugins_beside).keeps_files for name in stores):
            return ""
        what = (
            f"{', '.join(stores)} forgets everything at the end"
            if stores
            else f"the agent {self.agent!r} has no stores"
        )
        remedy = f'set [agents.{self.agent}] memory = ["basic_session", "observations"]'
        return f"this chat keeps nothing: {what}; to keep it, {remedy}"

    def exchange_gate(self) -> Memorability | None:
        """Return the gate for exchanges; None where the agent remembers none. Raises `ConfigError`."""
        from chatbot.hooks.capture import exchange_gate

        wanted = self.agent_settings.remember_exchanges
        return exchange_gate(self.config.hooks, beside=self.settings.plugins_beside) if wanted else None

    def clearance(self, asked: Clearance | None = None) -> Clearance:
        """Return what a caller may see: what the identity allows, or less. Raises `ConfigError` for more."""
        allowed = self.identity.clearance
        if asked is not None and least_clearance(asked, allowed) != asked:
            raise ConfigError(f"the identity {self.identity.name!r} allows {allowed}, and {asked} is more than that")
        return asked or allowed

    def _wrong(self, place: tuple[str, ...], error: Exception) -> ConfigError:
        message = str(error)
        if not self.settings.is_chosen and "not found: it should have" in message:
            message += "; plug-ins beside a file that was only found are loaded after `chatbot config trust`"
        return self.settings.wrong(place, message)

    def open_memory(
        self,
        *,
        ephemeral: bool = False,
        observations: str | None = None,
        clearance: Clearance | None = None,
        tell: Tell | None = None,
        clock: Callable[[], datetime] = utc_now,
        observer: Observer | None = None,
        namespace: str = "",
        project: str | None = None,
    ) -> MemorySystem:
        """Open the identity's memory, or one that writes nothing; `observations` is the store of what is remembered.

        Nobody sees more through it than the identity's clearance allows, or less where `clearance` says so. Where a
        `project` is given, nothing leaves it.
        """
        ttl = self.config.sessions.ttl_days
        named = {name for agent in self.config.agents.values() for name in agent.memory}
        return MemorySystem(
            None if ephemeral else self.home,
            Caller(
                namespace,
                clearance=self.clearance(clearance),
                sensitivity=self.identity.sensitivity,
                observer=observer,
                project=project,
            ),
            settings={name: self.config.memory.get(name, {}) for name in {*named, *self.config.memory}},
            ttl=timedelta(days=ttl) if ttl else None,
            embedder=_open_embedder(self.config),
            clock=clock,
            options=SystemOptions(
                observations=observations,
                plugins_beside=self.settings.plugins_beside,
                profiles={name: replace(each, meaning=self.config.embedding.weight) for name, each in PROFILES.items()},
                questions=lambda: self.config.questions,
                bill=self._bill_embedding,
                tell=tell,
                project=self.project or "",
            ),
        )

    async def _bill_embedding(self, model: str, usage: Usage, seconds: float) -> None:
        if model.startswith("local/"):
            return  # it costs nothing, and a line for each search would cost a write
        from chatbot.chat.ledger import Call, Ledger

        await Ledger(self.home).add(Call(utc_now(), "", "embed", model, usage, seconds))


class Runtime(AsyncResource):
    """An identity, open: its memory and its model. Open with `async with`.

    `confirm` asks the user about the calls of tools that are not to be made unasked; without it they are refused.
    `is_terminal` says that it shows them to a person: tools for files are offered nowhere else.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        model: Model | None = None,
        tools: tuple[Tool, ...] = (),
        confirm: Confirm | None = None,
        is_terminal: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from chatbot.chat.ledger import Ledger
        from chatbot.hooks.hooks import Hooks
        from chatbot.models import open_model
        from chatbot.models.rerank import open_reranker
        from chatbot.tools.mcp import McpServers

        options = options or Options()
        self.setup = Setup.resolve(options)
        self.setup.check()
        self._persona = options.persona or self.setup.identity.persona
        self._ephemeral = options.ephemeral
        self._asked_project = None if options.project is None else self.setup.project
        self._telemetry = None if options.telemetry else open_telemetry(self.config.telemetry)
        telemetry = options.telemetry or self._telemetry
        self._observer = telemetry.observer if telemetry else None
        self.model = model or open_model(self.config.model, self.config.providers)
        self._reranker = open_reranker(self.config.rerank, self.config.providers)
        self.model_asked_for = model.name if model else self.setup.config.model.name
        """The name of the model, with the folders of a model file."""
        self.memory = self.setup.open_memory(
            ephemeral=options.ephemeral,
            observations=None if self._ephemeral else self.setup.observations,
            tell=self._tell,
            clock=clock,
            observer=self._observer,
            namespace=options.namespace,
        )
        self._clock = clock
        self.ledger = Ledger(self.setup.home)
        self._tools = tools
        self.confirm = confirm
        self._is_terminal = is_terminal
        self._former: list[Model] = []
        self._others: dict[str, Model] = {}
        self._servers = McpServers(self.config.mcp.servers, self.setup.settings.folder, _judge, _clean)
        self.hooks = Hooks(
            config=self.config,
            identity=self.setup.identity.name,
            agent=self.agent,
            memory=self.memory,
            model=self.model,
            ledger=self.ledger,
            home=self.memory.where,
            plugins_beside=self.setup.settings.plugins_beside,
            clock=clock,
            observer=self._observer,
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

    async def ready(self) -> None:
        """Wait until a turn needs to load nothing more and the servers of tools have started, or have failed to."""
        self.warm()
        await self.model.ready()
        if self._uses_servers:
            await self._servers.tools()

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing goes on in the background: no hook runs, and nothing is being embedded."""
        return self.hooks.is_at_rest and not self.memory.is_embedding

    def memories(self) -> Memory:
        """Return the memory for a caller without a session. Raises `ConfigError` where the agent keeps nothing."""
        self.check_memories()
        return self.memory.memory(self.agent)

    @property
    def remembers(self) -> bool:
        """Return whether the agent has a memory beyond a session."""
        return self._ephemeral or self.setup.observations is not None

    def check_memories(self) -> None:
        """Raise `ConfigError` where the agent keeps nothing."""
        if not self._ephemeral:
            self.setup.observation_store()

    async def new_session(self, *, namespace: str | None = None, project: str | None = None) -> SessionHandle | None:
        """A new session of the agent; None for an agent without stores, which then chats without a memory.

        `namespace` and `project` say which part of memory it uses, where that is not the runtime's own.
        """
        if not self.store_types:
            return None
        memory = self.memory.cleared_for(namespace=namespace, project=project)
        return await memory.create_session(self.store_types, self.agent)

    async def resume(self, text: str | None = None) -> SessionHandle | None:
        """Load the session with that id, beginning of an id, or title; without a text the last one used, or a new one.

        Raises a `SessionError` where the text does not name one session of this agent.
        """
        if text is not None:
            record = await self.find(text)
            return await self.memory.load_session(record.id, self.agent)
        if not self.store_types:
            return None
        here = self.memory.cleared_for(project=self.setup.project or "")
        return await here.latest_session(self.agent) or await self.new_session()

    async def find(self, text: str) -> SessionRecord:
        """Return the agent's session with that id, beginning of an id, or title, in the project that was asked for."""
        return await self.memory.cleared_for(project=self._asked_project).find_session(text, self.agent)

    def keeps(self, session: SessionHandle | None) -> bool:
        """Return whether anything of a chat in `session` is kept when it ends."""
        return not (self._ephemeral or self._why_lost(session))

    def warning(self, session: SessionHandle | None) -> str:
        """Return a warning for a chat in `session` that keeps nothing, unless that was asked for."""
        return "" if self._ephemeral else self._why_lost(session)

    @property
    def is_tiny(self) -> bool:
        """Return whether the embedded model answers, which knows little."""
        return self.model.name == ModelSettings().name

    def _why_lost(self, session: SessionHandle | None) -> str:
        return self.setup.why_lost(() if session is None else session.record.store_types)

    def chat(self, session: SessionHandle | None) -> Chat:
        """A conversation in `session`, by the rules of the agent. Raises `MissingRight`: it takes `chat`."""
        from chatbot.chat import Chat, Rules

        rules = Rules(
            persona=self._persona,
            agent=self.agent,
            settings=self.setup.agent_settings,
            budget=self.config.budget,
            max_output_tokens=self.config.model.max_output_tokens,
            candidates=self.config.rerank.candidates,
        )
        return Chat(
            model=self.model,
            session=session and session.for_turns(),
            rules=rules,
            ledger=self.ledger,
            tools=self.tools(session),
            publisher=self.hooks,
            clock=self._clock,
            observer=self._observer,
            reranker=self._reranker,
        )

    def _tell(self, event: MemoryEvent) -> None:
        self.hooks.tell(event)

    async def discard_empty(self, session: SessionHandle | None) -> bool:
        """Delete a session in which nothing was said or remembered; return False where anything is kept of it."""
        if session is None:
            return False
        with suppress(StoreError, SessionError):
            if await session.transcript_count():
                return False
            await self.leave(session)
            if (await self.memory.deleting(session.id)).ids:
                return False
            await self.memory.delete_session(session.id)
            return True
        return False

    async def leave(self, session: SessionHandle | None) -> None:
        """Close a session: its hooks end. Sessions that are still open end with `aclose`."""
        if session is not None:
            await self.hooks.end(session.id)

    def answer(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        options: CallOptions | None = None,
        payers: Sequence[Payer] = (),
    ) -> AsyncGenerator[Delta, None]:
        """Ask the model without a session: nothing is recalled or kept but the bill. Yields deltas, `Finished` last.

        The persona comes first, unless `messages` have a system message. Raises `BudgetExceeded`, `ContextTooLong`, or
        the `ModelError` of the model.
        """
        from chatbot.chat.calls import Calls

        if not any(message.role == "system" for message in messages):
            messages = (Message("system", self._persona), *messages)
        most = self.config.model.max_output_tokens
        with observed(self._observer):
            calls = Calls(
                self.model,
                self.ledger,
                self.config.budget,
                reply_tokens=min(max_output_tokens or most, most),
                payers=payers,
                clock=self._clock,
            )
        return calls.stream("answer", messages, tools=tools, options=options)

    async def embed(self, texts: Sequence[str], *, payers: Sequence[Payer] = ()) -> tuple[str, EmbeddingResult]:
        """Return the name of the memory's encoder, and its vectors of these texts; see `MemorySystem.embed`.

        Raises `BudgetExceeded` where a limit of the day is spent, unless the encoder is on this machine.
        """
        from chatbot.chat import Bill
        from chatbot.chat.ledger import Call, limits_of
        from chatbot.models.model import estimate_text

        if not self.config.embedding.model or self.config.embedding.model.startswith("local/"):
            return await self.memory.embed(texts)
        budget, now = self.config.budget, self._clock()
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        spent = await self.ledger.since(today) if budget.day_usd or budget.day_tokens else Bill()
        limits = limits_of(budget, Bill(), spent)
        for payer in payers:
            limits += payer.quota.limits(await payer.spent(now), payer.whose, now)
        for limit in limits:
            if limit.left <= (sum(map(estimate_text, texts)) if limit.unit == "tokens" else 0):
                raise limit.refusal()
        name, found = await self.memory.embed(texts)
        for payer in payers:
            await payer.ledger.add(Call(now, payer.account(now), "embed", name, found.usage, 0.0))
        return name, found

    async def use_model(self, name: str) -> None:
        """Go on with another model: the next `chat` has it. Raises `ModelError` or `ConfigError`, and changes nothing.

        It is called by the settings of `[model]`, as with the option `model`; a key and an address there only where it
        is of the same provider. Hooks keep the model they began with.
        """
        model = await self._opened(name)
        self._former.append(self.model)
        self.model, self.model_asked_for = model, name

    async def model_named(self, name: str) -> Model:
        """Return another model for single sessions, or this one for its own name. Raises like `use_model`.

        A session may come from elsewhere, so it may name what an untrusted file may, and what the owner configured.
        """
        if name in {"", self.model_asked_for}:
            return self.model
        config = self.config
        if name not in config.aliases and not is_harmless_model(name, config.providers):
            raise UnknownModel(
                f"a session may not choose the model {name!r:.80}: name it in [aliases] or in [providers], "
                "or choose another one"
            )
        if name not in self._others:
            self._others[name] = await self._opened(name)
        return self._others[name]

    async def _opened(self, name: str) -> Model:
        from chatbot.models import open_model

        name = self.config.aliases.get(name, name)
        model = open_model(renamed(self.config.model, name), self.config.providers)
        try:
            await model.check()
        except BaseException:
            await model.aclose()
            raise
        return model

    def tools(self, session: SessionHandle | None, model: Model | None = None) -> Toolbox:
        """Return the tools of `session`: those of the caller, those that the agent names, and those of MCP servers.

        Empty where the model takes no tools; it is `model`, else the identity's. Raises `ConfigError`.
        """
        from chatbot.chat.tool_names import ToolContext
        from chatbot.tools import Toolbox
        from chatbot.tools.toolbox import TOOLS, tools_of

        model = model or self.model
        if not model.supports_tools:
            return Toolbox()
        own = session and session.for_tools()
        memory = own.confined(self.memory) if own else self.memory.cleared_for(rights=TOOL_RIGHTS)
        context = ToolContext(own, memory, self.agent, self.setup.identity.name)
        names = self.setup.agent_settings.tools
        withheld = model.disclosure.withheld_tools

        given = (*self._tools, *self._file_tools())

        def named() -> list[Tool]:
            tools = tools_of(names, context, beside=self.setup.settings.plugins_beside)
            return [kept for tool in tools if (kept := tool.without(withheld)) is not None]

        is_ours = TOOLS.own.keys() >= set(names)  # nothing is wrong with those, and the first prompt need not wait
        return Toolbox(
            given if is_ours else (*given, *named()),
            later=named if is_ours else None,
            sources=[self._servers] if self._uses_servers else [],
            confirm=self.confirm,
        )

    def _file_tools(self) -> list[Tool]:
        """Return the tools for the folder that the user named; none but in a terminal, where each call is shown."""
        folder, settings = self.config.files.folder, self.setup.settings
        if not (folder and self._is_terminal and self.setup.agent_settings.tools):
            return []
        from chatbot.tools.file_tools import file_tools

        place = settings.folder / Path(folder).expanduser()
        if place.resolve().is_relative_to(self.setup.identities.resolve()):
            raise ConfigError(
                f"[files] folder {place} is inside the identities: a model may not change what is kept there"
            )
        ours = (self.setup.identities, *([settings.path] if settings.path else []))
        return file_tools(place, ours=ours)

    async def aclose(self) -> None:
        """End the sessions that were used, close memory and model, end the servers of tools. May be called twice."""
        try:
            await self.hooks.aclose()
            await self._servers.aclose()
        finally:
            await self.memory.aclose()
            for model in (self.model, *self._former, *self._others.values(), self._reranker):
                if model is not None:
                    await model.aclose()
            if self._telemetry is not None:
                await self._telemetry.aclose()

    @property
    def _uses_servers(self) -> bool:
        """An agent that is to have no tools has none of theirs either."""
        return bool(self.setup.agent_settings.tools and self.model.supports_tools)

    async def __aenter__(self) -> Self:
        if self.config.sessions.ttl_days:
            await self.memory.expire_sessions(keep_memory=self.config.sessions.ttl_keeps_memory)
        return self


def _identities(settings: Settings, outline: Config) -> Path:
    """Return the folder of identities. Raises `ConfigError` where a link leads out of an untrusted file's folder."""
    root = settings.folder / outline.identities
    is_chosen = settings.is_chosen or settings.source("identities") not in {"", settings.path}
    if not is_chosen and not root.resolve().is_relative_to(settings.folder):
        raise ConfigError(
            f"{settings.path} is not trusted: its identities are in {root.resolve()}. "
            f"review that, then run `chatbot config trust`, or pass --config {settings.path}",
            at=settings.path or "",
        )
    return root


def _open_embedder(config: Config) -> Embedder | None:
    if not config.embedding.model:
        return None
    from chatbot.models.embedding import open_embedder

    return open_embedder(config.embedding, config.providers)


def _check_agent(agent: str, config: Config) -> None:
    if agent not in config.agents:
        raise ConfigError(f"no agent is called {agent!r}{did_you_mean(agent, config.agents)}")


def _check_providers(settings: Settings, config: Config) -> None:
    from chatbot.models.provider import check_providers

    try:
        check_providers(config.providers)
    except ConfigError as error:
        raise settings.wrong(("providers",), str(error)) from error


def _judge(spec: ToolSpec) -> str | None:
    from chatbot.chat.governor import judge_tool  # loaded late: its patterns take long to compile

    return judge_tool(spec)


def _clean(text: str) -> str:
    from chatbot.chat.governor import without_role_marks

    return without_role_marks(text)
