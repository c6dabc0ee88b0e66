"""LangChain, and LangGraph's agents: a chat history, memory tools, and a step that adds memories to messages."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    convert_to_messages,
    convert_to_openai_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.tools import StructuredTool

from chatbot.adapters import ContextOfRuns
from chatbot.chat.dialogue import ASSISTANT, USER
from chatbot.embed import AgentMemory, MemoryTool, Portal, checked, entry_of, item_of, text_of
from chatbot.memory import SessionHandle
from chatbot.stores.records import check_text, check_type

Result = TypeVar("Result")
_SPEAKERS: dict[str, type[HumanMessage | AIMessage]] = {USER: HumanMessage, ASSISTANT: AIMessage}


class MemoryHistory(BaseChatMessageHistory):
    """LangChain's chat history over a session of ours, which remembers each exchange."""

    def __init__(self, memory: AgentMemory, portal: Portal, session_id: str) -> None:
        self._memory = checked(memory)
        self._portal = check_type(portal, Portal, "portal")
        self._session_id = check_text(session_id, "session_id")

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # an attribute in the base class
        """All messages, oldest first."""
        entries = self._run(lambda session: session.transcript_read_all())
        return [message for entry in entries if (message := _message(item_of(entry))) is not None]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, and remember the exchanges that they complete. Durable on return."""
        items = [{**_as_openai(each), "langchain": message_to_dict(each)} for each in messages]
        self._run(lambda session: self._memory.append(session, map(entry_of, items)))

    def clear(self) -> None:
        """Remove every message. Memories of them stay."""
        self._run(lambda session: session.transcript_clear())

    def _run(self, work: Callable[[SessionHandle], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            return await work(await self._memory.session(self._session_id))

        return self._portal.run(run())


def recalling(
    memory: AgentMemory, *, tokens: int = 2000, rows: int = 5
) -> Callable[[LanguageModelInput], Coroutine[Any, Any, list[BaseMessage]]]:
    """Return a function from a chat model's input to messages that adds the memory block before the last question."""
    contexts = ContextOfRuns(tokens=tokens, rows=rows)
    checked(memory)

    async def add(prompt: LanguageModelInput) -> list[BaseMessage]:
        messages = convert_to_messages([prompt] if isinstance(prompt, str) else prompt)
        context = await contexts.of(memory, [_as_openai(each) for each in messages])
        last = max((at for at, each in enumerate(messages) if isinstance(each, HumanMessage)), default=len(messages))
        block = [HumanMessage(context.text)] if context.text else []
        return [*messages[:last], *block, *messages[last:]]

    return add


def tools(memory: AgentMemory, portal: Portal) -> list[StructuredTool]:
    """Return the memory tools."""
    return [_tool(each, portal) for each in checked(memory).tools()]


def _tool(tool: MemoryTool, portal: Portal) -> StructuredTool:
    async def call(**arguments: Any) -> str:
        return await tool(arguments)

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        coroutine=call,
        func=lambda **arguments: portal.run(call(**arguments)),
    )


def _as_openai(message: BaseMessage) -> dict[str, Any]:
    try:
        return dict(convert_to_openai_messages(message))
    except ValueError:  # it has provider-specific parts
        role = next((role for role, kind in _SPEAKERS.items() if isinstance(message, kind)), message.type)
        return {"role": role, "content": str(message.text)}


def _message(item: dict[str, Any]) -> BaseMessage | None:
    """Return the message of an entry, even if it was written by hand or elsewhere; None if it is not a message."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        return messages_from_dict([item["langchain"]])[0]
    kind = _SPEAKERS.get(str(item.get("role")))
    return kind(text_of(item.get("content"))) if kind else None
