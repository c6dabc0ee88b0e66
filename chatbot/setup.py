"""What is to be opened: the configuration and an identity, resolved and checked. Opens nothing but a memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from chatbot.config import AgentSettings, Config, EmbeddingSettings, Settings, Table
from chatbot.errors import ConfigError
from chatbot.identity import Identity, load_identity
from chatbot.memory.record import utc_now
from chatbot.memory.system import MemorySystem
from chatbot.memory.told import Tell
from stores.access import Clearance, least_clearance
from stores.base import ObservationStore
from stores.errors import InvalidValue, StoreError, did_you_mean
from stores.plugins import check_settings, load

if TYPE_CHECKING:
    from chatbot.embedding import Embedder
    from chatbot.memory.maintenance.policy import Policy
    from chatbot.memory.memorability import Memorability
    from chatbot.memory.scoring import Profile
    from chatbot.messages import Usage
    from chatbot.parts import Parts
    from chatbot.telemetry.telemetry import Telemetry


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
    telemetry: Telemetry | None = None
    """Whoever watches, which is the caller's to close; else what `[telemetry]` asks for."""

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

    def source(self, *place: str) -> Path | str:
        """The file or the variable that sets what is at `place` in the configuration; empty where none does."""
        return self.settings.source(*place, identity=self.identity.overrides, identity_path=self.identity.file)

    def check_stores(self) -> None:
        """Check that every store named in the configuration exists and knows its settings. Raises `ConfigError`."""
        used = {name for agent in self.config.agents.values() for name in agent.memory}
        for name in sorted(used | self.config.memory.keys()):
            try:
                check_settings(name, load(name, beside=self.settings.folder), self.config.memory.get(name, {}))
            except StoreError as error:
                agent = next((each for each, settings in self.config.agents.items() if name in settings.memory), "")
                named_in = ("memory", name) if name in self.config.memory else ("agents", agent, "memory")
                raise self._wrong(named_in, error) from error

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
        from chatbot.tools.plugins import TOOLS
        from chatbot.tools.plugins import load as load_tools

        for name in sorted(names - TOOLS.own.keys()):
            load_tools(name, beside=self.settings.folder)

    def exchange_gate(self) -> Memorability | None:
        """What decides which exchanges are remembered; None where the agent remembers none. Raises `ConfigError`."""
        from chatbot.pipeline.hooks.memorability import exchange_gate

        wanted = self.agent_settings.remember_exchanges
        return exchange_gate(self.config.hooks, beside=self.settings.folder) if wanted else None

    def clearance(self, asked: Clearance | None = None) -> Clearance:
        """What a caller may see: what the identity allows, or less. Raises `ConfigError` where more was asked for."""
        allowed = self.identity.clearance
        if asked is not None and least_clearance(asked, allowed) != asked:
            raise ConfigError(f"the identity {self.identity.name!r} allows {allowed}, and {asked} is more than that")
        return asked or allowed

    def check_hooks(self) -> None:
        """Check that every hook in the configuration exists and knows its settings. Raises `ConfigError`."""
        from chatbot.pipeline.plugins import plan

        for name, table in self.config.hooks.items():
            try:
                plan(name, table, beside=self.settings.folder)
            except ConfigError as error:
                raise self._wrong(("hooks", name), error) from error

    def _wrong(self, place: tuple[str, ...], error: Exception) -> ConfigError:
        return self.settings.wrong(place, str(error), self.identity.overrides, self.identity.file)

    def open_memory(
        self,
        *,
        ephemeral: bool = False,
        observations: str | None = None,
        clearance: Clearance | None = None,
        tell: Tell | None = None,
        clock: Callable[[], datetime] = utc_now,
        parts: Parts | None = None,
    ) -> MemorySystem:
        """The identity's sessions, or a memory that writes nothing; `observations` is the store of what is remembered.

        Nobody sees more through it than the identity's clearance allows, or less where `clearance` says so.
        """
        ttl = self.config.sessions.ttl_days
        embedding = self.config.embedding
        made = MemorySystem if parts is None else parts.memory
        return made(
            None if ephemeral else self.identity.memory,
            settings=self.config.memory,
            ttl=timedelta(days=ttl) if ttl else None,
            plugins_beside=self.settings.folder,
            clearance=self.clearance(clearance),
            observations=observations,
            embedder=_open_embedder(embedding) if embedding.model else None,
            meaning_weight=embedding.weight,
            bill=partial(self._bill_embedding, parts),
            profiles=self._profiles(),
            tell=tell,
            clock=clock,
        )

    def _profiles(self) -> dict[str, Profile]:
        """The ways of ranking, as the configuration changes them. Raises `ConfigError`."""
        from chatbot.memory.scoring import PROFILES, tuned

        profiles = dict(PROFILES)
        for name, settings in asdict(self.config.profiles).items():
            changes = {key: value for key, value in asdict(settings).items() if value is not None}
            try:
                profiles[name] = tuned(profiles[name], changes)
            except InvalidValue as error:
                raise ConfigError(f"[profiles.{name}] half_lives: {error}") from error
        return profiles

    async def _bill_embedding(self, parts: Parts | None, model: str, usage: Usage, seconds: float) -> None:
        from chatbot.chat.ledger import Ledger
        from chatbot.chat.usage import Call

        ledger = Ledger if parts is None else parts.ledger
        await ledger(self.identity.memory).add(Call(utc_now(), "", "embed", model, usage, seconds))


def _open_embedder(settings: EmbeddingSettings) -> Embedder | None:
    from chatbot.models.embedding import open_embedder

    return open_embedder(settings)
