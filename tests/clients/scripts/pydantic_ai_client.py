"""pydantic-ai: text, tools, streams, and each way of structured output."""

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel


class City(BaseModel):
    city: str
    people: int


chat = OpenAIChatModel("ada")
agent = Agent(chat, instructions="Be concise, reply with one sentence.")
result = agent.run_sync("Which number has the locker at the gym?")
assert "4711" in result.output
again = agent.run_sync("And again?", message_history=result.all_messages())
assert again.output

for model in (chat, OpenAIResponsesModel("ada")):
    for output in (City, ToolOutput(City), NativeOutput(City), PromptedOutput(City)):
        structured = Agent(model, output_type=output)
        assert isinstance(structured.run_sync("Where were the olympics held in 2012?").output, City)

rolling = Agent(chat, deps_type=str)


@rolling.tool
def player_name(context: RunContext[str]) -> str:
    """Get the player's name."""
    return context.deps


assert "Anne" in rolling.run_sync("My guess is 4", deps="Anne").output


async def main() -> None:
    async with agent.run_stream("Where does hello world come from?") as stream:
        assert "".join([text async for text in stream.stream_text(delta=True)])


asyncio.run(main())
