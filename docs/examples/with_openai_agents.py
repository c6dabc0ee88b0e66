"""OpenAI Agents SDK: a session, the tools of memory, and what is remembered in each prompt."""

import asyncio

from agents import Agent, RunConfig, Runner
from agents.models.interface import Model

from chatbot import open_memory
from chatbot.adapters.openai_agents import MemorySession, recalling, tools


async def turn(folder: str, session_id: str, text: str, model: str | Model = "gpt-5-mini") -> str:
    async with open_memory(folder, user="mia") as memory:
        agent = Agent(name="Ada", instructions="You are a kind assistant.", model=model, tools=[*tools(memory)])
        config = RunConfig(call_model_input_filter=recalling(memory), tracing_disabled=True)
        result = await Runner.run(agent, text, session=MemorySession(memory, session_id), run_config=config)
        return str(result.final_output)


if __name__ == "__main__":
    asyncio.run(turn("./data", "one", "My sister Anna lives in Lisbon."))
    print(asyncio.run(turn("./data", "two", "Where does my sister live?")))
