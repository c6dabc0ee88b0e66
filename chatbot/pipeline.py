"""The former place of `chatbot.hooks`: hook plug-ins that import `Hook` and `HookContext` from here still load."""

from chatbot.hooks import Hook, HookContext

__all__ = ["Hook", "HookContext"]
