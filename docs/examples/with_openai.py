"""The OpenAI SDK, no framework: recall before the call, record after it."""

import asyncio
from typing import cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from chatbot import open_memory


async def turn(folder: str, user: str, question: str, client: AsyncOpenAI) -> str:
    async with open_memory(folder, user=user) as memory:
        tools = {tool.name: tool for tool in memory.tools()}
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
        context = await memory.context(messages, tokens=2000)
        asked = context.added_to(messages)
        while True:
            completion = await client.chat.completions.create(
                model="gpt-5-mini", messages=asked, tools=[tool.schema for tool in tools.values()]
            )
            message = completion.choices[0].message
            if not message.tool_calls:
                break
            asked.append(cast("ChatCompletionMessageParam", message.to_dict()))
            for call in message.tool_calls:
                if call.type == "function":
                    answer = await tools[call.function.name](call.function.arguments)
                    asked.append({"role": "tool", "tool_call_id": call.id, "content": answer})
        reply = message.content or ""
        await memory.record(user=question, assistant=reply, context=context)
        return reply


if __name__ == "__main__":
    asyncio.run(turn("./data", "mia", "My sister Anna lives in Lisbon.", AsyncOpenAI()))
    print(asyncio.run(turn("./data", "mia", "Where does my sister live?", AsyncOpenAI())))
