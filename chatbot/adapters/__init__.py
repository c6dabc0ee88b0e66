"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra; see docs/embedding.md."""
