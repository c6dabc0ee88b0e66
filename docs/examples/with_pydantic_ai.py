"""pydantic-ai: a history processor, a toolset, and keeping what a run said."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models import Model

from chatbot import open_memory
from chatbot.adapters.pydantic_ai import recalling, record, toolset


async def turn(folder: str, text: str, model: str | Model = "openai:gpt-5-mini") -> str:
    async with open_memory(folder, user="mia") as memory:
        history = ProcessHistory[object](recalling(memory))
        agent = Agent(model, toolsets=[toolset(memory)], capabilities=[history])
        result = await agent.run(text)
        await record(memory, result.new_messages())
        return result.output


if __name__ == "__main__":
    asyncio.run(turn("./data", "My sister Anna lives in Lisbon."))
    print(asyncio.run(turn("./data", "Where does my sister live?")))
