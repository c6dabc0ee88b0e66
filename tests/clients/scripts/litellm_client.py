"""LiteLLM as a client: `openai/` and the name of an identity."""

import asyncio
from typing import Any

import litellm
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


MODEL = "openai/ada"
QUESTION = [{"role": "user", "content": "Which number has the locker at the gym?"}]


async def main() -> None:
    reply: Any = await litellm.acompletion(model=MODEL, messages=QUESTION)
    assert "4711" in reply.choices[0].message.content
    stream: Any = await litellm.acompletion(model=MODEL, messages=QUESTION, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    structured: Any = await litellm.acompletion(model=MODEL, messages=QUESTION, response_format=City)
    City.model_validate_json(structured.choices[0].message.content)
    response: Any = await litellm.aresponses(model=MODEL, input="Tell me a joke.")
    assert response.output


asyncio.run(main())
