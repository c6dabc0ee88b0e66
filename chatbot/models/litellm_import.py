"""Late import of LiteLLM: it takes seconds, so a thread loads it while the user types, and never for `--help`.

This is the only module that imports it. Its settings are put into the environment first, so that it neither gets prices
from the network nor loads a `.env` file from the current folder. Leaving the program stops the import.
"""

import asyncio
import atexit
import importlib
import inspect
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chatbot.errors import ProviderFailed
from chatbot.stores.base import AsyncResource

if TYPE_CHECKING:
    from chatbot.models.provider import Provider

_SETTINGS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_CLIENT = "openai.resources"
"""Client module of most providers; otherwise LiteLLM would import it during the first call, for half a second."""
_SWITCH_INTERVAL_S = 0.0005
"""Shorter thread switching interval during the import, which keeps the prompt responsive."""
_LONGEST_STOP_S = 5.0

_lock = threading.Lock()
_under_way: Future[ModuleType] | None = None


def begin_import() -> Future[ModuleType]:
    """Start the import on a thread of its own, unless it has been started. Returns at once, never raises.

    One that failed for want of something, such as a descriptor or room for temporary files, is started again.
    """
    global _under_way  # noqa: PLW0603 - a process has one litellm
    with _lock:
        if _under_way is None or (_under_way.done() and isinstance(_under_way.exception(), OSError)):
            _under_way = Future()
            _under_way.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the import
            _ImportThread(_under_way).start()
        return _under_way


def is_loaded() -> bool:
    """Return True once the import has ended."""
    return _under_way is not None and _under_way.done()


async def litellm() -> ModuleType:
    """Return the imported module. Raises `ProviderFailed` if the import failed."""
    loading = begin_import()
    try:
        return loading.result() if loading.done() else await asyncio.wrap_future(loading)
    except Exception as error:
        remedy = "try again once that is mended" if isinstance(error, OSError) else "reinstall chatbot-runtime"
        raise ProviderFailed(f"litellm cannot be imported ({type(error).__name__}: {error}): {remedy}") from error


class _ImportThread(threading.Thread, MetaPathFinder):
    """Thread that runs the import until the program exits.

    It is a daemon: the exit must not wait for an import that is no longer needed. But Python freezes daemon threads
    with their import locks held, and LiteLLM's exit handlers, which import modules, would wait for these locks forever.
    So the thread is also a module finder that finds nothing: asked for the next module, it ends the import.
    """

    def __init__(self, loading: Future[ModuleType]) -> None:
        super().__init__(name="import litellm", daemon=True)
        self._loading = loading
        self._must_stop = False

    def run(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        sys.meta_path.insert(0, self)
        atexit.register(self._stop_import)
        try:
            self._loading.set_result(_load())
            importlib.import_module(_CLIENT)
        except BaseException as error:  # noqa: BLE001 - raised again for everyone who needs the module
            if not self._loading.done():
                self._loading.set_exception(error)
        finally:
            # It stays in sys.meta_path: removing it could make an import on another thread skip the next finder.
            sys.setswitchinterval(interval)

    def find_spec(self, *_: object) -> None:
        if self._must_stop and threading.current_thread() is self:
            raise SystemExit

    def _stop_import(self) -> None:
        self._must_stop = True
        self.join(_LONGEST_STOP_S)


def _load() -> ModuleType:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    module = importlib.import_module("litellm")
    vars(module).update(suppress_debug_info=True, telemetry=False)
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in ("httpx", "openai"):  # they log addresses, and some providers take the key in them
        logging.getLogger(name).setLevel(logging.WARNING)
    return module


_users: Counter[str] = Counter()
"""Number of clients that use LiteLLM, by the ending of the keys of its connections in their event loop."""


class LiteLLMClient(AsyncResource):
    """One user of LiteLLM's shared connections.

    They belong to the event loop in which they were opened, so they must be closed before it ends, and never while
    another user in the same loop still needs them.
    """

    provider: "Provider"
    _endings: Mapping[str, asyncio.AbstractEventLoop] = {}
    """The loops in which it is used, by the ending of their keys."""

    async def check(self) -> None:
        """Raise an error if the provider is unknown or its key is missing."""
        self.provider.check(await litellm())

    async def ready(self) -> None:
        """Wait until LiteLLM is imported, and the client that providers are called with. Never raises."""
        with suppress(ProviderFailed):
            await litellm()
            await asyncio.to_thread(importlib.import_module, _CLIENT)

    async def _litellm(self) -> ModuleType:
        module = await litellm()
        vars(module).pop("module_level_aclient", None)  # the client of the first loop: a new one is made
        ending = module.in_memory_llm_clients_cache.update_cache_key_with_event_loop("")
        if ending not in self._endings:
            self._endings = {**self._endings, ending: asyncio.get_running_loop()}
            _users[ending] += 1  # before others get their turn, who would count it again
            await self._leave(each for each, loop in self._endings.items() if loop.is_closed())
        return module

    async def aclose(self) -> None:
        """Close its connections, except those that something else in their loop uses."""
        await self._leave(self._endings)

    async def _leave(self, endings: Iterable[str]) -> None:
        left = {*endings}
        self._endings = {each: loop for each, loop in self._endings.items() if each not in left}
        _users.subtract(left)
        if not (unused := tuple(each for each in left if not _users[each])):
            return
        clients = (await litellm()).in_memory_llm_clients_cache.cache_dict
        for name in [name for name in clients if str(name).endswith(unused)]:
            await close_quietly(clients.pop(name))


async def close_quietly(client: Any) -> None:
    """Close a client or a stream of LiteLLM's, if it can be closed; ignore its errors."""
    close = getattr(client, "aclose", None) or getattr(client, "close", None)
    if close is not None:
        with suppress(Exception):
            outcome = close()
            if inspect.isawaitable(outcome):
                await outcome
