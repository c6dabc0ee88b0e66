"""The redactor, as memory uses it: `chatbot.redaction` holds it for every part."""

from chatbot.redaction import redact, redact_all

__all__ = ["redact", "redact_all"]
