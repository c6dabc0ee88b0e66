"""Settings with their defaults; the only module that reads configuration files and the environment.

`config.toml` says what each setting does; here are their types, bounds and defaults, which a test compares with it.

In ascending priority: the configuration file, `identity.toml`, `CHATBOT_SECTION__KEY` in the environment, flags.
An unknown key anywhere is an error that names the nearest known one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields, force_setattr, replace
from platformdirs import user_config_path, user_data_path

from chatbot import allowed
from chatbot.errors import ConfigError
from chatbot.stores.errors import did_you_mean
from chatbot.stores.home import without_password
from chatbot.stores.observation import Type
from chatbot.stores.plugins import GREATEST

FILE_NAME = "config.toml"
FILE_VARIABLE = "CHATBOT_CONFIG"
SECRET = frozenset({"api_key", "env", "headers", "token"})
"""Settings that hold keys, in any table; never printed."""
OF_IDENTITY = frozenset({"persona", "description", "clearance", "sensitivity"})
"""Keys of `identity.toml` that are not settings."""
_BENEATH = ("model", "providers", "aliases")
"""Tables of the user's own file that hold beneath a file found in the current folder, which overrules them."""
_PREFIX = "CHATBOT_"
_DEEP = 3
"""Length of the path to a provider's setting: `providers`, the provider, the setting."""
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_STEP = re.compile(r"\.(\w+)|\[([^\]]*)\]")

Table = dict[str, Any]
_ENVIRONMENT = "the environment"
_Layers = dict[Path | str, Table]
"""Layers by their file or other source, in ascending priority."""
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=GREATEST)]
Days = Annotated[float, Meta(ge=0, le=365_000)]
Seconds = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Count = Annotated[int, Meta(ge=0, le=GREATEST)]
AtLeastOne = Annotated[int, Meta(ge=1, le=GREATEST)]
Text = Annotated[str, Meta(min_length=1)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration. Unknown keys are errors; values are immutable."""

    def __repr__(self) -> str:
        """Show all settings except keys."""
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.name not in SECRET)
        return without_password(f"{type(self).__name__}({', '.join(shown)})")


class PriceSettings(Section, frozen=True):
    """`[providers.<name>.prices.<model>]`: prices of a model in USD; `*` is every other model of the provider."""

    input_usd_per_million: Amount | None = None
    output_usd_per_million: Amount | None = None
    usd_per_call: Amount | None = None
    """Price of a call of a reranking model."""


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


AliasName = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
"""Without a slash, so that no model of a provider can be hidden by one."""
ProviderName = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


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


class RerankSettings(Section, frozen=True):
    """`[rerank]`: a second ranking of what a turn recalls, by a reranking model."""

    model: str = ""
    candidates: AtLeastOne = 50


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
    """Most active rows; the least important others are archived."""


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
    url: Annotated[str, Meta(pattern="^(https?://.*)?$")] = ""
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


ServerName = Annotated[str, Meta(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=24)]


class McpSettings(Section, frozen=True):
    """`[mcp]`: servers whose tools the model may call over the Model Context Protocol."""

    servers: dict[ServerName, McpServerSettings] = {}


class FilesSettings(Section, frozen=True):
    """`[files]`: tools for files, in the chat of a terminal alone, where each call is shown and asked about."""

    folder: str = ""


class ServerSettings(Section, frozen=True):
    """`[server]`: address of `chatbot serve`, and limits that also apply to `chatbot mcp --http`."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    body_kb: AtLeastOne = 1024
    attachments_kb: AtLeastOne = 28 * 1024
    request_timeout_s: Seconds = 20.0
    rate_per_minute: Count = 600
    connections: AtLeastOne = 1000
    unasked_tools: tuple[str, ...] = ()
    users: Literal["apart", "shared"] = "apart"
    memory: Literal["on", "off"] = "off"


class TelemetrySettings(Section, frozen=True):
    """`[telemetry]`: OpenTelemetry spans and metrics; needs the extra `otel`. Off by default."""

    prometheus: bool = False
    endpoint: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    headers: dict[str, str] = {}
    service: Text = "chatbot"
    sample: Share = 1.0
    interval_s: Seconds = 60.0
    timeout_s: Seconds = 5.0


class SyncSettings(Section, frozen=True):
    """`[sync]`: places that `chatbot sync` keeps the identity in step with."""

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
"""The standing questions that come along, by name."""


class StandingSettings(Section, frozen=True):
    """`[[standing]]`: a question whose answer stands in the profile; by its name it changes one that comes along."""

    name: str = ""
    question: str = ""
    pinned: bool = False
    model: str = ""
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
    providers: dict[ProviderName, ProviderSettings] = {}
    """`[providers.<name>]`: keys and addresses by provider."""
    aliases: dict[AliasName, Text] = {}
    """`[aliases]`: short names of models, for every place that names one."""
    agents: dict[str, AgentSettings] = field(default_factory=lambda: {"chat": AgentSettings()})
    memory: dict[str, Table] = {}
    """`[memory.<store>]`: settings of each store, checked by the store."""
    hooks: dict[str, Table] = {}
    """`[hooks.<name>]`: `enabled`, `priority`, `timeout_s` and own settings, checked by the hook."""
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()
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
        """Providers whose models an identity may name: usual ones, and those in `[providers]` with their interface.

        Only the owner can write these tables: found files and identities may not.
        """
        own = {name for name, settings in self.providers.items() if settings.kind in allowed.PROVIDERS}
        return allowed.PROVIDERS | own

    @property
    def questions(self) -> tuple[StandingSettings, ...]:
        """The standing questions that are enabled: those that come along, as they were changed, and the user's own."""
        known = {name: StandingSettings(name=name) for name in STANDING}
        known |= {each.name or each.question: each for each in self.standing}
        return tuple(each for each in known.values() if each.enabled)


NAMED_BY = {"model": "name", "embedding": "model", "extraction": "model"}
"""Sections that name a model, with the key that does."""
_LIMITS = frozenset({"session_usd", "day_usd", "session_tokens", "day_tokens", "budget_usd"})
_DEFAULTS: Table = {"agents": {"chat": {}}}
"""The lowest layer: tables with free names that exist by default."""


class Settings:
    """The layers of a configuration, read once; `combined` merges them."""

    def __init__(
        self, path: Path | None, file: Table, environment: Table, flags: Table, *, is_chosen: bool = True
    ) -> None:
        self.path = path
        self.folder = path.parent.resolve() if path else user_data_path("chatbot")
        """Base of relative paths: the file's folder, or the user's data folder without a file."""
        self.is_chosen = is_chosen
        """True if the user named, owns or trusts the file; a file that was only found is untrusted."""
        self._file = file
        self._own: tuple[Path, Table] = (Path(), {})
        """The user's own file, and what it says beneath a file that was found in the current folder."""
        self._identity: tuple[Path | str, Table] = ("identity", {})
        self._environment = environment
        self._flags = flags

    @classmethod
    def read(
        cls, path: Path | None = None, *, environ: Mapping[str, str] = os.environ, flags: Table | None = None
    ) -> Settings:
        """Read the file at `path`, or the first one found, and the environment. Raises `ConfigError`.

        Also raises it for an untrusted file in the current folder that names code or a place (see `allowed`).
        """
        found = find_file(path, environ)
        file = read_toml(found) if found else {}
        own, beneath = user_config_path("chatbot") / FILE_NAME, {}
        is_asked_for = path is not None or bool(environ.get(FILE_VARIABLE))
        is_chosen = True
        is_own = Path.cwd() == user_config_path("chatbot").resolve()
        if found == Path(FILE_NAME) and not (is_asked_for or is_own):
            check_found(found, file, f"review it, then run `chatbot config trust`, or pass --config {found}")
            is_chosen = allowed.is_trusted(found, file)
            mine = read_toml(own) if own.is_file() else {}
            beneath = {name: mine[name] for name in _BENEATH if name in mine}
        settings = cls(found, file, _from_environment(environ), flags or {}, is_chosen=is_chosen)
        settings._own = (own, beneath)
        return settings

    def with_flags(self, flags: Table) -> Settings:
        """Return the same files and environment with other flags, and without an identity."""
        return self._with(_flags=flags, _identity=("identity", {}))

    def with_identity(self, table: Table, path: Path) -> Settings:
        """Return the settings with those of an identity, which its file at `path` sets."""
        return self._with(_identity=(path, _within_limits(table, self._file)))

    def _with(self, **parts: Any) -> Settings:
        other = copy(self)  # keeps the folder, even if the process has left it
        vars(other).pop("_layers", None)
        vars(other).update(parts)
        return other

    @property
    def plugins_beside(self) -> Path | None:
        """Folder of plug-ins that are not installed; None for an untrusted file."""
        return self.folder if self.is_chosen else None

    @property
    def holds_key(self) -> bool:
        """True if the file itself contains a key, not only the name of a variable."""
        return any(_keys_in(self._file))

    def combined(self) -> Config:
        """Merge all layers. Raises `ConfigError` that names the wrong setting."""
        merged = reduce(merge, self._layers.values(), {})
        try:
            config = convert(merged, Config, strict=False)
        except ValidationError as error:
            raise _explained(str(error), merged, self._layers) from error
        rows = config.memory.get("observations", {})
        if isinstance(cache := rows.get("cache"), str) and cache:
            absolute = str(self.folder / Path(cache).expanduser())
            config = replace(config, memory={**config.memory, "observations": {**rows, "cache": absolute}})
        return config

    def source(self, *place: str) -> Path | str:
        """Return the file or variable that sets the value at `place`; empty if none does."""
        return _source(self._layers, place)

    def wrong(self, table: tuple[str, ...], message: str) -> ConfigError:
        """Return the error for a table such as `("memory", "observations")`, with the source of the setting."""
        found = [_found(layer, table) for layer in self._layers.values()]
        inner = [key for each in found if isinstance(each, dict) for key in each]
        named = [key for key in inner if repr(key) in message or f" {key} = " in message]
        return _error(self._layers, (*table, *named[:1]), message)

    @cached_property
    def _layers(self) -> _Layers:
        (file, own), (identity_path, identity) = self._own, self._identity
        layers: _Layers = {
            "": _DEFAULTS,
            **({file: own} if own else {}),
            self.path or "defaults": self._file,
            identity_path: identity,
            _ENVIRONMENT: self._environment,
            "the flags": self._flags,
        }
        aliases: Table = {}
        for layer in (own, self._file, self._environment):
            aliases = merge(aliases, _table(layer, "aliases"))
        return {source: _without_aliases(layer, aliases) for source, layer in layers.items()} if aliases else layers


def find_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the given file, `$CHATBOT_CONFIG`, `./config.toml`, or the user's; None if there is none."""
    asked = path or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if asked is not None:
        if not asked.is_file():
            raise ConfigError(f"configuration file not found: {asked}")
        return asked
    usual = (Path(FILE_NAME), user_config_path("chatbot") / FILE_NAME)
    return next((candidate for candidate in usual if candidate.is_file()), None)


def check_found(
    path: Path, table: Table, remedy: str, *, is_weakest: bool = True, providers: frozenset[str] = allowed.PROVIDERS
) -> None:
    """Raise `ConfigError` for a mistake in an untrusted file, or a setting that needs trust."""
    if allowed.needing_trust(table, is_weakest=is_weakest, providers=providers):
        Settings(path, table, {}, {}).combined()
        allowed.check(path, table, remedy, is_weakest=is_weakest, providers=providers)


def read_toml(path: Path) -> Table:
    """Read a TOML file. Raises `ConfigError` with file, line and column."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", at=path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", at=path) from error


def parse_toml(text: str, path: Path) -> Table:
    """Read the text of a TOML file. Raises `ConfigError` with file, line and column."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the first also for a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}", at=path) from error
    if wrong := next((each for each in _texts_in(table) if "\0" in each), None):
        raise ConfigError(f"{path} holds a NUL character in {wrong!r:.80}: remove it", at=path)
    return table


def _texts_in(value: Any) -> Iterator[str]:
    """Every text of a table, its keys too."""
    if isinstance(value, str):
        yield value
    for each in (
        (*value.keys(), *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts_in(each)


def merge(weaker: Table, stronger: Table) -> Table:
    """Merge two tables key by key; the stronger wins."""
    merged = dict(weaker)
    for key, value in stronger.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def _within_limits(identity: Table, file: Table) -> Table:
    """Drop settings of an untrusted identity that would lift a limit of the owner's file."""
    kept = dict(identity)
    for section in {"budget", "extraction"} & identity.keys() & file.keys():
        own, limits = identity[section], file[section]
        if isinstance(own, dict) and isinstance(limits, dict):
            kept[section] = {
                key: value for key, value in own.items() if key not in _LIMITS or not _lifts(value, limits.get(key))
            }
    return kept


def _lifts(value: Any, limit: Any) -> bool:
    """Return True if one limit is higher than another; 0 means none."""
    own, most = _number(value), _number(limit)
    return own is not None and most is not None and most > 0 and not 0 < own <= most


def _number(value: Any) -> float | None:
    """Return the number that a setting is read as; it may be written as text."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def from_variable(text: str, setting: str) -> str:
    """Resolve `env:VARIABLE`; other text is returned as is. Raises `ConfigError` for an unset variable."""
    if not text.startswith("env:"):
        return text
    variable = text.removeprefix("env:").strip()
    if not os.environ.get(variable):
        raise ConfigError(f"{setting} names the variable {variable or '(none)'}, which is not set")
    return os.environ[variable]


def _without_aliases(layer: Table, known: Table) -> Table:
    """Return the layer with the models' own names in place of aliases."""
    named = {
        section: {**layer[section], key: known[name]}
        for section, key in NAMED_BY.items()
        if isinstance(name := _table(layer, section).get(key), str) and name in known
    }
    return {**layer, **named}


def _table(layer: Table, name: str) -> Table:
    found = layer.get(name)
    return found if isinstance(found, dict) else {}


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
    """Parse a variable: lists and tables are TOML, everything else is text that is converted later."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        shown = "" if _may_hold_key(variable.lower().split("__")) else f"={text}"
        raise ConfigError(f"{variable}{shown} is not valid TOML: {error}", at=variable) from error


def _may_hold_key(place: Sequence[str]) -> bool:
    """Return True if an invalid value may be a key, also in a wrong place such as `[providers] openai = "sk-…"`."""
    return bool(SECRET & set(place)) or (place[0].removeprefix(_PREFIX.lower()) == "providers" and len(place) < _DEEP)


def _explained(message: str, merged: Table, layers: _Layers) -> ConfigError:
    what, place = _located(message, merged)
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        place.append(unknown[1])
    name = _dotted(place)
    if unknown:
        known = ": it belongs into an identity.toml" if place[0] in OF_IDENTITY else ""
        if place[0] in NAMED_BY and place[-1] in ProviderSettings.__struct_fields__:
            known = ": it belongs into [providers.NAME], the table of the model's provider"
        known = known or did_you_mean(place[-1], _known_beside(place))
        return _error(layers, place, f"unknown setting {name}{known}")
    value = _at(merged, place)
    shown = "" if isinstance(value, dict | list | tuple) or _may_hold_key(place) else f" = {value!r}"
    shown = without_password(shown)
    return _error(layers, place, f"{name}{shown}: {what[:1].lower()}{what[1:].replace('`object`', 'a table')}")


def _error(layers: _Layers, place: Sequence[str], message: str) -> ConfigError:
    """Prefix the message with the file or environment variable that set `place`, if known."""
    at = _source(layers, place) or list(layers)[1]
    told = f"{at} in {_ENVIRONMENT}" if isinstance(at, str) and at.startswith(_PREFIX) else at
    return ConfigError(f"{told}: {message}", at=at)


def _source(layers: _Layers, place: Sequence[str]) -> Path | str:
    """Return the source of the setting at `place`: a file, a variable, or another layer; empty if none."""
    for name, layer in reversed(list(layers.items())):
        if _holds(layer, place):
            return _variable(_found(layer, place), place) if name == _ENVIRONMENT else name
    return ""


def _variable(value: Any, place: Sequence[str]) -> str:
    """Return the variable that sets the value at `place`, or the first one of a table there."""
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        place = [*place, key]
    return _PREFIX + "__".join(place).upper()


def _keys_in(table: Table, *, is_secret: bool = False) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _keys_in(value, is_secret=is_secret or name in SECRET)
        elif isinstance(value, str) and (
            ((is_secret or name in SECRET) and value and not value.startswith("env:"))
            or without_password(value) != value
        ):
            yield value


def _found(value: Any, place: Iterable[str]) -> Any:
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _located(message: str, merged: Table) -> tuple[str, list[str]]:
    """Return msgspec's message and the path of keys, completed with those of tables with free names."""
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
    """Return True if the message stays when the last table holds only the last key."""
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
