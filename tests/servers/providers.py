"""The settings with which tests call `openai_server`, and what it was asked."""

import asyncio
from typing import Any

import aiohttp
from msgspec import convert

from chatbot.config import ModelSettings, PriceSettings, ProviderSettings
from chatbot.models.litellm_model import LiteLLMModel
from tests.patience import PATIENCE_S

KEY = "sk-test-0123456789abcdef"


def providers_at(url: str, key: str = KEY, **price: float | None) -> dict[str, ProviderSettings]:
    """`[providers.openai]` for the server at this address, with a price for all of its models."""
    return {"openai": ProviderSettings(api_key=key, api_base=url, prices={"*": PriceSettings(**price)})}


def model_at(url: str, behaviour: str, *, key: str = KEY, **settings: object) -> LiteLLMModel:
    """A model of the server at this address, which is tried once."""
    given = {"name": f"openai/{behaviour}", "retries": 0} | settings
    return LiteLLMModel(convert(given, ModelSettings), providers_at(url, key))


async def requests_at(url: str) -> list[dict[str, Any]]:
    """The requests that the server at this address got; the names of headers are in small letters."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client, client.get(f"{url}/requests") as answer:
        asked = await answer.json()
    return [{**each, "headers": {name.lower(): text for name, text in each["headers"].items()}} for each in asked]
