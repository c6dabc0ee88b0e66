"""A configuration that was only found may have come with the folder: what it may not do before the user allows it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chatbot.config import Settings
from chatbot.errors import ConfigError
from chatbot.trust import NAME, allow, reaching
from tests.command import ok, run

EVIL = """
import pathlib
pathlib.Path("ran").touch()
async def act() -> str:
    return ""
"""
REACHING = {
    "a tool of its own": '[agents.chat]\ntools = ["evil:act"]',
    "a store of its own": '[agents.chat]\nmemory = ["evil:Store"]',
    "a store that is only set": '[memory."evil:Store"]\ncap = 1',
    "a hook of its own": '[hooks."evil.deep:Hook"]',
    "a command": '[mcp.servers.files]\ncommand = "./evil"',
    "a server elsewhere": '[mcp.servers.files]\nurl = "https://example.org"',
    "a model elsewhere": '[model]\napi_base = "https://example.org"',
    "an embedder elsewhere": '[embedding]\napi_base = "https://example.org"',
    "a model for facts elsewhere": '[extraction]\napi_base = "https://example.org"',
    "a model whose name is an address": '[model]\nname = "huggingface/https://example.org"',
    "an embedder in a file": '[embedding]\nmodel = "local/weights.gguf"',
    "a model file": '[model]\nname = "local/weights.gguf"',
    "a cache, which holds pickles": '[memory.observations]\ncache = "cache"',
    "a collector": '[telemetry]\nendpoint = "https://example.org"',
    "what a collector is sent": '[telemetry.headers]\nkey = "env:SOME_KEY"',
    "another site's pages": '[server]\nallowed_origins = ["https://example.org"]',
}
HARMLESS = [
    "",
    '[model]\nname = "openai/gpt-4.1-mini"\nseed = 1',
    '[model]\nname = "local/smollm2-135m"\napi_base = ""\n[embedding]\nmodel = "local/minilm"',
    '[agents.chat]\nmemory = ["basic_session"]\ntools = ["memory"]',
    '[telemetry]\nprometheus = true\nendpoint = ""',
    "[memory.basic_session]\nkv_cap = 7\n[hooks.capture]\nenabled = false",
]


def _settings(environ: dict[str, str] | None = None) -> Settings:
    return Settings.read(environ=environ or {})


@pytest.mark.parametrize("text", REACHING.values(), ids=REACHING)
def test_what_runs_code_or_leads_elsewhere_waits_for_the_user(text: str) -> None:
    Path("config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml was found here.*chatbot config trust.*--config"):
        _settings()


@pytest.mark.parametrize("text", HARMLESS)
def test_anything_else_is_taken_as_it_is_found(text: str) -> None:
    Path("config.toml").write_text(text, encoding="utf-8")
    assert _settings().path == Path("config.toml")


def test_a_file_that_is_asked_for_or_the_users_own_needs_no_leave(tmp_path: Path) -> None:
    text = REACHING["a tool of its own"]
    home = Path.home() / ".config" / "chatbot" / "config.toml"
    home.parent.mkdir(parents=True)
    home.write_text(text, encoding="utf-8")
    assert _settings().path == home
    Path("config.toml").write_text(text, encoding="utf-8")
    assert Settings.read(Path("config.toml"), environ={}).path == Path("config.toml")
    assert _settings({"CHATBOT_CONFIG": "config.toml"}).path == Path("config.toml")


def test_what_was_allowed_holds_for_those_values_in_that_place_alone(tmp_path: Path) -> None:
    path = Path("config.toml")
    path.write_text(REACHING["a command"], encoding="utf-8")
    assert allow(path, {"mcp": {"servers": {"files": {"command": "./evil"}}}}) == {
        "mcp.servers.files.command": "./evil"
    }
    _settings()
    path.write_text(REACHING["a command"] + "\n[model]\nseed = 7", encoding="utf-8")
    _settings()
    path.write_text(REACHING["a command"] + '\nargs = ["--all"]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mcp\.servers\.files\.args"):
        _settings()


def test_a_link_to_an_allowed_file_is_not_allowed_where_other_code_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("config.toml").absolute()
    path.write_text(REACHING["a tool of its own"], encoding="utf-8")
    allow(path, {"agents": {"chat": {"tools": ["evil:act"]}}})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("config.toml").symlink_to(path)
    with pytest.raises(ConfigError, match="config trust"):
        _settings()


def test_a_damaged_list_of_what_was_allowed_allows_nothing_and_is_written_anew() -> None:
    table = {"model": {"api_base": "https://example.org"}}
    allow(Path("config.toml"), table)
    known = Path.home() / ".local" / "share" / "chatbot" / NAME
    assert known.stat().st_mode & 0o777 == 0o600
    Path("config.toml").write_text(REACHING["a model elsewhere"], encoding="utf-8")
    _settings()
    known.write_text("[", encoding="utf-8")
    with pytest.raises(ConfigError, match="config trust"):
        _settings()
    allow(Path("config.toml"), table)
    _settings()


def test_many_processes_that_allow_at_once_lose_nothing(tmp_path: Path) -> None:
    script = "import sys, pathlib, chatbot.trust as t; t.allow(pathlib.Path(sys.argv[1]), {'model': {'api_base': 'x'}})"
    names = [str(tmp_path / f"{number}.toml") for number in range(6)]
    children = [subprocess.Popen([sys.executable, "-c", script, name]) for name in names]
    assert [child.wait(60) for child in children] == [0] * 6
    known = json.loads((Path.home() / ".local" / "share" / "chatbot" / NAME).read_text(encoding="utf-8"))
    assert set(names) <= set(known)


@pytest.mark.parametrize(
    "command", [["ask", "hi"], ["tools", "list"], ["doctor"], ["config"], ["memory", "list"], ["stores"]]
)
def test_no_command_runs_what_came_with_a_folder(command: list[str]) -> None:
    Path("evil.py").write_text(EVIL, encoding="utf-8")
    Path("config.toml").write_text(
        '[model]\nname = "scripted"\n' + REACHING["a tool of its own"] + '\nmemory = ["evil:Store"]', encoding="utf-8"
    )
    done = run(*command)
    assert done.returncode != 0
    assert "chatbot config trust" in done.stdout + done.stderr
    assert not Path("ran").exists()


def test_allowing_it_says_what_was_allowed_without_its_keys_and_then_it_runs() -> None:
    Path("evil.py").write_text(EVIL, encoding="utf-8")
    Path("config.toml").write_text(
        '[model]\nname = "scripted"\n[agents.chat]\nmemory = ["basic_session"]\ntools = ["evil:act"]\n',
        encoding="utf-8",
    )
    shown = ok("config", "trust")
    assert "agents.chat.tools = ['evil:act']" in shown
    assert not Path("ran").exists()
    ok("ask", "hi")
    assert Path("ran").exists()
    Path("config.toml").write_text('[mcp.servers.a]\ncommand = "x"\nenv = { TOKEN = "sk-secret" }', encoding="utf-8")
    shown = ok("config", "trust") + ok("config", "trust", "--json")
    assert "sk-secret" not in shown
    assert shown.count("(set)") == 2


def test_there_may_be_nothing_to_allow() -> None:
    assert run("config", "trust").returncode == 3
    Path("config.toml").write_text("", encoding="utf-8")
    assert "needs no leave" in ok("config", "trust")


def test_the_names_of_what_reaches_out_are_those_of_the_settings() -> None:
    table = {"agents": {"chat": {"memory": ["a:b"], "tools": []}}, "hooks": {"x.y:Z": {"enabled": True}}}
    assert reaching(table) == {"agents.chat.memory": ["a:b"], "hooks.x.y:Z.enabled": True}
