"""Embedding models behind LiteLLM, called over HTTP: order, batches, retries, failures, cost, and no key shown."""

import traceback
from typing import Any

import pytest
from msgspec import convert

from chatbot.config import EmbeddingSettings
from chatbot.embedder import EmbeddingResult
from chatbot.errors import KeyRefused, ModelError, ProviderFailed, RateLimited, RequestRefused, UnknownModel
from chatbot.memory import MemorySystem
from chatbot.memory.scope import SystemOptions
from chatbot.models.embedders import LiteLLMEmbedder, open_embedder
from chatbot.models.local_encoder import LocalEmbedder, MiniLMEmbedder
from chatbot.models.weights import Weights
from tests.servers.providers import KEY, providers_at, requests_at

pytest_plugins = ["tests.servers.openai_server"]


def embedder_at(
    url: str, behaviour: str, *, key: str = KEY, price: float | None = None, **settings: object
) -> LiteLLMEmbedder:
    given = {"model": f"openai/{behaviour}"} | settings
    providers = providers_at(url, key, input_usd_per_million=price)
    return LiteLLMEmbedder(convert(given, EmbeddingSettings), providers)


async def embedded(url: str, behaviour: str, *texts: str, **settings: Any) -> EmbeddingResult:
    async with embedder_at(url, behaviour, **settings) as embedder:
        return await embedder.embed(texts or ("tea",))


async def test_vectors_come_in_the_order_of_the_texts_in_as_many_calls_as_needed(openai_url: str) -> None:
    async with embedder_at(openai_url, "embeds", batch=2) as embedder:
        assert embedder.dimension == 0
        answer = await embedder.embed_all(["aaa", "", "abc"])
        assert embedder.dimension == 4
    assert [list(vector) for vector in answer.vectors] == [[0, 3, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]]
    assert {vector.typecode for vector in answer.vectors} == {"f"}
    assert answer.usage.input_tokens == 9
    assert [call["body"]["input"] for call in await requests_at(openai_url)] == [["aaa", " "], ["abc"]]


async def test_the_key_may_stand_in_a_variable(openai_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_EMBEDDING_KEY", KEY)
    await embedded(openai_url, "embeds", key="env:MY_EMBEDDING_KEY")
    [call] = await requests_at(openai_url)
    assert call["headers"]["authorization"] == f"Bearer {KEY}"
    with pytest.raises(KeyRefused, match="NO_SUCH_VARIABLE, which is not set"):
        await embedded(openai_url, "embeds", key="env:NO_SUCH_VARIABLE")
    async with LiteLLMEmbedder(EmbeddingSettings(model="openai/embeds")) as keyless:
        with pytest.raises(KeyRefused, match="openai/embeds needs a key: run `chatbot keys set openai`"):
            await keyless.embed(["nothing is sent"])


async def test_vectors_can_be_asked_to_be_shorter(openai_url: str) -> None:
    answer = await embedded(openai_url, "text-embedding-3-small", dimensions=2, model="openai/embeds")
    assert len(answer.vectors[0]) == 2


@pytest.mark.parametrize("price", [None, 0.5])
async def test_what_it_took_is_told_and_priced_or_else_estimated(openai_url: str, price: float | None) -> None:
    usage = (await embedded(openai_url, "embeds", "a", "b", price=price)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (6, 0, False)
    assert usage.cost_usd == (None if price is None else pytest.approx(3e-6))
    untold = (await embedded(openai_url, "embeds-one-without-usage", "green tea", price=1)).usage
    assert (untold.estimated, untold.input_tokens > 0) == (True, True)


@pytest.mark.parametrize(
    ("behaviour", "kind", "calls"),
    [
        ("fails", ProviderFailed, 3), ("is-overloaded", ProviderFailed, 3), ("slows-down-for-an-hour", RateLimited, 1),
        ("has-no-quota", RateLimited, 1), ("denies", KeyRefused, 1), ("is-unknown", UnknownModel, 1),
        ("refuses", RequestRefused, 1), ("drops-at-once", ProviderFailed, 3), ("embeds-nonsense", ProviderFailed, 3),
    ],
)  # fmt: skip
async def test_failures_show_no_key(openai_url: str, behaviour: str, kind: type[ModelError], calls: int) -> None:
    with pytest.raises(ModelError) as raised:
        await embedded(openai_url, behaviour, "one", "two")
    assert type(raised.value) is kind
    assert behaviour in str(raised.value)
    assert str(raised.value).isprintable()
    assert KEY[:6] not in str(raised.value)
    assert KEY not in "".join(traceback.format_exception(raised.value))
    assert len(await requests_at(openai_url)) == calls


async def test_a_call_with_too_few_vectors_is_billed_and_not_made_again(openai_url: str) -> None:
    billed: list[str] = []

    async def bill(model: str, *_: object) -> None:
        billed.append(model)

    embedder, options = embedder_at(openai_url, "embeds-one-without-usage"), SystemOptions(bill=bill)
    async with MemorySystem(None, embedder=embedder, options=options) as system:
        with pytest.raises(ModelError, match="gave 1 vectors for 2 texts"):
            await system.embed(["one", "two"])
    assert len(billed) == len(await requests_at(openai_url)) == 1


def test_the_settings_name_the_embedder() -> None:
    assert open_embedder(EmbeddingSettings(model="")) is None
    assert isinstance(open_embedder(EmbeddingSettings()), LocalEmbedder)
    assert isinstance(open_embedder(EmbeddingSettings(model="local/minilm")), MiniLMEmbedder)
    assert isinstance(open_embedder(EmbeddingSettings(model="voyage/voyage-3-large")), LiteLLMEmbedder)
    with pytest.raises(UnknownModel, match="choose local/auto or local/minilm"):
        open_embedder(EmbeddingSettings(model="local/other"))


async def test_a_message_is_judged_here_whatever_embeds_it(openai_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["good morning!", "my sister lives in Porto"]
    async with embedder_at(openai_url, "embed") as away, LocalEmbedder() as here:
        assert await away.judge(texts) == await here.judge(texts)
        monkeypatch.setattr(Weights, "folder", lambda _: None)
        assert await away.judge(texts) == []
    assert not await requests_at(openai_url)
