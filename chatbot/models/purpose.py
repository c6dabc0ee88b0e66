"""What the next model call of a task is for: whoever calls says it, and who watches calls reads it."""

from __future__ import annotations

from contextvars import ContextVar

purpose: ContextVar[str] = ContextVar("purpose", default="")
