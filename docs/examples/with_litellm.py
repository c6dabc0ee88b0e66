"""LiteLLM: one callback, and every `acompletion` remembers."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else `import litellm` asks the network for prices
os.environ.setdefault("LITELLM_TELEMETRY", "False")

import asyncio
from typing import Any

import litellm

from chatbot.adapters.litellm import MemoryCallback
from chatbot.embed import open_memory


async def turn(folder: str, text: str, **call: Any) -> str:
    """One turn; a program that goes on opens the memory and sets the callback once."""
    async with open_memory(folder) as memory:
        callback = MemoryCallback(memory, per_user=True)
        litellm.callbacks = [callback]
        reply = await litellm.acompletion(messages=[{"role": "user", "content": text}], user="ada", **call)
        await callback.settled()
        return str(reply.choices[0].message.content)


if __name__ == "__main__":
    asyncio.run(turn("./data", "My sister Anna lives in Lisbon.", model="gpt-5-mini"))
    print(asyncio.run(turn("./data", "Where does my sister live?", model="gpt-5-mini")))
