"""Settings: what may be configured, its defaults, and the one place where files and environment become values.

Weakest first: the configuration file, the identity's own settings, `CHATBOT_SECTION__KEY` in the environment, flags.
An unknown key anywhere is an error that names the nearest known one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from platformdirs import user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from chatbot.errors import ConfigError
from stores.errors import did_you_mean
from stores.observation import Type

FILE_NAME = "config.toml"
FILE_VARIABLE = "CHATBOT_CONFIG"
_PREFIX = "CHATBOT_"

Table = dict[str, Any]


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values are not changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Section):
    """`[model]`: which model answers, and how it is called."""

    name: str = Field("local/smollm2-135m", min_length=1)
    """`local/smollm2-135m`, `local/<path to a .gguf file>`, `scripted`, or any LiteLLM model string."""
    api_key: str = Field("", repr=False)
    """A key, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server; empty for the provider's own."""
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = None
    max_output_tokens: int = Field(1024, ge=1)
    context_window: int = Field(0, ge=0)
    """Tokens; 0 takes the model's own, or 8192 where nobody knows it."""
    timeout_s: float = Field(60.0, gt=0)
    """Longest wait for the first chunk, and between chunks."""
    retries: int = Field(2, ge=0, le=10)
    """Further tries after a transient failure, as long as nothing has arrived."""
    input_usd_per_million: float | None = Field(None, ge=0)
    """Price of a million tokens read, where LiteLLM's table does not know it or is wrong."""
    output_usd_per_million: float | None = Field(None, ge=0)
    script: tuple[str, ...] = ()
    """What the model `scripted` replies, in turn and then again from the start."""


class EmbeddingSettings(Section):
    """`[embedding]`: whether what is remembered is also found by its meaning, and which model embeds it."""

    model: str = ""
    """`local/minilm`, or any LiteLLM embedding model string; empty: words alone."""
    api_key: str = Field("", repr=False)
    """A key, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server; empty for the provider's own."""
    dimensions: int = Field(0, ge=0)
    """Shorter vectors, where the model can make them; 0: as long as it makes them."""
    batch: int = Field(32, ge=1, le=1000)
    """Texts in one call."""
    weight: float = Field(0.3, ge=0, le=1)
    """How much meaning counts beside words."""
    usd_per_million: float | None = Field(None, ge=0)
    """Price of a million tokens, where LiteLLM's table does not know it or is wrong."""


class ProfileSettings(Section):
    """`[profiles.<name>]`: what counts when memories are ranked; None leaves it as `chatbot.memory.scoring` has it."""

    match: float | None = Field(None, ge=0, le=1)
    """The words, dates and meanings that were asked for, and what stands beside them."""
    recency: float | None = Field(None, ge=0, le=1)
    mention: float | None = Field(None, ge=0, le=1)
    """How often it was said again."""
    importance: float | None = Field(None, ge=0, le=1)
    credibility: float | None = Field(None, ge=0, le=1)
    """How often it was used and confirmed."""
    half_lives: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Days after which a type counts half as recent, `other` for all types not named; `inf`: never."""
    relative_floor: float | None = Field(None, ge=0, le=1)
    """Share of the best evidence that a memory must have to get into a prompt."""
    absolute_floor: float | None = Field(None, ge=0)
    """The least evidence that gets a memory into a prompt."""


class ProfilesSettings(Section):
    """`[profiles]`: the ways in which memories are ranked."""

    search: ProfileSettings = ProfileSettings()
    """What a search answers."""
    recent: ProfileSettings = ProfileSettings()
    """A search without words."""
    inject: ProfileSettings = ProfileSettings()
    """What gets into a prompt."""


class ExtractionSettings(Section):
    """`[extraction]`: whether a model takes facts out of what was said, after the turn, and what that may cost."""

    enabled: bool = False
    """Take facts out of each exchange that is worth remembering."""
    model: str = ""
    """The model that does it, by its LiteLLM name; empty: the one that chats."""
    api_key: str = Field("", repr=False)
    """A key for `model`, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server for `model`; empty for the provider's own."""
    input_usd_per_million: float | None = Field(None, ge=0)
    """Price of a million tokens that `model` reads, where LiteLLM's table does not know it or is wrong."""
    output_usd_per_million: float | None = Field(None, ge=0)
    budget_usd: float = Field(0, ge=0)
    """What all calls beside conversations may cost in a day, in UTC; 0: only `[budget]` limits them."""
    max_output_tokens: int = Field(800, ge=16)
    """The longest reply to one call."""
    timeout_s: float = Field(30.0, gt=0)
    """Longest wait for a whole reply."""
    reconcile: bool = True
    """Let the model say which facts change or deny what is remembered already."""
    supersede: bool = True
    """Let a fact take the place of one about the same subject that means nearly the same; needs `[embedding]`."""
    summaries: bool = False
    """Let a model sum up what a conversation's window left out, and sessions; rules do it otherwise."""


class AgentSettings(Section):
    """`[agents.<id>]`: one way to run an identity."""

    memory: tuple[str, ...] = ()
    """The stores that a session uses, by name; an agent with none chats without a memory."""
    window_entries: int = Field(20, ge=1)
    """How many of the last transcript entries the model is shown, as far as they fit."""
    remember_exchanges: bool = True
    """Keep each exchange in the store of observations, word for word; small talk is left out."""
    recall_rows: int = Field(5, ge=0)
    """How many remembered things a prompt may hold; 0 recalls nothing."""
    recall_tokens: int = Field(2000, ge=0)
    """How many tokens they may take; never more than a sixth of the model's window."""
    tools: tuple[str, ...] = ("memory",)
    """What the model may call, as far as it takes tools: plug-ins by name, or `module:function`."""
    tool_steps: int = Field(8, ge=0)
    """How often in one turn the model may call tools."""
    title_by_model: bool = False
    """Ask the model for the title of a new session, one short call more; else a rule takes it from what was said."""


class SessionSettings(Section):
    """`[sessions]`: how long sessions live."""

    ttl_days: float = Field(0, ge=0)
    """Days after its last use at which a session is erased; 0 keeps it for ever."""


class RetentionSettings(Section):
    """`[[maintenance.rules]]`: how long some rows are kept; see `chatbot.memory.maintenance.policy.Rule`."""

    types: tuple[Type, ...] = ()
    """Empty: all types but decision, identity, preference and task."""
    agent: str | None = None
    namespace: str | None = None
    archive_after_days: float = Field(0, ge=0)
    delete_after_days: float = Field(0, ge=0)
    max_rows: int = Field(0, ge=0)


class MaintenanceSettings(Section):
    """`[maintenance]`: how memory fades, what is merged, and how long what is kept; 0 turns a step off."""

    consolidate_every_hours: float = Field(72, ge=0)
    """How long after memory has faded it does again, as a session ends or begins; 0: with every session."""
    compress_every_hours: float = Field(168, ge=0)
    """The same for merging, retiring and erasing."""
    decay_per_day: float = Field(0.05, ge=0, le=1)
    """What of its strength a row loses on a day without use; what is meant to last loses half of it."""
    compression_min_age_days: float = Field(7, ge=0)
    """How old rows must be to be merged."""
    similarity: float = Field(0.5, ge=0, le=1)
    """The share of common words from which on three rows or more are merged into one; 0: none are."""
    summarize_after_days: float = Field(0, ge=0)
    """Days after which what is left of a session is rolled up into a few rows."""
    max_per_session: int = Field(0, ge=0)
    """How many rows of one session stay active."""
    erase_after_days: float = Field(0, ge=0)
    """Days after which what was deleted or has expired is erased for good, from history too."""
    rows_per_run: int = Field(2000, ge=1)
    """How many rows a run looks at; the next one goes on behind them."""
    seconds_per_run: float = Field(2.0, gt=0)
    """How long a run may take, about."""
    rules: tuple[RetentionSettings, ...] = ()
    """The first one that covers a row holds."""


class BudgetSettings(Section):
    """`[budget]`: limits that a model call may not pass; 0 sets none. Days are UTC."""

    session_usd: float = Field(0, ge=0)
    day_usd: float = Field(0, ge=0)
    session_tokens: int = Field(0, ge=0)
    day_tokens: int = Field(0, ge=0)


class TerminalSettings(Section):
    """`[terminal]`: how the chat looks."""

    markdown: bool = True
    """Render replies; false prints them as they come."""
    shown_on_resume: int = Field(6, ge=0)
    """How many of the last entries are shown when a session goes on."""
    show_usage: bool = True
    """A line with tokens and cost under each reply."""


class McpServerSettings(Section):
    """`[mcp.servers.<name>]`: a server of tools, either a command to run or a URL to call."""

    command: str = ""
    """The program; a relative path starts from the configuration file's folder."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field({}, repr=False)
    """What it finds in its environment beside PATH, HOME and the like; values may be `env:VARIABLE`."""
    url: str = Field("", pattern="^(https?://.*)?$")
    """Where it is reached by streamable HTTP."""
    headers: dict[str, str] = Field({}, repr=False)
    """What is sent with each request; values may be `env:VARIABLE`."""
    allow: tuple[str, ...] | None = None
    """The tools that the model is offered; all of them where it is left out."""
    confirm: Literal["destructive", "never"] | tuple[str, ...] = "destructive"
    """The tools whose calls the user is asked about; by default those that do not say that they destroy nothing."""
    timeout_s: float = Field(60.0, gt=0)
    """Longest wait for the answer of a tool."""
    start_timeout_s: float = Field(10.0, gt=0)
    """Longest wait for the server to be there; the chat goes on without it."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either the command that starts it, or its url")
        return self


ServerName = Annotated[str, Field(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=24)]


class McpSettings(Section):
    """`[mcp]`: the Model Context Protocol, to serve what is remembered, and to use the tools of others."""

    token: str = Field("", repr=False)
    """What a client of `chatbot mcp --http` must send as a bearer token; or `env:VARIABLE`."""
    servers: dict[ServerName, McpServerSettings] = {}


class ServerSettings(Section):
    """`[server]`: where `chatbot serve` listens, and what it takes from those who come."""

    host: str = Field("127.0.0.1", min_length=1)
    """The address to listen on; any other than loopback needs a token (`chatbot token add`)."""
    port: int = Field(8000, ge=0, le=65535)
    """0 takes one that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that a request may call the server by, beside loopback ones."""
    allowed_origins: tuple[str, ...] = ()
    """Other web sites whose pages may call the server, such as `https://chat.example.org`."""
    body_kb: int = Field(1024, ge=1)
    """The largest body of a request."""
    request_timeout_s: float = Field(20.0, gt=0)
    """Longest wait for a whole request, and for a client to take a piece of an answer."""
    rate_per_minute: int = Field(600, ge=0)
    """Requests a minute for each caller whose token sets no other rate; 0: as many as they like."""
    connections: int = Field(1000, ge=1)
    """How many may be open at once."""


class Config(Section):
    """Everything that can be configured. `folder` is where the file was found, and what relative paths start from."""

    identity: str = "ada"
    """Who answers, unless `-i` says otherwise: a folder in `identities`."""
    identities: str = "identities"
    """The folder of all identities, relative to the configuration file."""
    model: ModelSettings = ModelSettings()
    agents: dict[str, AgentSettings] = {"chat": AgentSettings(memory=("basic_session", "observations"))}
    memory: dict[str, Table] = {}
    """`[memory.<store>]`: the settings of each store, checked by the store."""
    hooks: dict[str, Table] = {}
    """`[hooks.<name>]`: `enabled`, `priority`, `timeout_s` and the settings of each hook, checked by the hook."""
    embedding: EmbeddingSettings = EmbeddingSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    sessions: SessionSettings = SessionSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    budget: BudgetSettings = BudgetSettings()
    terminal: TerminalSettings = TerminalSettings()
    mcp: McpSettings = McpSettings()
    server: ServerSettings = ServerSettings()


class Settings:
    """The layers that a configuration is made of, read once; `combined` makes the configuration."""

    def __init__(self, path: Path | None, file: Table, environment: Table, flags: Table) -> None:
        self.path = path
        self._file = file
        self._environment = environment
        self._flags = flags

    @classmethod
    def read(
        cls, path: Path | None = None, *, environ: Mapping[str, str] = os.environ, flags: Table | None = None
    ) -> Settings:
        """Read the file at `path`, or the first one found, and the environment. Raises `ConfigError`."""
        found = find_file(path, environ)
        return cls(found, read_toml(found) if found else {}, _from_environment(environ), flags or {})

    @property
    def folder(self) -> Path:
        """What relative paths start from: the file's folder, or the user's data folder where there is no file."""
        return self.path.parent.resolve() if self.path else user_data_path("chatbot")

    def combined(self, identity: Table | None = None, identity_path: Path | None = None) -> Config:
        """The configuration, the identity's own settings included. Raises `ConfigError` naming the culprit."""
        layers = {
            str(self.path or "defaults"): self._file,
            str(identity_path or "identity"): identity or {},
            "the environment": self._environment,
            "the flags": self._flags,
        }
        merged: Table = {}
        for layer in layers.values():
            merged = merge(merged, layer)
        try:
            return Config.model_validate(merged)
        except ValidationError as error:
            raise ConfigError(_explain(error, layers)) from error


def find_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file: the one asked for, `$CHATBOT_CONFIG`, `./config.toml`, or the user's; else None."""
    asked = path or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if asked is not None:
        if not asked.is_file():
            raise ConfigError(f"there is no configuration file {asked}")
        return asked
    usual = (Path(FILE_NAME), user_config_path("chatbot") / FILE_NAME)
    return next((candidate for candidate in usual if candidate.is_file()), None)


def read_toml(path: Path) -> Table:
    """The table in a TOML file. Raises `ConfigError` with file, line and column."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def merge(weaker: Table, stronger: Table) -> Table:
    """Both tables in one; where they differ the stronger wins, key by key."""
    merged = dict(weaker)
    for key, value in stronger.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def from_variable(text: str, setting: str) -> str:
    """The text, or the value of the variable that it names as `env:VARIABLE`. Raises `ConfigError` for an unset one."""
    if not text.startswith("env:"):
        return text
    variable = text.removeprefix("env:").strip()
    if not os.environ.get(variable):
        raise ConfigError(f"{setting} names the variable {variable or '(none)'}, which is not set")
    return os.environ[variable]


def _from_environment(environ: Mapping[str, str]) -> Table:
    table: Table = {}
    for variable, text in environ.items():
        if variable.startswith(_PREFIX) and variable != FILE_VARIABLE:
            *sections, key = variable.removeprefix(_PREFIX).lower().split("__")
            inner = table
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[key] = _value(variable, text)
    return table


def _value(variable: str, text: str) -> Any:
    """Lists and tables are TOML; everything else is text, which pydantic converts."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{variable}={text} is no valid TOML: {error}") from error


def _explain(error: ValidationError, layers: Mapping[str, Table]) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    source = next((name for name, layer in reversed(list(layers.items())) if _holds(layer, place)), "the configuration")
    name = _dotted(place)
    if first["type"] == "extra_forbidden":
        return f"{source}: there is no setting {name}{did_you_mean(place[-1], _known_beside(place))}"
    return f"{source}: {name} = {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _dotted(place: list[str]) -> str:
    return f"{place[-1]!r}" if len(place) == 1 else f"{place[-1]!r} in [{'.'.join(place[:-1])}]"


def _holds(layer: Any, place: list[str]) -> bool:
    for part in place:
        if isinstance(layer, dict) and part in layer:
            layer = layer[part]
        else:
            return not isinstance(layer, dict)
    return True


def _known_beside(place: list[str]) -> Iterable[str]:
    section: Any = Config
    for part in place[:-1]:
        fields = getattr(section, "model_fields", None)
        annotation = fields[part].annotation if fields and part in fields else None
        section = annotation if annotation is not None else section
        values = [option for option in get_args(section) if isinstance(option, type) and issubclass(option, Section)]
        section = values[0] if values else section
    return getattr(section, "model_fields", {})
