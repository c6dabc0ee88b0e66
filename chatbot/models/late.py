"""LiteLLM, imported late: it takes seconds, so it is loaded on a thread while the user types, and never for `--help`.

This is the only module that imports it. Its settings stand in the environment before that, so that it neither asks the
network for prices nor loads a `.env` file from wherever we happen to run. Leaving the program stops the import.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import logging
import os
import sys
import threading
from concurrent.futures import Future
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from chatbot.errors import ProviderFailed

_SETTINGS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_CLIENT = "openai.resources"
"""What most providers are called with; LiteLLM would import it in the middle of the first call, for half a second."""
_SWITCH_INTERVAL_S = 0.0005
"""While the import runs, threads take turns more often: the prompt stays responsive, the import is no slower."""
_LONGEST_LEAVE_S = 5.0

_lock = threading.Lock()
_under_way: Future[ModuleType] | None = None


def begin(*, with_client: bool = False) -> Future[ModuleType]:
    """Start the import on a thread of its own, unless it has been started. Returns at once, never raises.

    `with_client` goes on to import the client that providers are called with, once the module can be used.
    """
    global _under_way  # noqa: PLW0603 - a process has one litellm
    with _lock:
        if _under_way is None:
            _under_way = Future()
            _under_way.set_running_or_notify_cancel()  # from here on nobody who stops waiting can cancel it
            _ImportThread(_under_way, with_client=with_client).start()
        return _under_way


async def litellm() -> ModuleType:
    """The module, imported by now. Raises `ProviderFailed` where it cannot be, each time anew."""
    loading = begin()
    try:
        return loading.result() if loading.done() else await asyncio.wrap_future(loading)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProviderFailed(f"litellm cannot be imported ({reason}): install chatbot-runtime anew") from error


class _ImportThread(threading.Thread, MetaPathFinder):
    """Imports, until the program is left.

    A daemon, for nobody should wait for an import that nobody needs any more. But Python freezes daemons where they
    stand, with the locks of their imports, and what LiteLLM imports when it is torn down would wait for those for ever.
    So the thread is also a finder that finds nothing: asked for the next module, it ends the import instead.
    """

    def __init__(self, loading: Future[ModuleType], *, with_client: bool) -> None:
        super().__init__(name="import litellm", daemon=True)
        self._loading = loading
        self._with_client = with_client
        self._is_leaving = False

    def run(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        sys.meta_path.insert(0, self)
        atexit.register(self._leave)
        try:
            self._loading.set_result(_load())
            if self._with_client:
                importlib.import_module(_CLIENT)
        except BaseException as error:  # noqa: BLE001 - told to everyone who asks for the module
            if not self._loading.done():
                self._loading.set_exception(error)
        finally:
            # It stays a finder: taking it out could make an import on another thread miss the finder behind it.
            sys.setswitchinterval(interval)

    def find_spec(self, *_: object) -> None:
        if self._is_leaving and threading.current_thread() is self:
            raise SystemExit

    def _leave(self) -> None:
        self._is_leaving = True
        self.join(_LONGEST_LEAVE_S)


def _load() -> ModuleType:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    module = importlib.import_module("litellm")
    _silence(module)
    return module


def _silence(module: Any) -> None:
    """Nothing on standard output or error, nothing sent home."""
    module.suppress_debug_info = True
    module.telemetry = False
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in ("httpx", "openai"):  # they log addresses, and some providers take the key in them
        logging.getLogger(name).setLevel(logging.WARNING)
