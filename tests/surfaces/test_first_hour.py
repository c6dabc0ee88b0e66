"""A new user, from an empty home to a remembered, corrected and explained fact, without opening an editor."""

from collections.abc import Callable

import pytest

from tests.command import ok, run
from tests.servers.wire_shapes import WireShapes, wire_shapes

KEY = "sk-plugh-0123456789"
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")


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
