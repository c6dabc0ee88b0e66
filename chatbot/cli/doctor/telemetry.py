"""Telemetry, where the settings ask for it: whether it can be collected, and, when asked, whether it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from chatbot.cli.doctor.finding import Finding, command_in
from chatbot.config import TelemetrySettings
from chatbot.errors import ConfigError
from chatbot.models.redaction import redact
from chatbot.telemetry import check_telemetry

_SUBJECT = "telemetry"


async def telemetry(settings: TelemetrySettings, edit: str, *, network: bool) -> AsyncIterator[Finding]:
    """Look at what is told where. Calls nobody, unless `network` says so; `edit` opens the configuration."""
    if not (settings.endpoint or settings.prometheus):
        return
    try:
        refused = await asyncio.to_thread(check_telemetry, settings, network=network)
    except ConfigError as error:
        yield Finding(_SUBJECT, "bad", str(error), command_in(str(error), edit))
        return
    if refused:
        yield Finding(_SUBJECT, "bad", redact(f"{settings.endpoint} takes none: {refused}"), edit)
    else:
        yield Finding(_SUBJECT, "ok", redact("; ".join(_told(settings, is_taken=network))))


def _told(settings: TelemetrySettings, *, is_taken: bool) -> list[str]:
    sent = f"spans and metrics go to {settings.endpoint}{', which takes them' if is_taken else ''}"
    return [
        *([sent] if settings.endpoint else []),
        *(["chatbot serve answers /metrics"] if settings.prometheus else []),
    ]
