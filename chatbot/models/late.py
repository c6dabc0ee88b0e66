"""LiteLLM, imported late: it takes seconds, so it is loaded on a thread while the user types, and never for `--help`.

Its settings stand in the environment before it is imported, so that it neither asks the network for prices nor loads a
`.env` file from wherever we happen to run.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from types import ModuleType
from typing import Any

from chatbot.errors import ProviderFailed

_SETTINGS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_SWITCH_INTERVAL_S = 0.0005
"""While the import runs, threads take turns more often: the prompt stays responsive, the import is no slower."""

_lock = threading.Lock()


def begin() -> None:
    """Start the import on a thread of its own. Returns at once."""
    if "litellm" not in sys.modules:
        threading.Thread(target=_quietly, name="import litellm", daemon=True).start()


async def litellm() -> ModuleType:
    """The module, imported by now. Raises `ProviderFailed` where it cannot be."""
    if _is_ready():
        return sys.modules["litellm"]
    return await asyncio.to_thread(_load)


def _is_ready() -> bool:
    return getattr(sys.modules.get("litellm"), "chatbot_is_set_up", False)


def _load() -> ModuleType:
    with _lock:
        if _is_ready():
            return sys.modules["litellm"]
        os.environ.update({key: value for key, value in _SETTINGS.items() if key not in os.environ})
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        try:
            module = importlib.import_module("litellm")
        except ImportError as error:
            raise ProviderFailed(f"litellm cannot be imported: {error}") from error
        finally:
            sys.setswitchinterval(interval)
        _set_up(module)
        return module


def _set_up(module: Any) -> None:
    """Nothing to standard output, nothing home, and parameters that a provider does not know are left out."""
    module.suppress_debug_info = True
    module.telemetry = False
    module.drop_params = True
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    module.chatbot_is_set_up = True


def _quietly() -> None:
    try:
        _load()
    except ProviderFailed:
        return  # whoever needs the module will be told
