"""Hooks: code that runs around a conversation. One file a hook; `bus` calls them in order."""

from chatbot.hooks.hook import Hook, HookContext

__all__ = ["Hook", "HookContext"]
