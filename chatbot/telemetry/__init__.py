"""Spans and metrics by OpenTelemetry. Its packages are imported only when the settings ask for it.

Metrics hold no texts, names or ids, and spans hold no texts: they say what was done, how long it took, and which store,
model, tool or hook did it. They hold only the type of an error, because its message may quote texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatbot.config import TelemetrySettings
from chatbot.errors import ConfigError

if TYPE_CHECKING:
    from chatbot.telemetry.telemetry import Telemetry


def open_telemetry(settings: TelemetrySettings, *, serves: bool = False) -> Telemetry | None:
    """Open the telemetry that the settings enable; None if they enable none. Only a server offers metrics to read.

    Raises `ConfigError` if the extra is not installed, or a header names an unset variable.
    """
    if not (settings.endpoint or (serves and settings.prometheus)):
        return None
    return _import_telemetry().of(settings, serves=serves)


def check_telemetry(settings: TelemetrySettings, *, network: bool = False) -> str:
    """Return why the collector refuses data; empty if it accepts. Asks it only if `network` is true. Blocking.

    Raises `ConfigError` like `open_telemetry`.
    """
    return _import_telemetry().check(settings, network=network)


def _import_telemetry() -> type[Telemetry]:
    try:
        from chatbot.telemetry.telemetry import Telemetry
    except ModuleNotFoundError as error:
        how = "pip install 'chatbot-runtime[otel]'"
        raise ConfigError(f"[telemetry] needs the extra `otel`: {how}") from error
    return Telemetry
