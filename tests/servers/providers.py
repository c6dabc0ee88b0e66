"""The settings with which tests call `openai_server`."""

from chatbot.config import PriceSettings, ProviderSettings

KEY = "sk-test-0123456789abcdef"


def providers_at(url: str, key: str = KEY, **price: float | None) -> dict[str, ProviderSettings]:
    """`[providers.openai]` for the server at this address, with a price for all of its models."""
    return {"openai": ProviderSettings(api_key=key, api_base=url, prices={"*": PriceSettings(**price)})}
