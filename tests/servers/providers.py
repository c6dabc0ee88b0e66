"""The settings with which tests call `openai_server`."""

from chatbot.config import ProviderSettings

KEY = "sk-test-0123456789abcdef"


def providers_at(url: str, key: str = KEY, **prices: float) -> dict[str, ProviderSettings]:
    """`[providers.openai]` for the server at this address, with these prices."""
    return {"openai": ProviderSettings(api_key=key, api_base=url, **prices)}
