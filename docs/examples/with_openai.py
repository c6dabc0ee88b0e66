"""The OpenAI SDK, no framework: recall before the call, record after it."""

import asyncio

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from chatbot.embed import open_memory


async def turn(folder: str, user: str, question: str, client: AsyncOpenAI) -> str:
    async with open_memory(folder, user=user) as memory:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
        context = await memory.context(messages, tokens=2000)
        completion = await client.chat.completions.create(
            model="gpt-5-mini",
            messages=context.added_to(messages),
            tools=[tool.schema for tool in memory.tools()],
        )
        reply = completion.choices[0].message.content or ""
        await memory.record(user=question, assistant=reply, context=context)
        return reply


if __name__ == "__main__":
    asyncio.run(turn("./data", "ada", "My sister Anna lives in Lisbon.", AsyncOpenAI()))
    print(asyncio.run(turn("./data", "ada", "Where does my sister live?", AsyncOpenAI())))
