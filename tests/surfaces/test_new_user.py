"""The first hour: an identity, a model, keys, settings and personas by one command each, and a fact that is kept."""

import json
import socketserver
import tomllib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from keyring.backends import fail
from keyring.errors import KeyringLocked

from chatbot.cli.from_arguments import discard_empty
from chatbot.cli.models import find_servers
from chatbot.config import ProviderSettings
from chatbot.errors import KeyRefused, RateLimited
from chatbot.memory import SessionFilter
from chatbot.models import ScriptedModel
from chatbot.models.provider import NO_KEY, Provider, loaded_keys
from chatbot.runtime import Runtime
from tests.command import fails, from_json, ok, run
from tests.servers.in_thread import answering
from tests.servers.wire_shapes import WireShapes, wire_shapes
from tests.terminal import CTRL_C, Terminal

CONFIG = Path(".config/chatbot/config.toml")
IDENTITY = Path(".local/share/chatbot/identities/sam/identity.toml")
KEYS = Path(".local/share/chatbot/keys.json")
KEY = "sk-plugh-0123456789"


def config() -> dict[str, object]:
    return tomllib.loads((Path.home() / CONFIG).read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _without_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyring.get_keyring", fail.Keyring)


def test_a_key_is_stored_privately_listed_without_its_text_and_removed() -> None:
    assert ok("keys", "set", "anthropic", stdin=f"{KEY}\n") == "the key of anthropic is stored: keys.json\n"
    file = Path.home() / KEYS
    assert file.stat().st_mode & 0o777 == 0o600
    assert KEY in file.read_text(encoding="utf-8")
    assert from_json("keys", "list") == [{"provider": "anthropic", "place": "keys.json", "is_stored": True}]
    assert KEY not in ok("keys", "list") + ok("config") + ok("models", "list", "--json")
    for option in ((), ("--json",)):
        done = run("keys", "set", "anthropic", *option, stdin=f"{KEY}\n", ANTHROPIC_API_KEY="sk-other-0123456789")
        assert "ANTHROPIC_API_KEY is set too and takes priority" in done.stderr
    assert ok("keys", "remove", "anthropic") == "the key of anthropic is removed\n"
    assert KEY not in file.read_text(encoding="utf-8")
    assert run("keys", "remove", "anthropic").returncode == 4
    file.chmod(0o644)
    fails(5, "chmod 600", "keys", "list")
    file.unlink()
    file.mkdir(0o700)
    fails(3, f"cannot read {file}", "keys", "list")


class _Keyring:
    """A keyring of the system, in memory. A `KeyringBackend` would offer itself to all tests of this process."""

    kept: ClassVar[dict[tuple[str, str], str]] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


def test_a_key_is_stored_in_the_keyring_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyring.get_keyring", _Keyring)
    assert ok("keys", "set", "openai", stdin=f"{KEY}\n") == "the key of openai is stored: keyring\n"
    assert KEY not in (Path.home() / KEYS).read_text(encoding="utf-8")
    provider = Provider("openai/gpt-5-mini")
    assert provider.key() == KEY
    assert KEY in provider.secrets()
    assert Provider("mistral/mistral-small-latest").key() == NO_KEY
    ok("keys", "remove", "openai")
    assert _Keyring.kept == {}
    assert Provider("openai/gpt-5-mini").key() == NO_KEY


class _LockedKeyring(_Keyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("nobody unlocked it")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked("nobody unlocked it")


def test_a_locked_keyring_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyring.get_keyring", _Keyring)
    ok("keys", "set", "openai", stdin=f"{KEY}\n")
    monkeypatch.setattr("keyring.get_keyring", _LockedKeyring)
    monkeypatch.setattr("chatbot.models.provider._keyring_keys", {})
    with pytest.raises(KeyRefused, match="nobody unlocked it"):
        Provider("openai/gpt-5-mini").key()
    for command in (("set", "mistral"), ("remove", "openai")):
        assert "nobody unlocked it" in run("keys", *command, stdin=f"{KEY}\n").stderr
    assert Provider("mistral/mistral-small-latest").key() == NO_KEY


def test_a_stored_key_goes_to_its_providers_own_address_alone() -> None:
    ok("keys", "set", "openai", stdin=f"{KEY}\n")
    ok("config", "set", "providers.mybox", '{kind = "openai", api_base = "http://127.0.0.1:9/v1"}')
    assert Provider("openai/gpt-5-mini").key() == KEY
    elsewhere = {"openai": ProviderSettings(api_base="https://example.org/v1")}
    assert Provider("openai/gpt-5-mini", elsewhere).key() == NO_KEY
    own = {"mybox": ProviderSettings(kind="openai", api_base="http://127.0.0.1:9/v1")}
    assert Provider("mybox/x", own).key() == NO_KEY
    assert [each["provider"] for each in from_json("keys", "list", MYBOX_API_KEY=KEY)] == ["openai"]
    ok("keys", "set", "mybox", stdin=f"{KEY}-of-mybox\n")
    assert Provider("mybox/x", own).key() == f"{KEY}-of-mybox"
    assert Provider("mybox/x", {"mybox": ProviderSettings(kind="openai")}).key() == f"{KEY}-of-mybox"


def test_what_is_no_provider_or_no_key_is_refused() -> None:
    fails(3, "did you mean 'anthropic'", "keys", "set", "antropic", stdin=f"{KEY}\n")
    assert run("keys", "set", "anthropic", stdin="no\n").returncode == 2
    assert run("keys", "set", "local", stdin=f"{KEY}\n").returncode == 3
    assert not (Path.home() / KEYS).exists()


@pytest.mark.parametrize("text", ["[1]", "{", '"key"', "[" * 100_000])
def test_a_damaged_list_of_keys_is_reported_and_hides_no_other_error(text: str) -> None:
    ok("keys", "set", "openai", stdin=f"{KEY}\n")
    (Path.home() / KEYS).write_text(text, encoding="utf-8")
    fails(3, "is damaged", "keys", "list")
    assert loaded_keys() == []


async def test_an_empty_session_is_discarded_and_one_that_holds_anything_is_not() -> None:
    """A typed message stays, also where the call failed: it can be sent again."""
    Path("config.toml").write_text('[model]\nname = "scripted"\n', encoding="utf-8")
    async with Runtime(model=ScriptedModel([RateLimited("not now")])) as runtime:
        for way in ("", "said", "remembered"):
            session = await runtime.new_session()
            assert session is not None
            if way == "said":
                with pytest.raises(RateLimited):
                    await runtime.chat(session).turn("hello", lambda _: None)
            if way == "remembered":
                await session.memory.remember(title="The heating is serviced in May")
            assert await discard_empty(runtime, session) is not bool(way)
            listed = await runtime.memory.choose_sessions(SessionFilter())
            assert (session.id in {record.id for record in listed}) is bool(way)


def test_models_are_listed_with_what_can_be_used_and_nothing_that_does_not_chat() -> None:
    assert "No models found: chatbot setup finds keys and local servers" in ok("models", "list", "no such model")
    assert not [each for each in from_json("models") if each["provider"] != "local"]
    rows = from_json("models", "list", OPENAI_API_KEY=KEY)
    names = [each["name"] for each in rows]
    mini = rows[names.index("openai/gpt-5-mini")]
    assert (mini["tools"], mini["images"], mini["usable_by"]) == (True, True, "OPENAI_API_KEY")
    assert mini["window"] > 100_000
    assert not [name for name in names if "image" in name or "embed" in name or "tts" in name or "dall" in name]
    everything = from_json("models", "list", "--all")
    assert len(everything) > 100 > len([each for each in everything if each["usable_by"]])
    assert len(everything) == len({each["name"] for each in everything})


def test_a_setting_is_set_with_comments_kept_and_nothing_invalid_is_written() -> None:
    path = Path.home() / CONFIG
    path.parent.parent.mkdir(parents=True)
    Path("dotfiles").mkdir()
    path.parent.symlink_to(Path("dotfiles").absolute())
    ok("config", "set", "model.name", "scripted")
    path.write_text("# mine\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    path.chmod(0o640)
    ok("config", "set", "model.max_output_tokens", "77")
    assert path.read_text(encoding="utf-8").startswith("# mine\n")
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.read_bytes()
    for key, value in (
        ("model.nam", "x"), ("model.temperature", "9"), ("model.max_output_tokens", "78\nseed = 1"),
        ("agents.chat.memory", '["nowhere"]'), ("a b", "1"), ("#x", "1"),
    ):  # fmt: skip
        done = run("config", "set", key, value)
        assert (done.returncode, path.read_bytes()) == (3, before), key
    assert config()["model"] == {"name": "scripted", "max_output_tokens": 77}
    assert ok("ask", "hello") == "You said: hello\n"
    ok("config", "unset", "model.max_output_tokens")
    assert config()["model"] == {"name": "scripted"}
    for key in ("model.seed", "model.name.first.second"):
        assert run("config", "unset", key).returncode == 3
    assert "CHATBOT_MODEL__NAME overrides it" in run("config", "set", "model.name", "x", CHATBOT_MODEL__NAME="y").stderr
    ok("config", "set", "budget.day_usd", "2")
    Path("config.toml").touch()
    for value, limit in (("9", 2), ("1", 1)):  # a file that was only found lifts no limit of the user's own
        is_told = f"{CONFIG} overrides it" in run("config", "set", "budget.day_usd", value).stderr
        assert (is_told, from_json("config")["budget"]["day_usd"]) == (value == "9", limit)


EDITOR = """\
#!/bin/sh
if grep -q many "$1"; then sed -i 's/"many"/7/' "$1"; else sed -i 's/^seed.*/seed = "many" # why/' "$1"; fi
"""


def test_an_edited_file_that_is_invalid_is_offered_again_and_comments_are_kept() -> None:
    ok("config", "set", "model.seed", "1")
    path = Path.home() / CONFIG
    path.write_text("# mine\n" + path.read_text(encoding="utf-8").replace("seed = 1", "seed = 1 1"), encoding="utf-8")
    before = path.read_text(encoding="utf-8")
    assert _edited_twice(EDITOR, "nothing was written: .*'seed'") == before
    assert path.read_text(encoding="utf-8") == before.replace("seed = 1 1", "seed = 7 # why")


def _edited_twice(script: str, shown: str) -> str:
    """Edit the file with this editor, and again when that is offered; return what the file held then."""
    path, editor = Path.home() / CONFIG, Path("editor")
    editor.write_text(script, encoding="utf-8")
    editor.chmod(0o700)
    terminal = Terminal("config", "edit", columns=300, VISUAL=str(editor.resolve()))
    try:
        terminal.see(rf"{shown}.*edit it again. \[y/N\]")
        held = path.read_text(encoding="utf-8")
        terminal.type("yes\r")
        assert "changed in" in terminal.ended()
    finally:
        terminal.close()
    return held


def test_a_file_that_was_changed_while_it_is_edited_is_replaced_only_if_the_user_saves_again() -> None:
    ok("config", "set", "model.seed", "1")
    path = Path.home() / CONFIG
    editor = f"#!/bin/sh\necho '# mine' >> \"$1\"\nsed -i 's/seed = 1/seed = 2/' {path}\n"
    assert "seed = 2" in _edited_twice(editor, "was changed by another program")
    assert path.read_text(encoding="utf-8").endswith("seed = 1\n# mine# mine\n")


@pytest.mark.parametrize("words", ["config set identity sam", "init --name sam --model scripted"])
def test_memories_stay_where_they_are_with_the_first_setting_and_move_with_the_home(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := Path.home() / IDENTITY).parent.mkdir(parents=True)
    file.touch()
    ok("memory", "add", "The heating is serviced in May", "-i", "sam")
    ok(*words.split())
    assert "heating" in ok("memory", "search", "heating")
    monkeypatch.setenv("HOME", str(Path.home().rename(f"{Path.home()}-moved")))
    assert "heating" in ok("memory", "search", "heating")


def test_a_trusted_file_stays_trusted_when_its_owner_changes_it() -> None:
    Path("config.toml").symlink_to("dotfile.toml")
    Path("config.toml").write_text('[model]\nname = "scripted"\n[providers.mybox]\nkind = "openai"\n', encoding="utf-8")
    ok("config", "trust")
    ok("config", "set", "providers.mybox.api_base", "http://127.0.0.1:9/v1")
    assert ok("ask", "hello") == "You said: hello\n"
    Path("config.toml").write_text('\ufeff[model]\nname = "scripted"\n', encoding="utf-8")  # as Notepad saves it
    ok("config", "set", "model.seed", "3")
    set_endpoint = ("config", "set", "telemetry.endpoint", "http://127.0.0.1:9")
    assert "run chatbot config trust" in run(*set_endpoint, "--json").stderr
    assert run("--config", "config.toml", *set_endpoint).stderr == ""  # one that is named needs no trust


def test_an_alias_stands_for_a_model_wherever_one_is_named() -> None:
    ok("config", "set", "aliases.test", "scripted")
    assert ok("ask", "-m", "test", "hello") == "You said: hello\n"
    ok("config", "set", "model.name", "test")
    assert from_json("ask", "hello")["model"] == "scripted"
    assert "test is an alias of scripted" in ok("models")
    ok("config", "set", "model.name", "scripted")
    ok("config", "unset", "aliases.test")
    assert run("ask", "-m", "test", "hello").returncode == 5


def test_a_persona_is_chosen_and_own_ones_are_files() -> None:
    names = [each["name"] for each in from_json("personas", "list")]
    assert len(names) >= 5
    own = Path.home() / ".config/chatbot/personas/pirate.md"
    own.parent.mkdir(parents=True)
    own.write_text("Speaks like a pirate.\n\nYou are a pirate.\n\nArr.\n", encoding="utf-8")
    assert ok("personas", "show", "pirate") == "You are a pirate.\n\nArr.\n"
    ok("init", "--name", "sam", "--model", "scripted")
    file = Path.home() / ".local/share/chatbot/identities/sam/identity.toml"
    file.symlink_to(file.rename(Path("dotfile.toml").absolute()))
    ok("personas", "use", "pirate")
    assert file.is_symlink(), "a file that is kept elsewhere stays there"
    assert "You are a pirate.\n\nArr." in ok("prompt", "--dry-run", "hello")
    assert 'persona = """You are a pirate.\n\nArr."""\n\n# Clearance of the user' in file.read_text()
    fails(3, "did you mean 'pirate'", "personas", "use", "pirat")
    own.write_text("Speaks at length.\n\n" + "Arr. " * 20_000, encoding="utf-8")
    fails(3, "pirate.md cannot be used: it is longer than 100,000 characters", "personas", "use", "pirate")
    assert "cannot be used: it is longer than 100,000" in ok("personas", "list")


class _Server(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, object]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        answer = self.answers.get(self.path)
        data = json.dumps(answer).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    _Server.asked.clear()
    with answering(_Server, HTTPServer) as address:
        yield address


def _models(owner: str) -> dict[str, object]:
    return {"/v1/models": {"data": [{"id": "qwen3", "owned_by": owner}, {"id": "nomic-embed-text", "owned_by": owner}]}}


@pytest.mark.parametrize(
    ("answers", "name", "table"),
    [
        ({"/api/tags": {"models": [{"name": "qwen3:4b"}]}}, "ollama_chat/qwen3:4b", {"api_base": "{at}"}),
        (_models("vllm"), "hosted_vllm/qwen3", {"api_base": "{at}/v1"}),
        (_models("organization_owner"), "lm_studio/qwen3", {"api_base": "{at}/v1"}),
        (_models("llamacpp"), "llamacpp/qwen3", {"kind": "openai", "api_base": "{at}/v1"}),
    ],
    ids=["Ollama", "vLLM", "LM Studio", "llama.cpp"],
)
def test_a_local_server_is_set_up(server: str, answers: dict[str, object], name: str, table: dict[str, str]) -> None:
    _Server.answers = answers
    [found] = [each["name"] for each in from_json("setup", "--at", server) if "at http" in each["found"]]
    assert found == name
    assert not (Path.home() / CONFIG).exists()
    ok("setup", "--at", server, "--model", name)
    provider = name.partition("/")[0]
    written = config()
    assert written["model"] == {"name": name}
    assert written["providers"] == {provider: {key: value.format(at=server) for key, value in table.items()}}


def test_setup_says_that_a_key_is_in_the_configuration() -> None:
    Path("own.toml").write_text('[providers.openai]\napi_key = "env:MY_KEY"\n', encoding="utf-8")
    listed = from_json("setup", "--yes", "--config", "own.toml", MY_KEY=KEY)
    assert "key in [providers.openai]" in [each["found"] for each in listed]


def test_setup_writes_the_user_s_own_file_which_holds_beneath_one_that_is_found() -> None:
    found = "# every setting, commented\n[model]\n# name = 'x'\n[budget]\nday_usd = 2\n"
    Path("config.toml").write_text(found, encoding="utf-8")
    ok("setup", "--model", "scripted")
    assert Path("config.toml").read_text(encoding="utf-8") == found
    assert config()["model"] == {"name": "scripted"}
    assert ok("ask", "hello") == "You said: hello\n"
    assert Path("identities/ada/memory").is_dir(), "everything else is where the found file says"
    with (Path.home() / CONFIG).open("a", encoding="utf-8") as own:
        own.write("[aliases]\nquick = 'scripted'\n[budget]\nday_usd = 9\n")
    assert ok("ask", "-m", "quick", "hello") == "You said: hello\n"
    assert from_json("config")["budget"]["day_usd"] == 2
    Path("config.toml").write_text("[budget]\nday_usd = 20\n", encoding="utf-8")
    assert from_json("config")["budget"]["day_usd"] == 9, "a found file lifts no limit"
    Path("config.toml").write_text('[model]\nname = "local/nowhere.gguf"\n', encoding="utf-8")
    ok("config", "trust")
    told = run("setup", "--model", "scripted")
    assert "config.toml sets another model, local/nowhere.gguf" in told.stderr
    assert "nowhere.gguf" in run("ask", "hello").stderr, "the found file overrules"
    asked = Path("asked.toml")
    asked.touch()
    ok("setup", "--config", "asked.toml", "--model", "scripted")
    assert "scripted" in asked.read_text(encoding="utf-8")


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, b""])
def test_what_is_no_model_server_is_passed_over(said: bytes) -> None:
    class Saying(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(999)
            self.request.sendall(said)

    with answering(Saying, socketserver.TCPServer) as at:
        assert at not in [server.api_base for server in find_servers([at])]


def test_nothing_is_looked_for_without_a_yes_and_never_beyond_this_machine(server: str) -> None:
    assert run("setup").returncode == 2
    ok("setup", "--model", "scripted")
    ok("models")
    assert _Server.asked == []
    fails(3, "'http://me:***@192.0.2.1' is not an address", "setup", "--at", "http://me:secret@192.0.2.1", "--json")
    nothing = "http://127.0.0.1:1"
    assert f"no chat models found at {nothing}: is" in run("models", "list", "--at", nothing).stderr


def test_flags_say_everything_and_what_follows_works() -> None:
    told = ok("init", "--name", "sam", "--model", "scripted", "--persona", 'Says "hm" \\ 你好')
    assert told.endswith("now run: chatbot\n")
    home = Path.home()
    assert tomllib.loads((home / CONFIG).read_text(encoding="utf-8"))["model"] == {"name": "scripted"}
    persona = tomllib.loads((home / IDENTITY).read_text(encoding="utf-8"))["persona"]
    assert persona == 'Says "hm" \\ 你好'
    assert (home / IDENTITY).stat().st_mode & 0o777 == 0o600
    assert ok("ask", "hello") == "You said: hello\n"
    assert (home / IDENTITY.parent / "memory").is_dir()
    assert "sam" in ok("doctor")


def test_what_is_there_is_left_as_it_is_and_who_is_no_longer_opened_by_default_is_named() -> None:
    ok("ask", "hello", "-m", "scripted")
    assert "-i ada opens the identity with the memory so far" in ok("init", "--name", "sam", "--model", "scripted")
    before = (Path.home() / CONFIG).read_bytes()
    told = from_json("init", "--name", "sam", "--model", "other")
    assert (told["wrote"], len(told["kept"])) == ([], 2)
    assert (Path.home() / CONFIG).read_bytes() == before
    assert "the model is still scripted" in ok("init", "--model", "other")
    other = from_json("init", "--name", "kim")
    assert other["run"] == "chatbot -i kim"


def test_here_is_the_folder_that_one_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, flags in (("project", ("--config", "project/config.toml")), ("chosen", ())):
        monkeypatch.setenv("CHATBOT_CONFIG", "chosen/config.toml")
        ok("init", *flags, "--model", "scripted")
        assert Path(folder, "identities/ada/identity.toml").is_file()
    assert ok("init", "--here", "--model", "scripted").endswith(f"--config {Path.cwd() / 'config.toml'}\n")
    assert Path("identities/ada/identity.toml").is_file()
    assert not (Path.home() / CONFIG).exists()


@pytest.mark.parametrize(
    "question", [("init", "--here"), ("keys", "set", "openai"), pytest.param(("setup",), marks=pytest.mark.nightly)]
)
def test_ctrl_c_at_a_question_ends_the_command_which_writes_nothing(question: tuple[str, ...]) -> None:
    asking = Terminal(*question)
    asking.see(r"name of the identity|not shown|\[y/N\]")
    asking.type(CTRL_C)
    printed = asking.ended(130)
    assert (printed[-1], "Traceback" in printed) == ("\n", False), "the next prompt begins a line"
    assert not [path for path in (Path("config.toml"), Path.home() / CONFIG, Path.home() / KEYS) if path.exists()]


def test_a_name_that_no_identity_can_have_writes_nothing() -> None:
    fails(4, "cannot be an identity", "init", "--name", "../up", "--model", "scripted")
    assert not (Path.home() / CONFIG).exists()


def _ask(*arguments: str) -> str:
    done = run("ask", *arguments)
    assert done.returncode == 0, done.stderr  # where LiteLLM may warn of connections of the test before
    return done.stdout


def _with_key(provider: str, model: str, path: str) -> Callable[[str], None]:
    def choose(address: str) -> None:
        # The stored key is for the provider's own address alone; that this one may have it has to be said.
        ok("config", "set", f"providers.{provider}.api_base", f"{address}{path}")
        ok("config", "set", f"providers.{provider}.api_key", f"env:{provider.upper()}_API_KEY")
        ok("setup", "--model", f"{provider}/{model}")

    return choose


def _ollama(address: str) -> None:
    assert "ollama_chat/qwen3:4b" in ok("setup", "--at", address, "--json")
    ok("setup", "--at", address, "--model", "ollama_chat/qwen3:4b")


PROVIDERS = {
    "openai": _with_key("openai", "gpt-5-mini", "/v1"),
    "anthropic": _with_key("anthropic", "claude-sonnet-4-5", ""),
    "gemini": _with_key("gemini", "gemini-2.5-flash", ""),
    "ollama": _ollama,
}


@pytest.mark.usefixtures("with_encoders")
@pytest.mark.parametrize(
    "name", ["openai", *(pytest.param(each, marks=pytest.mark.nightly) for each in PROVIDERS if each != "openai")]
)
def test_a_fact_is_remembered_corrected_and_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with wire_shapes() as address:
        for provider in PROVIDERS:
            monkeypatch.setenv(f"{provider.upper()}_API_KEY", f"{KEY}-of-{provider}")
        PROVIDERS[name](address)
        _ask("Hello! I live in Bergen.")
        assert _ask("--new", "Which city is my home?") == "You live in Bergen.\n"
        _ask("--new", "I moved: I live in Oslo now.")
        assert _ask("--new", "Which city is my home?") == "You live in Oslo.\n"
        assert "Oslo" in ok("why")
        known = ok("memory", "profile")
        assert known.index("I live in Oslo") < known.index("I live in Bergen")
    wanted = "" if name == "ollama" else f"{KEY}-of-{name}"
    assert [key for key in set(WireShapes.keys) if key not in {"none", ""}] == ([wanted] if wanted else [])
