"""Spans and metrics by OpenTelemetry. Nothing of it is imported before settings ask for it.

No text, no name of anybody and no id stands in a metric, and no text in a span: what is counted is what was done, how
long it took, and which store, model, tool or hook did it. Of an error only its type is told, for messages quote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatbot.config import TelemetrySettings
from chatbot.errors import ConfigError

if TYPE_CHECKING:
    from chatbot.telemetry.telemetry import Telemetry

_HOW_TO_INSTALL = "[telemetry] needs the extra `otel`: uv pip install 'chatbot-runtime[otel]'"


def open_telemetry(settings: TelemetrySettings, *, serves: bool = False) -> Telemetry | None:
    """What the settings ask for, None where that is nothing. Only who `serves` can be asked for metrics by others.

    Raises `ConfigError` where the extra is not installed, or a header names a variable that is not set.
    """
    if not (settings.endpoint or (serves and settings.prometheus)):
        return None
    try:
        from chatbot.telemetry.exporting import telemetry_of
    except ModuleNotFoundError as error:
        raise ConfigError(_HOW_TO_INSTALL) from error
    return telemetry_of(settings, serves=serves)
