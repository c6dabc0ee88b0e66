"""Spans and metrics by OpenTelemetry. Its packages are imported only when the settings ask for it.

Metrics hold no texts, names or ids, and spans hold no texts: they say what was done, how long it took, and which store,
model, tool or hook did it. They hold only the type of an error, because its message may quote texts.
"""

from typing import TYPE_CHECKING

from chatbot.config import TelemetrySettings
from chatbot.errors import ConfigError

if TYPE_CHECKING:
    from chatbot.telemetry.telemetry import Telemetry


def open_telemetry(settings: TelemetrySettings, *, serves: bool = False) -> "Telemetry | None":
    """Open the telemetry that the settings enable; None if they enable none. Only a server offers metrics to read.

    Raises `ConfigError` if the extra is not installed, or a header names an unset variable.
    """
    if not (settings.endpoint or (serves and settings.prometheus)):
        return None
    return import_telemetry().of(settings, serves=serves)


def import_telemetry() -> "type[Telemetry]":
    """Return the class of telemetry. Raises `ConfigError` if the extra is not installed."""
    try:
        from chatbot.telemetry.telemetry import Telemetry
    except ModuleNotFoundError as error:
        raise ConfigError("[telemetry] needs the extra `otel`: pip install 'chatbot-runtime[otel]'") from error
    return Telemetry
