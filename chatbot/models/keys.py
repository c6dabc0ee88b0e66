"""Which key goes to a provider, and which texts must never be shown."""

from __future__ import annotations

import os
from contextlib import suppress

from chatbot.errors import AccessDenied

_FROM_ENVIRONMENT = "env:"
_NO_KEY = "none"


def key_for(model: str, api_key: str, api_base: str) -> str | None:
    """The key to send; None leaves it to the provider's usual variable. `api_key` may be `env:VARIABLE`.

    Raises `AccessDenied` where that variable is not set.
    """
    if api_key.startswith(_FROM_ENVIRONMENT):
        variable = api_key.removeprefix(_FROM_ENVIRONMENT).strip()
        if not os.environ.get(variable):
            raise AccessDenied(f"{model}: api_key names the variable {variable or '(none)'}, which is not set")
        return os.environ[variable]
    if not api_key and model.startswith("openai/") and api_base:
        return os.environ.get("OPENAI_API_KEY") or _NO_KEY  # servers of one's own mostly need none; the SDK does
    return api_key or None


def secrets_of(model: str, api_key: str, api_base: str) -> list[str]:
    """Every key that a provider's message might repeat."""
    keys = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))]
    with suppress(AccessDenied):
        keys.append(key_for(model, api_key, api_base) or "")
    return [key for key in keys if key != _NO_KEY]
