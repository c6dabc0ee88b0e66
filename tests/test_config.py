"""Settings: who is stronger, what is refused, what the shipped file shows; identities, and where each one is kept."""

import json
import math
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import fields

from chatbot import trust
from chatbot.config import (
    STANDING,
    AgentSettings,
    Config,
    McpServerSettings,
    ProviderSettings,
    Section,
    StandingSettings,
    StorageSettings,
)
from chatbot.config_layers import Settings, read_toml
from chatbot.errors import ConfigError, IdentityError
from chatbot.hooks.hook import planned_hooks
from chatbot.identity import DEFAULT_PERSONA, list_identities, load_identity, settings_of_identity
from chatbot.models.provider import check_providers
from chatbot.runtime import Options, Setup
from chatbot.stores.errors import StoreError
from chatbot.stores.home import Address
from chatbot.stores.plugins import STORES, convert_store_settings, load, settings_of
from chatbot.tools.file_tools import file_tools
from tests.command import fails, from_json, ok, project
from tests.test_trust import nested

SHIPPED = Path(__file__).parents[1] / "config.toml"
URL = "postgresql://ada:secret@db/chat"


def _config(text: str = "", environ: dict[str, str] | None = None) -> Config:
    Path("config.toml").write_text(text, encoding="utf-8")
    return Settings.read(Path("config.toml"), environ=environ or {}).with_flags(Options().as_table()).combined()


def test_flags_beat_the_environment_beats_the_identity_beats_the_file() -> None:
    Path("config.toml").write_text('[model]\nname = "file"\nseed = 1\ntop_p = 0.1\nretries = 1', encoding="utf-8")
    identity = {"model": {"name": "identity", "seed": 2, "top_p": 0.2}}
    environ = {"CHATBOT_MODEL__NAME": "environment", "CHATBOT_MODEL__SEED": "3"}
    settings = Settings.read(environ=environ).with_flags({"model": {"name": "flag"}})
    model = settings.with_identity(identity, Path("identity.toml")).combined().model
    assert (model.name, model.seed, model.top_p, model.retries) == ("flag", 3, 0.2, 1)


def test_the_file_is_the_one_asked_for_then_the_variable_then_the_folder_then_the_home(tmp_path: Path) -> None:
    home = Path.home() / ".config" / "chatbot"
    home.mkdir(parents=True)
    named = {name: tmp_path / f"{name}.toml" for name in ("flag", "variable")}
    for path in (*named.values(), Path("config.toml"), home / "config.toml"):
        path.write_text("", encoding="utf-8")
    environ = {"CHATBOT_CONFIG": str(named["variable"])}
    assert Settings.read(named["flag"], environ=environ).path == named["flag"]
    assert Settings.read(environ=environ).path == named["variable"]
    assert Settings.read(environ={}).path == Path("config.toml")
    Path("config.toml").unlink()
    assert (own := Settings.read(environ={})).path == home / "config.toml"
    assert own.combined().identities.endswith(".local/share/chatbot/identities")
    found = _config(
        "identities = '~/own'\nfiles.folder = 'here'\nmcp.servers = {a = {command = './x'}, b = {command = 'y'}}"
    )
    assert [found.identities, found.files.folder] == [str(Path.home() / "own"), str(Path.cwd() / "here")]
    assert [each.command for each in found.mcp.servers.values()] == [str(Path.cwd() / "x"), "y"]
    with pytest.raises(ConfigError, match=r"configuration file not found: .*missing\.toml"):
        Settings.read(Path("missing.toml"), environ={})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle = 1", r"config\.toml: unknown setting 'modle': did you mean 'model'\?"),
        ("persona = 'x'", r"config\.toml: unknown setting 'persona': it belongs in an identity\.toml"),
        ("[model]\nnmae = 'x'", r"config\.toml: unknown setting 'nmae' in \[model\]: did you mean 'name'\?"),
        ("[budget]\nday_usd = 'much'", r"'day_usd' in \[budget\] = 'much': expected a number, got text"),
        ("[memory.observations]\ncache = '~nobody-63/x'", "'cache' in .*nobody-63/x' names an unknown user"),
        ("identities = '~nobody-63/x'", r"config\.toml: 'identities' = '~nobody-63/x' names an unknown user"),
        ("[server]\nallowed_hosts = ['bot.example.org', 'x:80']", "entry 2 .*'x:80': expected the name of one host"),
        ("[server]\nallowed_origins = ['https://x.org/']", "entry 1 .*expected an origin .* without a path"),
        ("[model]\nretries = 99", "expected a whole number <= 10"),
        ("[server]\nmemory = true", r"'memory' in \[server\] = True: it must be one of 'on', 'off'"),
        ("model = 'x'", "'model' = 'x': expected a table, got text: set model.name"),
        ("budget = 5", r"'budget' = 5: expected a table, got a whole number: write \[budget\]"),
        ("[mcp.servers.a]\ntrust = 'some'", "= 'some': it must be one of 'read-only', 'all'"),
        ("[mcp.servers.a]", "set either command or url"),
        ("[mcp.servers.a]\ncommand = 'x'\nurl = 'http://x'", "set either command or url"),
        ("[mcp.servers.a__b]\ncommand = 'x'", "expected at most 24 lower-case letters"),
        ("[maintenance]\nmax_per_session = 2000", "raise rows_per_run"),
        ("[maintenance]\nrules = [{ max_rows = 9 }]\nrows_per_run = 9", "raise rows_per_run"),
        ("[memory]\nkv_cap = 5", r"'kv_cap' in \[memory\]"),
        ("[[standing]]\nname = 'home'\n[[standing]]\nname = 3", "'name' in entry 2 of 'standing' = 3: expected text"),
        ("[maintenance]\nrules = [{ a = 1 }]", r"unknown setting 'a' in entry 1 of 'rules' in \[maintenance\]"),
        ("[model]\nname = ''", "'name' in .model. = '': expected text that is not empty"),
        ("[maintenance.rules]\nmax_rows = 5", r"expected a list, got a table: write \[\[maintenance\.rules\]\]"),
        ("[[model]]\nname = 'x'", r"'model': expected a table, got a list: write \[model\]"),
        ("[aliases]\n'my gpt' = 'x'", r"'my gpt' in \[aliases\]: expected at most 64 ASCII letters, digits"),
        (
            "[mcp.servers.a]\nurl = 'example.org'",
            "'url' in .* = 'example.org': expected an address that begins with http",
        ),
        ("[agents.chat]\ntools = ['memory', 3]", r": entry 2 of 'tools' in \[agents\.chat\] = 3: expected text"),
        ("[model]\nname = \n", r"config\.toml is not valid TOML: .*line 2"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_nearest_key(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _config(text)


@pytest.mark.parametrize("key", ["a\nb", "\x1b[2J", "a.b]`", "...", "", " - at `$.model`", "key` - at `$[...]"])
@pytest.mark.parametrize("place", ["{}", "[agents.{}]\nx", "[model]\n{}", "[providers.{}.headers]\nx", "[sync]\n{}"])
def test_a_key_of_any_form_is_named_in_the_error(place: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml"):
        _config(f"{place.format(json.dumps(key))} = [[1]]\n")


def test_a_file_that_is_no_file_or_no_text_or_has_no_end_is_refused() -> None:
    Path("config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml is not a regular file"):
        Settings.read(environ={})
    Path("config.toml").rmdir()
    Path("config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid UTF-8: save it as UTF-8"):
        Settings.read(environ={})
    fails(3, "config.toml is not valid UTF-8: save it as UTF-8", "config", "set", "model.name", "x")
    os.truncate("config.toml", 0)
    os.truncate("config.toml", 50 << 30)
    with pytest.raises(ConfigError, match="is longer than"):
        Settings.read(environ={})


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("CHATBOT_MODEL__NMAE", "x", "the environment: unknown setting 'nmae'"),
        ("CHATBOT_IDENTTIY", "x", "did you mean 'identity'"),
        ("CHATBOT_MODEL__SEED", "x", "the environment: 'seed'"),
        ("CHATBOT_AGENTS__CHAT__MEMORY", "[", "not valid TOML"),
        ("CHATBOT_STORAGE__URL", f"[{URL}", r"=\[postgresql://ada:\*\*\*@db/chat is not valid TOML"),
    ],
)
def test_an_environment_that_is_wrong_is_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _config(environ={variable: value})


def test_a_value_that_is_set_in_place_of_a_table_is_an_error_also_where_tables_have_no_form() -> None:
    text, environ = "[hooks.mine]\nways = 3\n", {"CHATBOT_HOOKS__MINE__WAYS__LEAST": "1"}
    with pytest.raises(ConfigError, match=r"LEAST in the environment: 'ways' in \[hooks\.mine\]"):
        _config(text, environ)
    assert _config("[hooks.mine.ways]\nleast = 3\n", {"CHATBOT_HOOKS__MINE__WAYS": "3"}).hooks["mine"]["ways"] == "3"


@pytest.mark.parametrize(
    ("own", "holds"), [(0, 1), (5, 1), (0.5, 0.5), (1, 1), ("0", 1), ("1000", 1), ("nan", 1), (-1, 1)]
)
@pytest.mark.parametrize(
    ("section", "key"), [("budget", "session_usd"), ("budget", "day_usd"), ("extraction", "budget_usd")]
)
def test_an_identity_lowers_limits_and_lifts_none(section: str, key: str, own: object, holds: float) -> None:
    def limit(file: dict[str, Any], identity: dict[str, Any]) -> Any:
        return to_builtins(Settings(None, file).with_identity(identity, Path("identity.toml")).combined())[section][key]

    assert limit({section: {key: 1}}, {section: {key: own}}) == holds
    assert limit({section: {key: 0}}, {section: {key: 7}}) == limit({}, {section: {key: 7}}) == 7


def leaves(table: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Every setting in a table of tables, by its place."""
    return {place: value for _, place, value in trust.leaves(table)}


def in_force(config: Config) -> dict[tuple[str, ...], Any]:
    """Every setting as it holds, those of agents and plug-ins included."""
    table = to_builtins(config)
    table["hooks"] = {
        each.name: {"enabled": each.enabled, "priority": each.priority, "timeout_s": each.timeout_s}
        | each.all_settings()
        for each in planned_hooks(config.hooks)
    }
    table["memory"] = {
        name: {key: found.default for key, found in settings_of(load(name)).items()}
        | convert_store_settings(name, load(name), config.memory.get(name, {}))
        for name in STORES.own
    }
    return leaves(table)


DEFAULTS = in_force(Config())
WILD = (math.inf, -math.inf, math.nan, 1e23, -1e23, 10**23, -(10**23))


def test_no_setting_takes_a_number_out_of_all_range() -> None:
    for place in DEFAULTS:
        for value in (
            *WILD,
            *(type(DEFAULTS[place])([number]) for number in WILD if isinstance(DEFAULTS[place], list)),
        ):
            with pytest.raises((ConfigError, StoreError), match=place[-1]):
                in_force(Settings(None, nested(place, value)).combined())
        if isinstance(DEFAULTS[place], int | float) and not isinstance(DEFAULTS[place], bool):
            for text in ("inf", "nan", "1e23", "9" * 23):
                with pytest.raises((ConfigError, StoreError), match=place[-1]):
                    in_force(Settings(None, {}, {"CHATBOT_X": nested(place, text)}).combined())


@pytest.mark.parametrize(
    "text",
    [
        'persona = "a\\u0000b"', '[model]\nscript = ["\\U00000000"]', '"a\\u0000" = 1', f"persona = {'[' * 5_000}",
        f"{'a.' * 5_000}a = 1", f"[budget]\nday_tokens = {'9' * 5_000}",
    ],
)  # fmt: skip
def test_a_file_that_no_program_should_take_is_refused_by_its_name(text: str) -> None:
    for name in ("config.toml", "identity.toml"):
        path = Path(name)
        path.write_text(text)
        with pytest.raises(ConfigError, match=name) as refused:
            read_toml(path)
        assert "a\\x00b" not in str(refused.value), "which may be a key"


def test_an_agent_a_server_or_a_provider_of_ones_own_leaves_the_default_agent_as_it_is() -> None:
    config = _config("[agents.other]\nrecall_rows = 3\n[mcp.servers.files]\ncommand = 'x'\ntimeout_s = 1")
    assert config.agents == {"chat": AgentSettings(), "other": AgentSettings(recall_rows=3)}
    assert config.agents["other"].memory == ("basic_session", "observations")
    assert config.mcp.servers["files"] == McpServerSettings(command="x", timeout_s=1)
    config = _config("[providers.openai]\nmemory = false\n[providers.mybox]\nkind = 'openai'")
    assert config.providers == {"openai": ProviderSettings(memory=False), "mybox": ProviderSettings(kind="openai")}
    assert _config("[agents.chat]\nmemory = []").agents["chat"].memory == ()


def test_standing_questions_of_ones_own_come_behind_those_that_come_along_which_are_changed_by_name() -> None:
    own = _config(
        '[[standing]]\nname = "health"\npinned = true\n[[standing]]\nquestion = "How is my thesis?"\n'
        '[[standing]]\nname = "money"\nenabled = false\n[[standing]]\nname = "home"\nquestion = "Where is my boat?"'
    ).questions
    assert [each.question for each in own] == [
        "Where is my boat?" if name == "home" else question for name, question in STANDING.items() if name != "money"
    ] + ["How is my thesis?"]
    assert [each.name for each in own if each.pinned] == ["health"]
    with pytest.raises(ConfigError, match=r"standing.*a name among home, work"):
        _config('[[standing]]\nname = "hom"')


def _shipped_uncommented() -> dict[str, object]:
    """The shipped file with every setting switched on."""
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    return tomllib.loads("\n".join(re.sub(r"^# (?=\w+ = )", "", line) for line in lines))


def _without(section: Section, names: set[str]) -> dict[str, Any]:
    """All settings but those, as a file would have them."""
    return {name: value for name, value in to_builtins(section).items() if name not in names}


def test_the_shipped_file_shows_every_setting_with_its_default() -> None:
    shown = leaves(_shipped_uncommented())
    defaults = {place: list(value) if isinstance(value, tuple) else value for place, value in DEFAULTS.items()}
    # Of standing questions, as of servers, one is an example.
    assert {*shown, ("standing",)} == {*defaults}, "config.toml shows every setting: a line `# name = default`"
    differing = {place for place, value in shown.items() if value != defaults[place]}
    assert differing == {("model", name) for name in ("temperature", "top_p", "seed")}
    convert(_shipped_uncommented(), Config)


def test_the_examples_in_the_shipped_file_show_every_setting_with_its_default() -> None:
    lines = [line for line in SHIPPED.read_text(encoding="utf-8").splitlines() if line.startswith(("#   ", "["))]
    examples = tomllib.loads("\n".join(line.removeprefix("#   ") for line in lines))
    check_providers({"mybox": convert(examples["providers"]["mybox"], ProviderSettings)})
    for shown, usual, own in (
        (examples["providers"]["mybox"], ProviderSettings(), {"kind", "api_base"}),
        (examples["standing"][0], StandingSettings(name="home"), {"name", "question"}),
        (examples["mcp"]["servers"]["files"], McpServerSettings(command="x"), {"command", "args", "allow"}),
    ):
        assert set(shown) == {field.name for field in fields(type(usual))}
        assert _without(convert(shown, type(usual)), own) == _without(usual, own)


def _write(root: Path, name: str, text: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "identity.toml").write_text(text, encoding="utf-8")


def test_config_prints_toml_with_every_value_in_force() -> None:
    """Also values of lists and tables, and names that have to be quoted."""
    rules = "[[maintenance.rules]]\ntypes = ['note']\nmax_rows = 5\n"
    project(rules + "[mcp.servers.a]\ncommand = 'x'\nenv = { 'Ü \"x\"' = 'env:Y' }\n")
    settings = from_json("config", "--config", "config.toml")
    assert settings.pop("paths").keys() == {"file", "identity", "memory", "data", "cache"}
    assert tomllib.loads(ok("config", "--config", "config.toml")) == _given(settings)


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _given(each) for key, each in value.items() if each is not None}
    return [*map(_given, value)] if isinstance(value, list) else value


def test_the_default_identity_needs_no_file(tmp_path: Path) -> None:
    assert load_identity(tmp_path / "nowhere", "ada").persona == DEFAULT_PERSONA
    (tmp_path / "ada" / "memory").mkdir(parents=True)
    assert load_identity(tmp_path, "ada").persona == DEFAULT_PERSONA
    assert (list_identities(tmp_path), list_identities(tmp_path / "nowhere")) == (["ada"], [])


def test_an_unknown_identity_is_told_which_there_are(tmp_path: Path) -> None:
    _write(tmp_path, "grace", "")
    _write(tmp_path, "no name", "")
    with pytest.raises(IdentityError, match=r"choose from ada, grace \(`chatbot init --name nobody` creates it\)"):
        load_identity(tmp_path, "nobody")


@pytest.mark.parametrize("name", ["", "../ada", "a/b", ".", "..", "Ada", "-x", "a b", "x" * 65, "/etc"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(IdentityError):
        load_identity(tmp_path, name)


def test_a_link_out_of_the_folder_of_identities_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere", "eve", "")
    (tmp_path / "identities").mkdir()
    (tmp_path / "identities" / "eve").symlink_to(tmp_path / "elsewhere" / "eve")
    with pytest.raises(IdentityError, match="leaves"):
        load_identity(tmp_path / "identities", "eve")


def test_a_link_that_leads_to_itself_is_an_error_of_ours() -> None:
    project("[model]\nname = 'scripted'")
    for name in ("identities/eve", "place"):
        Path(name).symlink_to(Path(name).name)
    fails(3, "Too many levels of symbolic links", "-i", "eve", "sessions", "list")
    fails(7, "is not there", "sync", "place")
    fails(7, "is a link, not a folder", "--config", "place/config.toml", "init")
    with pytest.raises(ConfigError, match="does not exist"):
        file_tools(Path("place"))
    shutil.rmtree("identities")
    Path("identities").symlink_to("identities")
    fails(3, "Too many levels of symbolic links", "sessions", "list")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clearance = 'ful'", "did you mean 'full'"),
        ("persona = 5", "should be text"),
        ("identity = 'other'", "cannot set 'identity'"),
        ("[providers.openai]\napi_key = 'env:SOME_KEY'", "cannot set 'providers'"),
        ("[providers.openai]\nmemory = true", "cannot set 'providers'"),
        ('[model]\napi_base = "http://eve.example"', "it belongs in .providers.NAME."),
        ("persona =", "not valid TOML"),
        ("persna = 'x'", "did you mean 'persona'"),
        ("xyzzy = 'x'", "choose from agents, budget, clearance, description, embedding, .*, persona,"),
        ("[model]\nsead = 1", r"unknown setting 'sead' in \[model\]: did you mean 'seed'"),
        *(
            (text, ": .*expected")
            for text in ("hooks = 1", "agents = [1]", "[agents]\nchat = 1", "[agents.chat]\ntools = [1]")
        ),
    ],
)
def test_a_malformed_identity_is_named(tmp_path: Path, text: str, words: str) -> None:
    _write(tmp_path, "max", text)
    with pytest.raises(ConfigError, match=words) as refused:
        load_identity(tmp_path, "max")
    assert "identity.toml" in str(refused.value)


def _setup(folder: Path, text: str) -> Setup:
    (folder / "chosen.toml").write_text(text)
    return Setup.resolve(Options(config=folder / "chosen.toml"))


def test_a_url_leads_to_an_identity_in_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = _setup(tmp_path, f'[storage]\nurl = "{URL}"')
    assert (setup.home, setup.server_home) == (Address(URL, "ada"), Address(URL, ".server"))
    monkeypatch.setenv("DATABASE", URL)
    assert _setup(tmp_path, '[storage]\nurl = "env:DATABASE"').home == Address(URL, "ada")
    monkeypatch.delenv("DATABASE")
    with pytest.raises(ConfigError, match="names the variable DATABASE, which is not set"):
        _ = _setup(tmp_path, '[storage]\nurl = "env:DATABASE"').home
    with pytest.raises(ConfigError, match=r"chosen\.toml: .*unknown storage 'mysql'"):
        _ = _setup(tmp_path, '[storage]\nurl = "mysql://db/chat"').home


def test_one_identity_is_in_files_and_another_in_a_database(tmp_path: Path) -> None:
    ben = tmp_path / "identities" / "ben"
    ben.mkdir(parents=True)
    (ben / "identity.toml").write_text(f'[storage]\nurl = "{URL}"')
    (tmp_path / "chosen.toml").write_text("")
    with pytest.raises(ConfigError, match=r"is not trusted: it sets storage\.url"):
        Setup.resolve(Options(config=tmp_path / "chosen.toml", identity="ben"))
    trust.trust(*settings_of_identity(tmp_path / "identities", "ben"))
    setup = Setup.resolve(Options(config=tmp_path / "chosen.toml", identity="ben"))
    assert (setup.home, setup.server_home) == (Address(URL, "ben"), tmp_path / "identities" / ".server")


def test_a_password_or_key_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project("")
    Path("chosen.toml").write_text(f'[storage]\nurl = "{URL}"\n')
    for told in (ok("config", "--config", "chosen.toml"), ok("config", "--json", "--config", "chosen.toml")):
        assert "postgresql://ada:***@db/chat" in told
        assert "secret" not in told
    assert "secret" not in repr(Config(storage=StorageSettings(url=URL)))
    for table in ("providers.openai]\napi_key", "[hooks.own.all]]\ntoken", "memory.own.server]\npassword"):
        assert "sk-secret" not in repr(_config(f'[{table} = "sk-secret"'))
