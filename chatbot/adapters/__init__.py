"""Adapters of `chatbot.embed` for other frameworks, one file each, with its extra.

    pip install "chatbot-runtime[openai-agents]"    chatbot.adapters.openai_agents
    pip install "chatbot-runtime[langchain]"        chatbot.adapters.langchain
    pip install "chatbot-runtime[langgraph]"        chatbot.adapters.langgraph
    pip install "chatbot-runtime[pydantic-ai]"      chatbot.adapters.pydantic_ai
    pip install "chatbot-runtime[anthropic]"        chatbot.adapters.anthropic
    pip install "chatbot-runtime"                   chatbot.adapters.litellm

Stored text is fenced in a prompt: in the block of `AgentMemory.context`, and in a file of the memory tool of Anthropic.
LangGraph's store returns its items to your own code as they are.
"""
