"""Keys, addresses and headers of providers: each goes to its own provider, and to no other."""

import json
import logging
import re
import traceback
from collections.abc import Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from chatbot.cli.setup import why_not_callable
from chatbot.config import Config, EmbeddingSettings, ModelSettings, ProviderSettings
from chatbot.config_layers import Settings
from chatbot.errors import ConfigError, KeyRefused, UnknownModel
from chatbot.messages import Message
from chatbot.models.addresses import WITH_LOGIN, WITHOUT_ADDRESS, is_own_address, variables_of
from chatbot.models.embedders import LiteLLMEmbedder, open_embedder
from chatbot.models.litellm_model import LiteLLMModel
from chatbot.models.provider import NO_KEY, Provider, check_providers, check_takes_key
from chatbot.providers import OURS, known_providers, provider_of
from chatbot.runtime import Options
from tests.servers.providers import requests_at

pytest_plugins = ["tests.servers.openai_server"]

OTHERS = sorted(known_providers() - OURS)
Configured = dict[str, ProviderSettings]


def configured(text: Mapping[str, Any]) -> Configured:
    return convert(text, Configured)


def every_provider(**more: str) -> Configured:
    """Each provider with a key, a header and an address that tell whose they are."""
    return {
        name: ProviderSettings(api_key=f"key-of-{name}.", headers={"X-Of": f"header-of-{name}."}, **more)  # type: ignore[arg-type]
        for name in OTHERS
    }


def owners(told: object) -> set[str]:
    """Whose keys, headers, addresses and variables are in there."""
    return set(re.findall(r"(?:key|header|base|value)-of-([^./]+)[./]", json.dumps(told, default=str)))


def arguments_of(model: str, providers: Configured) -> dict[str, Any]:
    """Return the arguments for LiteLLM, of a chat and of an embedding."""
    chat = LiteLLMModel(ModelSettings(name=model), providers)
    embedder = LiteLLMEmbedder(EmbeddingSettings(model=model), providers)
    made = {"chat": chat._request([], (), None), "embedding": embedder._request(["x"])}
    assert chat.provider.arguments().items() <= made["chat"].items()
    return made


async def test_we_know_the_providers_that_litellm_knows() -> None:
    from chatbot.models import litellm_import

    litellm: Any = await litellm_import.litellm()
    names = {str(getattr(each, "value", each)) for each in litellm.provider_list}
    assert len(names) > 100
    assert names <= known_providers()
    for name in sorted(names - {"github_copilot", "chatgpt"}):  # these two would log in
        with suppress(ValueError, litellm.BadRequestError):  # some want more than a name
            _, called, *_ = litellm.get_llm_provider(f"{name}/m", api_key="k", api_base="http://127.0.0.1:9")
            assert called == name, "the provider of a name is the one that LiteLLM calls"


@pytest.mark.parametrize("with_address", [False, True])
def test_no_provider_is_given_what_is_for_another(*, with_address: bool) -> None:
    providers = every_provider()
    if with_address:
        providers = {
            name: ProviderSettings(api_key=each.api_key, headers=each.headers, api_base=f"https://base-of-{name}./v1")
            for name, each in providers.items()
        }
    for name in OTHERS:
        if not with_address and name in WITHOUT_ADDRESS | {"azure", "azure_text"}:
            with pytest.raises(UnknownModel, match="needs an address"):
                arguments_of(f"{name}/m", providers)
            continue
        for use, given in arguments_of(f"{name}/m", providers).items():
            assert owners(given) == {name}, (name, use)
            assert given["model"].partition("/")[0] == name


def test_no_provider_without_a_key_is_given_one_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each provider in turn, all others have keys: in the configuration and in the environment."""
    everything = every_provider()
    for name in OTHERS:
        own = set(variables_of(name))
        with monkeypatch.context() as patch:
            for other in OTHERS:
                for variable in set(variables_of(other)) - own:
                    patch.setenv(variable, f"value-of-{other}.")
            patch.setenv(f"{name.removesuffix('_text').upper()}_API_BASE", "http://127.0.0.1:9")
            others = {other: settings for other, settings in everything.items() if other != name}
            for given in arguments_of(f"{name}/m", others).values():
                assert owners(given) == set(), name
                assert given.get("api_key") == (None if name in WITH_LOGIN else NO_KEY), name


def test_a_key_from_the_environment_is_sent_to_no_address_but_the_provider_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OTHERS:
        for variable in variables_of(name):
            monkeypatch.setenv(variable, f"value-of-{variable}.")
    for name in OTHERS:
        elsewhere = {name: ProviderSettings(api_base="https://elsewhere.example/v1")}
        if name in WITH_LOGIN:
            with pytest.raises(KeyRefused, match="is not an address of"):
                arguments_of(f"{name}/m", elsewhere)
            continue
        for given in arguments_of(f"{name}/m", elsewhere).values():
            assert (given["api_key"], owners(given)) == (NO_KEY, set()), name


@pytest.mark.parametrize(
    ("provider", "address", "is_own"),
    [
        ("openai", "https://api.openai.com/v1", True), ("openai", "https://eu.api.openai.com/v1", True),
        ("openai", "http://api.openai.com/v1", False), ("openai", "https://api.openai.com.evil.example/v1", False),
        ("openai", "https://evil.example/api.openai.com", False),
        ("openai", "https://api.openai.com@evil.example/v1", False), ("openai", "https://evilapi.openai.com.co", False),
        ("azure", "https://mine.openai.azure.com", True), ("anthropic", "https://api.openai.com/v1", False),
        ("helicone", "https://ai-gateway.helicone.ai/v1", True), ("nobody", "https://api.openai.com/v1", False),
    ],
)  # fmt: skip
def test_an_address_is_a_provider_s_own_by_its_whole_host(provider: str, address: str, *, is_own: bool) -> None:
    assert is_own_address(provider, address) is is_own


def test_a_bare_name_is_called_at_the_provider_whose_key_is_sent() -> None:
    for model in ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro"):
        given = Provider(model, every_provider()).arguments()
        assert given["model"] == f"{provider_of(model)}/{model}"
        assert owners(given) == {provider_of(model)}


@pytest.mark.parametrize("model", ["huggingface/https://evil.example/x", "oobabooga/http://evil.example"])
def test_a_model_whose_name_is_an_address_is_sent_no_key(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "value-of-hf.")
    given = Provider(model, every_provider()).arguments()
    assert (given["api_key"], owners(given)) == (NO_KEY, set())
    elsewhere = {name: ProviderSettings(api_key=f"key-of-{name}.", api_base="https://other.example") for name in OTHERS}
    given = Provider(model, elsewhere).arguments()
    assert (given["api_key"], owners(given)) == (NO_KEY, set())


def test_a_name_of_one_s_own_stands_for_a_server_and_takes_no_usual_key(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = configured({"mybox": {"kind": "openai", "api_base": "http://box/v1", "headers": {"X-A": "b"}}})
    given = {"model": "openai/llama", "api_key": NO_KEY, "api_base": "http://box/v1", "extra_headers": {"X-A": "b"}}
    assert Provider("mybox/llama", providers).arguments() == given
    assert not owners(Provider("mybox/llama", every_provider() | providers).arguments())
    monkeypatch.setenv("OPENAI_API_KEY", "value-of-openai.")
    for settings in ({"kind": "openai"}, {"kind": "openai", "api_base": "https://api.openai.com/v1"}):
        assert Provider("second/gpt", configured({"second": settings})).arguments()["api_key"] == NO_KEY


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        ({"antropic": {"api_key": "k"}}, "did you mean 'anthropic'"),
        ({"antropic": {"api_base": "http://box"}}, "did you mean 'anthropic'"),
        ({"zzzzzzzz": {}}, "needs kind"),
        ({"openai": {"kind": "anthropic"}}, "its kind cannot be 'anthropic'"),
        ({"mybox": {"kind": "opnai", "api_base": "http://box"}}, "did you mean 'openai'"),
        ({"mybox": {"kind": "local", "api_base": "http://box"}}, "is not a provider"),
        ({"local": {"api_key": "k"}}, "runs in this process"),
        ({"scripted": {"api_base": "http://box"}}, "runs in this process"),
    ],
)
def test_a_provider_that_nobody_knows_or_hides_another_is_an_error(providers: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_providers(configured(providers))


async def test_an_error_about_an_unknown_provider_names_the_nearest_your_own_included() -> None:
    own = configured({"mybox": {"kind": "openai", "api_base": "http://box/v1"}})
    for name, advice in (("mybx", "did you mean 'mybox'"), ("scrpted", "add [providers.scrpted] to config.toml")):
        with pytest.raises(ConfigError, match=re.escape(advice)):
            check_takes_key(name, own)
    assert "did you mean 'mybox'" in await why_not_callable(ModelSettings(name="mybx/llama"), own)
    told = await why_not_callable(ModelSettings(name="mybox/x"), configured({"mybox": {"kind": "openai"}}))
    assert told.endswith("run `chatbot keys set mybox`, or set api_key in [providers.mybox]"), "no usual key is taken"


CONFIG = '[model]\nname = "openai/gpt"\n[providers.openai]\napi_key = "key-of-openai."\napi_base = "https://base-of-openai./v1"\n'


def config_of(text: str, environ: dict[str, str] | None = None, **options: Any) -> Config:
    Path("asked.toml").write_text(text, encoding="utf-8")
    settings = Settings.read(Path("asked.toml"), environ=environ or {}).with_flags(Options(**options).as_table())
    return settings.combined()


@pytest.mark.parametrize("key", ["api_key", "api_base", "headers"])
@pytest.mark.parametrize("section", ["model", "embedding", "extraction"])
def test_what_belongs_to_a_provider_is_an_error_beside_a_model_and_says_where_it_goes(section: str, key: str) -> None:
    told = rf"unknown setting '{key}' in \[{section}\]: it belongs in \[providers.NAME\]"
    with pytest.raises(ConfigError, match=f"asked.toml: {told}") as caught:
        config_of(f'[{section}]\n{key} = "sk-secret"')
    assert "sk-secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"CHATBOT_{section.upper()}__{key.upper()} in the environment: {told}"):
        config_of("", {f"CHATBOT_{section.upper()}__{key.upper()}": "sk-secret"})


async def test_a_model_has_the_price_of_its_own_name_else_of_its_provider_and_never_of_another() -> None:
    text = "[providers.openai.prices]\na = {input_usd_per_million = 5.0, output_usd_per_million = 6.0}\n"
    text += '[providers.mistral.prices]\n"*" = {input_usd_per_million = 1.0, output_usd_per_million = 2.0}'
    expected = {"openai/a": (5.0, 6.0), "openai/b": None, "mistral/a": (1.0, 2.0), "mistral/x": (1.0, 2.0)}
    for model, prices in expected.items():
        config = config_of(text, model=model)
        price = await LiteLLMModel(config.model, config.providers).price()
        assert (price and (price.input_usd * 1e6, price.output_usd * 1e6)) == prices, model


async def ask(model: LiteLLMModel) -> None:
    async with model, aclosing(model.stream([Message("user", "hello")])) as deltas:
        async for _ in deltas:
            pass


async def test_a_refusal_for_no_key_tells_why_none_was_sent(openai_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
    elsewhere = {"openai": ProviderSettings(api_base=openai_url)}
    with pytest.raises(
        KeyRefused, match=re.escape('api_key = "env:OPENAI_API_KEY" in [providers.openai] sends it')
    ) as caught:
        await ask(LiteLLMModel(ModelSettings(name="openai/denies"), elsewhere))
    assert "sk-openai" not in str(caught.value)


@pytest.mark.parametrize("name", ["huggingface", "endpoint"])
async def test_a_model_named_by_an_address_is_sent_the_key_configured_for_it(openai_url: str, name: str) -> None:
    address = f"{openai_url}/chat/completions"
    model = ModelSettings(name=f"{name}/{address}", retries=0)
    given = {"kind": "huggingface", "api_key": "sk-of-this-endpoint"}
    await ask(LiteLLMModel(model, configured({name: given | {"api_base": address}})))
    [request] = await requests_at(openai_url)
    assert request["headers"]["authorization"] == "Bearer sk-of-this-endpoint"
    without = Provider(model.name, configured({name: given}))
    assert without.key() == NO_KEY
    assert f'set api_key and api_base = "{address}" in [providers.{name}]' in without.hint()


async def test_a_header_may_come_from_a_variable_and_is_in_no_message(
    openai_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_HEADER", "any-form-of-header-at-all")
    settings = ProviderSettings(
        api_base=openai_url, api_key="a+secret/with=signs", headers={"X-Secret": "env:MY_HEADER"}
    )
    with pytest.raises(KeyRefused) as caught:
        await ask(LiteLLMModel(ModelSettings(name="openai/denies"), {"openai": settings}))
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(settings)
    assert "any-form-of-header-at-all" not in told
    assert "a+secret/with=signs" not in told
    [request] = await requests_at(openai_url)
    assert request["headers"]["x-secret"] == "any-form-of-header-at-all"


async def test_a_variable_that_is_not_set_is_named_before_anyone_is_called(openai_url: str) -> None:
    for settings in ({"api_key": "env:NOT_SET"}, {"headers": {"X-A": "env:NOT_SET"}}):
        providers = configured({"openai": {"api_base": openai_url, **settings}})
        with pytest.raises(KeyRefused, match="NOT_SET, which is not set"):
            await ask(LiteLLMModel(ModelSettings(name="openai/says"), providers))
    assert await requests_at(openai_url) == []


def test_an_embedder_of_a_provider_that_may_get_no_memories_is_an_error() -> None:
    with pytest.raises(ConfigError, match="memory = false forbids it"):
        open_embedder(EmbeddingSettings(model="openai/embed"), configured({"openai": {"memory": False}}))
    assert open_embedder(EmbeddingSettings(model="local/minilm"), configured({"openai": {"memory": False}}))


def test_only_the_resolution_reads_a_key() -> None:
    """A key that is read elsewhere could be sent elsewhere."""
    chatbot = Path(__file__).parents[2] / "chatbot"
    readers = {
        path.relative_to(chatbot).as_posix()
        for path in chatbot.rglob("*.py")
        if re.search(r"\.api_key\b", path.read_text("utf-8"))
    }
    assert readers == {"models/provider.py"}
