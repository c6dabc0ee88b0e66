"""Settings: what may be configured, its defaults, and the one place where files and environment become values.

Weakest first: the configuration file, the identity's own settings, `CHATBOT_SECTION__KEY` in the environment, flags.
An unknown key anywhere is an error that names the nearest known one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields
from platformdirs import user_config_path, user_data_path

from chatbot import trust
from chatbot.errors import ConfigError
from stores.errors import did_you_mean
from stores.observation import Type

FILE_NAME = "config.toml"
FILE_VARIABLE = "CHATBOT_CONFIG"
SECRET = frozenset({"api_key", "env", "headers"})
"""Settings that hold keys, whatever table they are in: never printed."""
OF_IDENTITY = frozenset({"persona", "description", "clearance"})
"""What stands in an `identity.toml` alone, beside settings that hold for that identity."""
_PREFIX = "CHATBOT_"
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_STEP = re.compile(r"\.(\w+)|\[([^\]]*)\]")

Table = dict[str, Any]
_ENVIRONMENT = "the environment"
_Layers = dict[Path | str, Table]
"""Each layer by the file that it was read from, or by what else it is; the weakest first."""
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration: unknown keys are errors, values are not changed after loading."""

    def __repr__(self) -> str:
        """All settings, but no key."""
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.name not in SECRET)
        return f"{type(self).__name__}({', '.join(shown)})"


class ModelSettings(Section, frozen=True):
    """`[model]`: which model answers, and how it is called."""

    name: Text = "local/smollm2-135m"
    """`local/smollm2-135m`, `local/<path to a .gguf file>`, `scripted`, or any LiteLLM model string."""
    api_key: str = ""
    """A key, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server; empty for the provider's own."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    max_output_tokens: AtLeastOne = 1024
    context_window: Count = 0
    """Tokens; 0 takes the model's own, or 8192 where nobody knows it."""
    timeout_s: Positive = 60.0
    """Longest wait for the first chunk, and between chunks."""
    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    """Further tries after a transient failure, as long as nothing has arrived."""
    input_usd_per_million: Amount | None = None
    """Price of a million tokens read, where LiteLLM's table does not know it or is wrong."""
    output_usd_per_million: Amount | None = None
    script: tuple[str, ...] = ()
    """What the model `scripted` replies, in turn and then again from the start."""


class EmbeddingSettings(Section, frozen=True):
    """`[embedding]`: whether what is remembered is also found by its meaning, and which model embeds it."""

    model: str = ""
    """`local/minilm`, or any LiteLLM embedding model string; empty: words alone."""
    api_key: str = ""
    """A key, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server; empty for the provider's own."""
    dimensions: Count = 0
    """Shorter vectors, where the model can make them; 0: as long as it makes them."""
    batch: Annotated[int, Meta(ge=1, le=1000)] = 32
    """Texts in one call."""
    weight: Share = 0.3
    """How much meaning counts beside words."""
    usd_per_million: Amount | None = None
    """Price of a million tokens, where LiteLLM's table does not know it or is wrong."""


class ProfileSettings(Section, frozen=True):
    """`[profiles.<name>]`: what counts when memories are ranked; None leaves it as `chatbot.memory.scoring` has it."""

    match: Share | None = None
    """The words, dates and meanings that were asked for, and what stands beside them."""
    recency: Share | None = None
    mention: Share | None = None
    """How often it was said again."""
    importance: Share | None = None
    credibility: Share | None = None
    """How often it was used and confirmed."""
    half_lives: dict[str, Positive] = {}
    """Days after which a type counts half as recent, `other` for all types not named; `inf`: never."""
    relative_floor: Share | None = None
    """Share of the best evidence that a memory must have to get into a prompt."""
    absolute_floor: Amount | None = None
    """The least evidence that gets a memory into a prompt."""


class ProfilesSettings(Section, frozen=True):
    """`[profiles]`: the ways in which memories are ranked."""

    search: ProfileSettings = ProfileSettings()
    """What a search answers."""
    recent: ProfileSettings = ProfileSettings()
    """A search without words."""
    inject: ProfileSettings = ProfileSettings()
    """What gets into a prompt."""


class ExtractionSettings(Section, frozen=True):
    """`[extraction]`: whether a model takes facts out of what was said, after the turn, and what that may cost."""

    enabled: bool = False
    """Take facts out of each exchange that is worth remembering."""
    model: str = ""
    """The model that does it, by its LiteLLM name; empty: the one that chats."""
    api_key: str = ""
    """A key for `model`, or `env:VARIABLE`; empty leaves it to the provider's usual environment variable."""
    api_base: str = ""
    """Address of an OpenAI-compatible server for `model`; empty for the provider's own."""
    input_usd_per_million: Amount | None = None
    """Price of a million tokens that `model` reads, where LiteLLM's table does not know it or is wrong."""
    output_usd_per_million: Amount | None = None
    budget_usd: Amount = 0
    """What all calls beside conversations may cost in a day, in UTC; 0: only `[budget]` limits them."""
    max_output_tokens: Annotated[int, Meta(ge=16)] = 800
    """The longest reply to one call."""
    timeout_s: Positive = 30.0
    """Longest wait for a whole reply."""
    reconcile: bool = True
    """Let the model say which facts change or deny what is remembered already."""
    supersede: bool = True
    """Let a fact take the place of one about the same subject that means nearly the same; needs `[embedding]`."""
    summaries: bool = False
    """Let a model sum up what a conversation's window left out, and sessions; rules do it otherwise."""


class AgentSettings(Section, frozen=True):
    """`[agents.<id>]`: one way to run an identity."""

    memory: tuple[str, ...] = ()
    """The stores that a session uses, by name; an agent with none chats without a memory."""
    window_entries: AtLeastOne = 20
    """How many of the last transcript entries the model is shown, as far as they fit."""
    remember_exchanges: bool = True
    """Keep each exchange in the store of observations, word for word; small talk is left out."""
    recall_rows: Count = 5
    """How many remembered things a prompt may hold; 0 recalls nothing."""
    recall_tokens: Count = 2000
    """How many tokens they may take; never more than a sixth of the model's window."""
    index_rows: Count = 0
    """Of how many decisions, preferences and identities the titles stand in a session's first prompt; 0: of none."""
    tools: tuple[str, ...] = ("memory",)
    """What the model may call, as far as it takes tools: plug-ins by name, or `module:function`."""
    tool_steps: Count = 8
    """How often in one turn the model may call tools."""
    title_by_model: bool = False
    """Ask the model for the title of a new session, one short call more; else a rule takes it from what was said."""


class SessionSettings(Section, frozen=True):
    """`[sessions]`: how long sessions live."""

    ttl_days: Amount = 0
    """Days after its last use at which a session is erased; 0 keeps it for ever."""


class RetentionSettings(Section, frozen=True):
    """`[[maintenance.rules]]`: how long some rows are kept; see `chatbot.memory.maintenance.policy.Rule`."""

    types: tuple[Type, ...] = ()
    """Empty: all types but decision, identity, preference and task."""
    agent: str | None = None
    namespace: str | None = None
    archive_after_days: Amount = 0
    delete_after_days: Amount = 0
    max_rows: Count = 0


class MaintenanceSettings(Section, frozen=True):
    """`[maintenance]`: how memory fades, what is merged, and how long what is kept; 0 turns a step off."""

    consolidate_every_hours: Amount = 168
    """How long after memory has faded it does again, as a session ends or begins; 0: with every session."""
    compress_every_hours: Amount = 168
    """The same for merging, retiring and erasing."""
    decay_per_day: Share = 0.05
    """What of its strength a row loses on a day without use; what is meant to last loses half of it."""
    compression_min_age_days: Amount = 7
    """How old rows must be to be merged."""
    similarity: Share = 0.5
    """The share of common words from which on three rows or more are merged into one; 0: none are."""
    summarize_after_days: Amount = 0
    """Days after which what is left of a session is rolled up into a few rows."""
    max_per_session: Count = 0
    """How many rows of one session stay active."""
    erase_after_days: Amount = 0
    """Days after which what was deleted or has expired is erased for good, from history too."""
    rows_per_run: AtLeastOne = 2000
    """How many rows a run looks at; the next one goes on behind them."""
    seconds_per_run: Positive = 2.0
    """How long a run may take, about."""
    rules: tuple[RetentionSettings, ...] = ()
    """The first one that covers a row holds."""


class BudgetSettings(Section, frozen=True):
    """`[budget]`: limits that a model call may not pass; 0 sets none. Days are UTC."""

    session_usd: Amount = 0
    day_usd: Amount = 0
    session_tokens: Count = 0
    day_tokens: Count = 0


class TerminalSettings(Section, frozen=True):
    """`[terminal]`: how the chat looks."""

    markdown: bool = True
    """Render replies; false prints them as they come."""
    shown_on_resume: Count = 6
    """How many of the last entries are shown when a session goes on."""
    show_usage: bool = True
    """A line with tokens and cost under each reply."""


class McpServerSettings(Section, frozen=True):
    """`[mcp.servers.<name>]`: a server of tools, either a command to run or a URL to call."""

    command: str = ""
    """The program; a relative path starts from the configuration file's folder."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What it finds in its environment beside PATH, HOME and the like; values may be `env:VARIABLE`."""
    url: Annotated[str, Meta(pattern="^(https?://.*)?$")] = ""
    """Where it is reached by streamable HTTP."""
    headers: dict[str, str] = {}
    """What is sent with each request; values may be `env:VARIABLE`."""
    allow: tuple[str, ...] | None = None
    """The tools that the model is offered; all of them where it is left out."""
    confirm: Literal["destructive", "never"] | tuple[str, ...] = "destructive"
    """The tools whose calls the user is asked about; by default those that do not say that they destroy nothing."""
    trust: tuple[str, ...] = ()
    """Tools that are offered though what they say of themselves reads like an instruction."""
    timeout_s: Positive = 60.0
    """Longest wait for the answer of a tool."""
    start_timeout_s: Positive = 10.0
    """Longest wait for the server to be there; the chat goes on without it."""

    def __post_init__(self) -> None:
        """Raise `ValueError` where it is neither one thing nor the other."""
        if bool(self.command) == bool(self.url):
            raise ValueError("give either the command that starts it, or its url")


ServerName = Annotated[str, Meta(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=24)]


class McpSettings(Section, frozen=True):
    """`[mcp]`: the Model Context Protocol, to serve what is remembered, and to use the tools of others."""

    servers: dict[ServerName, McpServerSettings] = {}


class ServerSettings(Section, frozen=True):
    """`[server]`: where `chatbot serve` listens, and what it and `chatbot mcp --http` take from those who come."""

    host: Text = "127.0.0.1"
    """The address to listen on; any other than loopback needs a token (`chatbot token add`)."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """0 takes one that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that a request may call the server by, beside loopback ones."""
    allowed_origins: tuple[str, ...] = ()
    """Other web sites whose pages may call the server, such as `https://chat.example.org`."""
    body_kb: AtLeastOne = 1024
    """The largest body of a request."""
    request_timeout_s: Positive = 20.0
    """Longest wait for a whole request, and for a client to take a piece of an answer."""
    rate_per_minute: Count = 600
    """Requests a minute for each caller whose token sets no other rate; 0: as many as they like."""
    connections: AtLeastOne = 1000
    """How many may be open at once."""
    unasked_tools: tuple[str, ...] = ()
    """Tools that `chatbot serve` may call though they need consent, for whoever may chat; the others are refused."""


class TelemetrySettings(Section, frozen=True):
    """`[telemetry]`: spans and metrics by OpenTelemetry, which needs the extra `otel`; without these there are none."""

    prometheus: bool = False
    """`chatbot serve` answers `GET /metrics`, in the format of Prometheus."""
    endpoint: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    """The collector that spans and metrics are sent to, by OTLP over HTTP; empty: nothing is sent."""
    headers: dict[str, str] = {}
    """What is sent with each request; values may be `env:VARIABLE`."""
    service: Text = "chatbot"
    """What the collector knows this by."""
    sample: Share = 1.0
    """The share of turns whose spans are sent; metrics count them all."""
    interval_s: Positive = 60.0
    """How often metrics are sent."""
    timeout_s: Positive = 5.0
    """Longest wait for the collector; nobody but a thread in the background waits for it."""


class Config(Section, frozen=True):
    """Everything that can be configured. `folder` is where the file was found, and what relative paths start from."""

    identity: str = "ada"
    """Who answers, unless `-i` says otherwise: a folder in `identities`."""
    identities: str = "identities"
    """The folder of all identities, relative to the configuration file."""
    model: ModelSettings = ModelSettings()
    agents: dict[str, AgentSettings] = field(
        default_factory=lambda: {"chat": AgentSettings(memory=("basic_session", "observations"))}
    )
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
    telemetry: TelemetrySettings = TelemetrySettings()


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
        """Read the file at `path`, or the first one found, and the environment. Raises `ConfigError`.

        It is raised, too, for a file that was only found in the folder at hand and reaches out of it: see `trust`.
        """
        found = find_file(path, environ)
        file = read_toml(found) if found else {}
        if found is not None and path is None and not environ.get(FILE_VARIABLE) and found == Path(FILE_NAME):
            trust.check(found, file)
        return cls(found, file, _from_environment(environ), flags or {})

    @property
    def folder(self) -> Path:
        """What relative paths start from: the file's folder, or the user's data folder where there is no file."""
        return self.path.parent.resolve() if self.path else user_data_path("chatbot")

    @property
    def holds_key(self) -> bool:
        """Whether a key stands in the file itself, and not only the name of its variable."""
        return any(_keys_in(self._file))

    def combined(self, identity: Table | None = None, identity_path: Path | None = None) -> Config:
        """The configuration, the identity's own settings included. Raises `ConfigError` naming the culprit."""
        layers = self._layers(identity, identity_path)
        merged: Table = {}
        for layer in layers.values():
            merged = merge(merged, layer)
        try:
            return convert(merged, Config, strict=False)
        except ValidationError as error:
            raise _explained(str(error), merged, layers) from error

    def source(self, *place: str, identity: Table | None = None, identity_path: Path | None = None) -> Path | str:
        """The file or the variable that sets what is at `place`; empty where none does."""
        return _source(self._layers(identity, identity_path), place)

    def wrong(
        self, table: tuple[str, ...], message: str, identity: Table | None = None, identity_path: Path | None = None
    ) -> ConfigError:
        """The error for what is wrong in a table such as `("memory", "observations")`, by where the setting stands."""
        layers = self._layers(identity, identity_path)
        inner = [key for layer in layers.values() if isinstance(found := _found(layer, table), dict) for key in found]
        named = [key for key in inner if repr(key) in message or f" {key} = " in message]
        return _error(layers, (*table, *named[:1]), message)

    def _layers(self, identity: Table | None, identity_path: Path | None) -> _Layers:
        return {
            self.path or "defaults": self._file,
            identity_path or "identity": identity or {},
            _ENVIRONMENT: self._environment,
            "the flags": self._flags,
        }


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
        return _by_own_names(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no valid TOML: {error}", at=path) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", at=path) from error


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
    return _by_own_names(table)


def _by_own_names(table: Table) -> Table:
    """The table in which `[memory.extraction]`, as some call it, is `[extraction]`; what both set, the latter decides.

    So what is checked of the one, such as who may set its `api_base`, is checked of the other.
    """
    memory = table.get("memory")
    if not isinstance(memory, dict) or not isinstance(memory.get("extraction"), dict):
        return table
    rest = {name: settings for name, settings in memory.items() if name != "extraction"}
    return merge({"extraction": memory["extraction"]}, {**table, "memory": rest})


def _value(variable: str, text: str) -> Any:
    """Lists and tables are TOML; everything else is text, converted to what the setting is."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{variable}={text} is no valid TOML: {error}", at=variable) from error


def _explained(message: str, merged: Table, layers: _Layers) -> ConfigError:
    what, place = _located(message, merged)
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        place.append(unknown[1])
    name = _dotted(place)
    if unknown:
        known = ": it belongs into an identity.toml" if place[0] in OF_IDENTITY else ""
        known = known or did_you_mean(place[-1], _known_beside(place))
        return _error(layers, place, f"there is no setting {name}{known}")
    value = _at(merged, place)
    shown = "" if isinstance(value, dict | list | tuple) or SECRET & set(place) else f" = {value!r}"
    return _error(layers, place, f"{name}{shown}: {what[:1].lower()}{what[1:].replace('`object`', 'a table')}")


def _error(layers: _Layers, place: Sequence[str], message: str) -> ConfigError:
    """The error with the file or the variable in front that the setting at `place` stands in, as far as it is known."""
    at = _source(layers, place) or next(iter(layers))
    told = f"{at} in {_ENVIRONMENT}" if isinstance(at, str) and at.startswith(_PREFIX) else at
    return ConfigError(f"{told}: {message}", at=at)


def _source(layers: _Layers, place: Sequence[str]) -> Path | str:
    """What the setting at `place` was read from: a file, a variable, or what else there is; empty for nothing."""
    for name, layer in reversed(list(layers.items())):
        if _holds(layer, place):
            return _variable(_found(layer, place), place) if name == _ENVIRONMENT else name
    return ""


def _variable(value: Any, place: Sequence[str]) -> str:
    """The variable that sets what is at `place`, or the first one of a table there."""
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        place = [*place, key]
    return _PREFIX + "__".join(place).upper()


def _keys_in(table: Table, *, is_secret: bool = False) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _keys_in(value, is_secret=is_secret or name in SECRET)
        elif (is_secret or name in SECRET) and isinstance(value, str) and value and not value.startswith("env:"):
            yield value


def _found(value: Any, place: Iterable[str]) -> Any:
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _located(message: str, merged: Table) -> tuple[str, list[str]]:
    """What msgspec says is wrong, and the keys that lead there; it leaves out those of tables with free names."""
    what, _, path = message.partition(" - at `")
    place: list[str] = []
    for name, index in _STEP.findall(f"{path}[...]" if path.startswith("key`") else path):
        key = name or index
        if key == "...":
            table = _at(merged, place)
            key = next((key for key in table if _complains(merged, [*place, key], message)), "...")
        place.append(key)
    return what, place


def _complains(merged: Table, place: list[str], message: str) -> bool:
    """Whether the message stands when the last table on the way holds nothing but the last key."""
    try:
        convert(_narrowed(merged, place), Config, strict=False)
    except ValidationError as error:
        return str(error) == message
    return False


def _narrowed(table: Table, place: list[str]) -> Table:
    key, *rest = place
    return {**table, key: _narrowed(table[key], rest)} if rest else {key: table[key]}


def _at(value: Any, place: list[str]) -> Any:
    for key in place:
        value = value[int(key)] if isinstance(value, list | tuple) else value[key]
    return value


def _dotted(place: list[str]) -> str:
    return f"{place[-1]!r}" if len(place) == 1 else f"{place[-1]!r} in [{'.'.join(place[:-1])}]"


def _holds(layer: Any, place: Iterable[str]) -> bool:
    for part in place:
        if isinstance(layer, dict) and part in layer:
            layer = layer[part]
        else:
            return not isinstance(layer, dict)
    return True


def _known_beside(place: list[str]) -> Iterable[str]:
    section: Any = Config
    for part in place[:-1]:
        kinds = {each.name: each.type for each in fields(section)} if _is_section(section) else {}
        section = next(filter(_is_section, (kinds.get(part), *get_args(kinds.get(part, section)))), section)
    return [each.name for each in fields(section)]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
