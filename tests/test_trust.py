"""Files that were found, not chosen, may name no code, place or key: settings, identities, sessions and bundles."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from msgspec.structs import fields

from chatbot.cli.main import main
from chatbot.config import Config, McpServerSettings, PriceSettings, ProviderSettings, Section
from chatbot.config_layers import OF_IDENTITY, Settings
from chatbot.errors import ConfigError
from chatbot.hooks.hook import planned_hooks
from chatbot.identity import load_identity
from chatbot.memory import MemorySystem
from chatbot.models import litellm_import
from chatbot.models.provider import Provider
from chatbot.stores.errors import UnknownStore
from chatbot.stores.plugins import STORES, load, settings_of
from chatbot.trust import HARMLESS, NAME, PROVIDERS, is_trusted, needing_trust, trust
from tests import process
from tests.command import ok, project, run
from tests.effort import by_day
from tests.patience import PATIENCE_S

EVIL = """
import pathlib
pathlib.Path("ran").touch()
async def act() -> str:
    return ""
"""
SAID = "My sister Ida collects blue stamps from Norway."
FREE = "any_name"
PLUGINS = {
    "memory": {name: [*settings_of(load(name))] for name in STORES.own},
    "hooks": {each.name: [*settings_of(each.hook), "enabled", "priority", "timeout_s"] for each in planned_hooks({})},
}
NEED_TRUST = {
    *(f"mcp.servers.{FREE}.{each.name}" for each in fields(McpServerSettings)),
    *(f"providers.{FREE}.{each.name}" for each in fields(ProviderSettings) if each.name != "prices"),
    *(f"providers.{FREE}.prices.{FREE}.{each.name}" for each in fields(PriceSettings)),
    *("storage.url", "memory.observations.cache", "files.folder", "sync.places", "sync.token"),
    *(f"server.{name}" for name in ("allowed_hosts", "allowed_origins", "unasked_tools", "users", "memory")),
    *("telemetry.endpoint", "telemetry.headers"),
}
"""The settings that need trust whatever their value is."""
REACHING = {
    "a tool of its own": '[agents.chat]\ntools = ["evil:act"]',
    "a tool beside ours": '[agents.other]\ntools = ["memory", "os:system"]',
    "an installed tool": '[agents.chat]\ntools = ["shell"]',
    "a store of its own": '[agents.chat]\nmemory = ["evil:Store"]',
    "a store that is only set": '[memory."evil:Store"]\ncap = 1', "a store that is only named": '[memory."evil:Store"]',
    "a hook of its own": '[hooks."evil.deep:Hook"]', "an installed hook": "[hooks.sender]\nenabled = true",
    "a command": '[mcp.servers.files]\ncommand = "./evil"',
    "a model whose name is an address": '[model]\nname = "oobabooga/http://example.org"',
    "an embedder in a file": '[embedding]\nmodel = "local/weights.gguf"',
    "a model file": '[model]\nname = "local/./evil.gguf"',
    "a database": '[storage]\nurl = "postgresql://ada:secret@db/chat"',
    "a provider elsewhere": '[providers.openai]\napi_base = "https://example.org"',
    "a provider's key": '[providers.openai]\napi_key = "env:SOME_KEY"',
    "a provider of a name of its own": '[providers.mybox]\nkind = "openai"',
    "a provider without anything": "[providers.openai]", "a collector": '[telemetry]\nendpoint = "https://example.org"',
    "an open address": '[server]\nhost = "0.0.0.0"', "identities elsewhere": 'identities = "../identities"',
    "identities at an absolute path": 'identities = "/srv/identities"',
    "identities at home": 'identities = "~/identities"',
}  # fmt: skip
HARMLESS_FILES = [
    "",
    "[providers]",
    '[model]\nname = "openai/gpt-4.1-mini"\nseed = 1',
    '[model]\nname = "gpt-4o"\n[extraction]\nmodel = "fast"\n[aliases]\nfast = "claude-sonnet-4-5"',
    '[model]\nname = "openrouter/anthropic/claude-sonnet-4.5:beta"\n[extraction]\nmodel = "ollama/llama3:8b"',
    '[model]\nname = "local/smollm2-135m"\n[embedding]\nmodel = "local/minilm"',
    '[agents.chat]\nmemory = ["basic_session"]\ntools = ["memory"]\n[agents.other]\nrecall_rows = 3',
    '[telemetry]\nprometheus = true\n[server]\nhost = "::1"',
    "[memory.basic_session]\nkv_cap = 7\n[hooks.memorability]\nthreshold = 1",
    'identities = "people"\nidentity = "grace"',
    '[[maintenance.rules]]\ntypes = ["exchange"]\narchive_after_days = 90',
]
MODELS_WITH_A_PLACE = [
    *("oobabooga/http://evil.example", "openai/https://evil.example", "HTTPS://evil.example", "openai//evil.example"),
    *("local/./evil.gguf", "local/evil.gguf", "local/smollm2-135m/../../evil.gguf", "./evil.gguf", "/srv/evil.gguf"),
    *("openai/../evil", "openai/./evil", "gemini/x/../../evil", "openai/x?key=1"),
    *("openai/x#y", "openai/a b", "openai\\x"),
    *("vllm/evil", "petals/evil", "huggingface/evil/model", "custom_openai/x", "litellm_proxy/x", "auto_router/x"),
    *("gemini-2.5-flash", "anthropic.claude-v2", "us.anthropic.claude-9", "apac.amazon.x-v1:0"),
    *("dolphin", "a.b", "a:b"),
    *("bedrock/evil.example/x", "bedrock/arn:aws:bedrock:evil.example:1:x/y", "sagemaker/x", "dotprompt/x", "a2a/x"),
]


def settings(environ: dict[str, str] | None = None) -> Settings:
    return Settings.read(environ=environ or {})


@pytest.fixture(autouse=True)
def _no_input_beside_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())
    Path("evil.py").write_text(EVIL, encoding="utf-8")


def call(*arguments: str) -> int:
    """`chatbot` with these arguments, in this process; its exit code."""
    return main(arguments)


def places(kind: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every setting below a type of the configuration; tables of plug-ins are those that ship."""
    if len(place) == 1 and place[0] in PLUGINS:
        for name, known in PLUGINS[place[0]].items():
            for key in known:
                yield (*place, name, key)
    elif isinstance(kind, type) and issubclass(kind, Section):
        for each in fields(kind):
            yield from places(each.type, (*place, each.name))
    elif get_origin(kind) is dict and get_args(kind)[1] is not str:
        yield from places(get_args(kind)[1], (*place, FREE))
    elif sections := [each for each in get_args(kind) if isinstance(each, type) and issubclass(each, Section)]:
        yield from places(sections[0], place)
    else:
        yield place


def nested(place: tuple[str, ...], value: object) -> dict[str, Any]:
    key, *rest = place
    return {key: nested(tuple(rest), value) if rest else value}


def declared(forms: Any = HARMLESS, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, form in forms.items():
        here = (*place, FREE if key == "*" else key)
        yield from declared(form, here) if isinstance(form, dict) else [here]


KNOWN = sorted(set(places(Config)))


def test_every_setting_is_declared_harmless_or_needs_trust() -> None:
    undeclared = set(KNOWN) - set(declared())
    which = "a found file may set it: HARMLESS in chatbot/trust.py; it names code, a place or a key: NEED_TRUST here"
    assert {".".join(place) for place in undeclared} == NEED_TRUST, which
    for place in undeclared:
        for value in ("x", "", 0, 1.5, True, [], ["x"], {}, {"x": 1}):
            assert needing_trust(nested(place, value)), (place, value)


def test_nothing_is_declared_that_is_no_setting() -> None:
    assert set(declared()) - set(KNOWN) == {(name,) for name in OF_IDENTITY}


def test_a_setting_that_is_not_declared_needs_trust_at_every_depth() -> None:
    tables = {place[:depth] for place in KNOWN for depth in range(len(place))}
    assert ("maintenance", "rules") in tables
    free = {("agents",), ("aliases",)}
    for table in tables - free:  # whose keys are free
        for value in ("x", 1, True, [], {}, {"api_base": "x"}, [{"x": 1}]):
            assert needing_trust(nested((*table, "not_declared"), value)), (table, value)
    assert needing_trust({"memory": {"postgres": {"url": "postgres://example.org"}}})
    assert needing_trust({"agents": {"chat": {"memory": ["postgres"]}}})
    for name in ("memory", "hooks", "providers", "agents"):
        assert needing_trust({name: {"new": {"api_key": "x"}}}), name


def test_no_value_hides_behind_another_of_the_same_name() -> None:
    twice = {"hooks": {"a.b": {"c": 1}, "a": {"b.c": 2, "b": {"c": 3}}}}
    assert set(needing_trust(twice).values()) == {1, 2, 3}
    listed = {"maintenance": {"rules": [{"run": "x"}, {"types": []}, {"run": "y"}]}}
    assert needing_trust({"model": {"name": []}}) == {"model.name": []}
    assert needing_trust(listed) == {"maintenance.rules[0].run": "x", "maintenance.rules[2].run": "y"}


@pytest.mark.nightly
def test_every_bare_name_that_litellm_knows_leads_to_a_usual_provider_or_needs_trust() -> None:
    litellm: Any = litellm_import.begin_import().result()
    listed = [each for name, each in vars(litellm).items() if "model" in name and isinstance(each, list | set | dict)]
    names = {name for names in listed for name in names if isinstance(name, str) and "/" not in name}
    allowed = {name for name in names if not needing_trust({"model": {"name": name}})}
    assert len(allowed) > 100
    for name in allowed:
        try:
            provider = litellm.get_llm_provider(Provider(name).litellm_name)[1]
        except litellm.BadRequestError:
            continue  # it goes nowhere
        assert provider in PROVIDERS, name


@pytest.mark.parametrize(
    "place", [("model", "name"), ("extraction", "model"), ("embedding", "model"), ("aliases", "fast")]
)
def test_no_name_of_a_model_that_was_found_leads_elsewhere(place: tuple[str, ...]) -> None:
    for name in MODELS_WITH_A_PLACE:
        assert needing_trust(nested(place, name)) == {".".join(place): name}


@pytest.mark.nightly
def test_providers_that_a_found_file_may_name_send_to_their_own_address_whatever_the_model_is_called() -> None:
    script = """
import asyncio, os, sys
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
os.environ |= {"AZURE_API_BASE": "https://azure.invalid", "AZURE_API_VERSION": "2024-02-01"}
import litellm
hosts = set()
def refuse(event, args):
    if event == "socket.getaddrinfo":
        hosts.add(args[0])
        raise OSError("refused")
sys.addaudithook(refuse)
async def ask(model):
    said = [{"role": "user", "content": "hi"}]
    try:
        await litellm.acompletion(model=model, messages=said, api_key="x", num_retries=0, max_retries=0, timeout=20)
    except Exception:
        pass
async def main():
    for model in sys.argv[1:]:
        await ask(model)
    print("\\nhosts", *sorted(hosts))
asyncio.run(main())
"""
    elsewhere = "oobabooga/http://really.example"
    models = [f"{provider}/evil.example:8000/x" for provider in sorted(PROVIDERS)]
    done = subprocess.run(
        [sys.executable, "-c", script, *models, elsewhere], capture_output=True, text=True, check=True
    )
    hosts = set(done.stdout.splitlines()[-1].split())
    assert {"api.openai.com", "api.anthropic.com", "azure.invalid", "localhost", "really.example"} <= hosts
    assert len(hosts) >= 20
    assert not any("evil" in host for host in hosts)


@pytest.mark.parametrize("text", REACHING.values(), ids=REACHING)
def test_a_found_configuration_that_names_code_a_place_or_a_key_is_refused(text: str) -> None:
    Path("config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(
        ConfigError,
        match=r"config\.toml is not trusted: it sets .*; review it, then run `chatbot config trust`.*--config",
    ) as refused:
        settings()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", [text for name, text in REACHING.items() if name.split()[0] != "identities"])
def test_so_is_an_identity_even_beside_a_chosen_configuration(text: str, config_is_asked_for: None) -> None:
    project("", identity=text)
    with pytest.raises(
        ConfigError, match=r"identity\.toml(: an identity cannot set| is not trusted: it sets |: .* not found)"
    ):
        load_identity(Path("identities"), "ada")


@pytest.mark.parametrize(
    ("table", "model", "is_accepted"),
    [
        ('work]\nkind = "openai"', "work/gpt", True),
        ('work]\nkind = "openai"', "work/https://evil.example", False),
        ('work]\nkind = "openai"', "work/../gpt", False),
        ('work]\nkind = "openai"', "home/gpt", False),
        ('work]\nkind = "huggingface"', "work/gpt", False),
        ('huggingface]\napi_key = "k"', "huggingface/gpt", False),
    ],
)
@pytest.mark.parametrize("setting", by_day(["model.name", "embedding.model", "extraction.model"], "embedding.model"))
@pytest.mark.usefixtures("with_encoders")
def test_an_identity_may_name_the_owners_models(table: str, model: str, *, is_accepted: bool, setting: str) -> None:
    project(f"[providers.{table}\n[model]\nname = 'scripted'", identity=f'{setting} = "{model}"')
    shown = run("config", "--config", "config.toml")
    if is_accepted:
        assert (shown.returncode, f'{setting} = "{model}"' in shown.stdout) == (0, True)
    else:
        assert (shown.returncode, f"is not trusted: it sets {setting}" in shown.stderr) == (3, True)


@pytest.mark.parametrize("text", HARMLESS_FILES)
def test_anything_else_is_taken_as_it_is_found(text: str) -> None:
    Path("config.toml").write_text(text, encoding="utf-8")
    assert settings().path == Path("config.toml")
    settings().combined()


def test_a_file_that_is_asked_for_or_the_users_own_needs_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    text = REACHING["a tool of its own"]
    home = Path.home() / ".config" / "chatbot" / "config.toml"
    home.parent.mkdir(parents=True)
    home.write_text(text, encoding="utf-8")
    assert settings().path == home
    Path("config.toml").write_text(text, encoding="utf-8")
    assert Settings.read(Path("config.toml"), environ={}).path == Path("config.toml")
    assert settings({"CHATBOT_CONFIG": "config.toml"}).path == Path("config.toml")
    monkeypatch.chdir(home.parent)
    assert settings().path == Path("config.toml")


def test_a_mistake_in_a_found_file_is_named_as_one() -> None:
    for text, words in (
        ("[memory.basic_sesion]\nkv_cap = 1", r"memory.basic_sesion.kv_cap: did you mean 'basic_session'\?"),
        ("[hooks.inject]\npriorty = 1", "did you mean 'priority'"),
        ('[agents.chat]\nmemory = ["observatons"]', "agents.chat.memory: did you mean 'observations'"),
        ("[hooks.injct]\nenabled = true", r"it sets hooks.injct.enabled: did you mean 'inject'\? review it"),
    ):
        Path("config.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=words):
            settings()


def test_what_was_allowed_holds_for_those_values_in_that_place_alone() -> None:
    path = Path("config.toml")
    path.write_text(REACHING["a command"], encoding="utf-8")
    assert trust(path, {"mcp": {"servers": {"files": {"command": "./evil"}}}}) == {
        "mcp.servers.files.command": "./evil"
    }
    assert settings().is_chosen
    path.write_text(REACHING["a command"] + "\n[model]\nseed = 7", encoding="utf-8")
    settings()
    path.write_text(REACHING["a command"] + '\nargs = ["--all"]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mcp\.servers\.files\.args"):
        settings()


def test_a_link_to_allowed_files_is_refused_beside_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("config.toml").absolute()
    path.write_text(REACHING["a tool of its own"], encoding="utf-8")
    trust(path, {"agents": {"chat": {"tools": ["evil:act"]}}})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("config.toml").symlink_to(path)
    with pytest.raises(ConfigError, match="config trust"):
        settings()


def test_a_damaged_list_of_what_was_allowed_allows_nothing_and_is_kept_beside_the_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = {"providers": {"openai": {"api_base": "https://example.org"}}}
    trust(Path("config.toml"), table)
    known = Path.home() / ".local" / "share" / "chatbot" / NAME
    assert known.stat().st_mode & 0o777 == 0o600
    known.write_text("[", encoding="utf-8")
    assert not is_trusted(Path("config.toml"), table)
    trust(Path("config.toml"), table)
    assert is_trusted(Path("config.toml"), table)
    [aside] = known.parent.glob(f"{NAME}.*")
    assert (aside.read_text(encoding="utf-8"), f"is kept as {aside.name}" in caplog.text) == ("[", True)


@pytest.mark.nightly
def test_many_processes_that_allow_at_once_lose_nothing(tmp_path: Path) -> None:
    script = "import sys, pathlib, chatbot.trust as t; t.trust(pathlib.Path(sys.argv[1]), {'providers': {}})"
    names = [str(tmp_path / f"{number}.toml") for number in range(6)]
    children = [subprocess.Popen([sys.executable, "-c", script, name]) for name in names]
    assert [child.wait(PATIENCE_S) for child in children] == [0] * 6
    known = json.loads((Path.home() / ".local" / "share" / "chatbot" / NAME).read_text(encoding="utf-8"))
    assert set(names) <= set(known)


@pytest.mark.parametrize(
    "command", [["ask", "hi"], ["tools", "list"], ["doctor"], ["config"], ["memory", "list"], ["stores"], ["hooks"]]
)
def test_no_command_runs_what_came_with_a_folder(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    project('[model]\nname = "scripted"\n' + REACHING["a tool of its own"] + '\nmemory = ["evil:Store"]')
    assert call(*command) != 0
    shown = capsys.readouterr()
    assert "chatbot config trust" in shown.out + shown.err
    assert not Path("ran").exists()


def test_trusting_it_says_what_was_allowed_without_its_keys_and_then_it_runs() -> None:
    project('[model]\nname = "scripted"\n[agents.chat]\nmemory = ["basic_session"]\ntools = ["evil:act"]\n')
    shown = ok("config", "trust")
    assert 'agents.chat.tools = ["evil:act"]' in shown
    assert not Path("ran").exists()
    ok("ask", "hi")
    assert Path("ran").exists()
    Path("config.toml").write_text('[mcp.servers.a]\ncommand = "x"\nenv = { TOKEN = "sk-secret" }', encoding="utf-8")
    shown = ok("config", "trust") + ok("config", "trust", "--json")
    assert "sk-secret" not in shown
    assert shown.count("(set)") == 2


def test_an_identity_is_trusted_by_name_and_as_it_is_now(capsys: pytest.CaptureFixture[str]) -> None:
    identity = 'model.name = "scripted"\n[agents.chat]\ntools = ["evil:act"]\n'
    project("", "ada", identity=identity)
    assert call("ask", "hi") == 3
    assert "run `chatbot config trust -i ada`" in capsys.readouterr().err
    assert call("config", "trust") == 0  # of the configuration, which does not cover its identities
    assert call("ask", "hi") == 3
    assert call("config", "trust", "-i", "ada") == 0
    assert 'agents.chat.tools = ["evil:act"]' in capsys.readouterr().out
    assert not Path("ran").exists()
    ok("ask", "hi")
    assert Path("ran").exists()
    project("", "ada", identity=identity + 'memory = ["evil:Store"]')
    assert call("ask", "hi") == 3


def test_there_may_be_nothing_to_trust() -> None:
    assert call("config", "trust") == 3
    assert call("config", "trust", "-i", "nobody") == 4
    Path("config.toml").write_text("", encoding="utf-8")
    assert "it sets nothing that requires it" in ok("config", "trust")


def test_a_file_with_a_mistake_is_not_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = '[agents.chat]\ntools = ["evil:act"]\n[terminal]\nshow_usages = true\n'
    project(wrong, "ada", identity=wrong)
    for more in ([], ["-i", "ada", "--config", "config.toml"]):
        if more:
            Path("config.toml").write_text("", encoding="utf-8")
        assert call("config", "trust", *more) == 3
        assert "unknown setting 'show_usages' in [terminal]: did you mean 'show_usage'?" in capsys.readouterr().err
    assert not (Path.home() / ".local" / "share" / "chatbot" / NAME).exists()


def test_links_do_not_lead_a_found_configuration_to_other_identities(tmp_path: Path) -> None:
    own = tmp_path / "own" / "ada"
    own.mkdir(parents=True)
    Path("config.toml").write_text('[model]\nname = "scripted"\n[sessions]\nttl_days = 0.00001\n', encoding="utf-8")
    ok("config", "trust")  # of a harmless file, which trusts no link that comes later
    Path("identities").symlink_to(own.parent)
    assert call("ask", "hi") == 3
    assert list(own.iterdir()) == []
    assert call("--config", "config.toml", "ask", "hi") == 0
    assert list(own.iterdir()) != []


def test_a_plug_in_is_not_sought_beside_a_configuration_that_was_only_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's variable names an installed plug-in, and the folder has one of that name."""
    project('[model]\nname = "scripted"\n')
    tools = {"CHATBOT_AGENTS__CHAT__TOOLS": '["evil:act"]', "PYTHONSAFEPATH": "1"}
    assert process.run("ask", "hi", **tools).returncode == 3
    assert not Path("ran").exists()
    ok("config", "trust")
    done = process.run("ask", "hi", **tools)  # it sets nothing that needs trust, and so is only found
    assert (done.returncode, "loaded with --config" in done.stderr) == (3, True)
    assert process.run("--config", "config.toml", "ask", "hi", **tools).returncode == 0
    assert Path("ran").exists()


def test_a_session_on_the_disk_names_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    project('[model]\nname = "scripted"\n')
    assert call("ask", SAID) == 0
    (session,) = Path("identities/ada/memory/sessions").iterdir()
    for path in (session / "session.json", session.parents[1] / "sessions.json"):
        path.write_text(path.read_text("utf-8").replace('"observations"', '"evil:Store"'), encoding="utf-8")
    for flags in ((), ("--config", "config.toml")):
        for command in (["sessions", "show", session.name], ["ask", "-r", session.name, "hi"], ["ask", "-c", "hi"]):
            assert call(*flags, *command) == 3
            assert "uses the store 'evil:Store', which is not configured" in capsys.readouterr().err
        commands = "sessions search stamps; doctor; sessions prune; maintain; memory forget blue stamps from Norway;"
        commands += f"sessions delete {session.name} --with-memory --yes"
        for line in commands.split(";"):
            call(*flags, *line.split())
    assert process.run("sessions", "show", session.name).returncode == 3  # which finds modules in its folder
    assert not Path("ran").exists()


async def test_a_session_may_use_the_stores_that_its_owner_named(tmp_path: Path) -> None:
    name = "chatbot.stores.in_memory:InMemoryStore"
    async with MemorySystem(tmp_path) as memory:
        session = await memory.create_session([name], "chat")
        await memory.load_session(session.id, "chat")
    async with MemorySystem(tmp_path) as memory:
        with pytest.raises(UnknownStore, match="which is not configured"):
            await memory.load_session(session.id, "chat")
        assert await memory.expire_sessions() == []
    async with MemorySystem(tmp_path, settings={name: {}}) as memory:
        await memory.load_session(session.id, "chat")


def test_opening_a_memory_leaves_a_line_in_the_log_with_its_path(caplog: pytest.LogCaptureFixture) -> None:
    project('[model]\nname = "scripted"\n')
    with caplog.at_level(logging.INFO):
        assert call("ask", "hi") == 0
    page = (Path(__file__).parents[1] / "docs" / "observability.md").read_text(encoding="utf-8")
    [name] = re.findall(r"of the logger `([\w.]+)`", page)
    lines = [record.getMessage() for record in caplog.records if record.name == name]
    home = Path("identities/ada/memory").resolve()
    assert [f"initializing memory store {name} in {home}" for name in ("basic_session", "observations")] == sorted(
        lines
    )
