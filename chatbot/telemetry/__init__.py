"""Spans and metrics by OpenTelemetry. Nothing of it is imported before settings ask for it.

No text, no name of anybody and no id stands in a metric, and no text in a span: what is counted is what was done, how
long it took, and which store, model, tool or hook did it. Of an error only its type is told, for messages quote.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    with _extra():
        from chatbot.telemetry.exporting import telemetry_of
    return telemetry_of(settings, serves=serves)


def check_telemetry(settings: TelemetrySettings, *, network: bool = False) -> str:
    """What the collector has against taking it; it is asked only where `network` says so. Blocking.

    Raises `ConfigError` like `open_telemetry`.
    """
    with _extra():
        from chatbot.telemetry.exporting import check, refusal
    check(settings)
    return refusal(settings) if network and settings.endpoint else ""


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(_HOW_TO_INSTALL) from error
