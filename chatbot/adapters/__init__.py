"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra.

    pip install "chatbot-runtime[openai-agents]"    chatbot.adapters.openai_agents
    pip install "chatbot-runtime[langchain]"        chatbot.adapters.langchain
    pip install "chatbot-runtime[langgraph]"        chatbot.adapters.langgraph
    pip install "chatbot-runtime[pydantic-ai]"      chatbot.adapters.pydantic_ai
    pip install "chatbot-runtime[anthropic]"        chatbot.adapters.anthropic
    pip install "chatbot-runtime"                   chatbot.adapters.litellm

What an adapter puts into a prompt is the block of `AgentMemory.context`, so stored text stays inside its fence.
"""
