"""What happens around a conversation: a bus of events, and one file a hook."""

from chatbot.pipeline.hook import Hook, HookContext

__all__ = ["Hook", "HookContext"]
