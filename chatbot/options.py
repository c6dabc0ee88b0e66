"""Options of a caller, and the `Setup` made from them: settings and identity, resolved and checked, nothing opened."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.ledger import Call, Ledger
from chatbot.config import AgentSettings, Config, Table, from_variable
from chatbot.config_layers import Settings, parse_toml
from chatbot.embedder import Embedder
from chatbot.errors import ConfigError, NotTrusted
from chatbot.hooks.hook import plan_hook
from chatbot.identity import Identity, load_identity, parse_identity
from chatbot.memory.scope import Caller, EventListener, SystemOptions, utc_now
from chatbot.memory.scoring import PROFILES
from chatbot.memory.system import MemorySystem
from chatbot.models.embedders import open_embedder
from chatbot.models.provider import check_providers
from chatbot.stores.access import Clearance, least_clearance
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import StoreError, did_you_mean
from chatbot.stores.home import Home, parse_address
from chatbot.stores.plugins import STORES, convert_store_settings, load
from chatbot.stores.records import check_text, check_type, real_path
from chatbot.stores.span import Observer
from chatbot.tools.toolbox import TOOLS
from chatbot.tools.toolbox import load as load_tools

if TYPE_CHECKING:
    from chatbot.messages import Usage
    from chatbot.telemetry.telemetry import Telemetry
else:
    Telemetry = Any  # `help` evaluates the annotations of a struct

IN_MEMORY = "in_memory"
SERVER = ".server"
"""Place of tokens and requests, next to the identities."""


class Options(Struct, frozen=True):
    """Options of a caller, which override the configuration."""

    config: Path | str | None = None
    identity: str | None = None
    agent: str = "chat"
    model: str | None = None
    persona: str | None = None
    ephemeral: bool = False
    budget_usd: float | None = None
    host: str | None = None
    port: int | None = None
    namespace: str = ""
    """Namespace of the memory to use; see `chatbot.memory.scope`."""
    project: str | None = None
    """Project of sessions; `-` for none, None for that of the agent's settings."""
    settings: Settings | None = None
    """The configuration, if it was read already; `config` is then not read."""
    telemetry: "Telemetry | None" = None
    """Telemetry that the caller closes; by default that of `[telemetry]`."""

    def as_table(self) -> Table:
        """Return the options that are settings, in the form of the configuration file."""
        tables: dict[str, Table] = {
            "model": {"name": self.model},
            "budget": {"session_usd": self.budget_usd},
            "server": {"host": self.host, "port": self.port},
        }
        given = {name: {key: each for key, each in table.items() if each is not None} for name, table in tables.items()}
        return given if self.identity is None else {"identity": self.identity, **given}


class Setup(Struct, frozen=True):
    """Settings and identity, resolved and checked; nothing is open yet."""

    settings: Settings
    config: Config
    owners: Config
    """The configuration without the settings of the identity."""
    identity: Identity
    identities: Path
    agent: str
    project: str | None = None
    """The project that was asked for or configured; empty for none, None if nothing names one."""

    @classmethod
    def resolve(cls, options: Options | None = None) -> "Setup":
        """Read the configuration and the identity that it names. Raises `ConfigError` or `IdentityError`."""
        options = options or Options()
        for name in ("model", "persona", "agent"):
            check_text(getattr(options, name) or "", f"the {name}")
        check_type(options.settings, Settings | None, "settings")
        settings = (options.settings or Settings.read(options.config)).with_flags(options.as_table())
        owners = settings.combined()
        root = identities_in(settings, owners)
        identity = load_identity(root, owners.identity, owners.nameable_providers, settings.path)
        settings = settings.with_identity(identity.overrides, identity.file)
        config = settings.combined()
        try:
            check_providers(config.providers)
        except ConfigError as error:
            raise settings.error_for(("providers",), str(error)) from error
        _check_agent(options.agent, config)
        project = config.agents[options.agent].project or None if options.project is None else options.project
        return cls(settings, config, owners, identity, root, options.agent, Caller(project=project).project)

    def with_file(self, text: str) -> "Setup":
        """Return the setup that another text of `identity.toml` gives; nothing is written. Raises `ConfigError`."""
        own = self.identity
        identity = parse_identity(own.name, own.folder, parse_toml(text, own.file), self.owners.nameable_providers)
        settings = self.settings.with_identity(identity.overrides, identity.file)
        changed = replace(self, identity=identity, settings=settings, config=settings.combined())
        _check_agent(changed.agent, changed.config)
        changed.check()
        return changed

    @property
    def agent_settings(self) -> AgentSettings:
        """The settings of the agent that was asked for."""
        return self.config.agents[self.agent]

    @property
    def home(self) -> Home:
        """The home of the identity's memory: a folder or an address. Raises `ConfigError` for an invalid one."""
        return self._home(self.config, self.identity.name, self.identity.memory)

    @property
    def server_home(self) -> Home:
        """The home of tokens and requests, which belong to no identity. Raises `ConfigError`."""
        return self._home(self.owners, SERVER, self.identities / SERVER)

    def _home(self, config: Config, name: str, folder: Path) -> Home:
        url = from_variable(config.storage.url, "url in [storage]")
        try:
            return parse_address(url).of(name) if url else folder
        except StoreError as error:
            raise self._error_for(("storage", "url"), error) from error

    def check(self) -> None:
        """Raise the first of the `mistakes`, if there are any."""
        for mistake in self.mistakes():
            raise mistake

    def mistakes(self) -> Iterator[ConfigError]:
        """Yield an error for each store, tool and hook that is missing or set wrong. Imports those of plug-ins."""
        agents, beside = self.config.agents, self.settings.plugins_beside
        stores = {name for agent in agents.values() for name in agent.memory} - STORES.own.keys()
        for name in sorted(stores | self.config.memory.keys()):
            agent = next((each for each, settings in agents.items() if name in settings.memory), "")
            table = ("memory", name) if name in self.config.memory else ("agents", agent, "memory")
            yield from self._mistake(table, partial(self._check_store, name))
        for agent, settings in agents.items():
            for name in sorted({*settings.tools} - TOOLS.own.keys()):
                yield from self._mistake(("agents", agent, "tools"), partial(load_tools, name, beside=beside))
        for name, hook in self.config.hooks.items():
            yield from self._mistake(("hooks", name), partial(plan_hook, name, hook, beside=beside))

    def _check_store(self, name: str) -> None:
        convert_store_settings(name, load(name, beside=self.settings.plugins_beside), self.config.memory.get(name, {}))

    def _mistake(self, table: tuple[str, ...], check: Callable[[], object]) -> Iterator[ConfigError]:
        """Yield the error that a check raises, with the source of the setting in that table."""
        try:
            check()
        except (StoreError, ConfigError) as error:
            yield self._error_for(table, error)

    @property
    def observations(self) -> str | None:
        """The first of the agent's stores that keeps observations permanently; None if none does."""
        for name in self.agent_settings.memory:
            store = load(name, beside=self.settings.plugins_beside)
            if issubclass(store, ObservationStore) and store.is_durable:
                return name
        return None

    def observation_store(self) -> str:
        """Return the store that `observations` names. Raises `ConfigError` if there is none."""
        if (name := self.observations) is not None:
            return name
        stores = ", ".join(f'"{name}"' for name in (*self.agent_settings.memory, "observations"))
        raise ConfigError(
            f"no store of the agent {self.agent!r} keeps memories: set [agents.{self.agent}] memory = [{stores}]"
        )

    def why_lost(self, stores: Sequence[str]) -> str:
        """Return why a session that uses these stores keeps nothing; empty if one of them is durable."""
        if any(load(name, beside=self.settings.plugins_beside).is_durable for name in stores):
            return ""
        forgets = f"{', '.join(stores)} forgets everything at the end"
        what = forgets if stores else f"the agent {self.agent!r} has no stores"
        return f'this chat keeps nothing: {what}: set [agents.{self.agent}] memory = ["basic_session", "observations"]'

    def clearance(self, asked: Clearance | None = None) -> Clearance:
        """Return the clearance of a caller: the identity's, or the lower `asked` one. Raises `ConfigError` for more."""
        allowed = self.identity.clearance
        if asked is not None and least_clearance(asked, allowed) != asked:
            raise ConfigError(f"the identity {self.identity.name!r} allows {allowed}, and {asked} is more than that")
        return asked or allowed

    def _error_for(self, place: tuple[str, ...], error: Exception) -> ConfigError:
        message = str(error)
        if not self.settings.is_chosen and isinstance(error.__cause__, ModuleNotFoundError):
            message += "; plug-ins next to a configuration file are loaded with --config, or if it is trusted for them"
        return self.settings.error_for(place, message)

    def open_memory(
        self,
        *,
        ephemeral: bool = False,
        is_billed: bool = True,
        observations: str | None = None,
        clearance: Clearance | None = None,
        on_event: EventListener | None = None,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = utc_now,
        observer: Observer | None = None,
        namespace: str = "",
        project: str | None = None,
    ) -> MemorySystem:
        """Open the identity's memory, or one that writes nothing but its bill; `observations` is the store of memories.

        Nobody sees more through it than the identity's clearance allows, or the lower `clearance` if given. With a
        `project`, everything stays in it. An `embedder` takes the place of that of the settings.
        """
        ttl, meant = self.config.sessions.ttl_days, self.config.embedding
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
            embedder=open_embedder(meant, self.config.providers) if embedder is None and meant.model else embedder,
            clock=clock,
            options=SystemOptions(
                observations=observations,
                plugins_beside=self.settings.plugins_beside,
                profiles={name: replace(each, meaning=meant.weight) for name, each in PROFILES.items()},
                questions=lambda: self.config.questions,
                bill=self._bill_embedding if is_billed else None,
                on_event=on_event,
                project=self.project or "",
            ),
        )

    async def _bill_embedding(self, model: str, usage: "Usage", seconds: float) -> None:
        if not model.startswith("local/"):  # that costs nothing, and a line for each search would cost a write
            await Ledger(self.home).settle(None, Call(utc_now(), "", "embed", model, usage, seconds))


def identities_in(settings: Settings, owners: Config) -> Path:
    """Return the folder of identities. Raises `ConfigError` if a link leads out of an untrusted file's folder."""
    root = settings.folder / owners.identities
    is_chosen = settings.is_chosen or settings.source("identities") not in {"", settings.path}
    real = real_path(root)
    if not is_chosen and not real.is_relative_to(settings.folder):
        raise NotTrusted(
            f"{settings.path} is not trusted: its identities are in {real}. "
            f"review that, then run `chatbot config trust`, or pass --config {settings.path}",
            at=settings.path or "",
        )
    return root


def _check_agent(agent: str, config: Config) -> None:
    if agent not in config.agents:
        raise ConfigError(f"no agent is called {agent!r:.80}{did_you_mean(str(agent), config.agents)}")
