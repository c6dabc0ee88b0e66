"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra; see docs/embedding.md.

Stored text is fenced in a prompt: in the block of `AgentMemory.context`, and in a file of the memory tool of Anthropic.
LangGraph's store returns its items to your own code as they are.
"""
