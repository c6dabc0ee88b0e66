"""Conversations: `chat.Chat` takes turns, each a prompt, a model call, its tools, and a receipt."""
