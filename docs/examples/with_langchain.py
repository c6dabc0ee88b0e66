"""LangChain: a history, and what is remembered in each prompt."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from chatbot import Portal, open_memory
from chatbot.adapters.langchain import MemoryHistory, recalling


def turn(folder: str, session_id: str, text: str, model: BaseChatModel) -> str:
    with Portal() as portal:
        memory = open_memory(folder, user="mia")
        history = MemoryHistory(memory, portal, session_id)
        question = HumanMessage(text)
        reply = model.invoke(portal.run(recalling(memory)([*history.messages, question])))
        history.add_messages([question, reply])
        portal.run(memory.aclose())
        return str(reply.content)
