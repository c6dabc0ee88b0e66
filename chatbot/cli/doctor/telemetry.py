"""Check of telemetry, if it is enabled; with `--network` also of the collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from chatbot.cli.doctor.finding import Finding, command_in
from chatbot.config import TelemetrySettings
from chatbot.errors import ConfigError
from chatbot.redaction import without_secrets
from chatbot.telemetry import check_telemetry

_SUBJECT = "telemetry"


async def telemetry(settings: TelemetrySettings, edit: str, *, network: bool) -> AsyncIterator[Finding]:
    """Check the exporter. Calls the collector only with `network`; `edit` opens the configuration."""
    if not (settings.endpoint or settings.prometheus):
        return
    try:
        refused = await asyncio.to_thread(check_telemetry, settings, network=network)
    except ConfigError as error:
        yield Finding(_SUBJECT, "bad", str(error), command_in(str(error), edit))
        return
    if refused:
        yield Finding(_SUBJECT, "bad", without_secrets(f"{settings.endpoint} did not accept data: {refused}"), edit)
    else:
        yield Finding(_SUBJECT, "ok", without_secrets("; ".join(_told(settings, is_taken=network))))


def _told(settings: TelemetrySettings, *, is_taken: bool) -> list[str]:
    sent = f"spans and metrics go to {settings.endpoint}{', which accepts them' if is_taken else ''}"
    return [
        *([sent] if settings.endpoint else []),
        *(["chatbot serve offers /metrics"] if settings.prometheus else []),
    ]
