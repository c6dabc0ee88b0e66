"""Hooks: code that runs around a conversation. `bus.Hooks` calls them in order."""

from chatbot.hooks.hook import Hook, HookContext

__all__ = ["Hook", "HookContext"]
