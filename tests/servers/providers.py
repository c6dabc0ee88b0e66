"""The settings with which tests call `openai_server`."""

from msgspec import convert

from chatbot.config import ProviderSettings

KEY = "sk-test-0123456789abcdef"


def providers_at(
    url: str, key: str = KEY, *, input_usd: float | None = None, output_usd: float | None = None
) -> dict[str, ProviderSettings]:
    """`[providers.openai]` for the server at this address, with these prices."""
    prices = {"input_usd_per_million": input_usd, "output_usd_per_million": output_usd}
    return {"openai": convert({"api_key": key, "api_base": url, **prices}, ProviderSettings)}
