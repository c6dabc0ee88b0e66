"""Telemetry of any number of runtimes, and its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from chatbot.stores.lifecycle import AsyncResource
from chatbot.telemetry.otel import OtelObserver

logger = logging.getLogger(__name__)

_SCOPE = "chatbot"
_FAREWELL_S = 2.0


class Telemetry(AsyncResource):
    """Sends spans and metrics of any number of runtimes to these providers, which may be the caller's.

    `registry` is the source of metrics in the format of Prometheus. `shut_down` sends the rest; it is called at the
    end, on a thread, and waited for two seconds at most.
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
        self.observer = OtelObserver(tracers.get_tracer(_SCOPE), meter)
        self._registry = registry
        self._reading = threading.Lock()
        self._shut_down: Callable[[], None] | None = shut_down

    @property
    def can_be_read(self) -> bool:
        """True where there are metrics to `read`."""
        return self._registry is not None

    def read(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics, in the form that an `Accept` header asks for, and its media type. Call it on a thread."""
        if self._registry is None:
            raise RuntimeError("metrics are not collected for Prometheus")
        encode, media_type = choose_encoder(accept)
        with self._reading:  # the collector keeps what it collects in one place
            return encode(self._registry), media_type

    async def aclose(self) -> None:
        """Send the rest, within two seconds. May be called twice."""
        shut_down, self._shut_down = self._shut_down, None
        if shut_down is None:
            return
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            shut_down()
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=end, name="telemetry ends", daemon=True).start()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await done.wait()
        except TimeoutError:
            logger.warning("the last telemetry was not taken within %g s: see endpoint in [telemetry]", _FAREWELL_S)
