"""The official SDK: address and key come from the environment, as its documentation shows."""

import base64
from typing import Any

from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


client = OpenAI()
MODEL = client.models.list().data[0].id
assert client.models.retrieve(MODEL).id == MODEL

completion = client.chat.completions.create(
    model=MODEL,
    messages=[
        {"role": "developer", "content": "Talk like a pirate."},
        {"role": "user", "content": "My locker at the gym has the number 4711, remember that."},
    ],
)
assert completion.choices[0].message.content

stream = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Say this."}], stream=True)
assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)

parsed = client.chat.completions.parse(
    model=MODEL, messages=[{"role": "user", "content": "Which city?"}], response_format=City
)
assert isinstance(parsed.choices[0].message.parsed, City)

tools: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get current temperature for a given location.",
            "parameters": {
                "type": "object",
                "properties": {"location": {"type": "string"}},
                "required": ["location"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]
messages: Any = [{"role": "user", "content": "What is the weather like in Paris today?"}]
asked = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
call = asked.choices[0].message.tool_calls[0]  # type: ignore[index]
messages += [asked.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "14 degrees"}]
answer = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
assert "14 degrees" in str(answer.choices[0].message.content)

image = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
client.responses.create(
    model=MODEL,
    input=[
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "what's in this image?"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{image}", "detail": "auto"},
            ],
        }
    ],
)
response = client.responses.create(model=MODEL, instructions="Be brief.", input="Tell me a joke.")
followed = client.responses.create(model=MODEL, previous_response_id=response.id, input="Explain why it is funny.")
assert "Tell me a joke." in followed.output_text
with client.responses.stream(model=MODEL, input="Which city?", text_format=City) as events:
    for _ in events:
        pass
    assert isinstance(events.get_final_response().output_parsed, City)

recalled = client.chat.completions.create(
    model=MODEL, messages=[{"role": "user", "content": "Which number has the locker at the gym?"}]
)
assert "4711" in str(recalled.choices[0].message.content)
