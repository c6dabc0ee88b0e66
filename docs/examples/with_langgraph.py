"""LangGraph: an agent whose graph is told what is remembered, and keeps what was said; and a store."""

import sys

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from chatbot import Portal, open_memory
from chatbot.adapters.langchain import MemoryHistory, recalling
from chatbot.adapters.langgraph import MemoryStore


def turn(folder: str, session_id: str, text: str, model: BaseChatModel) -> str:
    with Portal() as portal:
        memory = open_memory(folder, user="mia")
        history = MemoryHistory(memory, portal, session_id)

        def answer(state: MessagesState) -> MessagesState:
            return {"messages": [model.invoke(portal.run(recalling(memory)([*history.messages, *state["messages"]])))]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        said = graph.compile(store=MemoryStore(memory, portal)).invoke({"messages": [HumanMessage(text)]})["messages"]
        history.add_messages(said)
        portal.run(memory.aclose())
        return str(said[-1].content)


def preference(folder: str) -> dict[str, object]:
    """Put an item into a LangGraph store and find it by a question; `compile(store=…)` takes the store."""
    with Portal() as portal:
        memory = open_memory(folder, user="mia")
        store = MemoryStore(memory, portal)
        store.put(("users", "mia"), "food", {"text": "Mia likes figs with goat cheese"})
        [item] = store.search(("users",), query="who likes figs?", limit=1)
        portal.run(memory.aclose())
        return item.value


if __name__ == "__main__":
    print(preference(*sys.argv[1:] or ["./data"]))
