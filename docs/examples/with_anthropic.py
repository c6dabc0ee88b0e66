"""Anthropic: Claude's memory tool over our memories."""

import asyncio

from anthropic import AsyncAnthropic

from chatbot import open_memory
from chatbot.adapters.anthropic import MemoryFiles


async def turn(folder: str, text: str, client: AsyncAnthropic, model: str = "claude-sonnet-5-5") -> str:
    async with open_memory(folder, user="mia") as memory:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=1000,
            messages=[{"role": "user", "content": text}],
            tools=[MemoryFiles(memory)],
            betas=["context-management-2025-06-27"],
            max_iterations=20,  # by default it goes on for as long as the model calls tools
        )
        message = await runner.until_done()
        return "".join(block.text for block in message.content if block.type == "text")


if __name__ == "__main__":
    print(asyncio.run(turn("./data", "Remember that my sister Anna lives in Lisbon.", AsyncAnthropic())))
