"""LangGraph: an agent whose graph is told what is remembered, and keeps what was said."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from chatbot.adapters.langchain import MemoryHistory, recalling
from chatbot.adapters.langgraph import MemoryStore
from chatbot.embed import Portal, open_memory


def turn(folder: str, session_id: str, text: str, model: BaseChatModel) -> str:
    with Portal() as portal:
        memory = open_memory(folder, user="ada")
        history = MemoryHistory(memory, portal, session_id)

        def answer(state: MessagesState) -> MessagesState:
            return {"messages": [model.invoke(portal.run(recalling(memory)([*history.messages, *state["messages"]])))]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        said = graph.compile(store=MemoryStore(memory, portal)).invoke({"messages": [HumanMessage(text)]})["messages"]
        history.add_messages(said)
        portal.run(memory.aclose())
        return str(said[-1].content)
