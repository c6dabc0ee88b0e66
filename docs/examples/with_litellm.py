"""LiteLLM: one callback, and every `acompletion` remembers."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else `import litellm` asks the network for prices

import asyncio
from typing import Any

import litellm

from chatbot import open_memory
from chatbot.adapters.litellm import MemoryCallback


async def talk(folder: str, texts: list[str], **call: Any) -> list[str]:
    """A few turns. A process sets the callback once: LiteLLM ignores a second one of the same class."""
    replies: list[str] = []
    async with open_memory(folder) as memory:
        callback = MemoryCallback(memory, per_user=True)
        litellm.callbacks = [callback]
        for text in texts:
            reply = await litellm.acompletion(messages=[{"role": "user", "content": text}], user="mia", **call)
            assert isinstance(reply, litellm.ModelResponse)  # a stream only with stream=True
            await callback.settled()
            replies.append(str(reply.choices[0].message.content))
    return replies


if __name__ == "__main__":
    said = ["My sister Anna lives in Lisbon.", "Where does my sister live?"]
    print(asyncio.run(talk("./data", said, model="gpt-5-mini")))
