"""Configuration: each section with its types, bounds and defaults; `config.toml` says what each setting does."""

import os
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import fields, force_setattr

from chatbot import trust
from chatbot.errors import ConfigError
from chatbot.stores.base import Days
from chatbot.stores.home import without_password
from chatbot.stores.observation import Type
from chatbot.stores.plugins import GREATEST, SECRET

Table = dict[str, Any]
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=GREATEST)]
Seconds = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Count = Annotated[int, Meta(ge=0, le=GREATEST)]
AtLeastOne = Annotated[int, Meta(ge=1, le=GREATEST)]
Text = Annotated[str, Meta(min_length=1, description="text that is not empty")]
Host = Annotated[str, Meta(pattern="^([^*:/]+|[0-9A-Fa-f:.]+)$", description="the name of one host, without a port")]
_ORIGIN = "an origin in lower case without a path, such as https://chat.example.org"
Origin = Annotated[str, Meta(pattern="^(null|[a-z][a-z0-9+.-]*://[^/A-Z]+)$", description=_ORIGIN)]
_ADDRESS = "an address that begins with http:// or https://"


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration. Unknown keys are errors; values are immutable."""

    def __repr__(self) -> str:
        """Show all settings, keys masked."""
        shown = without_keys({each.name: getattr(self, each.name) for each in fields(self)})
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def without_keys(value: Any, *, is_secret: bool = False) -> Any:
    """Mask keys in settings, at any depth; a reference to an environment variable is shown."""
    if isinstance(value, dict):
        secret = {name: is_secret or not SECRET.isdisjoint(str(name).split(".")) for name in value}
        return {name: without_keys(each, is_secret=secret[name]) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_keys(each, is_secret=is_secret) for each in value]
    if is_secret and value and not str(value).startswith("env:"):
        return "(set)"
    return without_password(value) if isinstance(value, str) else value


class PriceSettings(Section, frozen=True):
    """`[providers.<name>.prices.<model>]`: prices of a model in USD; `*` is every other model of the provider."""

    input_usd_per_million: Amount | None = None
    cached_input_usd_per_million: Amount | None = None
    output_usd_per_million: Amount | None = None


class ProviderSettings(Section, frozen=True):
    """`[providers.<name>]`: key and address of one provider, prices, and limits on memories sent to it.

    `<name>` is LiteLLM's name of the provider, `local` or `scripted`; or your own, with `kind` and `api_base`.
    """

    kind: str = ""
    api_key: str = ""
    api_base: str = ""
    headers: dict[str, str] = {}
    prices: dict[str, PriceSettings] = {}
    sensitivity: Literal["", "public", "private"] = ""
    memory: bool = True
    thinks_first: bool = False


_IN_NAMES = "at most 64 ASCII letters, digits, - _ and ., beginning with a letter or a digit"
GivenName = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64, description=_IN_NAMES)]
"""Name of an alias or a provider: without a slash, so that no alias can hide a model of a provider."""


class ModelSettings(Section, frozen=True):
    """`[model]`: the chat model and its parameters."""

    name: Text = "local/smollm2-135m"
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    max_output_tokens: AtLeastOne = 1024
    context_window: Count = 0
    timeout_s: Seconds = 60.0
    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    script: tuple[str, ...] = ()


class EmbeddingSettings(Section, frozen=True):
    """`[embedding]`: search by meaning, and the model that embeds memories."""

    model: str = "local/auto"
    dimensions: Count = 0
    batch: Annotated[int, Meta(ge=1, le=1000)] = 32
    weight: Share = 0.8


class ExtractionSettings(Section, frozen=True):
    """`[extraction]`: extract facts from exchanges by model, after the turn, within a budget."""

    enabled: bool = False
    model: str = ""
    budget_usd: Amount = 0
    max_output_tokens: Annotated[int, Meta(ge=16, le=GREATEST)] = 800
    timeout_s: Seconds = 30.0
    reconcile: bool = True
    supersede: bool = True
    summaries: bool = False


class AgentSettings(Section, frozen=True):
    """`[agents.<id>]`: one way to run an identity."""

    memory: tuple[str, ...] = ("basic_session", "observations")
    window_entries: AtLeastOne = 20
    remember_exchanges: bool = True
    recall_rows: Count = 6
    recall_tokens: Count = 2000
    index_rows: Count = 0
    tools: tuple[str, ...] = ("memory",)
    tool_steps: Count = 8
    project: str = ""
    title_by_model: bool = False


class StorageSettings(Section, frozen=True):
    """`[storage]`: where memories, sessions and bills are kept."""

    url: str = ""


class SessionSettings(Section, frozen=True):
    """`[sessions]`: lifetime of sessions."""

    ttl_days: Days = 0
    ttl_keeps_memory: bool = True


class RetentionSettings(Section, frozen=True):
    """`[[maintenance.rules]]`: retention of some rows. Days count since a row was last written or used; 0: no limit."""

    types: tuple[Type, ...] = ()
    """Empty: all types except decision, identity, preference and task."""
    agent: str | None = None
    """None: all agents; likewise namespaces."""
    namespace: str | None = None
    archive_after_days: Days = 0
    delete_after_days: Days = 0
    max_rows: Count = 0
    """Maximum active rows; above it, the least important ones are archived."""


class MaintenanceSettings(Section, frozen=True):
    """`[maintenance]`: decay, merging and retention of memories; 0 turns a step off."""

    consolidate_every_hours: Amount = 168
    compress_every_hours: Amount = 168
    decay_per_day: Share = 0.05
    compression_min_age_days: Days = 7
    similarity: Share = 0.5
    summarize_after_days: Days = 0
    max_per_session: Count = 0
    erase_after_days: Days = 0
    rows_per_run: AtLeastOne = 2000
    seconds_per_run: Seconds = 2.0
    rules: tuple[RetentionSettings, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` for a cap that the rows of one run cannot exceed."""
        if max([self.max_per_session, *(rule.max_rows for rule in self.rules)]) >= self.rows_per_run:
            raise ValueError("max_rows and max_per_session are counted among the rows of one run: raise rows_per_run")


class BudgetSettings(Section, frozen=True):
    """`[budget]`: limits on model calls; 0: none. Days are UTC."""

    session_usd: Amount = 0
    day_usd: Amount = 0
    session_tokens: Count = 0
    day_tokens: Count = 0


class TerminalSettings(Section, frozen=True):
    """`[terminal]`: appearance of the chat."""

    markdown: bool = True
    shown_on_resume: Count = 6
    show_usage: bool = True
    vi: bool = False


class McpServerSettings(Section, frozen=True):
    """`[mcp.servers.<name>]`: a tool server, either a command to run or a URL to call."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: Annotated[str, Meta(pattern="^(https?://.*)?$", description=_ADDRESS)] = ""
    headers: dict[str, str] = {}
    allow: tuple[str, ...] | None = None
    trust: Literal["read-only", "all"] | tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    timeout_s: Seconds = 60.0
    start_timeout_s: Seconds = 10.0

    def __post_init__(self) -> None:
        """Raise `ValueError` unless exactly one of command and url is set."""
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url")


_IN_SERVER_NAMES = "at most 24 lower-case letters and digits, and - or _ between them"
ServerName = Annotated[str, Meta(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=24, description=_IN_SERVER_NAMES)]


class McpSettings(Section, frozen=True):
    """`[mcp]`: servers whose tools the model may call over the Model Context Protocol."""

    servers: dict[ServerName, McpServerSettings] = {}


class FilesSettings(Section, frozen=True):
    """`[files]`: tools for files, only in the chat of a terminal, where each call is shown and confirmed."""

    folder: str = ""


Users = Literal["apart", "shared", "required"]
"""Memory of a caller's users: one for each, or the caller's; if required, a request without a user has none."""
Remembers = Literal["on", "off"]
"""`on` remembers the calls of clients that name no session."""


class ServerSettings(Section, frozen=True):
    """`[server]`: address of `chatbot serve`, and limits that also apply to `chatbot mcp --http`."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    shutdown_s: Count = 10
    allowed_hosts: tuple[Host, ...] = ()
    allowed_origins: tuple[Origin, ...] = ()
    body_kb: AtLeastOne = 1024
    attachments_kb: AtLeastOne = 28 * 1024
    request_timeout_s: Seconds = 20.0
    rate_per_minute: Count = 600
    connections: AtLeastOne = 1000
    unasked_tools: tuple[str, ...] = ()
    users: Users = "apart"
    memory: Remembers = "off"


class TelemetrySettings(Section, frozen=True):
    """`[telemetry]`: OpenTelemetry spans and metrics; needs the extra `otel`. Off by default."""

    prometheus: bool = False
    endpoint: Annotated[str, Meta(pattern="^(https?://.+)?$", description=_ADDRESS)] = ""
    headers: dict[str, str] = {}
    service: Text = "chatbot"
    sample: Share = 1.0
    interval_s: Seconds = 60.0
    timeout_s: Seconds = 5.0


class SyncSettings(Section, frozen=True):
    """`[sync]`: places with which `chatbot sync` syncs the identity."""

    places: tuple[Text, ...] = ()
    token: str = ""


STANDING = {
    "home": "Where do I live?",
    "work": "What is my job, and who is my boss?",
    "family": "Who is my partner, and who are my children, parents, brothers and sisters?",
    "health": "What can't I eat or drink, and which allergies, illnesses and medicines do I have?",
    "plans": "Which trips, appointments and goals do I have ahead of me?",
    "preferences": "What is my favourite, and what can't I stand?",
    "habits": "What do I always do, and on which days?",
    "hobbies": "Which sport, music, games and clubs do I do in my free time?",
    "pets": "Which pets do I have?",
    "belongings": "What do I own, such as a car or a bike?",
    "money": "What do I pay, owe and save?",
    "dates": "Which birthdays and anniversaries matter to me?",
}


class StandingSettings(Section, frozen=True):
    """`[[standing]]`: a question whose answer is in the profile; under the name of a built-in one it changes that."""

    name: str = ""
    question: str = ""
    pinned: bool = False
    enabled: bool = True

    def __post_init__(self) -> None:
        question = " ".join(self.question.split()) or STANDING.get(self.name, "")
        if not question:
            raise ValueError(f"it needs a question, or a name among {', '.join(STANDING)}")
        force_setattr(self, "question", question)


class Config(Section, frozen=True):
    """The complete configuration."""

    identity: str = "ada"
    """Identity to use without `-i`: a folder in `identities`."""
    identities: str = "identities"
    """Folder of all identities, relative to the configuration file."""
    model: ModelSettings = ModelSettings()
    providers: dict[GivenName, ProviderSettings] = {}
    """`[providers.<name>]`: keys and addresses by provider."""
    aliases: dict[GivenName, Text] = {}
    """`[aliases]`: short names of models, for every place that names one."""
    agents: dict[str, AgentSettings] = field(default_factory=lambda: {"chat": AgentSettings()})
    memory: dict[str, Table] = {}
    """`[memory.<store>]`: settings of each store, checked by the store."""
    hooks: dict[str, Table] = {}
    """`[hooks.<name>]`: `enabled`, `priority`, `timeout_s` and own settings, checked by the hook."""
    embedding: EmbeddingSettings = EmbeddingSettings()
    standing: tuple[StandingSettings, ...] = ()
    extraction: ExtractionSettings = ExtractionSettings()
    storage: StorageSettings = StorageSettings()
    sessions: SessionSettings = SessionSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    budget: BudgetSettings = BudgetSettings()
    terminal: TerminalSettings = TerminalSettings()
    mcp: McpSettings = McpSettings()
    files: FilesSettings = FilesSettings()
    server: ServerSettings = ServerSettings()
    sync: SyncSettings = SyncSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def nameable_providers(self) -> frozenset[str]:
        """Providers whose models an identity may name: the usual ones, and the owner's names for them.

        These are in `[providers]`, which only the owner can write: found files and identities may not.
        """
        own = {name for name, settings in self.providers.items() if settings.kind in trust.PROVIDERS}
        return trust.PROVIDERS | own

    @property
    def questions(self) -> tuple[StandingSettings, ...]:
        """The enabled standing questions: built-in ones, with the user's changes, and the user's own."""
        known = {name: StandingSettings(name=name) for name in STANDING}
        known |= {each.name or each.question: each for each in self.standing}
        return tuple(each for each in known.values() if each.enabled)


def from_variable(text: str, setting: str) -> str:
    """Resolve `env:VARIABLE`; other text is returned as is. Raises `ConfigError` for an unset variable."""
    if not text.startswith("env:"):
        return text
    variable = text.removeprefix("env:").strip()
    if not os.environ.get(variable):
        raise ConfigError(f"{setting} names the variable {variable or '(none)'}, which is not set")
    return os.environ[variable]
