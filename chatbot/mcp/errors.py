"""Errors in MCP form: the one place that knows its codes, and what a client must not see."""

from __future__ import annotations

import logging

from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from chatbot.errors import ChatbotError, DamagedSession, SessionError, ToolError
from chatbot.stores.errors import (
    AccessDenied,
    ConflictingChange,
    InvalidValue,
    StoreBusy,
    StoreError,
    UnknownObservation,
    UnsupportedOperation,
)

logger = logging.getLogger(__name__)

UNTOLD = "the memory cannot be used just now: the server's standard error says why"

_CODES: dict[type[Exception], int] = {
    ToolError: INVALID_PARAMS,
    SessionError: INVALID_PARAMS,
    DamagedSession: INTERNAL_ERROR,
    AccessDenied: INVALID_PARAMS,
    ConflictingChange: INVALID_PARAMS,
    InvalidValue: INVALID_PARAMS,
    StoreBusy: INVALID_PARAMS,
    UnknownObservation: INVALID_PARAMS,
    UnsupportedOperation: INVALID_PARAMS,
    ChatbotError: INTERNAL_ERROR,
    StoreError: INTERNAL_ERROR,
}


def code_of(error: Exception) -> int:
    """The code for an error: that of the nearest class which has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), INTERNAL_ERROR)


def told(error: Exception) -> str:
    """Return the message for the client: ours if the client can act on it, and never a path or a trace."""
    if code_of(error) == INVALID_PARAMS:
        return str(error)
    logger.error("a call failed: %s", error, exc_info=None if isinstance(error, ChatbotError | StoreError) else error)
    return UNTOLD
