"""The parts of a runtime as they are when they are watched, and the end of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from chatbot.parts import Parts
from chatbot.telemetry.instruments import Instruments
from chatbot.telemetry.memory import watched_memory
from chatbot.telemetry.models import WatchedLedger, WatchedModel
from chatbot.telemetry.sizes import Sizes
from chatbot.telemetry.turns import WatchedChat, WatchedToolbox, watched_hook
from chatbot.telemetry.watch import Watch
from stores.lifecycle import AsyncResource

logger = logging.getLogger(__name__)

_SCOPE = "chatbot"
_FAREWELL_S = 2.0


class Telemetry(AsyncResource):
    """Watches any number of runtimes, and tells these providers, which may be one's own.

    `registry` is where metrics are read from in the format of Prometheus. `shut_down` sends what was not sent yet; it
    is called at the end, on a thread, and waited for two seconds at most.
    """

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        *,
        registry: CollectorRegistry | None = None,
        shut_down: Callable[[], None] = lambda: None,
    ) -> None:
        meter = meters.get_meter(_SCOPE)
        watch = Watch(tracers.get_tracer(_SCOPE), Instruments(meter))
        self.parts = Parts(
            memory=watched_memory(watch, Sizes(meter)),
            chat=partial(WatchedChat, watch=watch),
            toolbox=partial(WatchedToolbox, watch=watch),
            ledger=partial(WatchedLedger, watch=watch),
            model=partial(WatchedModel, watch=watch),
            hook=partial(watched_hook, watch=watch),
        )
        self._registry = registry
        self._reading = threading.Lock()
        self._shut_down: Callable[[], None] | None = shut_down

    @property
    def can_be_read(self) -> bool:
        """Whether there are metrics to `read`."""
        return self._registry is not None

    def read(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, in the form that an `Accept` header asks for, and its media type. Call it on a thread."""
        if self._registry is None:
            raise RuntimeError("metrics are not collected for Prometheus")
        encode, media_type = choose_encoder(accept)
        with self._reading:  # the collector keeps what it collects in one place
            return encode(self._registry), media_type

    async def aclose(self) -> None:
        """Send what was not sent yet, as far as that is quickly done. May be called twice."""
        shut_down, self._shut_down = self._shut_down, None
        if shut_down is None:
            return
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            shut_down()
            with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=end, name="telemetry ends", daemon=True).start()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await done.wait()
        except TimeoutError:
            logger.warning("the last telemetry was not taken within %g s: see endpoint in [telemetry]", _FAREWELL_S)
