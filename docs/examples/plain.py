"""Any model, no framework: recall before the call, record after it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from chatbot import open_memory

Ask = Callable[[Sequence[Mapping[str, Any]]], Awaitable[str]]


async def turn(folder: str, user: str, question: str, ask: Ask) -> str:
    async with open_memory(folder, user=user) as memory:
        messages = [{"role": "user", "content": question}]
        context = await memory.context(messages, tokens=2000)
        reply = await ask(context.added_to(messages))
        await memory.record(user=question, assistant=reply, context=context)
        return reply


async def echo(messages: Sequence[Mapping[str, Any]]) -> str:
    """Stand in for a model: say what was recalled."""
    return "I was told: " + " / ".join(str(each["content"]) for each in messages[:-1])


if __name__ == "__main__":
    asyncio.run(turn("./data", "mia", "My sister Anna lives in Lisbon.", echo))
    print(asyncio.run(turn("./data", "mia", "Where does my sister live?", echo)))
