"""The OpenAI Agents SDK: its default model speaks responses; sessions of its own send the whole history."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(disabled=True)


class City(BaseModel):
    name: str
    people: int


@function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"The weather in {city} is sunny."


async def main() -> None:
    plain = Agent(name="Assistant", instructions="Reply very concisely.", model="ada")
    first = await Runner.run(plain, "Which number has the locker at the gym?")
    assert "4711" in first.final_output
    followed = await Runner.run(plain, "And again?", previous_response_id=first.last_response_id)
    assert "locker" in followed.final_output
    session = SQLiteSession("one")
    await Runner.run(plain, "What city is the Golden Gate Bridge in?", session=session)
    assert "Golden Gate" in (await Runner.run(plain, "What state is it in?", session=session)).final_output
    chat = OpenAIChatCompletionsModel(model="ada", openai_client=AsyncOpenAI())
    for model in ("ada", chat):
        helper = Agent(name="Helper", instructions="Help.", model=model, tools=[get_weather])
        assert "sunny" in (await Runner.run(helper, "What's the weather in Tokyo?")).final_output
        typed = Agent(name="Typed", instructions="Extract.", model=model, output_type=City)
        assert isinstance((await Runner.run(typed, "Oslo has 700,000 people.")).final_output, City)
        streamed = Runner.run_streamed(plain, "Tell me a joke.")
        assert [event async for event in streamed.stream_events()]


asyncio.run(main())
